package breaker

import (
	"math"
	"math/bits"
	"time"
)

// LatencyBuckets is how many buckets Latencies has: four to the octave, from
// one millisecond to over four minutes, so a quantile is within 10 %.
const LatencyBuckets = 72

// Latencies is a histogram of the latencies of successes. The zero value is
// empty. Histograms of several processes are added bucket by bucket.
type Latencies [LatencyBuckets]int

// LatencyBucket returns the bucket that d belongs to: 0 for anything under a
// millisecond, the last for anything longer than all.
func LatencyBucket(d time.Duration) int {
	us := min(d, time.Hour).Microseconds()
	if us < 1000 {
		return 0
	}
	// The octave, and where in it: both exact, without a logarithm.
	octave := bits.Len64(uint64(us/1000)) - 1
	quarter := int(us*4/(1000<<octave)) - 4
	return min(LatencyBuckets-1, 1+octave*4+quarter)
}

// bounds returns where bucket i begins and ends.
func (Latencies) bounds(i int) (lo, hi time.Duration) {
	edge := func(i int) time.Duration {
		if i <= 0 {
			return 0
		}
		octave, quarter := (i-1)/4, (i-1)%4
		return time.Duration(float64(time.Millisecond) * math.Ldexp(1+float64(quarter)/4, octave))
	}
	return edge(i), edge(i + 1)
}

// Add counts one latency. Negative ones count as none.
func (l *Latencies) Add(d time.Duration) { l[LatencyBucket(d)]++ }

// Merge adds the counts of o.
func (l *Latencies) Merge(o *Latencies) {
	for i, n := range o {
		l[i] += n
	}
}

// N returns how many latencies were counted.
func (l *Latencies) N() (n int) {
	for _, c := range l {
		n += c
	}
	return n
}

// Quantile returns the latency below which the share q (0 to 1) lies,
// interpolated within its bucket; 0 where nothing was counted.
func (l *Latencies) Quantile(q float64) time.Duration {
	n := l.N()
	if n == 0 {
		return 0
	}
	rank, seen := q*float64(n), 0.0
	for i, c := range l {
		if c == 0 {
			continue
		}
		if seen+float64(c) >= rank {
			lo, hi := l.bounds(i)
			return lo + time.Duration(float64(hi-lo)*max(0, rank-seen)/float64(c))
		}
		seen += float64(c)
	}
	_, hi := l.bounds(LatencyBuckets - 1)
	return hi
}
