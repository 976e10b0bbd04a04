package shaper

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/penstock-io/penstock/internal/redistest"
)

// doorStart is a whole minute, so that windows begin there.
const doorStart = 1_796_040_000_000_000

// testClock gives stores their time, in microseconds.
type testClock struct{ us int64 }

func (c *testClock) now() int64            { return c.us }
func (c *testClock) sleep(d time.Duration) { c.us += d.Microseconds() }

// testStores returns one store of each kind on one clock.
func testStores(rdb redis.UniversalClient) (map[string]LimitStore, *testClock) {
	clock := &testClock{us: doorStart}
	r := NewRedisLimitStore(rdb, "test")
	m := NewMemoryLimitStore(MemoryLimits{})
	r.now, m.now = clock.now, clock.now
	return map[string]LimitStore{"redis": r, "memory": m}, clock
}

// onEachStore runs a suite on memory, on miniredis and on a real Redis.
func onEachStore(t *testing.T, suite func(t *testing.T, s LimitStore, clock *testClock)) {
	t.Helper()
	ran := 0
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient, env *redistest.Env) {
		for kind, s := range map[string]func() (LimitStore, *testClock){
			"redis":  func() (LimitStore, *testClock) { st, c := testStores(rdb); return st["redis"], c },
			"memory": func() (LimitStore, *testClock) { st, c := testStores(rdb); return st["memory"], c },
		} {
			if kind == "memory" && !env.Virtual {
				continue
			}
			ran++
			store, clock := s()
			suite(t, store, clock)
		}
	})
	if ran != 3 {
		t.Fatalf("ran on %d stores", ran)
	}
}

// take asks one thing.
func takeOne(t testing.TB, s LimitStore, p Policy, key string, cost int64) Decision {
	t.Helper()
	ds, err := s.Decide(t.Context(), []Ask{{Limit: fmt.Sprint("t-", p.Algorithm), Policy: p, Key: key, Cost: cost, Place: fmt.Sprint("p", time.Now().UnixNano(), cost)}})
	if err != nil {
		t.Fatal(err)
	}
	return ds[0]
}

func per(n int64, d time.Duration, a Algorithm) Policy {
	return Policy{Algorithm: a, Rate: Rate{N: n, Per: d}}
}

var ignoreAt = cmpopts.IgnoreUnexported(Decision{})

// What a fresh client may do, to the microsecond: the quota at once, then the
// exact wait, not a microsecond less.
func TestLimiterExact(t *testing.T) {
	const minute = time.Minute
	for _, c := range []struct {
		p    Policy
		at   time.Duration // into the minute
		wait time.Duration // of one more, after the quota
	}{
		{per(6, minute, FixedWindow), 20 * time.Second, 40 * time.Second},
		{per(6, minute, SlidingLog), 20 * time.Second, 60 * time.Second},
		{per(6, minute, SlidingCounter), 20 * time.Second, 50 * time.Second}, // a sixth of the next window later
		{per(6, minute, TokenBucket), 20 * time.Second, 10 * time.Second},
		{per(6, minute, LeakyBucket), 20 * time.Second, 10 * time.Second},
		{per(6, minute, GCRA), 20 * time.Second, 10 * time.Second},
		{per(7, minute, GCRA), 0, 8571429 * time.Microsecond}, // 60 s / 7, rounded up
		{per(7, minute, TokenBucket), 0, 8571429 * time.Microsecond},
		{per(1_000_000_000, time.Millisecond, GCRA), 0, time.Microsecond},
	} {
		t.Run(c.p.String(), func(t *testing.T) {
			onEachStore(t, func(t *testing.T, s LimitStore, clock *testClock) {
				clock.sleep(c.at)
				n := c.p.Rate.N
				if d := takeOne(t, s, c.p, "k", n); !d.Allowed || d.Taken != n || d.Remaining != 0 || d.Limit != n || d.Source != FromStore || d.RetryAfter != 0 {
					t.Fatalf("the quota: %+v", d)
				}
				d := takeOne(t, s, c.p, "k", 1)
				if d.Allowed || d.Taken != 0 || d.Remaining != 0 || d.RetryAfter != c.wait {
					t.Fatalf("one more: %+v, want to wait %s", d, c.wait)
				}
				if d := takeOne(t, s, c.p, "another", 1); !d.Allowed {
					t.Fatalf("another client: %+v", d)
				}
				clock.sleep(c.wait - time.Microsecond)
				if d := takeOne(t, s, c.p, "k", 1); d.Allowed || d.RetryAfter != time.Microsecond {
					t.Fatalf("a microsecond early: %+v", d)
				}
				clock.sleep(time.Microsecond)
				if d := takeOne(t, s, c.p, "k", 1); !d.Allowed {
					t.Fatalf("in time: %+v", d)
				}
			})
		})
	}
}

// LIM-10 and LIM-14: slow rates keep their exact spacing; nothing is rounded
// in the client's favour.
func TestLimiterSpacing(t *testing.T) {
	for _, c := range []struct {
		name string
		p    Policy
		want time.Duration
	}{
		{"LIM-10 12 a minute", Policy{Algorithm: GCRA, Rate: Rate{12, time.Minute}, Burst: 1}, 5 * time.Second},
		{"LIM-10 1 in 3 s", Policy{Algorithm: TokenBucket, Rate: Rate{1, 3 * time.Second}}, 3 * time.Second},
		{"LIM-10 1 in 3 s, log", Policy{Algorithm: SlidingLog, Rate: Rate{1, 3 * time.Second}}, 3 * time.Second},
		{"LIM-14 6 a minute", Policy{Algorithm: LeakyBucket, Rate: Rate{6, time.Minute}, Burst: 1}, 10 * time.Second},
		{"LIM-14 6 a minute, gcra", Policy{Algorithm: GCRA, Rate: Rate{6, time.Minute}, Burst: 1}, 10 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			onEachStore(t, func(t *testing.T, s LimitStore, clock *testClock) {
				var got []time.Duration
				begin := clock.us
				for clock.us < begin+61_000_000 {
					if takeOne(t, s, c.p, "k", 1).Allowed {
						got = append(got, micros(clock.us-begin))
					}
					clock.sleep(100 * time.Millisecond)
				}
				for i, at := range got {
					if at != time.Duration(i)*c.want {
						t.Fatalf("number %d passed at %s, want %s", i, at, time.Duration(i)*c.want)
					}
				}
				if want := int(61*time.Second/c.want) + 1; len(got) != want {
					t.Errorf("%d passed, want %d", len(got), want)
				}
			})
		})
	}
}

// LIM-16: a clock that steps moves the state with it, once.
func TestLimiterClockSteps(t *testing.T) {
	for _, a := range Algorithms()[:6] {
		t.Run("LIM-16 "+string(a), func(t *testing.T) {
			onEachStore(t, func(t *testing.T, s LimitStore, clock *testClock) {
				p := per(10, time.Minute, a)
				if d := takeOne(t, s, p, "k", 10); !d.Allowed {
					t.Fatalf("%+v", d)
				}
				clock.us -= (10 * time.Minute).Microseconds()
				d := takeOne(t, s, p, "k", 1)
				if d.Allowed || d.RetryAfter > 2*time.Minute {
					t.Fatalf("10 min back: %+v; want a wait of at most two windows, and nothing given twice", d)
				}
				clock.sleep(d.RetryAfter)
				if d := takeOne(t, s, p, "k", 1); !d.Allowed {
					t.Fatalf("after the wait: %+v", d)
				}
				clock.sleep(time.Hour)
				if d := takeOne(t, s, p, "k", 10); !d.Allowed || d.Remaining != 0 {
					t.Fatalf("an hour forward: %+v; want the quota and no more", d)
				}
			})
		})
	}
}

func TestConcurrencyPolicy(t *testing.T) {
	onEachStore(t, func(t *testing.T, s LimitStore, clock *testClock) {
		ctx := t.Context()
		p := Policy{Algorithm: Concurrency, Places: 3, Lease: 10 * time.Second}
		ask := func(place string, cost int64) Ask {
			return Ask{Limit: "c", Policy: p, Key: "k", Place: place, Cost: cost}
		}
		decide := func(place string, cost int64) Decision {
			t.Helper()
			ds, err := s.Decide(ctx, []Ask{ask(place, cost)})
			if err != nil {
				t.Fatal(err)
			}
			return ds[0]
		}
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		if d := decide("a", 1); !d.Allowed || d.Remaining != 2 || d.Limit != 3 {
			t.Fatalf("%+v", d)
		}
		if d := decide("a", 1); !d.Allowed || d.Remaining != 2 {
			t.Fatalf("the same place again: %+v", d)
		}
		if d := decide("b", 2); !d.Allowed || d.Remaining != 0 {
			t.Fatalf("two places: %+v", d)
		}
		if d := decide("c", 1); d.Allowed || d.RetryAfter != time.Second {
			t.Fatalf("full: %+v", d)
		}
		if d := decide("d", 4); d.Allowed || d.RetryAfter != Never {
			t.Fatalf("more than there are: %+v", d)
		}
		must(s.Release(ctx, ask("a", 1)))
		must(s.Release(ctx, ask("a", 1)))
		if d := decide("c", 1); !d.Allowed {
			t.Fatalf("released: %+v", d)
		}
		clock.sleep(9 * time.Second)
		must(s.Renew(ctx, ask("b", 2)))
		clock.sleep(2 * time.Second) // c's lease is over, b's is not
		if d := decide("e", 1); !d.Allowed || d.Remaining != 0 {
			t.Fatalf("a lease ran out: %+v", d)
		}
		clock.us -= (time.Hour).Microseconds()
		if d := decide("f", 1); d.Allowed {
			t.Fatalf("an hour back: %+v", d)
		}
		clock.sleep(11 * time.Second)
		if d := decide("f", 3); !d.Allowed {
			t.Fatalf("no lease is immortal: %+v", d)
		}
		must(s.Renew(ctx, ask("lost", 1))) // runs still: it counts again
		if d := decide("g", 1); d.Allowed {
			t.Fatalf("%+v", d)
		}
		must(s.Release(ctx, ask("f", 3)))
		must(s.Release(ctx, ask("lost", 1)))
		if d := decide("h", 3); !d.Allowed {
			t.Fatalf("all released: %+v", d)
		}
	})
}

// All or nothing: a limit that refuses costs the others nothing.
func TestDecideTogether(t *testing.T) {
	onEachStore(t, func(t *testing.T, s LimitStore, clock *testClock) {
		key := Ask{Limit: "key", Policy: per(5, time.Minute, FixedWindow), Key: "alice"}
		org := Ask{Limit: "org", Policy: per(6, time.Minute, TokenBucket), Key: "acme"}
		all := Ask{Limit: "all", Policy: per(100, time.Minute, GCRA)}
		shadow := Ask{Limit: "shadow", Policy: per(2, time.Minute, SlidingCounter), Key: "alice", Shadow: true}
		decide := func(asks ...Ask) (got []bool, left []int64) {
			t.Helper()
			ds, err := s.Decide(t.Context(), asks)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range ds {
				got, left = append(got, d.Allowed), append(left, d.Remaining)
			}
			return got, left
		}
		for i := range 5 {
			got, left := decide(key, org, all, shadow)
			want := []bool{true, true, true, i < 2}
			if d := cmp.Diff(want, got); d != "" || left[0] != int64(4-i) || left[1] != int64(5-i) {
				t.Fatalf("%d: %s, left %v", i, d, left)
			}
		}
		got, left := decide(key, org, all)
		if d := cmp.Diff([]bool{false, true, true}, got); d != "" || left[1] != 1 || left[2] != 95 {
			t.Fatalf("the key's quota is used: %s, left %v", d, left)
		}
		bob := key
		bob.Key = "bob"
		if got, left = decide(bob, org, all); !got[0] || !got[1] || left[1] != 0 {
			t.Fatalf("bob: %v %v", got, left)
		}
		if got, left = decide(bob, org, all); !got[0] || got[1] || left[0] != 4 || left[2] != 94 {
			t.Fatalf("the organisation's quota is used: %v, left %v", got, left)
		}
	})
}

// A policy that is changed keeps what was used.
func TestPolicyChanges(t *testing.T) {
	for _, a := range Algorithms()[:6] {
		t.Run(string(a), func(t *testing.T) {
			onEachStore(t, func(t *testing.T, s LimitStore, clock *testClock) {
				if d := takeOne(t, s, per(100, time.Minute, a), "k", 100); !d.Allowed {
					t.Fatalf("%+v", d)
				}
				clock.sleep(time.Millisecond)
				if d := takeOne(t, s, per(10, time.Minute, a), "k", 1); d.Allowed {
					t.Errorf("lowered: %+v", d)
				}
				if d := takeOne(t, s, per(100, time.Minute, a), "period", 100); !d.Allowed {
					t.Fatalf("%+v", d)
				}
				if d := takeOne(t, s, per(200, 2*time.Minute, a), "period", 150); d.Allowed {
					t.Errorf("another period: %+v", d)
				}
				clock.sleep(time.Hour)
				if d := takeOne(t, s, per(200, time.Minute, a), "k", 200); !d.Allowed {
					t.Errorf("raised, later: %+v", d)
				}
			})
		})
	}
}

// Memory and Redis give the same answers to whatever is asked.
func TestRapidStoresAgree(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient, _ *redistest.Env) {
		run := 0
		rapid.Check(struct{ testing.TB }{t}, func(t *rapid.T) {
			run++
			stores, clock := testStores(rdb)
			nAsks := rapid.IntRange(1, 3).Draw(t, "asks")
			asks := make([]Ask, nAsks)
			for i := range asks {
				asks[i] = drawAsk(t, fmt.Sprintf("r%d-%d", run, i))
			}
			taken := make([]bool, nAsks)
			for op := range rapid.IntRange(1, 25).Draw(t, "ops") {
				changed := false
				dt := rapid.SampledFrom([]int64{0, 1, 1000, 250_000, 999_999, 10_000_000, 60_000_000, 150_000_000}).Draw(t, "dt")
				for i := range asks {
					a := &asks[i]
					a.Cost = rapid.Int64Range(1, min(a.Policy.Most()+1, 40)).Draw(t, "cost")
					a.atLeast = rapid.Int64Range(1, a.Cost).Draw(t, "least")
					a.Place = fmt.Sprint("p", rapid.IntRange(0, 5).Draw(t, "place"))
					a.back, a.backAt = 0, 0
					if a.Policy.Algorithm != SlidingLog && a.Policy.Algorithm != Concurrency && rapid.Bool().Draw(t, "give back") {
						a.back = rapid.Int64Range(0, 3).Draw(t, "back")
						a.backAt = clock.us - rapid.Int64Range(0, 100_000_000).Draw(t, "ago")
					}
					// What is forgotten goes by the policy of then, and Redis forgets
					// by its own clock: so a change comes right after something was
					// taken, and nothing else happens at that moment.
					if taken[i] && rapid.IntRange(0, 4).Draw(t, "change") == 0 {
						n := drawAsk(t, a.Limit)
						if n.Policy.Algorithm == a.Policy.Algorithm {
							a.Policy, changed = n.Policy, true
						}
					}
				}
				if !changed {
					clock.us += dt
				}
				m, err := stores["memory"].Decide(t.Context(), asks)
				if err != nil {
					t.Fatal(err)
				}
				r, err := stores["redis"].Decide(t.Context(), asks)
				if err != nil {
					t.Fatal(err)
				}
				if d := cmp.Diff(m, r, ignoreAt); d != "" {
					t.Fatalf("op %d, asks %+v (-memory +redis): %s", op, asks, d)
				}
				for i := range m {
					taken[i] = m[i].Taken > 0
				}
				if taken[0] && nAsks == 1 && rapid.IntRange(0, 9).Draw(t, "step") == 0 {
					clock.us -= rapid.Int64Range(1, 2_000_000).Draw(t, "back by")
				}
			}
		})
	})
}

func drawAsk(t *rapid.T, name string) Ask {
	p := Policy{Algorithm: rapid.SampledFrom(Algorithms()).Draw(t, "algorithm")}
	if p.Algorithm == Concurrency {
		p.Places = rapid.Int64Range(1, 10).Draw(t, "places")
		p.Lease = 20 * time.Second
	} else {
		p.Rate.N = rapid.Int64Range(1, 30).Draw(t, "n")
		p.Rate.Per = rapid.SampledFrom([]time.Duration{time.Second, 7 * time.Second, time.Minute, 61234567 * time.Microsecond}).Draw(t, "per")
		if p.bucket() {
			p.Burst = rapid.Int64Range(0, 40).Draw(t, "burst")
		}
	}
	return Ask{Limit: name, Policy: p, Key: "k", Shadow: rapid.IntRange(0, 4).Draw(t, "shadow") == 0}
}

// No window of the period ever holds more than is promised, whatever comes;
// the sliding log holds exactly N and refuses nothing that it could allow.
func TestRapidNeverMore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		clock := &testClock{us: doorStart + rapid.Int64Range(0, 1_000_000).Draw(t, "begin")}
		s := NewMemoryLimitStore(MemoryLimits{})
		s.now = clock.now
		a := drawAsk(t, "x")
		if a.Policy.Algorithm == Concurrency {
			t.Skip("no window")
		}
		a.Shadow = false
		n, width := a.Policy.Rate.N, a.Policy.Rate.Per.Microseconds()
		var times []int64 // of each unit
		inside := func(from int64) (k int64) {
			for _, x := range times {
				if x > from-width && x <= from {
					k++
				}
			}
			return k
		}
		for range rapid.IntRange(1, 200).Draw(t, "ops") {
			clock.us += rapid.Int64Range(0, 2*width/n).Draw(t, "dt")
			a.Cost = rapid.Int64Range(1, 3).Draw(t, "cost")
			before := inside(clock.us)
			ds, err := s.Decide(t.Context(), []Ask{a})
			if err != nil {
				t.Fatal(err)
			}
			for range ds[0].Taken {
				times = append(times, clock.us)
			}
			most := n
			switch a.Policy.Algorithm {
			case FixedWindow:
				most = 2 * n
			case SlidingCounter:
				most = 2 * n
			case SlidingLog:
				if ds[0].Allowed != (before+a.Cost <= n) {
					t.Fatalf("log: %d inside, cost %d, decided %+v", before, a.Cost, ds[0])
				}
			default:
				most = a.Policy.Normal().Burst + n
			}
			if k := inside(clock.us); k > most {
				t.Fatalf("%d units in one window of %s, at most %d are promised", k, a.Policy, most)
			}
		}
	})
}

// LIM-01: two processes on one Redis are one limit. Real TIME, both backends.
func TestLimiterTwoProcesses(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient, env *redistest.Env) {
		p := per(50, time.Hour, FixedWindow)
		var mu sync.Mutex
		var wg sync.WaitGroup
		allowed := 0
		for _, c := range []redis.UniversalClient{rdb, env.Client()} {
			l, err := NewLimiter(NewRedisLimitStore(c, ""), "lim-01", p)
			if err != nil {
				t.Fatal(err)
			}
			for range 4 {
				wg.Go(func() {
					for range 20 {
						d, err := l.Take(t.Context(), "k", 1, "")
						if err != nil {
							t.Error(err)
							return
						}
						mu.Lock()
						if d.Allowed {
							allowed++
						}
						mu.Unlock()
					}
				})
			}
		}
		wg.Wait()
		if allowed != 50 {
			t.Errorf("LIM-01: %d of 160 allowed, want 50", allowed)
		}
	})
}

// LIM-13: what says nothing more is gone, for short periods and crooked ones.
func TestLimiterKeysVanish(t *testing.T) {
	redistest.Virtual(t, func(t *testing.T, rdb redis.UniversalClient, _ *redistest.Env) {
		for _, a := range Algorithms() {
			for _, rate := range []Rate{{1000, time.Second}, {5, 600*time.Second + time.Millisecond}, {1, time.Millisecond}} {
				p := Policy{Algorithm: a, Rate: rate}
				if a == Concurrency {
					p = Policy{Algorithm: a, Places: 3, Lease: 500 * time.Millisecond}
				}
				s := NewRedisLimitStore(rdb, "")
				if d := takeOne(t, s, p, "k", 1); !d.Allowed {
					t.Fatalf("LIM-13 %s: %+v", p, d)
				}
				keys := rdb.Keys(t.Context(), "*").Val()
				if len(keys) != 1 || !strings.HasPrefix(keys[0], "penstock:limit:{door}:t-") || strings.HasSuffix(keys[0], ":k") {
					t.Fatalf("LIM-13 %s: keys %q", p, keys)
				}
				ttl := rdb.PTTL(t.Context(), keys[0]).Val()
				if ttl < time.Second || ttl > 2*max(p.Rate.Per, p.Lease)+3*time.Second {
					t.Errorf("LIM-13 %s: TTL %s", p, ttl)
				}
				time.Sleep(ttl + time.Millisecond)
				if keys := rdb.Keys(t.Context(), "*").Val(); len(keys) != 0 {
					t.Errorf("LIM-13 %s: %q stay", p, keys)
				}
			}
		}
	})
}

func TestMemoryForgets(t *testing.T) {
	clock := &testClock{us: doorStart}
	s := NewMemoryLimitStore(MemoryLimits{MaxKeys: 320})
	s.now = clock.now
	for i := range 1000 {
		if d := takeOne(t, s, per(5, time.Minute, GCRA), fmt.Sprint(i), 1); !d.Allowed {
			t.Fatalf("%+v", d)
		}
	}
	if n := s.Len(); n > 320 || n < 200 {
		t.Errorf("%d kept, want about 320", n)
	}
	clock.sleep(time.Hour)
	for i := range 1000 { // touches every shard
		takeOne(t, s, per(5, time.Millisecond, GCRA), fmt.Sprint("later", i), 1)
		clock.sleep(100 * time.Millisecond)
	}
	if n := s.Len(); n > 200 {
		t.Errorf("%d kept an hour later", n)
	}
}

// LIM-05 to LIM-09, LIM-11, LIM-18: what cannot be meant is refused.
func TestPolicyRefused(t *testing.T) {
	for _, c := range []struct {
		name string
		p    Policy
		want string
	}{
		{"LIM-05 rate 0", Policy{Algorithm: GCRA, Rate: Rate{0, time.Second}}, "rate must allow"},
		{"LIM-05 rate 0, burst 10", Policy{Algorithm: TokenBucket, Rate: Rate{0, time.Second}, Burst: 10}, "rate must allow"},
		{"LIM-05 no rate", Policy{Algorithm: FixedWindow}, "rate must allow"},
		{"LIM-06 rate -1", Policy{Algorithm: SlidingLog, Rate: Rate{-1, time.Second}}, "rate must allow"},
		{"LIM-06 burst -5", Policy{Algorithm: GCRA, Rate: Rate{1, time.Second}, Burst: -5}, "burst must be"},
		{"LIM-08 period 0", Policy{Algorithm: GCRA, Rate: Rate{10, 0}}, "period must be"},
		{"LIM-08 period -1", Policy{Algorithm: GCRA, Rate: Rate{10, -1}}, "period must be"},
		{"LIM-11 burst of all", Policy{Algorithm: GCRA, Rate: Rate{1, time.Hour}, Burst: math.MaxInt64}, "cannot be counted exactly"},
		{"LIM-11 10 years", Policy{Algorithm: TokenBucket, Rate: Rate{1, 10 * 365 * 24 * time.Hour}, Burst: 1e9}, "period must be"},
		{"LIM-11 a month, 1e9", Policy{Algorithm: TokenBucket, Rate: Rate{1, 30 * 24 * time.Hour}, Burst: 1e9}, "cannot be counted exactly"},
		{"LIM-11 count", Policy{Algorithm: FixedWindow, Rate: Rate{math.MaxInt64, time.Hour}}, "rate must allow"},
		{"LIM-18 no algorithm", Policy{Rate: Rate{1, time.Minute}}, "unknown"},
		{"LIM-18 misspelt", Policy{Algorithm: "token-bucket", Rate: Rate{1, time.Minute}}, "use one of"},
		{"LIM-18 burst of a window", Policy{Algorithm: FixedWindow, Rate: Rate{1, time.Minute}, Burst: 2}, "burst means nothing"},
		{"LIM-18 places of a window", Policy{Algorithm: FixedWindow, Rate: Rate{1, time.Minute}, Places: 2}, "mean nothing"},
		{"LIM-18 rate of places", Policy{Algorithm: Concurrency, Rate: Rate{1, time.Minute}, Places: 2}, "mean nothing"},
		{"LIM-18 no places", Policy{Algorithm: Concurrency}, "places must be"},
		{"lease", Policy{Algorithm: Concurrency, Places: 1, Lease: -1}, "lease must be"},
		{"log too long", Policy{Algorithm: SlidingLog, Rate: Rate{MaxLogged + 1, time.Minute}}, "sliding log"},
		{"nanoseconds", Policy{Algorithm: GCRA, Rate: Rate{1, time.Second + 1}}, "whole microseconds"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := c.p.Validate(); !errors.Is(err, ErrBadLimit) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q in it", err, c.want)
			}
			if _, err := NewLimiter(NewMemoryLimitStore(MemoryLimits{}), "x", c.p); !errors.Is(err, ErrBadLimit) {
				t.Errorf("NewLimiter: %v", err)
			}
		})
	}
	for _, text := range []string{"NaN/s", "Inf/s", "1e-12/s", "1e300/s", ".nan", "0/s", "-1/s", "10/0s", "10", "", "+5/s"} {
		if r, err := ParseRate(text); !errors.Is(err, ErrBadLimit) {
			t.Errorf("LIM-07 %q: %v, %v", text, r, err)
		}
	}
	for _, p := range []Policy{
		{Algorithm: GCRA, Rate: Rate{1, 31 * 24 * time.Hour}},
		{Algorithm: GCRA, Rate: Rate{1_000_000_000, time.Second}},
		{Algorithm: SlidingLog, Rate: Rate{MaxLogged, 24 * time.Hour}},
		{Algorithm: TokenBucket, Rate: Rate{1, time.Millisecond}, Burst: 1e9},
		{Algorithm: Concurrency, Places: MaxPlaces},
	} {
		if err := p.Validate(); err != nil {
			t.Errorf("%s: %v", p, err)
		}
	}
}

func TestAskRefused(t *testing.T) {
	onEachStore(t, func(t *testing.T, s LimitStore, _ *testClock) {
		ok := Ask{Limit: "a", Policy: per(1, time.Second, GCRA)}
		neg, place, bad := ok, ok, ok
		neg.Cost, place.Policy, bad.Policy = -1, Policy{Algorithm: Concurrency, Places: 1}, Policy{}
		for name, asks := range map[string][]Ask{"negative cost": {neg}, "no place": {place}, "bad policy": {bad}, "twice": {ok, ok}} {
			if _, err := s.Decide(t.Context(), asks); !errors.Is(err, ErrBadLimit) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if ds, err := s.Decide(t.Context(), nil); err != nil || len(ds) != 0 {
			t.Errorf("nothing asked: %v %v", ds, err)
		}
		if d := takeOne(t, s, per(3, time.Second, SlidingLog), "k", 4); d.Allowed || d.RetryAfter != Never {
			t.Errorf("above the quota: %+v", d)
		}
	})
}

// A Redis that is gone is ErrStoreAway.
func TestRedisLimitsAway(t *testing.T) {
	c := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1, DialTimeout: time.Second})
	defer c.Close()
	s := NewRedisLimitStore(c, "")
	a := Ask{Limit: "a", Policy: Policy{Algorithm: Concurrency, Places: 1}, Place: "x"}
	if _, err := s.Decide(t.Context(), []Ask{a}); !errors.Is(err, ErrStoreAway) {
		t.Errorf("Decide: %v", err)
	}
	if err := s.Renew(t.Context(), a); !errors.Is(err, ErrStoreAway) {
		t.Errorf("Renew: %v", err)
	}
	if err := s.Release(t.Context(), a); !errors.Is(err, ErrStoreAway) {
		t.Errorf("Release: %v", err)
	}
}
