package fragile

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Bounds of a Rate: wide enough for every rehearsal, narrow enough that the
// integer arithmetic of the limiters cannot overflow.
const (
	maxCalls  = 1_000_000
	maxPeriod = 24 * time.Hour
)

// Rate is N calls per period. The zero value is no limit.
type Rate struct {
	N   int
	Per time.Duration
}

// IsZero reports whether there is no limit.
func (r Rate) IsZero() bool { return r.N == 0 }

// PerSecond returns calls a second, 0 for no limit.
func (r Rate) PerSecond() float64 {
	if r.IsZero() {
		return 0
	}
	return float64(r.N) / r.Per.Seconds()
}

// String writes the form that ParseRate reads; no limit is "none".
func (r Rate) String() string {
	if r.IsZero() {
		return "none"
	}
	for _, u := range rateUnits {
		if u.d == r.Per {
			return strconv.Itoa(r.N) + "/" + u.name
		}
	}
	return fmt.Sprintf("%d/%s", r.N, r.Per)
}

var rateUnits = []struct {
	name string
	d    time.Duration
}{{"s", time.Second}, {"m", time.Minute}, {"h", time.Hour}, {"d", 24 * time.Hour}}

// ParseRate reads "100/s", "12/m", "10/h", "5/10s", or "none".
func ParseRate(s string) (Rate, error) {
	bad := func(why string) (Rate, error) {
		return Rate{}, fmt.Errorf("limit %q: %s; write calls per period, like 100/s, 12/m or 5/10s, or none", s, why)
	}
	if s == "" || s == "none" {
		return Rate{}, nil
	}
	count, per, ok := strings.Cut(s, "/")
	if !ok {
		return bad("no period")
	}
	n, err := strconv.Atoi(count)
	if err != nil || n < 1 || n > maxCalls {
		return bad(fmt.Sprintf("the count must be a whole number from 1 to %d", maxCalls))
	}
	r := Rate{N: n}
	for _, u := range rateUnits {
		if per == u.name {
			r.Per = u.d
		}
	}
	if r.Per == 0 {
		if r.Per, err = time.ParseDuration(per); err != nil {
			return bad("the period is not a time")
		}
	}
	if err := r.validate(); err != nil {
		return bad(err.Error())
	}
	return r, nil
}

func (r Rate) validate() error {
	switch {
	case r == Rate{}:
		return nil
	case r.N < 1 || r.N > maxCalls:
		return fmt.Errorf("the count must be from 1 to %d, not %d", maxCalls, r.N)
	case r.Per < time.Millisecond || r.Per > maxPeriod:
		return fmt.Errorf("the period must be from 1ms to %s, not %s", maxPeriod, r.Per)
	}
	return nil
}

// MarshalText writes the form that ParseRate reads.
func (r Rate) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText reads as ParseRate does.
func (r *Rate) UnmarshalText(b []byte) (err error) {
	*r, err = ParseRate(string(b))
	return err
}
