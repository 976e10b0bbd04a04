package breaker

import (
	"fmt"
	"math"
)

// leastFactor keeps f a number above 0; Config.FloorShare limits R long before.
const leastFactor = 0.001

// shed sets f, the share of the rate that the ratio of failures leaves. It is
// proportional to what is seen and remembers nothing, so a harmless steady
// ratio costs its share once and no more. γ = 1 is the law of Google's SRE book
// (chapter 21), Envoy's admission control and failsafe-go at 0.95; 2 is steeper.
func (s *State) shed(t *tick) {
	l, f := t.cfg.Failures, s.factor()
	c, _ := t.window(t.cfg.Window, s.Since)
	target := 1.0
	if c.Judged() >= l.Calls && WilsonLower(c.Bad(), c.Judged(), l.Confidence) > l.Tolerated {
		e := float64(c.Bad()) / float64(c.Judged()+l.Cushion)
		target = max(leastFactor, min(1, math.Pow((1-e)/(1-l.Tolerated), l.Power)))
	}
	was := f
	switch {
	case target < f-l.Fall:
		f = target
		s.remember(t)
	case target > f:
		f = min(target, f+l.Rise*t.ticks())
	}
	s.Factor = f
	switch {
	case f < 1 && was == 1:
		s.Trouble.Ratio = float64(c.Bad()) / float64(c.Judged())
		s.note(t.now, fmt.Sprintf("%d of %d calls failed", c.Bad(), c.Judged()))
	case f == 1 && was < 1:
		s.note(t.now, "the failures are over")
	}
	s.widen(t, c)
	s.rest(t)
}

// widen lets R_ref grow where all of the rate is used and the failures are no
// more frequent than when they began: else what the traffic was at that moment
// (at night, or at the start) would bind for as long as some calls fail.
func (s *State) widen(t *tick, c Counts) {
	l := t.cfg.Failures
	if s.factor() == 1 || s.Trouble.Rate <= 0 || t.rate(t.cfg.Window) < l.Used*s.rate(t.cfg) ||
		WilsonLower(c.Bad(), c.Judged(), l.Confidence) > s.Trouble.Ratio {
		return
	}
	s.Trouble.Rate = min(s.Trouble.Rate*(1+l.Widen*t.dt.Seconds()), max(s.Trouble.Rate, s.ceiling()), t.cfg.rate())
}

// rest forgets the trouble when it has been over for long enough.
func (s *State) rest(t *tick) {
	if s.factor() < 1 || !math.IsInf(s.ramp(), 1) {
		s.Trouble.Rested = 0
		return
	}
	if s.Trouble.Rate > 0 {
		if s.Trouble.Rested += t.dt; s.Trouble.Rested >= t.cfg.Opening.Forget {
			s.Trouble = Trouble{}
		}
	}
}

// remember takes R_ref, the rate at which the trouble began, unless a trouble
// is under way already.
func (s *State) remember(t *tick) {
	if s.Trouble.Rate > 0 {
		return
	}
	ref, measured := min(s.ceiling(), t.cfg.rate()), t.cfg.Failures.Lead*t.rate(t.cfg.Window)
	if measured > 0 && (!t.settling() || math.IsInf(ref, 1)) {
		ref = min(ref, measured)
	}
	if !math.IsInf(ref, 1) {
		s.Trouble.Rate = ref
	}
}
