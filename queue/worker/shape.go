package worker

import (
	"strings"
)

// kind is one of asynq's scripts that the wrapped client answers itself.
type kind uint8

const (
	other       kind = iota // passed through
	dequeue                 // RDB.Dequeue
	done                    // RDB.Done, without and with a unique lock
	complete                // RDB.MarkAsComplete, without and with a unique lock
	retry                   // RDB.Retry
	archive                 // RDB.Archive
	requeue                 // RDB.Requeue
	expiredList             // RDB.ListLeaseExpired, the recoverer's
	forward                 // RDB.ForwardIfReady, the forwarder's
)

// String names the kind as asynq's source does.
func (k kind) String() string {
	names := []string{"other", "dequeue", "done", "complete", "retry", "archive", "requeue", "listLeaseExpired", "forward"}
	if int(k) < len(names) {
		return names[k]
	}
	return "unknown"
}

// shape is what a script of asynq v0.26.0 looks like from outside: its SHA-1,
// which is its whole text, and the ends of its keys. A new text, even with the
// same keys, is another script.
type shape struct {
	kind kind
	sha  string
	keys []string // "t:" and the like match as a part, the others as the end
	args int
}

// shapes lists every script that is answered here. TestShapes compares it with
// the asynq in go.mod; when an upgrade changes one, read what changed and bring
// take.lua or settle.lua up to it before the new SHA-1 is written down here.
func shapes() []shape {
	return []shape{
		{dequeue, "a8153319360adc71cdc370107f8ab9786f204765", []string{":pending", ":paused", ":active", ":lease"}, 2},
		{done, "1241eaa1c73409baaf1fea0c08d203a4911bda15", []string{":active", ":lease", ":t:", ":processed:", ":processed"}, 3},
		{done, "a2631c71357a54b4c3e7450b1757e7f3f49d6c81", []string{":active", ":lease", ":t:", ":processed:", ":processed", ":unique:"}, 3},
		{complete, "117dca952700588e559c7ace20b925096d587974", []string{":active", ":lease", ":completed", ":t:", ":processed:", ":processed"}, 5},
		{complete, "ce6833ccce362a8c0ee53beee413341daf52e39c", []string{":active", ":lease", ":completed", ":t:", ":processed:", ":processed", ":unique:"}, 5},
		{retry, "65fa409c88198a681c53e0892d8276eca0145694", []string{":t:", ":active", ":lease", ":retry", ":processed:", ":failed:", ":processed", ":failed"}, 6},
		{archive, "9c3b1eb9947ce2ee5304ac013a0a365ec364fd2d", []string{":t:", ":active", ":lease", ":archived", ":processed:", ":failed:", ":processed", ":failed", ":t:"}, 7},
		{requeue, "f34cbfd11d1fc8019af55b50c447fc68eb8b29e5", []string{":active", ":lease", ":pending", ":t:"}, 1},
		{expiredList, "16988a462595f6ee317be300951533b004f27f5c", []string{":lease"}, 2},
		{forward, "522b1a6ae66fe79ea2f24a9af58798ab71879035", []string{":scheduled", ":pending"}, 4},
		{forward, "522b1a6ae66fe79ea2f24a9af58798ab71879035", []string{":retry", ":pending"}, 4},
	}
}

// fits reports whether a call has this shape.
func (s shape) fits(sha string, keys []string, args int) bool {
	if s.sha != sha || len(s.keys) != len(keys) || s.args != args {
		return false
	}
	for i, end := range s.keys {
		part := strings.HasSuffix(end, ":")
		if part && !strings.Contains(keys[i], end) || !part && !strings.HasSuffix(keys[i], end) {
			return false
		}
	}
	return true
}

// recognise says which of asynq's scripts a call is.
func recognise(known []shape, sha string, keys []string, args int) kind {
	for _, s := range known {
		if s.fits(sha, keys, args) {
			return s.kind
		}
	}
	return other
}
