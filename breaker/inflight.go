package breaker

import (
	"math"
	"time"
)

// fit sets L, the calls in flight, by the gradient of the latency (after
// Netflix's Gradient2 and Envoy's adaptive concurrency). Latency never moves
// the rate: a call that holds its place for longer slows the next one by itself.
//
// Only successes are latency samples. A law that takes timeouts for latency
// sees a constant one, and no gradient; one that leaves them out sees nothing
// at all: hence the stall.
func (s *State) fit(t *tick) {
	l := t.cfg.Latency
	_, lat := t.window(l.Window, s.Since)
	g, known := 1.0, lat.N() >= l.Calls
	if known {
		s.Latency.P50 = lat.Quantile(0.5).Truncate(time.Microsecond)
		if low := s.Latency.Low(); low > 0 && s.Latency.P50 > 0 {
			g = min(1, max(l.GradientMin, l.Ratio*float64(low)/float64(s.Latency.P50)))
		}
		// Congested, the median is not the provider's own; at the floor it is.
		if !s.troubled() && (g == 1 || s.inFlight(t) <= t.leastInFlight()) {
			s.Latency.learn(t.now)
		}
	}
	if s.stalled(t) {
		g, known = l.GradientMin, true
	}
	switch cur := s.inFlight(t); {
	case !known || cur <= 0:
	case g < 1:
		s.InFlight = max(t.leastInFlight(), cur*math.Pow(1-l.Weight+l.Weight*g, t.ticks()))
	case s.InFlight <= 0:
	case float64(t.sample.InFlight) >= l.Used*cur:
		s.InFlight = cur + l.Growth*math.Sqrt(cur)*t.ticks()
	case t.cfg.Concurrency <= 0:
		s.InFlight = 0
	}
	if top := float64(t.cfg.Concurrency); top > 0 && s.InFlight >= top {
		s.InFlight = 0
	}
}

// inFlight returns L as a number: what is in flight where nothing limits it yet.
func (s *State) inFlight(t *tick) float64 {
	switch {
	case s.InFlight > 0:
		return s.InFlight
	case t.cfg.Concurrency > 0:
		return float64(t.cfg.Concurrency)
	}
	return float64(t.sample.InFlight)
}

// leastInFlight is as low as latency goes: a provider that is merely slow must
// not be starved.
func (t *tick) leastInFlight() float64 {
	least := max(float64(t.cfg.Latency.FloorCalls), t.cfg.Latency.FloorShare*float64(t.cfg.Concurrency))
	if t.cfg.Concurrency > 0 {
		least = min(least, float64(t.cfg.Concurrency))
	}
	return least
}

// stalled reports whether calls fill their places and none comes back.
func (s *State) stalled(t *tick) bool {
	l := t.cfg.Latency
	if s.Latency.P50 <= 0 {
		return false
	}
	wait := max(l.Stall, time.Duration(l.StallLatencies*float64(s.Latency.P50)))
	if wait > t.cfg.Window {
		return false // the sample does not reach back so far; such a provider's deadlines are near enough
	}
	late, old := t.now.Add(-wait), t.sample.InFlight
	for _, b := range t.buckets {
		if b.At.Add(t.cfg.Tick).After(late) {
			if b.Returned()+b.Excluded > 0 {
				return false
			}
			old -= b.Starts
		}
	}
	full := l.Used * s.inFlight(t)
	return float64(old) >= full && old >= t.cfg.Latency.FloorCalls
}

// learn takes the median as one of this minute.
func (b *Baseline) learn(now time.Time) {
	minute := now.Unix() / 60
	if gone := minute - b.Minute; gone > 0 {
		n := int(min(gone, int64(len(b.Lows))))
		copy(b.Lows[n:], b.Lows[:len(b.Lows)-n])
		clear(b.Lows[:n])
		b.Minute = minute
	}
	if b.Lows[0] == 0 || b.P50 < b.Lows[0] {
		b.Lows[0] = b.P50
	}
}
