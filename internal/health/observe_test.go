package health

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/penstock-io/penstock/breaker"
	"github.com/penstock-io/penstock/internal/redistest"
)

// steady is n seconds from at on, each with so many calls that start, and of
// them so many that are refused.
func steady(at int64, n, starts, refused int) (all []second) {
	for i := range n {
		s := second{at: at + int64(i), Counts: breaker.Counts{Starts: starts, OK: starts - refused, Throttled: refused}}
		for range s.OK {
			s.lat.Add(20 * time.Millisecond)
		}
		all = append(all, s)
	}
	return all
}

func TestObserve(t *testing.T) {
	const now = 1796040000
	join := func(parts ...[]second) (all []second) {
		for _, p := range parts {
			all = append(all, p...)
		}
		return all
	}
	for _, c := range []struct {
		name                    string
		seen                    []second
		p50, p95, p99, accepted float64
		starts, throttled, span int
	}{
		{name: "nothing"},
		{name: "steady", seen: steady(now-100, 100, 40, 0), p50: 40, p95: 40, p99: 40, starts: 4000, span: 100},
		{name: "the second that is not over and those to come do not count", seen: steady(now-10, 30, 40, 0), p50: 40, p95: 40, p99: 40, starts: 400, span: 10},
		{name: "nor do those of long ago", seen: steady(now-700, 700, 40, 0), p50: 40, p95: 40, p99: 40, starts: 24000, span: 600},
		{name: "a peak", seen: join(steady(now-100, 90, 40, 0), steady(now-10, 10, 80, 0)), p50: 40, p95: 80, p99: 80, starts: 4400, span: 100},
		{name: "a pause does not lower the rate while there is any", seen: join(steady(now-600, 50, 40, 0), steady(now-50, 50, 40, 0)), p50: 40, p95: 40, p99: 40, starts: 4000, span: 600},
		{name: "two processes in one second", seen: join(steady(now-20, 20, 40, 0), steady(now-20, 20, 10, 0)), p50: 50, p95: 50, p99: 50, starts: 1000, span: 20},
		{name: "refused", seen: join(steady(now-90, 60, 40, 0), steady(now-30, 30, 80, 20)), p50: 40, p95: 80, p99: 80, accepted: 60, starts: 4800, throttled: 600, span: 90},
		{name: "shorter than a window", seen: steady(now-2, 2, 7, 0), p50: 7, p95: 7, p99: 7, starts: 14, span: 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := observe(c.seen, now)
			got := []float64{o.RateP50, o.RateP95, o.RateP99, o.Accepted, float64(o.Starts), float64(o.Throttled), o.To.Sub(o.From).Seconds()}
			if d := cmp.Diff([]float64{c.p50, c.p95, c.p99, c.accepted, float64(c.starts), float64(c.throttled), float64(c.span)}, got); d != "" {
				t.Errorf("p50, p95, p99, accepted, starts, throttled, span (-want +got)\n%s", d)
			}
			if o.Starts > 0 && (o.LatencyP50 < 16*time.Millisecond || o.LatencyP99 > 24*time.Millisecond) {
				t.Errorf("latency %s and %s", o.LatencyP50, o.LatencyP99)
			}
		})
	}
}

// What the law does not look at any more is still seen, and what it looks at,
// too; none of it twice.
func TestObservedOutlivesTheBuckets(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient, _ *redistest.Env) {
		m := unopened(t, rdb, nil)
		f := &flush{number: 1 << 40}
		for range 5 {
			f.window.started(2)
			f.window.ended(2, breaker.OK, 20*time.Millisecond)
		}
		s, err := m.sense(t.Context(), f, true, "")
		if err != nil {
			t.Fatal(err)
		}
		var old []breaker.Bucket
		for i := range 40 { // ten seconds of four buckets, in two generations
			b := breaker.Bucket{At: s.now.Truncate(time.Second).Add(-30*time.Second + time.Duration(i)*250*time.Millisecond), Generation: uint64(i % 2)}
			b.Starts, b.OK = 10, 10
			b.Latencies.Add(20 * time.Millisecond)
			old = append(old, b)
		}
		state := s.record.begin(On, 0)
		for i, part := range [][]breaker.Bucket{old[:18], old[18:]} { // a second in two parts
			if i == 1 {
				if s, err = m.sense(t.Context(), &flush{number: 1<<40 + 1}, false, ""); err != nil {
					t.Fatal(err)
				}
			}
			if ok, err := m.publish(t.Context(), s.record, control(state, m.law(), On, int64(i+1)), state, part); err != nil || !ok {
				t.Fatal(ok, err)
			}
		}
		// Of the newest second the end is waited for, by the store's clock.
		deadline := time.Now().Add(10 * time.Second)
		o, err := Observe(t.Context(), rdb, "sms")
		for ; err == nil && o.Starts < 405 && time.Now().Before(deadline); o, err = Observe(t.Context(), rdb, "sms") {
			time.Sleep(50 * time.Millisecond)
		}
		if err != nil || o.Starts != 405 || o.OK != 405 || o.RateP50 != 40 {
			t.Fatalf("%+v, %v; want 405 calls at 40/s", o, err)
		}
	})
}

// A busy second leaves the buckets as a whole.
func TestStaleByTheSecond(t *testing.T) {
	law := breaker.Config{Timeout: time.Second}.Normal()
	now := time.Unix(1796040000, 0).UTC()
	var buckets []breaker.Bucket
	for at := now.Add(-30 * time.Second); at.Before(now); at = at.Add(law.Tick) {
		b := breaker.Bucket{At: at}
		b.Starts, b.OK = 10, 10
		buckets = append(buckets, b)
	}
	old := pastSeconds(stale(buckets, now, law))
	if len(old) == 0 {
		t.Fatal("nothing is stale")
	}
	for _, s := range old {
		if s.Starts != 40 {
			t.Errorf("a second of %d calls; want all 40", s.Starts)
		}
	}
}
