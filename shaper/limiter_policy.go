package shaper

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Algorithm of a Policy: how what a client has used is remembered.
type Algorithm string

// The algorithms. N and Per are the policy's rate, Burst its burst.
//
//	algorithm        in any window of Per at most    state for one client
//	fixed_window     2 N (at a window's edge)        a counter
//	sliding_log      N, exactly                      N times
//	sliding_counter  N if it came evenly, else < 2 N  two counters
//	token_bucket     Burst + N                       a level
//	leaky_bucket     Burst + N                       a level
//	gcra             Burst + N                       a time
//	concurrency      no window: N at a time          N places
//
// With Burst = N a bucket lets through what a fixed window does in its worst
// case; a smaller Burst makes it stricter. The three buckets decide alike;
// they differ in what they write down.
const (
	// FixedWindow counts in windows that begin at multiples of Per since 1970.
	FixedWindow Algorithm = "fixed_window"
	// SlidingLog remembers the time of every unit.
	SlidingLog Algorithm = "sliding_log"
	// SlidingCounter weighs the last window's count by how much of it is still
	// inside the sliding one.
	SlidingCounter Algorithm = "sliding_counter"
	// TokenBucket holds Burst tokens and gains N in Per.
	TokenBucket Algorithm = "token_bucket"
	// LeakyBucket fills by what comes and drains N in Per; what would overflow
	// is refused (policing: nothing waits).
	LeakyBucket Algorithm = "leaky_bucket"
	// GCRA keeps the theoretical arrival time (ATM Forum, ITU-T I.371).
	GCRA Algorithm = "gcra"
	// Concurrency limits requests in flight: N places, each leased.
	Concurrency Algorithm = "concurrency"
)

// Algorithms lists every algorithm in the order of the documentation.
func Algorithms() []Algorithm {
	return []Algorithm{FixedWindow, SlidingLog, SlidingCounter, TokenBucket, LeakyBucket, GCRA, Concurrency}
}

// Bounds of a Policy. Beyond them the whole numbers that Lua counts in would
// not be exact any more.
const (
	// MaxPolicyN is the largest N.
	MaxPolicyN = 1_000_000_000
	// MaxLogged is the largest N of a sliding log: that many times are stored
	// for each client.
	MaxLogged = 10_000
	// MaxPlaces is the largest N of a concurrency limit.
	MaxPlaces = 10_000
	// DefaultPlaceLease is how long a place of a concurrency limit is held
	// without being renewed when Policy.Lease is 0.
	DefaultPlaceLease = 30 * time.Second
	// MaxPlaceLease is the longest lease.
	MaxPlaceLease = 24 * time.Hour
	// maxUnits bounds N·Per and Burst·Per in microseconds.
	maxUnits = 1 << 51
)

// Policy is one limit at our own door: what one client may do. It decides at
// once and never lets anything wait. (The draft on RateLimit fields calls it a
// quota policy.)
type Policy struct {
	// Algorithm is required.
	Algorithm Algorithm
	// Rate is N units per period. Required, but for Concurrency.
	Rate Rate
	// Burst is how many units a bucket or GCRA lets through at once. Zero:
	// Rate.N. The other algorithms have none.
	Burst int64
	// Places is how many requests may be in flight: Concurrency only, and
	// required there.
	Places int64
	// Lease is how long a place is held without being renewed: Concurrency
	// only. Zero: 30 s.
	Lease time.Duration
}

// bucket reports whether the algorithm has a burst.
func (p Policy) bucket() bool {
	return p.Algorithm == TokenBucket || p.Algorithm == LeakyBucket || p.Algorithm == GCRA
}

// Normal returns p with its defaults filled in.
func (p Policy) Normal() Policy {
	if p.Burst == 0 && p.bucket() {
		p.Burst = p.Rate.N
	}
	if p.Lease == 0 && p.Algorithm == Concurrency {
		p.Lease = DefaultPlaceLease
	}
	return p
}

// Quota is the number of units that a client may use in the policy's window,
// or at a time.
func (p Policy) Quota() int64 {
	if p.Algorithm == Concurrency {
		return p.Places
	}
	return p.Rate.N
}

// Most is the largest cost that can ever be granted at once.
func (p Policy) Most() int64 {
	switch p = p.Normal(); {
	case p.Algorithm == Concurrency:
		return p.Places
	case p.bucket():
		return p.Burst
	}
	return p.Rate.N
}

// String writes the policy in short, like "100/m token_bucket burst 20".
func (p Policy) String() string {
	if p.Algorithm == Concurrency {
		return fmt.Sprintf("%d at a time", p.Places)
	}
	s := p.Rate.String() + " " + string(p.Algorithm)
	if p.bucket() && p.Burst != 0 && p.Burst != p.Rate.N {
		s += fmt.Sprintf(" burst %d", p.Burst)
	}
	return s
}

// Validate refuses what cannot be counted exactly and what means nothing for
// the algorithm. The error wraps ErrBadLimit and names the field.
func (p Policy) Validate() error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: %s", ErrBadLimit, fmt.Sprintf(format, args...))
	}
	if !slices.Contains(Algorithms(), p.Algorithm) {
		names := make([]string, 0, len(Algorithms()))
		for _, a := range Algorithms() {
			names = append(names, string(a))
		}
		return bad("algorithm %q is unknown; use one of %s", p.Algorithm, strings.Join(names, ", "))
	}
	if p.Algorithm == Concurrency {
		return p.validatePlaces(bad)
	}
	p = p.Normal()
	us := p.Rate.Per.Microseconds()
	switch {
	case p.Rate.N <= 0 || p.Rate.N > MaxPolicyN:
		return bad("rate must allow from 1 to %d units in its period, not %d; to let nothing through, deny the client", MaxPolicyN, p.Rate.N)
	case p.Rate.Per < time.Millisecond || p.Rate.Per > MaxPeriod:
		return bad("the rate's period must be from 1ms to %s, not %s", MaxPeriod, p.Rate.Per)
	case p.Rate.Per%time.Microsecond != 0:
		return bad("the rate's period must be whole microseconds, not %s", p.Rate.Per)
	case p.Places != 0 || p.Lease != 0:
		return bad("places and lease mean nothing for %s; use them with %s", p.Algorithm, Concurrency)
	case p.Burst != 0 && !p.bucket():
		return bad("burst means nothing for %s; leave it out, or use %s", p.Algorithm, TokenBucket)
	case p.Burst < 0:
		return bad("burst must be at least 1 (0 means the rate's count), not %d", p.Burst)
	case p.Algorithm == SlidingLog && p.Rate.N > MaxLogged:
		return bad("a sliding log stores every unit, at most %d for a client, not %d; use %s", MaxLogged, p.Rate.N, SlidingCounter)
	case max(p.Rate.N, p.Burst) > maxUnits/us:
		return bad("%d units over %s cannot be counted exactly; lower the burst or shorten the period", max(p.Rate.N, p.Burst), p.Rate.Per)
	}
	return nil
}

func (p Policy) validatePlaces(bad func(string, ...any) error) error {
	switch {
	case !p.Rate.IsZero() || p.Burst != 0:
		return bad("rate and burst mean nothing for %s; leave them out", Concurrency)
	case p.Places <= 0 || p.Places > MaxPlaces:
		return bad("places must be from 1 to %d, not %d", MaxPlaces, p.Places)
	case p.Lease < 0 || p.Lease > MaxPlaceLease || p.Lease > 0 && p.Lease < 10*time.Millisecond:
		return bad("lease must be from 10ms to %s (0 means %s), not %s", MaxPlaceLease, DefaultPlaceLease, p.Lease)
	}
	return nil
}
