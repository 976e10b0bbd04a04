package breaker

import (
	"cmp"
	"slices"
	"time"
)

// longestTick bounds the time that one step stands for: after a pause, or a
// step of the clock, nothing grows for the time in which nobody looked.
const longestTick = time.Second

// tick is what one step sees.
type tick struct {
	now     time.Time
	dt      time.Duration
	cfg     Config
	sample  Sample
	buckets []Bucket
}

// Step returns the state that follows s at now, when sample was seen. It is a
// pure function: the same arguments give the same state, and neither s nor
// sample is changed.
//
// It is called every Config.Tick for a provider with traffic, with waiting
// jobs, or with a state not at rest; a call more or less does no harm. Where
// now lies before s.Ticked, the store's clock was set back, and every time in
// s moves with it.
func Step(now time.Time, s State, sample Sample, cfg Config) State {
	now = now.Truncate(time.Microsecond) // what a record can hold
	t := &tick{now: now, cfg: cfg.Normal(), sample: sample, buckets: ordered(sample.Buckets)}
	if !s.Ticked.IsZero() {
		t.dt = now.Sub(s.Ticked)
		if t.dt < 0 {
			s.shift(t.dt)
			t.dt = 0
		}
		t.dt = min(t.dt, longestTick)
	}
	s.Ticked = now
	s.Phase = s.phase()
	if next, reason := s.Phase.step(t, &s); reason != "" {
		s.enter(next, now, reason)
	} else {
		s.Phase = next
	}
	return s
}

// ordered returns buckets by time, oldest first; the argument is not changed.
func ordered(buckets []Bucket) []Bucket {
	byTime := func(a, b Bucket) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Generation, b.Generation))
	}
	if slices.IsSortedFunc(buckets, byTime) {
		return buckets
	}
	return slices.SortedStableFunc(slices.Values(buckets), byTime)
}

// ticks returns how many ticks the step stands for.
func (t *tick) ticks() float64 { return t.dt.Seconds() / t.cfg.Tick.Seconds() }

// held reports whether the provider asked everybody to wait until later.
func (t *tick) held() bool { return t.sample.Held.Until.After(t.now) }
