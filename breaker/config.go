package breaker

import (
	"cmp"
	"time"
)

// Config is what the law needs to know of one provider, and every constant of
// it. Zero fields mean their defaults, so Config{Rate: 100, Concurrency: 20}
// is complete. A Config is a value: copy it freely.
type Config struct {
	// Rate is what the limits allow, in calls a second (1 / the emission
	// interval). Zero: no rate is configured; a ceiling then begins with the
	// first cut, from the measured rate.
	Rate float64 `yaml:"-"`
	// Concurrency is how many calls the limits allow in flight. Zero: none
	// configured; a limit then begins with the first trouble.
	Concurrency int `yaml:"-"`
	// Timeout is the longest a call may take. Zero: 30 s.
	Timeout time.Duration `yaml:"-"`

	// Tick is the time between two steps and the width of a Bucket. Zero: 250 ms.
	Tick time.Duration `yaml:"tick"`
	// Window is how far back failures count. Zero: 10 s.
	Window time.Duration `yaml:"window"`
	// StretchCalls: every window reaches at least to the last so many calls. Zero: 10.
	StretchCalls int `yaml:"stretch_calls"`
	// StretchMax is the longest that a window is stretched. Zero: 10 min.
	StretchMax time.Duration `yaml:"stretch_max"`
	// FloorShare of Rate is the least that the law goes down to. Zero: 0.02.
	FloorShare float64 `yaml:"floor_share"`
	// FloorEvery: one call in this time is always allowed, as far as Rate
	// allows it. Zero: 1 min.
	FloorEvery time.Duration `yaml:"floor_every"`

	Refusals  Refusals  `yaml:"refusals"`
	Failures  Failures  `yaml:"failures"`
	Latency   Latency   `yaml:"latency"`
	Opening   Opening   `yaml:"opening"`
	Probing   Probing   `yaml:"probing"`
	SlowStart SlowStart `yaml:"slow_start"`
	Holding   Holding   `yaml:"holding"`
}

// Refusals are the constants of C, the ceiling on the rate that 429s cut and
// time lets grow.
type Refusals struct {
	// Window is how far back refusals count. Zero: 3 s.
	Window time.Duration `yaml:"window"`
	// Many refusals are enough to cut, whatever else came back. Zero: 2.
	Many int `yaml:"many"`
	// Calls: among at least so many, one refusal is enough. Zero: 5.
	Calls int `yaml:"calls"`
	// Pause is the least time between two cuts. Zero: 1 s.
	Pause time.Duration `yaml:"pause"`
	// PauseLatencies: and at least so many median latencies. Zero: 2.
	PauseLatencies float64 `yaml:"pause_latencies"`
	// Margin: a cut lands at this share of the rate that was accepted. Zero: 0.95.
	Margin float64 `yaml:"margin"`
	// BetaMin and BetaMax bound what one cut leaves. Zero: 0.5 and 0.85.
	BetaMin float64 `yaml:"beta_min"`
	BetaMax float64 `yaml:"beta_max"`
	// Lead: a cut starts from at most so many times the measured rate. Zero: 1.1.
	Lead float64 `yaml:"lead"`
	// Settle: the measured rate is not believed in the first seconds of
	// traffic. Zero: 3 s.
	Settle time.Duration `yaml:"settle"`
	// RateShort and RateLong are the windows of the measured rate; the larger
	// of the two counts. Zero: 1 s and 5 s.
	RateShort time.Duration `yaml:"rate_short"`
	RateLong  time.Duration `yaml:"rate_long"`
	// K is the time scale of the growth: after a cut to one half the old rate
	// is reached again in K. Zero: 10 s.
	K time.Duration `yaml:"k"`
	// KCalls: and at least the time of so many calls at the old rate, up to
	// StretchMax: a slow provider must not be refused every few calls. Zero: 75.
	KCalls int `yaml:"k_calls"`
	// Growth scales the cubic. Zero: 0.5.
	Growth float64 `yaml:"growth"`
	// GrowthFloor: it grows as if the rate had been at least this share of
	// Config.Rate. Zero: 0.1.
	GrowthFloor float64 `yaml:"growth_floor"`
	// Used: growth stands still while less than this share of C is used. Zero: 0.5.
	Used float64 `yaml:"used"`
}

// Failures are the constants of f, the share of the rate that 5xx and timeouts
// leave.
type Failures struct {
	// Calls: fewer say nothing. Zero: 10.
	Calls int `yaml:"calls"`
	// Tolerated is the ratio of failures that costs nothing. Zero: 0.05.
	Tolerated float64 `yaml:"tolerated"`
	// Confidence is the z of Wilson's lower bound. Zero: 2.58 (99 %).
	Confidence float64 `yaml:"confidence"`
	// Cushion is how many good calls are added to those seen for e in f*: among
	// hundreds they are nothing, among ten they keep bad luck from starving a
	// slow provider. Zero: 4.
	Cushion int `yaml:"cushion"`
	// Power is γ in f* = ((1−e)/(1−Tolerated))^γ. Zero: 2.
	Power float64 `yaml:"power"`
	// Fall: f falls only when f* is more than this below it. Zero: 0.02.
	Fall float64 `yaml:"fall"`
	// Rise is how much f rises at most in a tick. Zero: 0.02.
	Rise float64 `yaml:"rise"`
	// Lead: f is a share of so many times the rate measured when the trouble
	// began. Zero: 1.2.
	Lead float64 `yaml:"lead"`
	// Widen is how much that rate grows in a second, as a share of it, while
	// Used of what is allowed is used and no larger share of the calls fails
	// than at first. Zero: 0.02 and 0.95.
	Widen float64 `yaml:"widen"`
	Used  float64 `yaml:"used"`
}

// Latency are the constants of L, the calls in flight.
type Latency struct {
	// Window is how far back successes count. Zero: 2 s.
	Window time.Duration `yaml:"window"`
	// Calls: fewer successes say nothing. Zero: 10.
	Calls int `yaml:"calls"`
	// Ratio: a median over so many times the baseline means congestion. Zero: 2.
	Ratio float64 `yaml:"ratio"`
	// GradientMin bounds the gradient. Zero: 0.5.
	GradientMin float64 `yaml:"gradient_min"`
	// Weight of the gradient in one tick. Zero: 0.2.
	Weight float64 `yaml:"weight"`
	// Growth: L grows by so many √L a tick. Zero: 0.2.
	Growth float64 `yaml:"growth"`
	// FloorShare of Config.Concurrency, and FloorCalls, are the least that
	// latency goes down to. Zero: 0.2 and 2.
	FloorShare float64 `yaml:"floor_share"`
	FloorCalls int     `yaml:"floor_calls"`
	// Used: L grows only while this share of it is used. Zero: 0.5.
	Used float64 `yaml:"used"`
	// Stall: that long without a single answer, with Used of L in flight, is
	// congestion, too: a hang shows before its deadlines do. At least
	// StallLatencies medians. Zero: 2 s and 4.
	Stall          time.Duration `yaml:"stall"`
	StallLatencies float64       `yaml:"stall_latencies"`
}

// Opening says when the breaker opens, and for how long.
type Opening struct {
	// Share of failures that opens, as a lower bound. Zero: 0.5.
	Share float64 `yaml:"share"`
	// Calls: fewer say nothing. Zero: 10.
	Calls int `yaml:"calls"`
	// Confidence is the z of Wilson's lower bound. Zero: 3.
	Confidence float64 `yaml:"confidence"`
	// Row of failures that opens. Zero: 15.
	Row int `yaml:"row"`
	// RowSlow is the row where the rate before the trouble makes fewer than
	// SlowCalls in the window. Zero: 10 and 20.
	RowSlow   int `yaml:"row_slow"`
	SlowCalls int `yaml:"slow_calls"`
	// First is how long it is open the first time; each further opening doubles
	// it up to Longest, each closing that holds for First halves it. Zero: 5 s
	// and 30 s.
	First   time.Duration `yaml:"first"`
	Longest time.Duration `yaml:"longest"`
	// Jitter: the time is multiplied by 1−Jitter to 1+Jitter. Zero: 0.2.
	Jitter float64 `yaml:"jitter"`
	// Forget: closed for so long, the openings before are forgotten. Zero: 60 s.
	Forget time.Duration `yaml:"forget"`
}

// Probing says how a half-open breaker closes.
type Probing struct {
	// Successes that close. Zero: 3.
	Successes int `yaml:"successes"`
	// Apart is the least time between two probes that count. Zero: 250 ms.
	Apart time.Duration `yaml:"apart"`
	// LeaseMargin is how much longer than Timeout a probe's lease is. Zero: 2 s.
	LeaseMargin time.Duration `yaml:"lease_margin"`
}

// SlowStart is the ramp after closing.
type SlowStart struct {
	// From is where it begins, as a share of the rate before. Zero: 0.1.
	From float64 `yaml:"from"`
	// Double is the time in which it doubles. Zero: 1 s.
	Double time.Duration `yaml:"double"`
}

// Holding says what a wait stated by the provider does.
type Holding struct {
	// Min: shorter waits concern only the job that was told. Zero: 1 s.
	Min time.Duration `yaml:"min"`
	// Max: longer ones are cut to this, and end half-open. Zero: 900 s.
	Max time.Duration `yaml:"max"`
	// Jitter lengthens the wait by up to this share, never shortens it. Zero: 0.05.
	Jitter float64 `yaml:"jitter"`
}

// def sets *p to v where it is zero.
func def[T comparable](p *T, v T) { *p = cmp.Or(*p, v) }

// Normal returns c with its defaults filled in.
func (c Config) Normal() Config {
	def(&c.Timeout, 30*time.Second)
	def(&c.Tick, 250*time.Millisecond)
	def(&c.Window, 10*time.Second)
	def(&c.StretchCalls, 10)
	def(&c.StretchMax, 10*time.Minute)
	def(&c.FloorShare, 0.02)
	def(&c.FloorEvery, time.Minute)
	c.Refusals.normal()
	c.Failures.normal()
	c.Latency.normal()
	c.Opening.normal()
	def(&c.Probing.Successes, 3)
	def(&c.Probing.Apart, 250*time.Millisecond)
	def(&c.Probing.LeaseMargin, 2*time.Second)
	def(&c.SlowStart.From, 0.1)
	def(&c.SlowStart.Double, time.Second)
	def(&c.Holding.Min, time.Second)
	def(&c.Holding.Max, 900*time.Second)
	def(&c.Holding.Jitter, 0.05)
	return c
}

func (r *Refusals) normal() {
	def(&r.Window, 3*time.Second)
	def(&r.Many, 2)
	def(&r.Calls, 5)
	def(&r.Pause, time.Second)
	def(&r.PauseLatencies, 2)
	def(&r.Margin, 0.95)
	def(&r.BetaMin, 0.5)
	def(&r.BetaMax, 0.85)
	def(&r.Lead, 1.1)
	def(&r.Settle, 3*time.Second)
	def(&r.RateShort, time.Second)
	def(&r.RateLong, 5*time.Second)
	def(&r.K, 10*time.Second)
	def(&r.KCalls, 75)
	def(&r.Growth, 0.5)
	def(&r.GrowthFloor, 0.1)
	def(&r.Used, 0.5)
}

func (f *Failures) normal() {
	def(&f.Calls, 10)
	def(&f.Tolerated, 0.05)
	def(&f.Confidence, 2.58)
	def(&f.Cushion, 4)
	def(&f.Power, 2)
	def(&f.Fall, 0.02)
	def(&f.Rise, 0.02)
	def(&f.Lead, 1.2)
	def(&f.Widen, 0.02)
	def(&f.Used, 0.95)
}

func (l *Latency) normal() {
	def(&l.Window, 2*time.Second)
	def(&l.Calls, 10)
	def(&l.Ratio, 2)
	def(&l.GradientMin, 0.5)
	def(&l.Weight, 0.2)
	def(&l.Growth, 0.2)
	def(&l.FloorShare, 0.2)
	def(&l.FloorCalls, 2)
	def(&l.Used, 0.5)
	def(&l.Stall, 2*time.Second)
	def(&l.StallLatencies, 4)
}

func (o *Opening) normal() {
	def(&o.Share, 0.5)
	def(&o.Calls, 10)
	def(&o.Confidence, 3)
	def(&o.Row, 15)
	def(&o.RowSlow, 10)
	def(&o.SlowCalls, 20)
	def(&o.First, 5*time.Second)
	def(&o.Longest, 30*time.Second)
	def(&o.Jitter, 0.2)
	def(&o.Forget, time.Minute)
}
