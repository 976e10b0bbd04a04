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
		e := float64(c.Bad()) / float64(c.Judged())
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
		s.note(t.now, fmt.Sprintf("%d of %d calls failed", c.Bad(), c.Judged()))
	case f == 1 && was < 1:
		s.note(t.now, "the failures are over")
	}
	if f == 1 && math.IsInf(s.ramp(), 1) {
		s.Reference = 0
	}
}

// remember takes R_ref, the rate at which the trouble began, unless a trouble
// is under way already.
func (s *State) remember(t *tick) {
	if s.Reference > 0 {
		return
	}
	if ref := min(s.ceiling(), t.cfg.rate(), t.cfg.Failures.Lead*t.measured()); ref > 0 && !math.IsInf(ref, 1) {
		s.Reference = ref
	}
}
