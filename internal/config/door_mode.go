package config

import (
	"strings"
	"time"

	"github.com/penstock-io/penstock/shaper"
)

// mode reads enforce, shadow or "canary 10%".
func (r *doorReader) mode(o *object, rule *DoorRule) {
	rule.Mode = ModeEnforce
	s, ok := r.scalar(o.field("mode"))
	if !ok {
		return
	}
	word, share, _ := strings.Cut(s.text, " ")
	percent, isShare := parseShare(share, 0)
	switch {
	case s.text == ModeEnforce, s.text == ModeShadow:
		rule.Mode = s.text
	case word == ModeCanary && isShare && percent < 100:
		rule.Mode, rule.Canary = ModeCanary, percent
	case word == ModeCanary:
		o.fault("mode", "canary needs the share of clients that it is enforced for, above 0%% and below 100%%, like canary 10%%; not %s", s.shown)
	default:
		o.fault("mode", "must be enforce, shadow or canary 10%%, not %s", s.shown)
	}
}

// away reads open, closed or "local_share 25%".
func (r *doorReader) away(o *object, rule *DoorRule) {
	rule.Away.Mode = shaper.FailOpen
	s, ok := r.scalar(o.field("when_store_away"))
	if !ok {
		return
	}
	word, share, _ := strings.Cut(s.text, " ")
	percent, isShare := parseShare(share, 0)
	switch {
	case s.text == "open":
	case s.text == "closed":
		rule.Away.Mode = shaper.FailClosed
	case word == "local_share" && isShare:
		rule.Away = shaper.Away{Mode: shaper.LocalShare, Share: percent / 100}
	case word == "local_share":
		o.fault("when_store_away", "local_share needs the share of the limit that each process gives out by itself: 100%% divided by the processes, like local_share 25%%; not %s", s.shown)
	default:
		o.fault("when_store_away", "must be open (all pass), closed (none does) or local_share 25%%, not %s", s.shown)
	}
}

// escalation reads when a client is blocked.
func (r *doorReader) escalation(o *object, rule *DoorRule) {
	if !o.has("escalation") || o.field("escalation").node == nil {
		return
	}
	t := r.object(o.field("escalation"), "door.rules.escalation", "strikes", "within", "block", "longest", "quiet")
	t.line = o.at("escalation")
	before := len(r.faults)
	e := &rule.Escalation
	if !t.has("strikes") {
		t.fault("strikes", "is missing; it is how many refusals block a client, like 20")
	}
	n := 0
	t.whole("strikes", &n, 1, 1_000_000)
	e.Strikes = int64(n)
	t.duration("within", &e.Within, time.Second, shaper.MaxPeriod)
	t.duration("block", &e.Block, time.Second, shaper.MaxPeriod)
	t.duration("longest", &e.Longest, time.Second, shaper.MaxPeriod)
	t.duration("quiet", &e.Quiet, time.Second, shaper.MaxPeriod)
	if len(r.faults) > before {
		return
	}
	if n := e.Normal(); n.Block > n.Longest {
		t.fault(pick(t, "block", "longest"), "the first block (%s) is longer than the longest (%s)", FormatDuration(n.Block), FormatDuration(n.Longest))
	}
	*e = e.Normal()
}
