package breaker

import (
	"slices"
	"time"
)

// Sample is what was seen of a provider, by the whole fleet, up to now. The
// zero value is "nothing seen". A Sample and what it points to are never
// changed by this package.
type Sample struct {
	// Buckets of what came back, one for each Config.Tick and generation in
	// which anything did. They reach back over Config.Window, and further until
	// Config.StretchCalls calls are covered or Config.StretchMax. Any order.
	Buckets []Bucket
	// Row is how many calls failed one after the other.
	Row Row
	// InFlight is how many calls are in flight now.
	InFlight int
	// Held is the wait that the provider asked for, if any.
	Held Hold
	// Probe is the lease of the probe in flight. Zero: none is.
	Probe Lease
	// Chance is a number from [0, 1), drawn anew for each Step: the only
	// randomness there is.
	Chance float64
}

// Bucket is what came back in one Config.Tick from calls that started in one
// generation, and how many calls started.
type Bucket struct {
	// At is when the bucket begins, by the clock of the store.
	At time.Time
	// Generation in which the calls counted here started.
	Generation uint64
	Counts
	// Latencies of successes only: a timeout's length is our own setting, and a
	// refusal is fast.
	Latencies Latencies
}

// Counts of calls.
type Counts struct {
	// Starts are calls that began; all others are calls that came back.
	Starts, OK, Throttled, Failed, Timeout, Excluded int
}

// Add counts one outcome. Latencies are counted apart.
func (c *Counts) Add(o Outcome) {
	switch o {
	case OK:
		c.OK++
	case Throttled:
		c.Throttled++
	case Failed:
		c.Failed++
	case Timeout:
		c.Timeout++
	case Excluded:
		c.Excluded++
	}
}

// Merge adds the counts of o.
func (c *Counts) Merge(o Counts) {
	c.Starts += o.Starts
	c.OK += o.OK
	c.Throttled += o.Throttled
	c.Failed += o.Failed
	c.Timeout += o.Timeout
	c.Excluded += o.Excluded
}

// Bad returns the calls that failed, by error or timeout.
func (c Counts) Bad() int { return c.Failed + c.Timeout }

// Judged returns the calls that failures are a ratio of: a refusal says
// nothing about the provider's health.
func (c Counts) Judged() int { return c.OK + c.Bad() }

// Returned returns the calls that said anything.
func (c Counts) Returned() int { return c.Judged() + c.Throttled }

// Row is a row of failures. A success ends it, a refusal and an excluded call
// leave it as it is. It has no window: at one call an hour a row takes hours.
type Row struct {
	// Since is the State.Since under which it was counted; the row of another
	// one counts nothing.
	Since uint64
	// Failures one after the other, errors and timeouts.
	Failures int
}

// Add counts one outcome of a call that started in generation, while the
// breaker's state dates from since.
func (r Row) Add(o Outcome, generation, since uint64) Row {
	if r.Since != since {
		r = Row{Since: since}
	}
	if generation < since {
		return r
	}
	switch o {
	case OK:
		r.Failures = 0
	case Failed, Timeout:
		r.Failures++
	}
	return r
}

// Lease is the right to be the probe.
type Lease struct {
	// Generation in which it was given.
	Generation uint64
	// Until is when it runs out. Zero: there is none.
	Until time.Time
}

// window returns the counts and latencies of calls that started in generation
// from or later, over the last w, stretched to the last cfg.StretchCalls calls.
func (t *tick) window(w time.Duration, from uint64) (c Counts, l Latencies) {
	begin := t.now.Add(-w - t.cfg.Tick)
	furthest := t.now.Add(-max(w, t.cfg.StretchMax))
	for _, b := range slices.Backward(t.buckets) {
		if b.At.After(t.now) || b.Generation < from {
			continue
		}
		if !b.At.After(begin) && (c.Returned() >= t.cfg.StretchCalls || !b.At.After(furthest)) {
			break
		}
		c.Merge(b.Counts)
		l.Merge(&b.Latencies)
	}
	return c, l
}

// rate returns how many calls a second started over the last w, stretched to
// the last cfg.StretchCalls starts, and no longer than there was any traffic.
// Only buckets that are over count.
func (t *tick) rate(w time.Duration) float64 {
	end := t.now.Truncate(t.cfg.Tick)
	n, span := 0, w
	if len(t.buckets) > 0 {
		span = min(w, max(t.cfg.Tick, end.Sub(t.buckets[0].At)))
	}
	for _, b := range slices.Backward(t.buckets) {
		age := end.Sub(b.At)
		if age <= 0 || b.Starts == 0 {
			continue
		}
		if age > w {
			if n >= t.cfg.StretchCalls || age > t.cfg.StretchMax {
				break
			}
			span = age
		}
		n += b.Starts
	}
	return float64(n) / span.Seconds()
}

// measured returns the rate of late: the larger of the short and the long
// average, since the long one lags behind a rise and the short one is noisy.
func (t *tick) measured() float64 {
	return max(t.rate(t.cfg.Refusals.RateShort), t.rate(t.cfg.Refusals.RateLong))
}

// settling reports whether the traffic is so young that its measured rate says
// nothing yet.
func (t *tick) settling() bool {
	for _, b := range t.buckets {
		if b.Starts > 0 && t.now.Sub(b.At) > t.cfg.Refusals.Settle {
			return false
		}
	}
	return true
}
