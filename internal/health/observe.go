package health

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/penstock-io/penstock/breaker"
	"github.com/penstock-io/penstock/shaper"
)

const (
	// mostSeconds are kept of a provider.
	mostSeconds = 600
	observedFor = mostSeconds * time.Second
	// rateWindow is what a rate is a mean of: processes flush four times a
	// second, so that one second alone may be a quarter off.
	rateWindow = 5
)

// second is what was seen in one second, over all generations.
type second struct {
	at int64 // Unix
	breaker.Counts
	lat breaker.Latencies
}

func (s second) text() string {
	return strconv.FormatInt(s.at, 10) + " " + encode(s.Counts, &s.lat)
}

// pastSeconds sums buckets up by second, oldest first.
func pastSeconds(buckets []breaker.Bucket) []second {
	all := make([]second, 0, len(buckets))
	for i := range buckets {
		all = append(all, second{at: buckets[i].At.Unix(), Counts: buckets[i].Counts, lat: buckets[i].Latencies})
	}
	return merged(all)
}

// merged sorts by time, and makes one of those of the same second.
func merged(all []second) []second {
	slices.SortStableFunc(all, func(a, b second) int { return int(a.at - b.at) })
	out := all[:0]
	for i := range all {
		if n := len(out); n > 0 && out[n-1].at == all[i].at {
			out[n-1].Merge(all[i].Counts)
			out[n-1].lat.Merge(&all[i].lat)
			continue
		}
		out = append(out, all[i])
	}
	return out
}

// Observed is what was seen of a provider in the last ten minutes at most, over
// the whole fleet. Rates are calls a second, each a mean over five seconds.
// The zero value: nothing was seen.
type Observed struct {
	// From and To are the first and the last second with anything in it, by
	// Redis's clock. To is when it ended.
	From, To time.Time
	// Counts of calls.
	breaker.Counts
	// RateP50, RateP95 and RateP99 are quantiles of the calls that started, over
	// the time in which any did.
	RateP50, RateP95, RateP99 float64
	// Accepted is the median rate of calls that were not refused, while others
	// were; 0 where none was refused.
	Accepted float64
	// Latency of successes.
	LatencyP50, LatencyP95, LatencyP99 time.Duration
}

// Observe sums up what was seen of the provider of a queue. Where adaptive is
// off nothing is counted.
func Observe(ctx context.Context, rdb redis.UniversalClient, queue string) (Observed, error) {
	var clock *redis.TimeCmd
	var past *redis.StringSliceCmd
	var late *redis.MapStringStringCmd
	_, err := rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		past = p.LRange(ctx, shaper.Prefix(queue)+"seconds", 0, mostSeconds-1)
		late = p.HGetAll(ctx, shaper.Prefix(queue)+"buckets")
		clock = p.Time(ctx)
		return nil
	})
	if err != nil {
		return Observed{}, fmt.Errorf("what was observed of %s: %w", queue, err)
	}
	var all []second
	for _, text := range past.Val() {
		at, counts, _ := strings.Cut(text, " ")
		all = appendSecond(all, at, 1, counts)
	}
	for field, counts := range late.Val() {
		at, _, _ := strings.Cut(field, ":")
		all = appendSecond(all, at, 1_000_000, counts)
	}
	return observe(all, clock.Val().Unix()), nil
}

// appendSecond reads one, whose time has so many units in a second; what it
// cannot read is left out.
func appendSecond(all []second, at string, units int64, counts string) []second {
	t, err := strconv.ParseInt(at, 10, 64)
	if err != nil {
		return all
	}
	var b breaker.Bucket
	decode(counts, &b)
	return append(all, second{at: t / units, Counts: b.Counts, lat: b.Latencies})
}

// observe sums up what happened before the second now, which is not over.
func observe(all []second, now int64) (o Observed) {
	all = slices.DeleteFunc(merged(all), func(s second) bool {
		return s.at >= now || s.at < now-mostSeconds || s.Counts == breaker.Counts{}
	})
	if len(all) == 0 {
		return o
	}
	from, to := all[0].at, all[len(all)-1].at+1
	o.From, o.To = time.Unix(from, 0).UTC(), time.Unix(to, 0).UTC()
	line := make([]second, to-from) // one after the other, the empty ones too
	var lat breaker.Latencies
	for _, s := range all {
		o.Merge(s.Counts)
		lat.Merge(&s.lat)
		line[s.at-from] = s
	}
	o.LatencyP50, o.LatencyP95, o.LatencyP99 = lat.Quantile(0.5), lat.Quantile(0.95), lat.Quantile(0.99)
	started, accepted := rates(line)
	o.RateP50, o.RateP95, o.RateP99 = quantile(started, 0.5), quantile(started, 0.95), quantile(started, 0.99)
	o.Accepted = quantile(accepted, 0.5)
	return o
}

// rates are the means over each window in which calls started, and over each that
// ends with a second in which some were refused.
func rates(line []second) (started, accepted []float64) {
	width := min(rateWindow, len(line))
	var c breaker.Counts
	for i := range line {
		c.Merge(line[i].Counts)
		if i+1 < width {
			continue
		}
		if i >= width {
			out := line[i-width].Counts
			c.Starts, c.OK, c.Failed, c.Timeout = c.Starts-out.Starts, c.OK-out.OK, c.Failed-out.Failed, c.Timeout-out.Timeout
		}
		if c.Starts > 0 {
			started = append(started, float64(c.Starts)/float64(width))
		}
		if line[i].Throttled > 0 { // health cuts after it, so what came before it counts
			accepted = append(accepted, float64(c.Judged())/float64(width))
		}
	}
	return started, accepted
}

// quantile is the value that the share q of all does not exceed; 0 for none.
func quantile(all []float64, q float64) float64 {
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[min(len(all)-1, int(q*float64(len(all))))]
}
