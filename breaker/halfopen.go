package breaker

import "time"

// HalfOpen: one probe at a time over the whole fleet.
type HalfOpen struct {
	// At is when probing began.
	At time.Time
	// Good is how many probes succeeded, Last the bucket of the newest of them.
	Good int
	Last time.Time
}

// Name returns "half_open".
func (HalfOpen) Name() string { return "half_open" }

func (h HalfOpen) step(t *tick, s *State) (Phase, string) {
	c, _ := t.window(max(t.cfg.Window, t.cfg.StretchMax), s.Since)
	switch lost := t.sample.Probe; {
	case c.Bad() > 0:
		return t.open(s), "a probe failed"
	case c.Throttled > 0:
		return t.open(s), "a probe was refused"
	case lost.Generation >= s.Since && !lost.Until.IsZero() && !t.now.Before(lost.Until):
		return t.open(s), "a probe was lost"
	}
	h.count(t, s.Since)
	if h.Good < t.cfg.Probing.Successes {
		return h, ""
	}
	s.Factor = 0
	return Closed{Ramp: t.begin(s)}, "the probes were good"
}

// count adds the successes that came back since the last step and at least
// Apart from the one before: three answers at once are one sign of life.
func (h *HalfOpen) count(t *tick, since uint64) {
	for _, b := range t.buckets {
		if b.OK == 0 || b.Generation < since || b.At.After(t.now) {
			continue
		}
		if h.Good == 0 || b.At.Sub(h.Last) >= t.cfg.Probing.Apart {
			h.Good, h.Last = h.Good+1, b.At
		}
	}
}
