package limithttp

import (
	"sync"
	"time"
)

// maxBlocks is how many blocked clients a process remembers.
const maxBlocks = 100_000

// blocks remembers who is blocked, so that a blocked client costs no question
// to the store. Another process learns of a block with its own first refusal
// of that client.
type blocks struct {
	mu    sync.Mutex
	until map[[2]string]time.Time
}

func newBlocks() *blocks { return &blocks{until: map[[2]string]time.Time{}} }

// left is how long a client is still blocked.
func (b *blocks) left(rule, key string, now time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	k := [2]string{rule, key}
	t, ok := b.until[k]
	if !ok {
		return 0
	}
	if d := t.Sub(now); d > 0 {
		return d
	}
	delete(b.until, k)
	return 0
}

func (b *blocks) set(rule, key string, now time.Time, d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.until) >= maxBlocks {
		for k, t := range b.until {
			if !t.After(now) {
				delete(b.until, k)
			}
		}
		for k := range b.until { // full of blocked ones: forget some
			if len(b.until) < maxBlocks {
				break
			}
			delete(b.until, k)
		}
	}
	b.until[[2]string{rule, key}] = now.Add(d)
}
