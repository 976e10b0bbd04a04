package retrybudget

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/cenkalti/backoff/v4"
)

const (
	// DefaultBase is what a zero Backoff.Base means.
	DefaultBase = 2 * time.Second
	// DefaultMax is what a zero Backoff.Max means.
	DefaultMax = 10 * time.Minute
	// MinBase is the smallest base that Validate accepts. Due times are kept in
	// whole milliseconds, so anything smaller would be no delay at all.
	MinBase = time.Millisecond
	// LongestMax is the largest cap that Validate accepts.
	LongestMax = 31 * 24 * time.Hour

	// maxSpread bounds the upward jitter on a wait that the provider asked for.
	maxSpread = 10 * time.Second
)

// ErrBadBackoff is wrapped by every error of [Backoff.Validate].
var ErrBadBackoff = errors.New("bad back-off")

// Backoff is an exponential back-off with full jitter: before retry n, counted
// from 0, a job waits a time drawn evenly from above zero up to
// min(Max, Base·2ⁿ).
//
// The zero value means DefaultBase and DefaultMax. A Backoff is a plain value
// without state and safe for several goroutines at once.
//
// Full jitter is the variant that spreads a crowd best: see "Exponential
// Backoff And Jitter", AWS Architecture Blog, 2015.
type Backoff struct {
	// Base is the longest delay before the first retry. Zero: DefaultBase.
	Base time.Duration
	// Max caps every delay, before and after the jitter. It does not cap a wait
	// that the provider asked for. Zero: DefaultMax.
	Max time.Duration
}

// Validate reports what is wrong with b, naming the field and the remedy. The
// methods below never panic and never give a delay outside [0, Max] for a value
// that Validate refuses, either: a base or cap that is not positive then counts
// as its default, and the cap beats the base.
func (b Backoff) Validate() error {
	base, limit := b.limits()
	switch {
	case b.Base < 0:
		return fmt.Errorf("%w: base %v is negative; leave it out for %v", ErrBadBackoff, b.Base, DefaultBase)
	case b.Max < 0:
		return fmt.Errorf("%w: max %v is negative; leave it out for %v", ErrBadBackoff, b.Max, DefaultMax)
	case base < MinBase:
		return fmt.Errorf("%w: base %v is below %v; a retry would follow at once", ErrBadBackoff, b.Base, MinBase)
	case limit > LongestMax:
		return fmt.Errorf("%w: max %v is above %v; a job would be forgotten", ErrBadBackoff, b.Max, LongestMax)
	case base > limit:
		return fmt.Errorf("%w: base %v is above max %v; raise max or lower base", ErrBadBackoff, base, limit)
	}
	return nil
}

// limits returns base and cap with the defaults filled in.
func (b Backoff) limits() (base, limit time.Duration) {
	base, limit = b.Base, b.Max
	if base <= 0 {
		base = DefaultBase
	}
	if limit <= 0 {
		limit = DefaultMax
	}
	return base, limit
}

// Ceiling is the longest delay before retry n: min(Max, Base·2ⁿ), without
// jitter. n counts retries from 0; a negative n counts as 0. It is exact and
// does not overflow for any n.
func (b Backoff) Ceiling(n int) time.Duration {
	base, limit := b.limits()
	n = max(n, 0)
	// base·2ⁿ exceeds limit exactly when base exceeds limit/2ⁿ rounded down;
	// shifting right cannot overflow, whatever n is.
	if n >= 63 || base > limit>>n {
		return limit
	}
	return base << n
}

// Delay draws the wait before retry n (from 0): evenly distributed, at most
// Ceiling(n), and never zero. The shortest draw is 1 ms (or the ceiling, if
// that is less): due times are whole milliseconds, and a zero would mean "now".
func (b Backoff) Delay(n int) time.Duration {
	ceiling := b.Ceiling(n)
	shortest := min(MinBase, ceiling)
	_, limit := b.limits()
	// The library's schedule, entered at step n: its interval there is half the
	// ceiling, and a factor of 1 draws from [0, 2·interval].
	schedule := backoff.ExponentialBackOff{
		InitialInterval:     (ceiling - shortest) / 2,
		MaxInterval:         limit / 2,
		Multiplier:          2,
		RandomizationFactor: 1,
		MaxElapsedTime:      0,
		Stop:                backoff.Stop,
		Clock:               backoff.SystemClock,
	}
	schedule.Reset()
	drawn := schedule.NextBackOff()
	// Its sum is made in floating point, which near the end of the range can
	// come out as a nanosecond too many, or beyond the largest Duration.
	if drawn < 0 || drawn > ceiling-shortest {
		drawn = ceiling - shortest
	}
	return shortest + drawn
}

// Next is how long a job waits before retry n (from 0): the greater of
// Delay(n) and what the provider asked for. retryAfter is never shortened;
// jitter is only added to it, at most a quarter and at most 10 s, so that
// the jobs that were told the same moment do not all meet at it. Zero or less
// means that the provider said nothing. Max does not cap it: whoever read it
// from the answer has bounded it.
func (b Backoff) Next(n int, retryAfter time.Duration) time.Duration {
	own := b.Delay(n)
	if retryAfter <= 0 {
		return own
	}
	spread := min(retryAfter/4, maxSpread)
	if spread > 0 {
		spread = rand.N(spread)
	}
	if retryAfter > math.MaxInt64-spread {
		return math.MaxInt64
	}
	return max(own, retryAfter+spread)
}
