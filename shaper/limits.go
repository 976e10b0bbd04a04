package shaper

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Bounds of what a gate accepts. Beyond them the integer microseconds that
// the script counts in would overflow or be too coarse to be exact.
const (
	// DefaultHeadroom is the time added to a rate's window when Limits.Headroom is 0.
	DefaultHeadroom = 25 * time.Millisecond
	// NoHeadroom as Limits.Headroom means none at all.
	NoHeadroom = time.Duration(-1)
	// MaxPerSecond is the largest rate: above it one microsecond is over 2 % of the interval.
	MaxPerSecond = 20_000
	// MaxPeriod is the longest period of a rate.
	MaxPeriod = 31 * 24 * time.Hour
	// MaxBurst is the largest burst.
	MaxBurst = 1_000_000
	// MaxConcurrency is the largest number of calls in flight.
	MaxConcurrency = 1_000_000
	// MaxHeadroom is the largest headroom.
	MaxHeadroom = time.Hour
)

// ErrBadLimit is wrapped by every refusal of a limit.
var ErrBadLimit = errors.New("bad limit")

// Rate is N calls per period. The zero value means no rate limit.
type Rate struct {
	N   int64
	Per time.Duration
}

// PerSecond returns a Rate of n calls a second.
func PerSecond(n int64) Rate { return Rate{N: n, Per: time.Second} }

// IsZero reports whether there is no rate limit.
func (r Rate) IsZero() bool { return r.N == 0 && r.Per == 0 }

// PerSec returns the rate in calls a second; 0 where there is no limit.
func (r Rate) PerSec() float64 {
	if r.IsZero() || r.Per <= 0 {
		return 0
	}
	return float64(r.N) / r.Per.Seconds()
}

// String writes the form that ParseRate reads, "" for no limit.
func (r Rate) String() string {
	if r.IsZero() {
		return ""
	}
	switch r.Per {
	case time.Second:
		return fmt.Sprintf("%d/s", r.N)
	case time.Minute:
		return fmt.Sprintf("%d/m", r.N)
	case time.Hour:
		return fmt.Sprintf("%d/h", r.N)
	case 24 * time.Hour:
		return fmt.Sprintf("%d/d", r.N)
	}
	return fmt.Sprintf("%d/%s", r.N, r.Per)
}

// ParseRate reads N/s, N/m, N/h, N/d or N/10s: whole calls per period.
// A missing rate is the zero Rate, not the text "0/s", which is refused.
func ParseRate(s string) (Rate, error) {
	bad := func(why string) (Rate, error) {
		return Rate{}, fmt.Errorf("%w: rate %q: %s; write calls per period, like 100/s, 12/m, 10/h or 5/10s", ErrBadLimit, s, why)
	}
	n, per, ok := strings.Cut(strings.TrimSpace(s), "/")
	if !ok {
		return bad("no period")
	}
	num, err := strconv.ParseInt(n, 10, 64)
	if err != nil || strings.HasPrefix(n, "+") {
		return bad("the count is not a whole number in range")
	}
	var d time.Duration
	switch per {
	case "s", "sec", "second":
		d = time.Second
	case "m", "min", "minute":
		d = time.Minute
	case "h", "hour":
		d = time.Hour
	case "d", "day":
		d = 24 * time.Hour
	default:
		if d, err = time.ParseDuration(per); err != nil {
			return bad("the period is not a time")
		}
	}
	r := Rate{N: num, Per: d}
	if err := r.Validate(); err != nil {
		return bad(strings.TrimPrefix(err.Error(), ErrBadLimit.Error()+": "))
	}
	return r, nil
}

// Validate refuses what cannot be kept exactly. The zero Rate is valid.
func (r Rate) Validate() error {
	switch {
	case r.IsZero():
		return nil
	case r.N <= 0:
		return fmt.Errorf("%w: rate must allow at least 1 call in its period, not %d; leave it out for no limit, or pause the provider", ErrBadLimit, r.N)
	case r.Per <= 0:
		return fmt.Errorf("%w: the rate's period must be longer than 0, not %s", ErrBadLimit, r.Per)
	case r.Per > MaxPeriod:
		return fmt.Errorf("%w: the rate's period must be at most %s, not %s", ErrBadLimit, MaxPeriod, r.Per)
	case r.Per < time.Millisecond:
		return fmt.Errorf("%w: the rate's period must be at least 1ms, not %s", ErrBadLimit, r.Per)
	case r.PerSec() > MaxPerSecond:
		return fmt.Errorf("%w: at most %d calls a second, not %.0f", ErrBadLimit, MaxPerSecond, r.PerSec())
	}
	return nil
}

// MarshalText writes the form that ParseRate reads.
func (r Rate) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText reads as ParseRate does; empty text is the zero Rate.
func (r *Rate) UnmarshalText(b []byte) error {
	if len(b) == 0 {
		*r = Rate{}
		return nil
	}
	v, err := ParseRate(string(b))
	if err == nil {
		*r = v
	}
	return err
}

// Limits are what a provider allows, over the whole fleet. The zero value
// allows everything.
type Limits struct {
	// Rate of calls, shaped evenly. Zero: no rate limit.
	Rate Rate
	// Burst is how many calls may start at once after a pause. Zero: 1.
	Burst int
	// Headroom is added to the rate's period before it is divided: the jitter
	// between our door and theirs. Zero: DefaultHeadroom. NoHeadroom: none.
	Headroom time.Duration
	// Concurrency is how many calls may be in flight. Zero: no limit.
	Concurrency int
}

// Normal returns l with its defaults filled in.
func (l Limits) Normal() Limits {
	if l.Burst == 0 {
		l.Burst = 1
	}
	switch {
	case l.Headroom == 0:
		l.Headroom = DefaultHeadroom
	case l.Headroom < 0:
		l.Headroom = NoHeadroom
	}
	return l
}

// Validate refuses limits that cannot be kept exactly; the error wraps
// ErrBadLimit and names the field.
func (l Limits) Validate() error {
	if err := l.Rate.Validate(); err != nil {
		return err
	}
	switch {
	case l.Burst < 0 || l.Burst > MaxBurst:
		return fmt.Errorf("%w: burst must be from 1 to %d (0 means 1), not %d", ErrBadLimit, MaxBurst, l.Burst)
	case l.Concurrency < 0 || l.Concurrency > MaxConcurrency:
		return fmt.Errorf("%w: concurrency must be from 1 to %d (0 means no limit), not %d", ErrBadLimit, MaxConcurrency, l.Concurrency)
	case l.Headroom < 0 && l.Headroom != NoHeadroom:
		return fmt.Errorf("%w: headroom must not be negative, but is %s", ErrBadLimit, l.Headroom)
	case l.Headroom > MaxHeadroom:
		return fmt.Errorf("%w: headroom must be at most %s, not %s", ErrBadLimit, MaxHeadroom, l.Headroom)
	}
	if iv := l.Interval(); iv > 0 && float64(iv.Microseconds())*float64(max(1, l.Burst)) > 1<<50 {
		return fmt.Errorf("%w: a burst of %d at %s spans more time than can be counted; lower the burst", ErrBadLimit, l.Burst, l.Rate)
	}
	return nil
}

// MaxCost is the most calls that one permit can stand for: as many as the
// provider takes in one period, or the burst where that is more. Zero: no bound,
// as there is no rate.
func (l Limits) MaxCost() int {
	if l.Rate.IsZero() {
		return 0
	}
	return int(max(l.Rate.N, int64(l.Normal().Burst)))
}

// Interval returns the emission interval, (period + headroom) / N in whole
// microseconds, rounded up so that the rate is never exceeded; 0 where there
// is no rate. The idea is GCRA's T (ATM Forum, I.371).
func (l Limits) Interval() time.Duration {
	l = l.Normal()
	if l.Rate.IsZero() || l.Rate.N <= 0 {
		return 0
	}
	us := l.Rate.Per.Microseconds() + max(0, l.Headroom).Microseconds()
	return time.Duration((us+l.Rate.N-1)/l.Rate.N) * time.Microsecond
}
