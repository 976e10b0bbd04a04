package simulate

import "sort"

// limiter is how a provider counts. now is in microseconds and never falls.
type limiter interface {
	admit(now int64) bool
}

// newLimiter returns the limiter of p, nil where it has no limit.
func newLimiter(p Provider, now int64) limiter {
	if p.Limit.IsZero() {
		return nil
	}
	n, per := p.Limit.N, p.Limit.Per.Microseconds()
	switch p.Kind {
	case "sliding":
		return &sliding{n: int(n), per: per}
	case "fixed":
		return &fixed{n: n, per: per}
	}
	return &bucket{rate: n, per: per, full: int64(p.Burst) * per, level: int64(p.Burst) * per, at: now}
}

// bucket counts in units of 1/per of a token: a microsecond is worth rate of
// them, a call per of them. No rounding anywhere.
type bucket struct{ rate, per, full, level, at int64 }

func (b *bucket) admit(now int64) bool {
	gone := now - b.at
	if gone > b.full/b.rate {
		b.level = b.full
	} else {
		b.level = min(b.full, b.level+gone*b.rate)
	}
	b.at = now
	if b.level < b.per {
		return false
	}
	b.level -= b.per
	return true
}

// sliding admits n calls in any window of per, exactly.
type sliding struct {
	n   int
	per int64
	log []int64
}

func (s *sliding) admit(now int64) bool {
	old := sort.Search(len(s.log), func(i int) bool { return s.log[i] > now-s.per })
	s.log = s.log[old:]
	if len(s.log) >= s.n {
		return false
	}
	s.log = append(s.log, now)
	return true
}

// fixed admits n calls in each window, one after the other.
type fixed struct {
	n, per, window, count int64
}

func (f *fixed) admit(now int64) bool {
	if w := now / f.per; w != f.window {
		f.window, f.count = w, 0
	}
	if f.count >= f.n {
		return false
	}
	f.count++
	return true
}
