package guard

import (
	"fmt"
	"time"

	"github.com/penstock-io/penstock/breaker"
	"github.com/penstock-io/penstock/internal/health"
	"github.com/penstock-io/penstock/retrybudget"
	"github.com/penstock-io/penstock/shaper"
)

// Adaptive is whether limits follow the provider's health. The zero value is On.
type Adaptive uint8

const (
	// On: they tighten while the provider suffers, and loosen when it is well.
	On Adaptive = iota
	// Shadow: what would be done is computed, logged and counted, and nothing is
	// changed.
	Shadow
	// Off: only the limits and what the provider asks for (Retry-After) count.
	Off
)

// ParseAdaptive reads on, shadow or off.
func ParseAdaptive(s string) (Adaptive, error) {
	for _, a := range []Adaptive{On, Shadow, Off} {
		if a.String() == s {
			return a, nil
		}
	}
	return On, fmt.Errorf("adaptive must be on, shadow or off, not %q", s)
}

// String returns on, shadow or off.
func (a Adaptive) String() string {
	switch a {
	case On:
		return "on"
	case Shadow:
		return "shadow"
	case Off:
		return "off"
	}
	return fmt.Sprintf("adaptive(%d)", uint8(a))
}

// Change is one change of a provider's state, as an Observer hears it once in
// the whole fleet.
type Change struct {
	// From and To are words of States.
	From, To string
	// Reason is why.
	Reason string
	// Shadow: it is what would have been; nothing was changed.
	Shadow bool
	// OpenUntil, of an opening, is when it will be probed, by Redis TIME.
	OpenUntil time.Time
	// Rate in calls a second that is allowed now; 0: no limit.
	Rate float64
}

// States are the words for how a provider stands, from the worst to the best:
// open, half_open, slow_start, shedding, throttled, closed.
func States() []string { return health.States() }

// Deferred says that a retry cannot go yet, and that waiting for it here would
// be of no use: put it off for After (it has its jitter already) with no attempt
// spent. Every Deferred is ErrNotCalled, too.
type Deferred struct {
	After time.Duration
	// Reason is "budget": too little succeeds to pay for retries.
	Reason string
}

func (e *Deferred) Error() string {
	return fmt.Sprintf("deferred for %s: %s", e.After.Round(time.Millisecond), e.Reason)
}

// ReasonBudget is the Reason of a Deferred that no token was left for.
const ReasonBudget = "budget"

// deferred is how long a retry without a token is put off.
func deferred(e *shaper.AccountError) *Deferred {
	return &Deferred{After: retrybudget.Verdict{After: e.After}.Deferral(), Reason: ReasonBudget}
}

// account is the budget as the gate keeps it. Only On has one: a shadow
// changes nothing.
func (cfg Config) account() shaper.Account {
	if cfg.Adaptive != On {
		return shaper.Account{}
	}
	b := cfg.Budget.Normal()
	return shaper.Account{Earn: b.Earn, Spend: b.Spend, Trickle: b.Trickle, Cap: b.Cap, Contended: b.Contended, Longest: b.Longest}
}

func (cfg Config) newHealth(gate *shaper.Gate) (*health.Health, error) {
	c := health.Config{
		Redis: cfg.Redis, Queue: gate.Name(), Provider: cfg.Provider, Mode: health.Mode(cfg.Adaptive), Law: cfg.law(),
		Limits: gate.Limits, Waiting: gate.Waiting, Processes: gate.Processes, Logger: cfg.Logger,
	}
	if o := cfg.Observer; o != nil {
		c.Changed = func(h health.Change) { o.Changed(cfg.Provider, Change(h)) }
	}
	return health.New(c)
}

func (cfg Config) law() breaker.Config {
	law := cfg.Law
	law.Timeout = cfg.Timeout
	return law
}

// Health is how a provider stands, as this process knew it when it last asked.
type Health struct {
	// State is a word of States.
	State string
	// Shadow: the state is computed and not obeyed.
	Shadow bool
	// Probing: the breaker is half-open, and one call at a time goes.
	Probing bool
	// OpenUntil is when an open breaker begins to probe, by this machine's clock.
	// Zero: it is not open.
	OpenUntil time.Time
}

// Health returns how the provider stands. It asks nobody and never waits.
func (g *Guard) Health() Health {
	if g.health == nil {
		return Health{State: health.StateClosed}
	}
	v := g.health.View()
	return Health{
		State: health.StateOf(v.State), Shadow: v.Mode == health.Shadow,
		Probing: v.Phase == shaper.PhaseHalfOpen, OpenUntil: v.OpenUntil,
	}
}

// doubtful reports whether the breaker is not closed, as far as this process
// knows: then nobody can say whose fault a failure is.
func (g *Guard) doubtful() bool {
	phase := g.gate.Phase()
	return phase == shaper.PhaseOpen || phase == shaper.PhaseHalfOpen || g.health.View().Phase != shaper.PhaseClosed
}
