package fragile

import (
	"fmt"
	"math/bits"
	"strings"
	"time"
)

// Kind says how the limit counts.
type Kind uint8

const (
	// Sliding is strict: never more than N accepted in any window of the
	// period, by an exact log of the accepted. The zero value.
	Sliding Kind = iota
	// Bucket is a token bucket: Burst tokens at most, refilled at N per period.
	Bucket
	// Fixed counts in windows that follow each other from the start on.
	Fixed
)

var kindNames = []string{"sliding", "bucket", "fixed"}

// String returns "sliding", "bucket" or "fixed".
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// MarshalText writes what UnmarshalText reads.
func (k Kind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText reads "sliding", "bucket" or "fixed".
func (k *Kind) UnmarshalText(b []byte) error {
	for i, name := range kindNames {
		if string(b) == name {
			*k = Kind(i)
			return nil
		}
	}
	return fmt.Errorf("kind %q is not known; use one of %s", b, strings.Join(kindNames, ", "))
}

// limiter admits calls. now never steps back. A refusal says how long it is
// until the next call would be admitted if nobody else came.
type limiter interface {
	admit(now time.Duration) (wait time.Duration, ok bool)
	// change sets another rate and keeps what was admitted so far.
	change(now time.Duration, r Rate)
}

// newLimiter returns the limiter of kind k. history is the largest N that
// change will ever be asked for; beyond it a raised sliding limit forgets.
func newLimiter(k Kind, r Rate, burst, history int) limiter {
	switch k {
	case Bucket:
		b := &bucket{burst: burst}
		b.change(0, r)
		b.level = b.full()
		return b
	case Fixed:
		return &fixed{rate: r}
	default:
		return &sliding{rate: r, log: make([]time.Duration, 0, min(max(history, r.N), 1024)), size: max(history, r.N, 1)}
	}
}

// sliding keeps the times of the last size admitted calls in a ring. A call is
// admitted when the Nth last is at least one period old: windows are half open
// (t, t+Per].
type sliding struct {
	rate Rate
	log  []time.Duration
	next int // where the next time goes once the ring is full
	size int
}

func (s *sliding) admit(now time.Duration) (time.Duration, bool) {
	if n := s.rate.N; n > 0 && len(s.log) >= n {
		if age := now - s.nthLast(n); age < s.rate.Per {
			return s.rate.Per - age, false
		}
	}
	if len(s.log) < s.size {
		s.log = append(s.log, now)
	} else {
		s.log[s.next] = now
		s.next = (s.next + 1) % s.size
	}
	return 0, true
}

// nthLast returns the time of the nth last admitted call, 1 being the last.
func (s *sliding) nthLast(n int) time.Duration {
	return s.log[(s.next-n+2*len(s.log))%len(s.log)]
}

func (s *sliding) change(_ time.Duration, r Rate) {
	s.rate = r
	if r.N > s.size {
		s.log = append(append([]time.Duration(nil), s.log[s.next:]...), s.log[:s.next]...)
		s.next, s.size = 0, r.N
	}
}

// bucket counts in units of 1/Per of a token, so that a nanosecond is worth
// exactly N units and a call exactly Per: no rounding anywhere.
type bucket struct {
	rate  Rate
	burst int
	level int64
	last  time.Duration
}

func (b *bucket) full() int64 { return int64(b.burst) * int64(b.rate.Per) }

func (b *bucket) refill(now time.Duration) {
	hi, gain := bits.Mul64(uint64(now-b.last), uint64(b.rate.N))
	if room := b.full() - b.level; hi != 0 || gain >= uint64(room) {
		b.level = b.full()
	} else {
		b.level += int64(gain)
	}
	b.last = now
}

func (b *bucket) admit(now time.Duration) (time.Duration, bool) {
	if b.rate.IsZero() {
		return 0, true
	}
	b.refill(now)
	if lack := int64(b.rate.Per) - b.level; lack > 0 {
		n := int64(b.rate.N)
		return time.Duration((lack + n - 1) / n), false
	}
	b.level -= int64(b.rate.Per)
	return 0, true
}

func (b *bucket) change(now time.Duration, r Rate) {
	if !b.rate.IsZero() {
		b.refill(now)
	}
	tokens := 0.0
	if b.rate.Per > 0 {
		tokens = float64(b.level) / float64(b.rate.Per)
	}
	b.rate, b.last = r, now
	b.level = min(int64(tokens*float64(r.Per)), b.full())
}

// fixed counts in windows aligned to the provider's start.
type fixed struct {
	rate   Rate
	window int64
	used   int
}

func (f *fixed) admit(now time.Duration) (time.Duration, bool) {
	if f.rate.IsZero() {
		return 0, true
	}
	if w := int64(now / f.rate.Per); w != f.window {
		f.window, f.used = w, 0
	}
	if f.used >= f.rate.N {
		return time.Duration(f.window+1)*f.rate.Per - now, false
	}
	f.used++
	return 0, true
}

func (f *fixed) change(now time.Duration, r Rate) {
	if r.Per != f.rate.Per && !r.IsZero() {
		f.window, f.used = int64(now/r.Per), 0
	}
	f.rate = r
}
