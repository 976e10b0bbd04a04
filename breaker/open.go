package breaker

import (
	"math"
	"time"
)

// Open: nobody calls until Until.
type Open struct {
	// At is when it opened.
	At time.Time
	// Until is when it begins to probe.
	Until time.Time
}

// Name returns "open".
func (Open) Name() string { return "open" }

func (o Open) step(t *tick, s *State) (Phase, string) {
	if t.sample.Held.Until.After(o.Until) {
		o.Until = t.sample.Held.Until
	}
	if t.now.Before(o.Until) {
		return o, ""
	}
	return HalfOpen{At: t.now}, "time to probe"
}

// open returns an open breaker and counts the opening: for
// min(Longest, First·2^k), with jitter, or as long as the provider asked for.
func (t *tick) open(s *State) Open {
	o := t.cfg.Opening
	d := min(o.Longest.Seconds(), o.First.Seconds()*math.Exp2(float64(min(s.Openings, 30))))
	d *= 1 - o.Jitter + 2*o.Jitter*min(1, max(0, t.sample.Chance))
	s.Openings++
	until := t.now.Add(time.Duration(d * float64(time.Second)).Truncate(time.Microsecond))
	if t.sample.Held.Until.After(until) {
		until = t.sample.Held.Until
	}
	return Open{At: t.now, Until: until}
}
