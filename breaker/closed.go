package breaker

import (
	"fmt"
	"math"
	"time"
)

// Closed: calls go, at the rate that the law finds. The zero value is a closed
// breaker without a slow start.
type Closed struct {
	// For is how long it has been closed.
	For time.Duration
	// Ramp is the slow start after an opening. Zero: there is none.
	Ramp Ramp
}

// Ramp is R_ss, which doubles until it limits nothing any more.
type Ramp struct {
	// Rate now, in calls a second. Zero: no slow start.
	Rate float64
}

// Name returns "closed".
func (Closed) Name() string { return "closed" }

func (c Closed) step(t *tick, s *State) (Phase, string) {
	if reason := t.beyondHope(s); reason != "" {
		s.remember(t)
		return t.open(s), reason
	}
	if t.held() && t.sample.Held.Capped {
		s.remember(t)
		return HalfOpen{At: t.now}, "the provider asked for a wait beyond the longest"
	}
	c.For = t.forget(s, c.For)
	c.Ramp.step(t, s)
	s.Phase = c
	if s.cut(t) {
		c.Ramp = Ramp{}
		s.Phase = c
	} else {
		s.grow(t)
	}
	s.shed(t)
	s.fit(t)
	return c, ""
}

// forget counts for how long it has been closed, and openings down: one where
// the closing held for as long as the first opening lasts (else it is one more
// turn of the flapping), all after Forget.
func (t *tick) forget(s *State, before time.Duration) time.Duration {
	o, now := t.cfg.Opening, before+t.dt
	if before < o.First && now >= o.First {
		s.Openings = max(0, s.Openings-1)
	}
	if now >= o.Forget {
		s.Openings = 0
	}
	return now
}

// beyondHope says why the breaker must open, "" where it must not.
func (t *tick) beyondHope(s *State) string {
	o := t.cfg.Opening
	c, _ := t.window(t.cfg.Window, s.Since)
	if c.Judged() >= o.Calls && WilsonLower(c.Bad(), c.Judged(), o.Confidence) >= o.Share {
		return fmt.Sprintf("%d of %d calls failed", c.Bad(), c.Judged())
	}
	if t.sample.Row.Since != s.Since {
		return ""
	}
	row := o.Row
	if max(s.Trouble.Rate, t.measured())*t.cfg.Window.Seconds() < float64(o.SlowCalls) {
		row = o.RowSlow
	}
	if t.sample.Row.Failures >= row {
		return fmt.Sprintf("%d calls failed in a row", t.sample.Row.Failures)
	}
	return ""
}

// begin returns the slow start after a closing: from a share of the rate
// before the trouble.
func (t *tick) begin(s *State) Ramp {
	from := min(s.ceiling(), t.cfg.rate())
	if s.Trouble.Rate > 0 {
		from = min(from, s.Trouble.Rate)
	}
	if math.IsInf(from, 1) {
		return Ramp{}
	}
	return Ramp{Rate: max(t.cfg.floor(), t.cfg.SlowStart.From*from)}
}

// step doubles the ramp. It is gone once at C; where nothing else limits the
// rate, once the traffic does not use half of it.
func (r *Ramp) step(t *tick, s *State) {
	if r.Rate <= 0 {
		return
	}
	r.Rate *= math.Exp2(t.dt.Seconds() / t.cfg.SlowStart.Double.Seconds())
	top := min(s.ceiling(), t.cfg.rate())
	if r.Rate >= top || math.IsInf(top, 1) && r.Rate > s.Trouble.Rate && r.Rate > 2*t.measured() {
		r.Rate = 0
	}
}
