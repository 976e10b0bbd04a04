package breaker

import (
	"fmt"
	"math"
	"time"
)

// cut lowers C where the provider refused calls, and reports whether it did.
//
// With a limit on the rate, cur·(1−q) is the rate that was accepted, so one cut
// lands just below it. It counts only calls that started after the last cut,
// since those before did not know of it.
func (s *State) cut(t *tick) bool {
	r := t.cfg.Refusals
	from := max(s.Since, s.Ceiling.Generation)
	c, _ := t.window(r.Window, from)
	answered := c.OK + c.Throttled
	if c.Throttled == 0 || c.Throttled < r.Many && answered < r.Calls {
		return false
	}
	pause := max(r.Pause, time.Duration(r.PauseLatencies*float64(s.Latency.P50)))
	if !s.Ceiling.CutAt.IsZero() && t.now.Sub(s.Ceiling.CutAt) < pause {
		return false
	}
	cur := t.current(s)
	if cur <= 0 {
		return false
	}
	q := t.refused(c, from)
	beta := min(r.BetaMax, max(r.BetaMin, r.Margin*(1-q)))
	s.Generation++
	s.Ceiling = Ceiling{
		Rate: max(t.cfg.floor(), beta*cur), Peak: cur, Beta: beta,
		CutAt: t.now, Generation: s.Generation,
	}
	s.note(t.now, fmt.Sprintf("%d of %d calls refused", c.Throttled, answered))
	return true
}

// refused returns the share q of refusals: of those since the first refusal
// where there are several, since what was accepted before a limit fell says
// nothing of the new one; of all of c, where there are few.
func (t *tick) refused(c Counts, from uint64) float64 {
	var late Counts
	var first time.Time
	begin := t.now.Add(-t.cfg.Refusals.Window - t.cfg.Tick)
	counts := func(b *Bucket) bool {
		return b.Generation >= from && b.At.After(begin) && !b.At.After(t.now)
	}
	for i := range t.buckets {
		if b := &t.buckets[i]; counts(b) && b.Throttled > 0 {
			first = b.At
			break
		}
	}
	for i := range t.buckets {
		if b := &t.buckets[i]; counts(b) && !first.IsZero() && !b.At.Before(first) {
			late.Merge(b.Counts)
		}
	}
	if late.Throttled >= t.cfg.Refusals.Calls {
		c = late
	}
	return float64(c.Throttled) / float64(c.OK+c.Throttled)
}

// current returns the rate that a cut starts from, 0 where nothing is known.
func (t *tick) current(s *State) float64 {
	cur := min(s.ceiling(), t.cfg.rate(), s.ramp())
	if m := t.cfg.Refusals.Lead * t.measured(); m > 0 && (!t.settling() || math.IsInf(cur, 1)) {
		cur = min(cur, m)
	}
	if math.IsInf(cur, 1) {
		return 0
	}
	return cur
}

// grow raises C by the cubic of RFC 9438 (CUBIC), normalised: from β·W at the
// cut to W after K_β, then beyond. It never falls, and is gone at R_cfg.
//
// Its clock stands still while a rise could not be told from luck: while f
// sheds, while held, and while the queue does not use half of C.
func (s *State) grow(t *tick) {
	c, r := &s.Ceiling, t.cfg.Refusals
	if c.Rate <= 0 {
		return
	}
	if s.factor() == 1 && !t.held() && t.rate(r.RateShort) >= r.Used*c.Rate {
		c.Age += t.dt
	}
	k := max(r.K.Seconds(), min(float64(r.KCalls)/c.Peak, t.cfg.StretchMax.Seconds()))
	kb := k * math.Cbrt((1-c.Beta)/0.5)
	x := (c.Age.Seconds() - kb) / k
	scale := max(c.Peak, r.GrowthFloor*max(0, t.cfg.Rate))
	c.Rate = max(c.Rate, c.Peak+r.Growth*scale*x*x*x)
	if c.Rate >= t.cfg.rate() {
		*c = Ceiling{CutAt: c.CutAt, Generation: c.Generation}
	}
}
