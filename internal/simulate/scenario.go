package simulate

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"

	"github.com/penstock-io/penstock/breaker"
	"github.com/penstock-io/penstock/retrybudget"
	"github.com/penstock-io/penstock/shaper"
)

// ErrScenario is wrapped by every refusal of a scenario.
var ErrScenario = errors.New("bad scenario")

// Scenario is one simulation: what is asked for, by whom, and of what kind of
// provider. Zero fields mean their defaults; Duration and Demand are required.
type Scenario struct {
	// Name is shown in the report. Empty: "scenario".
	Name string `yaml:"name"`
	// About says in a sentence what it shows.
	About string `yaml:"about"`
	// Seed of everything drawn. Zero: 1.
	Seed uint64 `yaml:"seed"`
	// Duration of the simulation.
	Duration time.Duration `yaml:"duration"`
	// UntilDone ends it earlier, once all demand came and every job is final.
	UntilDone bool `yaml:"until_done"`
	// Fleet of processes.
	Fleet Fleet `yaml:"fleet"`
	// Limits that the gate keeps.
	Limits Limits `yaml:"limits"`
	// Timeout of a call. Zero: 10 s.
	Timeout time.Duration `yaml:"timeout"`
	// Adaptive is "on" (also when empty) or "off": limits stay as they are.
	Adaptive string `yaml:"adaptive"`
	// Law are the constants of the control law. Zero: its defaults.
	Law breaker.Config `yaml:"law"`
	// Budget is "on" (also when empty) or "off": retries need no tokens.
	Budget string `yaml:"budget"`
	// Retry says when a failed job is tried again.
	Retry Retry `yaml:"retry"`
	// Demand is how many jobs come.
	Demand []Demand `yaml:"demand"`
	// Provider as it is at the beginning.
	Provider Provider `yaml:"provider"`
	// Timeline of what happens to it.
	Timeline []Change `yaml:"timeline"`
}

// Fleet are the worker processes.
type Fleet struct {
	// Workers, from 1 to 1,000. Zero: 8.
	Workers int `yaml:"workers"`
	// RoundTrip to Redis. Zero: 1 ms.
	RoundTrip time.Duration `yaml:"round_trip"`
}

// Limits are the gate's, as in a configuration file.
type Limits struct {
	Rate        Rate          `yaml:"rate"`
	Burst       int           `yaml:"burst"`
	Headroom    time.Duration `yaml:"headroom"`
	Concurrency int           `yaml:"concurrency"`
}

// Rate is a shaper.Rate whose faults in a file are named by line.
type Rate struct{ shaper.Rate }

// UnmarshalYAML reads N/s, N/m, N/h, N/d or N/10s.
func (r *Rate) UnmarshalYAML(n ast.Node) error {
	if err := r.UnmarshalText([]byte(strings.Trim(n.String(), `"'`))); err != nil {
		return fmt.Errorf("line %d: %w", n.GetToken().Position.Line, err)
	}
	return nil
}

// shaper returns l as the gate's own type.
func (l Limits) shaper() shaper.Limits {
	return shaper.Limits{Rate: l.Rate.Rate, Burst: l.Burst, Headroom: l.Headroom, Concurrency: l.Concurrency}.Normal()
}

// Retry is a job's retry policy, as in a configuration file.
type Retry struct {
	// Attempts, the first included. Zero: 15.
	Attempts int `yaml:"attempts"`
	// Base and Max of the back-off. Zero: retrybudget's.
	Base time.Duration `yaml:"base"`
	Max  time.Duration `yaml:"max"`
	// MaxAge of a job. Zero: 24 h.
	MaxAge time.Duration `yaml:"max_age"`
}

// Demand is how many jobs come from At on, until the next entry.
type Demand struct {
	At time.Duration `yaml:"at"`
	// Rate of jobs. Zero: none.
	Rate Rate `yaml:"rate"`
	// Even spaces them evenly; else they come at random (a Poisson process).
	Even bool `yaml:"even"`
	// Jobs ends the entry after so many. Zero: no end.
	Jobs int `yaml:"jobs"`
}

// Read reads a scenario from YAML. Unknown fields are refused, with their
// line. The error wraps ErrScenario.
func Read(r io.Reader) (Scenario, error) {
	doc, err := io.ReadAll(io.LimitReader(r, 1<<20))
	if err != nil {
		return Scenario{}, fmt.Errorf("%w: %w", ErrScenario, err)
	}
	var s Scenario
	dec := yaml.NewDecoder(bytes.NewReader(doc), yaml.Strict())
	if err := dec.Decode(&s); err != nil && !errors.Is(err, io.EOF) {
		return Scenario{}, fmt.Errorf("%w: %w", ErrScenario, err)
	}
	return s, s.Validate()
}

// Normal returns s with its defaults filled in.
func (s Scenario) Normal() Scenario {
	def(&s.Name, "scenario")
	def(&s.Seed, 1)
	def(&s.Fleet.Workers, 8)
	def(&s.Fleet.RoundTrip, time.Millisecond)
	def(&s.Timeout, 10*time.Second)
	def(&s.Adaptive, "on")
	def(&s.Budget, "on")
	def(&s.Retry.Attempts, 15)
	def(&s.Retry.MaxAge, 24*time.Hour)
	def(&s.Retry.Base, retrybudget.DefaultBase)
	def(&s.Retry.Max, retrybudget.DefaultMax)
	s.Provider.normal()
	s.Law.Timeout = s.Timeout
	s.Law.Concurrency = s.Limits.Concurrency
	s.Law.Rate = 0
	if iv := s.Limits.shaper().Interval(); iv > 0 {
		s.Law.Rate = 1 / iv.Seconds()
	}
	return s
}

func def[T comparable](p *T, v T) {
	var zero T
	if *p == zero {
		*p = v
	}
}

// Bounds of a simulation, so that it ends and fits into memory.
const (
	maxWorkers  = 1000
	maxDuration = 7 * 24 * time.Hour
	maxJobs     = 5_000_000
)

// Validate finds every fault of s, each with the field and the remedy. The
// error wraps ErrScenario.
func (s Scenario) Validate() error {
	s = s.Normal()
	var errs []error
	bad := func(when bool, format string, args ...any) {
		if when {
			errs = append(errs, fmt.Errorf("%w: "+format, append([]any{ErrScenario}, args...)...))
		}
	}
	wrap := func(field string, err error) { bad(err != nil, "%s: %w", field, err) }
	bad(s.Duration <= 0 || s.Duration > maxDuration, "duration must be from 1us to %s, not %s", maxDuration, s.Duration)
	bad(s.Fleet.Workers < 1 || s.Fleet.Workers > maxWorkers, "fleet.workers must be from 1 to %d, not %d", maxWorkers, s.Fleet.Workers)
	bad(s.Fleet.RoundTrip < 0 || s.Fleet.RoundTrip > time.Second, "fleet.round_trip must be from 0 to 1s, not %s", s.Fleet.RoundTrip)
	bad(s.Timeout < time.Millisecond || s.Timeout > time.Hour, "timeout must be from 1ms to 1h, not %s", s.Timeout)
	bad(s.Adaptive != "on" && s.Adaptive != "off", "adaptive must be on or off, not %q", s.Adaptive)
	bad(s.Budget != "on" && s.Budget != "off", "budget must be on or off, not %q", s.Budget)
	bad(s.Retry.Attempts < 1, "retry.attempts must be at least 1, not %d", s.Retry.Attempts)
	bad(s.Retry.MaxAge < time.Second, "retry.max_age must be at least 1s, not %s", s.Retry.MaxAge)
	wrap("retry", s.backoff().Validate())
	wrap("limits", s.Limits.shaper().Validate())
	wrap("law", s.Law.Validate())
	errs = append(errs, s.validateDemand()...)
	errs = append(errs, s.Provider.validate("provider")...)
	for i, c := range s.Timeline {
		errs = append(errs, c.validate(fmt.Sprintf("timeline[%d]", i))...)
	}
	return errors.Join(errs...)
}

func (s Scenario) validateDemand() (errs []error) {
	if len(s.Demand) == 0 {
		errs = append(errs, fmt.Errorf("%w: demand is empty; write at least one entry, like {rate: 100/s}", ErrScenario))
	}
	last, total := time.Duration(-1), 0.0
	for i, d := range s.Demand {
		if d.At <= last {
			errs = append(errs, fmt.Errorf("%w: demand[%d].at is %s, not after the one before; put them in order", ErrScenario, i, d.At))
		}
		last = d.At
		if err := d.Rate.Validate(); err != nil {
			errs = append(errs, fmt.Errorf("%w: demand[%d]: %w", ErrScenario, i, err))
		}
		end := s.Duration
		if i+1 < len(s.Demand) {
			end = min(end, s.Demand[i+1].At)
		}
		n := d.Rate.PerSec() * max(0, end-d.At).Seconds()
		if d.Jobs < 0 {
			errs = append(errs, fmt.Errorf("%w: demand[%d].jobs must not be negative", ErrScenario, i))
		} else if d.Jobs > 0 {
			n = min(n, float64(d.Jobs))
		}
		total += n
	}
	if total > maxJobs {
		errs = append(errs, fmt.Errorf("%w: demand is %.0f jobs in all, the most is %d; lower a rate or shorten the duration", ErrScenario, total, maxJobs))
	}
	return errs
}

func (s Scenario) backoff() retrybudget.Backoff {
	return retrybudget.Backoff{Base: s.Retry.Base, Max: s.Retry.Max}
}
