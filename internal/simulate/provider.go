package simulate

import (
	"fmt"
	"math"
	"time"

	"github.com/penstock-io/penstock/breaker"
)

// Provider is a provider's model. The zero value answers everything well, in 50 ms.
type Provider struct {
	// Limit that it enforces with 429s. Zero: none.
	Limit Rate `yaml:"limit"`
	// Kind says how Limit counts: bucket, sliding or fixed. Empty: bucket.
	Kind string `yaml:"kind"`
	// Burst of a bucket. Zero: a tenth of the calls of a second, at least 1.
	Burst int `yaml:"burst"`
	// RetryAfter is sent with a 429. Zero: no such header.
	RetryAfter time.Duration `yaml:"retry_after"`
	// Servers work on calls, one each; further ones wait in line. Zero: no line.
	Servers int `yaml:"servers"`
	// Queue is the longest line; one more call gets a 503. Zero: 10,000.
	Queue int `yaml:"queue"`
	// P50 and P99 of the time that it works on a call. Zero: 50 ms, and twice P50.
	P50 time.Duration `yaml:"p50"`
	P99 time.Duration `yaml:"p99"`
	// Errors is the share of calls answered with a 500.
	Errors float64 `yaml:"errors"`
	// Outage answers everything with a 503, Hang never answers.
	Outage bool `yaml:"outage"`
	Hang   bool `yaml:"hang"`
	// Slow multiplies the time that it works on a call. Zero: 1.
	Slow float64 `yaml:"slow"`
	// Refusal answers everything with this status of the 400s. Zero: none.
	Refusal int `yaml:"refusal"`
}

func (p *Provider) normal() {
	def(&p.Kind, "bucket")
	def(&p.Burst, max(1, int(p.Limit.PerSec()/10)))
	def(&p.Queue, 10_000)
	def(&p.P50, 50*time.Millisecond)
	def(&p.P99, 2*p.P50)
	def(&p.Slow, 1)
}

func (p Provider) validate(where string) (errs []error) {
	bad := func(when bool, format string, args ...any) {
		if when {
			errs = append(errs, fmt.Errorf("%w: "+format, append([]any{ErrScenario}, args...)...))
		}
	}
	if err := p.Limit.Validate(); err != nil {
		errs = append(errs, fmt.Errorf("%w: %s.limit: %w", ErrScenario, where, err))
	}
	bad(p.Kind != "bucket" && p.Kind != "sliding" && p.Kind != "fixed", "%s.kind %q is none of bucket, sliding, fixed", where, p.Kind)
	bad(p.Burst < 1, "%s.burst must be at least 1, not %d", where, p.Burst)
	bad(p.Servers < 0 || p.Servers > 1_000_000, "%s.servers must be from 0 to 1000000, not %d", where, p.Servers)
	bad(p.Queue < 1, "%s.queue must be at least 1, not %d", where, p.Queue)
	bad(p.P50 < time.Microsecond || p.P99 < p.P50 || p.P99 > time.Hour, "%s.p50 (%s) must be positive and p99 (%s) not less, at most 1h", where, p.P50, p.P99)
	bad(!(p.Errors >= 0 && p.Errors <= 1), "%s.errors is %v, but is a share from 0 to 1", where, p.Errors)
	bad(!(p.Slow > 0 && p.Slow <= 1e6), "%s.slow is %v, but multiplies the latency: write a number over 0", where, p.Slow)
	bad(p.Refusal != 0 && (p.Refusal < 400 || p.Refusal > 499 || p.Refusal == 429 || p.Refusal == 408),
		"%s.refusal is %d; write a status of the 400s, but not 408 or 429", where, p.Refusal)
	bad(p.RetryAfter < 0, "%s.retry_after must not be negative", where)
	return errs
}

// reply is how a call ends.
type reply struct {
	outcome    breaker.Outcome
	status     int
	after      int64 // µs until it is there
	retryAfter time.Duration
}

// model is a provider that runs.
type model struct {
	sim     *sim
	base    Provider
	changes []*Change // those in force, the latest last
	now     Provider  // base with them
	limit   limiter
	free    []int64 // when each server is free, a heap
	line    []int64 // when each of those in line begins, in order
}

func newModel(s *sim, p Provider) *model {
	m := &model{sim: s, base: p, now: p}
	m.apply()
	return m
}

// apply works out what holds after a change.
func (m *model) apply() {
	old := m.now
	m.now = m.base
	for _, c := range m.changes {
		c.to(&m.now)
	}
	m.now.normal()
	if m.limit == nil || m.now.Limit != old.Limit || m.now.Kind != old.Kind {
		m.limit = newLimiter(m.now, m.sim.now)
	}
	for len(m.free) < m.now.Servers {
		m.free = append(m.free, m.sim.now)
		up(m.free)
	}
}

// call is one call that arrives now. A call that is not answered within the
// timeout ends as a timeout, though the provider goes on working on it.
func (m *model) call() reply {
	r := m.answer()
	if limit := m.sim.sc.Timeout.Microseconds(); r.after > limit {
		return reply{outcome: breaker.Timeout, after: limit}
	}
	return r
}

func (m *model) answer() reply {
	p := m.now
	quick := 2000 + m.sim.rng.Int64N(6000)
	if p.Hang {
		return reply{after: math.MaxInt64}
	}
	if p.Outage {
		return reply{outcome: breaker.Failed, status: 503, after: quick}
	}
	if p.Refusal > 0 {
		return reply{outcome: breaker.OK, status: p.Refusal, after: quick}
	}
	if m.limit != nil && !m.limit.admit(m.sim.now) {
		return reply{outcome: breaker.Throttled, status: 429, after: quick, retryAfter: p.RetryAfter}
	}
	wait, ok := m.serve()
	if !ok {
		return reply{outcome: breaker.Failed, status: 503, after: quick}
	}
	if m.sim.rng.Float64() < m.errors() {
		return reply{outcome: breaker.Failed, status: 500, after: wait}
	}
	return reply{outcome: breaker.OK, status: 200, after: wait}
}

// serve returns how long the call takes, in line and at work; false where the
// line is full.
func (m *model) serve() (int64, bool) {
	work := m.work()
	if m.now.Servers <= 0 {
		return work, true
	}
	// After a change there may be more of them than work: they end by and by.
	for len(m.free) > m.now.Servers {
		pop(&m.free)
	}
	for len(m.line) > 0 && m.line[0] <= m.sim.now {
		m.line = m.line[1:]
	}
	start := max(m.sim.now, m.free[0])
	if start > m.sim.now {
		if len(m.line) >= m.now.Queue {
			return 0, false
		}
		m.line = append(m.line, start)
	}
	m.free[0] = start + work
	down(m.free)
	return start + work - m.sim.now, true
}

// work draws the time for one call, from a log-normal distribution.
func (m *model) work() int64 {
	const z99 = 2.3263
	sigma := math.Log(float64(m.now.P99)/float64(m.now.P50)) / z99
	return max(1, int64(float64(m.now.P50.Microseconds())*m.now.Slow*math.Exp(sigma*m.sim.rng.NormFloat64())))
}

// errors returns the share of errors now, on the way to where a change leads.
func (m *model) errors() float64 {
	share := m.base.Errors
	for _, c := range m.changes {
		if c.Errors == nil {
			continue
		}
		part := 1.0
		if c.Over > 0 {
			part = min(1, float64(m.sim.now-c.began)/float64(c.Over.Microseconds()))
		}
		share += (*c.Errors - share) * part
	}
	return share
}

// up and down keep a heap of times, the earliest first.
func up(h []int64) {
	for i := len(h) - 1; i > 0 && h[i] < h[(i-1)/2]; i = (i - 1) / 2 {
		h[i], h[(i-1)/2] = h[(i-1)/2], h[i]
	}
}

func down(h []int64) {
	for i := 0; ; {
		c := 2*i + 1
		if c >= len(h) {
			return
		}
		if c+1 < len(h) && h[c+1] < h[c] {
			c++
		}
		if h[i] <= h[c] {
			return
		}
		h[i], h[c] = h[c], h[i]
		i = c
	}
}

func pop(h *[]int64) {
	last := len(*h) - 1
	(*h)[0] = (*h)[last]
	*h = (*h)[:last]
	down(*h)
}
