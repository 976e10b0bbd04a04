package simulate

import (
	"fmt"
	"slices"
	"time"
)

// Change is something that happens at a moment of the timeline. What it does
// not name stays as it is.
type Change struct {
	// At is when, For how long (zero: for good), Every how often again (zero:
	// once).
	At    time.Duration `yaml:"at"`
	For   time.Duration `yaml:"for"`
	Every time.Duration `yaml:"every"`

	// What changes of the provider; see Provider.
	Limit      *Rate          `yaml:"limit"`
	RetryAfter *time.Duration `yaml:"retry_after"`
	Servers    *int           `yaml:"servers"`
	Errors     *float64       `yaml:"errors"`
	// Over is how long Errors takes to get there, in a straight line. Zero: at once.
	Over    time.Duration `yaml:"over"`
	Outage  *bool         `yaml:"outage"`
	Hang    *bool         `yaml:"hang"`
	Slow    *float64      `yaml:"slow"`
	Refusal *int          `yaml:"refusal"`

	// Clock sets the store's clock forward, or back where it is negative.
	Clock time.Duration `yaml:"clock"`
	// Kill ends so many workers, with calls in flight, for good.
	Kill int `yaml:"kill"`

	began int64
}

// to applies c to p.
func (c *Change) to(p *Provider) {
	if c.Limit != nil {
		p.Limit, p.Burst = *c.Limit, 0
	}
	set(&p.RetryAfter, c.RetryAfter)
	set(&p.Servers, c.Servers)
	set(&p.Errors, c.Errors)
	set(&p.Outage, c.Outage)
	set(&p.Hang, c.Hang)
	set(&p.Slow, c.Slow)
	set(&p.Refusal, c.Refusal)
}

func set[T any](p *T, v *T) {
	if v != nil {
		*p = *v
	}
}

func (c Change) validate(where string) (errs []error) {
	bad := func(when bool, format string, args ...any) {
		if when {
			errs = append(errs, fmt.Errorf("%w: %s "+format, append([]any{ErrScenario, where}, args...)...))
		}
	}
	bad(c.At < 0, "at is %s, before the beginning", c.At)
	bad(c.For < 0 || c.Every < 0 || c.Over < 0, "for, every and over must not be negative")
	bad(c.Every > 0 && (c.For == 0 || c.For >= c.Every), "every is %s, but for is %s; what comes again must end before", c.Every, c.For)
	bad(c.Over > 0 && c.Errors == nil, "over is set, but errors is not; only errors change slowly")
	bad(c.Kill < 0, "kill must not be negative")
	bad((c.Clock != 0 || c.Kill != 0) && c.For > 0, "clock and kill have no end; leave for out")
	var p Provider
	c.to(&p)
	p.normal()
	return append(errs, p.validate(where)...)
}

// schedule puts the timeline into the engine.
func (m *model) schedule(timeline []Change) {
	for i := range timeline {
		for at := timeline[i].At; ; at += timeline[i].Every {
			m.once(timeline[i], at.Microseconds())
			if timeline[i].Every == 0 || at+timeline[i].Every > m.sim.sc.Duration {
				break
			}
		}
	}
}

func (m *model) once(c Change, at int64) {
	m.sim.at(at, func() {
		c.began = m.sim.now
		m.changes = append(m.changes, &c)
		m.apply()
		m.sim.skew += c.Clock.Microseconds()
		m.sim.kill(c.Kill)
	})
	if c.For > 0 {
		m.sim.at(at+c.For.Microseconds(), func() {
			m.changes = slices.DeleteFunc(m.changes, func(o *Change) bool { return o == &c })
			m.apply()
		})
	}
}
