package worker

import (
	"sync"
	"time"

	"github.com/penstock-io/penstock/queue/internal/layout"
)

// laneLetter is how the scripts name a priority.
func laneLetter(p layout.Priority) string {
	switch p {
	case layout.High:
		return "h"
	case layout.Low:
		return "l"
	}
	return "d"
}

// clock translates Redis TIME into ours. The zero value is unset.
type clock struct {
	mu  sync.Mutex
	off time.Duration // Redis TIME minus our clock
}

// set notes that Redis said ms just now.
func (c *clock) set(ms int64) {
	c.mu.Lock()
	c.off = time.Until(time.UnixMilli(ms))
	c.mu.Unlock()
}

// ms is what Redis TIME is now, as far as we know.
func (c *clock) ms() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Add(c.off).UnixMilli()
}

// at is the moment of our clock at which Redis TIME will be ms.
func (c *clock) at(ms int64) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.UnixMilli(ms).Add(-c.off)
}
