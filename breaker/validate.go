package breaker

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// ErrConfig is wrapped by every refusal of a Config.
var ErrConfig = errors.New("bad constants of the control law")

// FieldError says which field of a Config is refused, and what to do.
type FieldError struct {
	// Field as in a configuration file, e.g. "refusals.beta_max".
	Field string
	// Problem says what is wrong, Remedy what to write instead.
	Problem, Remedy string
}

func (e *FieldError) Error() string {
	return fmt.Sprintf("%v: %s %s; %s", ErrConfig, e.Field, e.Problem, e.Remedy)
}

// Unwrap returns ErrConfig.
func (e *FieldError) Unwrap() error { return ErrConfig }

// faults collects FieldErrors.
type faults struct{ errs []error }

func (f *faults) when(bad bool, field, remedy, problem string, args ...any) {
	if bad {
		f.errs = append(f.errs, &FieldError{Field: field, Problem: fmt.Sprintf(problem, args...), Remedy: remedy})
	}
}

// share wants 0 < v < 1, or v = 1 where top is set.
func (f *faults) share(field string, v float64, top bool) {
	ok := v > 0 && (v < 1 || top && v == 1)
	f.when(!ok, field, "write a share like 0.5, or leave it out for the default", "is %v, which is not a share between 0 and 1", v)
}

func (f *faults) above(field string, v, least float64) {
	f.when(!(v >= least) || math.IsInf(v, 0), field, "leave it out for the default", "is %v, but must be a number of at least %v", v, least)
}

func (f *faults) lasting(field string, d, least, most time.Duration) {
	f.when(d < least || d > most, field, "leave it out for the default", "is %s, but must be from %s to %s", d, least, most)
}

func (f *faults) count(field string, n, least int) {
	f.when(n < least || n > 1_000_000, field, "leave it out for the default", "is %d, but must be from %d to 1000000", n, least)
}

// Validate refuses what is no constant of this law, and constants that cannot
// work together. It finds every fault, not only the first: the error joins a
// *FieldError for each, and wraps ErrConfig. Defaults are filled in first.
func (c Config) Validate() error {
	c = c.Normal()
	f := &faults{}
	f.when(!(c.Rate >= 0) || math.IsInf(c.Rate, 0), "rate", "leave it out for no rate limit", "is %v, but must be a number of calls a second", c.Rate)
	f.when(c.Concurrency < 0, "concurrency", "leave it out for no limit", "is %d, but must not be negative", c.Concurrency)
	f.lasting("timeout", c.Timeout, time.Millisecond, 24*time.Hour)
	f.lasting("tick", c.Tick, 50*time.Millisecond, 5*time.Second)
	f.lasting("window", c.Window, c.Tick, time.Hour)
	f.count("stretch_calls", c.StretchCalls, 1)
	f.lasting("stretch_max", c.StretchMax, c.Tick, 24*time.Hour)
	f.share("floor_share", c.FloorShare, true)
	f.lasting("floor_every", c.FloorEvery, time.Second, 24*time.Hour)
	c.Refusals.validate(f, c)
	c.Failures.validate(f, c)
	c.Latency.validate(f, c)
	c.Opening.validate(f, c)
	c.Probing.validate(f, c)
	f.share("slow_start.from", c.SlowStart.From, true)
	f.lasting("slow_start.double", c.SlowStart.Double, c.Tick, time.Hour)
	f.lasting("holding.min", c.Holding.Min, time.Millisecond, time.Hour)
	f.lasting("holding.max", c.Holding.Max, time.Second, 24*time.Hour)
	f.when(c.Holding.Max < c.Holding.Min, "holding.max", "raise it, or lower holding.min", "is %s, under holding.min of %s: every wait would be cut below what counts as one", c.Holding.Max, c.Holding.Min)
	f.share("holding.jitter", c.Holding.Jitter, true)
	return errors.Join(f.errs...)
}

func (r Refusals) validate(f *faults, c Config) {
	f.lasting("refusals.window", r.Window, c.Tick, c.StretchMax)
	f.count("refusals.many", r.Many, 1)
	f.count("refusals.calls", r.Calls, 1)
	f.when(r.Many > c.StretchCalls && r.Calls > c.StretchCalls, "refusals.many", "lower it, or raise stretch_calls",
		"is %d and refusals.calls %d, but a slow provider's window holds only the last stretch_calls of %d: it would never be cut", r.Many, r.Calls, c.StretchCalls)
	f.lasting("refusals.pause", r.Pause, c.Tick, time.Hour)
	f.above("refusals.pause_latencies", r.PauseLatencies, 0)
	f.share("refusals.margin", r.Margin, true)
	f.share("refusals.beta_min", r.BetaMin, false)
	f.share("refusals.beta_max", r.BetaMax, false)
	f.when(r.BetaMin > r.BetaMax, "refusals.beta_min", "lower it, or raise beta_max", "is %v, above refusals.beta_max of %v", r.BetaMin, r.BetaMax)
	f.above("refusals.lead", r.Lead, 1)
	f.when(r.Lead*r.BetaMax >= 1, "refusals.lead", "lower it, or lower beta_max",
		"of %v times refusals.beta_max of %v is %.2f: a cut would leave more than the measured rate", r.Lead, r.BetaMax, r.Lead*r.BetaMax)
	f.lasting("refusals.settle", r.Settle, c.Tick, time.Hour)
	f.lasting("refusals.rate_short", r.RateShort, c.Tick, c.StretchMax)
	f.lasting("refusals.rate_long", r.RateLong, c.Tick, c.StretchMax)
	f.when(r.RateShort > r.RateLong, "refusals.rate_short", "swap the two", "is %s, longer than refusals.rate_long of %s", r.RateShort, r.RateLong)
	reach := max(c.Window, c.Refusals.Settle)
	f.when(r.RateLong > reach, "refusals.rate_long", "shorten it, or lengthen window", "is %s, but no more than %s is remembered", r.RateLong, reach)
	f.lasting("refusals.k", r.K, c.Tick, 24*time.Hour)
	f.count("refusals.k_calls", r.KCalls, 1)
	f.above("refusals.growth", r.Growth, 0.01)
	f.share("refusals.growth_floor", r.GrowthFloor, true)
	f.share("refusals.used", r.Used, true)
}

func (l Failures) validate(f *faults, c Config) {
	f.count("failures.calls", l.Calls, 1)
	f.when(l.Calls > c.StretchCalls, "failures.calls", "lower it, or raise stretch_calls",
		"is %d, but a slow provider's window holds only the last stretch_calls of %d: its failures would never count", l.Calls, c.StretchCalls)
	f.share("failures.tolerated", l.Tolerated, false)
	f.when(l.Tolerated >= c.Opening.Share, "failures.tolerated", "lower it, or raise opening.share",
		"is %v, not under opening.share of %v: the breaker would open before anything is shed", l.Tolerated, c.Opening.Share)
	f.above("failures.confidence", l.Confidence, 0.1)
	f.count("failures.cushion", l.Cushion, 1)
	f.above("failures.power", l.Power, 0.1)
	f.share("failures.fall", l.Fall, false)
	f.share("failures.rise", l.Rise, true)
	f.above("failures.lead", l.Lead, 1)
	f.share("failures.widen", l.Widen, true)
	f.share("failures.used", l.Used, true)
}

func (l Latency) validate(f *faults, c Config) {
	f.lasting("latency.window", l.Window, c.Tick, c.StretchMax)
	f.count("latency.calls", l.Calls, 1)
	f.when(l.Calls > c.StretchCalls, "latency.calls", "lower it, or raise stretch_calls",
		"is %d, but a slow provider's window holds only the last stretch_calls of %d: its latency would never count", l.Calls, c.StretchCalls)
	f.above("latency.ratio", l.Ratio, 1)
	f.share("latency.gradient_min", l.GradientMin, false)
	f.share("latency.weight", l.Weight, true)
	f.above("latency.growth", l.Growth, 0.001)
	f.share("latency.floor_share", l.FloorShare, true)
	f.count("latency.floor_calls", l.FloorCalls, 1)
	f.share("latency.used", l.Used, true)
	f.lasting("latency.stall", l.Stall, c.Tick, c.Window)
	f.above("latency.stall_latencies", l.StallLatencies, 1)
}

func (o Opening) validate(f *faults, c Config) {
	f.share("opening.share", o.Share, false)
	f.count("opening.calls", o.Calls, 1)
	f.when(o.Calls > c.StretchCalls, "opening.calls", "lower it, or raise stretch_calls",
		"is %d, but a slow provider's window holds only the last stretch_calls of %d: it would open by a row alone", o.Calls, c.StretchCalls)
	f.above("opening.confidence", o.Confidence, 0.1)
	f.when(WilsonLower(o.Calls, o.Calls, o.Confidence) < o.Share, "opening.confidence", "lower it, or raise opening.calls",
		"is %v: even %d failures of %d calls would not reach opening.share of %v", o.Confidence, o.Calls, o.Calls, o.Share)
	f.count("opening.row", o.Row, 1)
	f.count("opening.row_slow", o.RowSlow, 1)
	f.when(o.RowSlow > o.Row, "opening.row_slow", "lower it, or raise opening.row", "is %d, above opening.row of %d", o.RowSlow, o.Row)
	f.count("opening.slow_calls", o.SlowCalls, 1)
	f.lasting("opening.first", o.First, c.Tick, time.Hour)
	f.lasting("opening.longest", o.Longest, c.Tick, 24*time.Hour)
	f.when(o.First > o.Longest, "opening.first", "shorten it, or lengthen opening.longest", "is %s, longer than opening.longest of %s", o.First, o.Longest)
	f.share("opening.jitter", o.Jitter, false)
	f.lasting("opening.forget", o.Forget, c.Tick, 24*time.Hour)
}

func (p Probing) validate(f *faults, c Config) {
	f.count("probing.successes", p.Successes, 1)
	f.lasting("probing.apart", p.Apart, c.Tick, time.Hour)
	f.lasting("probing.lease_margin", p.LeaseMargin, c.Tick, time.Hour)
}
