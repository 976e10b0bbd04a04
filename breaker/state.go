package breaker

import (
	"encoding/json"
	"math"
	"time"
)

// Phase is one of the breaker's states: [Closed], [Open] or [HalfOpen].
type Phase interface {
	// Name is the word for it in records, logs and metrics: closed, open, half_open.
	Name() string
	// step decides what comes next from what was seen. It may change s, but
	// enters a new phase only by returning it with the reason.
	step(t *tick, s *State) (next Phase, reason string)
}

// State is all that the law remembers between two steps. The zero value is a
// provider of which nothing is known: closed, at its limits. A State is a
// value; Step never changes the one it is given.
type State struct {
	// Phase of the breaker. Nil means Closed{}.
	Phase Phase
	// Generation that calls started now belong to. It grows with each change of
	// phase and each cut of the ceiling, and never falls.
	Generation uint64
	// Since is the generation in which the phase began: results of calls from
	// an older one change nothing.
	Since uint64
	// Ticked is when Step last ran.
	Ticked time.Time
	// Openings is k: openings not yet forgotten.
	Openings int
	// Ceiling is C.
	Ceiling Ceiling
	// Factor is f, from (0, 1]. Zero means 1.
	Factor float64
	// Trouble is what is remembered of the trouble under way.
	Trouble Trouble
	// InFlight is L. Zero: the limits alone decide.
	InFlight float64
	// Latency is what is known of the provider's latency.
	Latency Baseline
	// Reason and Changed say why and when the phase, or the ceiling by a cut,
	// or the share of failures changed last.
	Reason  string
	Changed time.Time

	// unknown members of the record, kept for a newer release that wrote them.
	unknown map[string]json.RawMessage
}

// Ceiling is C: cut by refusals, grown by time. The zero value is no ceiling.
type Ceiling struct {
	// Rate is C in calls a second. Zero: none.
	Rate float64
	// Peak is W, the rate at which it was refused; Beta what the cut left of it.
	Peak, Beta float64
	// Age is the time since the cut in which it could grow.
	Age time.Duration
	// CutAt is when it was cut last, Generation the one begun by that.
	CutAt      time.Time
	Generation uint64
}

// Trouble is what is remembered of a trouble until it has been over for
// Opening.Forget: one that comes back is the same, and the backlog that it left
// is no measure of the demand. The zero value is no trouble.
type Trouble struct {
	// Rate is R_ref, what f is a share of, in calls a second. Zero: unknown.
	Rate float64
	// Ratio of failures when f last began to shed: while it is not worse than
	// that, more calls do not make more of them fail, and R_ref may grow.
	Ratio float64
	// Rested is for how long it has been over.
	Rested time.Duration
}

// Baseline is what is known of the provider's latency. The zero value knows
// nothing.
type Baseline struct {
	// P50 is the median seen last.
	P50 time.Duration
	// Lows are the lowest medians of the last ten minutes in which there was
	// any and no trouble, the newest first. Zero: none.
	Lows [10]time.Duration
	// Minute is the minute that Lows[0] is of, since 1970.
	Minute int64
}

// Low returns the lowest median known, 0 where none is.
func (b Baseline) Low() (low time.Duration) {
	for _, l := range b.Lows {
		if l > 0 && (low == 0 || l < low) {
			low = l
		}
	}
	return low
}

// phase returns the phase, never nil.
func (s State) phase() Phase {
	if s.Phase == nil {
		return Closed{}
	}
	return s.Phase
}

// factor returns f, from (0, 1].
func (s State) factor() float64 {
	if s.Factor <= 0 || s.Factor > 1 {
		return 1
	}
	return s.Factor
}

// ceiling returns C as a number that can be compared: +Inf where there is none.
func (s State) ceiling() float64 {
	if s.Ceiling.Rate <= 0 {
		return math.Inf(1)
	}
	return s.Ceiling.Rate
}

// ramp returns R_ss, +Inf where there is no slow start.
func (s State) ramp() float64 {
	if c, ok := s.Phase.(Closed); ok && c.Ramp.Rate > 0 {
		return c.Ramp.Rate
	}
	return math.Inf(1)
}

// AtRest reports whether the state stays as it is without traffic: closed,
// nothing shed, no slow start. A provider at rest needs a step only for what
// its calls bring back.
func (s State) AtRest() bool {
	_, closed := s.phase().(Closed)
	return closed && s.factor() == 1 && math.IsInf(s.ramp(), 1)
}

// troubled reports whether what is seen now must not become the baseline.
func (s State) troubled() bool { return !s.AtRest() }

// enter begins a phase, and with it a generation.
func (s *State) enter(p Phase, now time.Time, reason string) {
	s.Phase = p
	s.Generation++
	s.Since = s.Generation
	s.note(now, reason)
}

func (s *State) note(now time.Time, reason string) { s.Reason, s.Changed = reason, now }

// shift moves every time of s by d: the store's clock was set back.
func (s *State) shift(d time.Duration) {
	for _, t := range []*time.Time{&s.Ticked, &s.Changed, &s.Ceiling.CutAt} {
		if !t.IsZero() {
			*t = t.Add(d)
		}
	}
	switch p := s.Phase.(type) {
	case Open:
		p.At, p.Until = p.At.Add(d), p.Until.Add(d)
		s.Phase = p
	case HalfOpen:
		p.At = p.At.Add(d)
		if p.Good > 0 {
			p.Last = p.Last.Add(d)
		}
		s.Phase = p
	}
	s.Latency.Minute += int64(d / time.Minute)
}

// Control is what the gate needs to know: the law's decision without its memory.
type Control struct {
	// Phase is closed, open or half_open.
	Phase string
	// Generation that a call started now belongs to; Since is the one in which
	// the phase began.
	Generation, Since uint64
	// Rate in calls a second. Zero: as the limits say. While the phase is not
	// closed it is what the limits say: probes go one by one anyway.
	Rate float64
	// InFlight is how many calls may be in flight. Zero: as the limits say.
	InFlight int
	// OpenUntil is when an open breaker begins to probe. Zero: it is not open.
	OpenUntil time.Time
	// ProbeLease is how long a probe may take before it counts as failed, and
	// ProbeApart the least time between the starts of two probes.
	ProbeLease, ProbeApart time.Duration
	// SlowStart: the rate ramps up after an opening. Retries need a token from
	// the budget then, and while half-open, even when no first attempt waits.
	SlowStart bool
}

// Control returns the decision that s stands for.
func (s State) Control(cfg Config) Control {
	cfg = cfg.Normal()
	c := Control{
		Phase: s.phase().Name(), Generation: s.Generation, Since: s.Since,
		ProbeLease: cfg.Timeout + cfg.Probing.LeaseMargin, ProbeApart: cfg.Probing.Apart,
		SlowStart: !math.IsInf(s.ramp(), 1),
	}
	switch p := s.phase().(type) {
	case Open:
		c.OpenUntil = p.Until
	case Closed:
		if r := s.rate(cfg); cfg.Rate <= 0 && !math.IsInf(r, 1) || r < cfg.Rate {
			c.Rate = r
		}
	}
	if s.InFlight > 0 && (cfg.Concurrency <= 0 || int(s.InFlight) < cfg.Concurrency) {
		c.InFlight = max(1, int(s.InFlight))
	}
	return c
}

// rate returns R = max(R_min, min(R_cfg, C, f·R_ref, R_ss)), +Inf where nothing
// limits it.
func (s State) rate(cfg Config) float64 {
	r := min(cfg.rate(), s.ceiling(), s.ramp())
	if f := s.factor(); f < 1 && s.Trouble.Rate > 0 {
		r = min(r, f*s.Trouble.Rate)
	}
	return max(cfg.floor(), r)
}

// rate returns R_cfg, +Inf where none is configured.
func (c Config) rate() float64 {
	if c.Rate <= 0 {
		return math.Inf(1)
	}
	return c.Rate
}

// floor returns R_min = min(R_cfg, max(FloorShare·R_cfg, 1/FloorEvery)).
func (c Config) floor() float64 {
	return min(c.rate(), max(c.FloorShare*max(0, c.Rate), 1/c.FloorEvery.Seconds()))
}
