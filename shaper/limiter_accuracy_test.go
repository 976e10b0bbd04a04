package shaper

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/penstock-io/penstock/internal/redistest"
)

// loads are arrival times in microseconds from doorStart on, of requests
// against a limit of accuracyN in accuracyPer.
const (
	accuracyN   = 100
	accuracyPer = 10 * time.Second
	windows     = 150
)

func accuracyLoads() []struct {
	name  string
	times []int64
} {
	width := accuracyPer.Microseconds()
	rnd := rand.New(rand.NewPCG(7, 11))
	poisson := func(times float64) (out []int64) {
		mean := float64(width) / accuracyN / times
		for t := 0.0; t < float64(windows*width); t += rnd.ExpFloat64() * mean {
			out = append(out, int64(t))
		}
		return out
	}
	var bursty, edge []int64
	for t := int64(0); t < windows*width; t += int64(rnd.ExpFloat64() * 4e6) {
		for range 20 + rnd.IntN(60) { // 20 to 80 within half a second, about every 4 s
			bursty = append(bursty, t+rnd.Int64N(500_000))
		}
	}
	slices.Sort(bursty)
	for w := int64(1); w < windows; w += 3 { // all it may just before a window's end, and again just after
		for i := range int64(accuracyN) {
			edge = append(edge, w*width-200_000+i*1000)
		}
		for i := range int64(accuracyN) {
			edge = append(edge, w*width+i*1000)
		}
	}
	return []struct {
		name  string
		times []int64
	}{{"Poisson, 0.9 of the limit", poisson(0.9)}, {"Poisson, 1.5 of the limit", poisson(1.5)}, {"bursty", bursty}, {"window edge", edge}}
}

// accuracy of one algorithm under one load, in percent.
type accuracy struct {
	over, under float64 // of all requests: allowed where the exact log refuses, and the reverse
	worst       float64 // fullest window of the period, of N
}

func measure(t testing.TB, p Policy, times []int64) accuracy {
	clock := &testClock{}
	s, exact := NewMemoryLimitStore(MemoryLimits{}), NewMemoryLimitStore(MemoryLimits{})
	s.now, exact.now = clock.now, clock.now
	log := per(accuracyN, accuracyPer, SlidingLog)
	var over, under, worst int
	var granted []int64
	first := 0
	for _, at := range times {
		clock.us = doorStart + at
		got, want := takeOne(t, s, p, "k", 1).Allowed, takeOne(t, exact, log, "k", 1).Allowed
		switch {
		case got && !want:
			over++
		case !got && want:
			under++
		}
		if got {
			granted = append(granted, at)
			for granted[first] <= at-accuracyPer.Microseconds() {
				first++
			}
			worst = max(worst, len(granted)-first)
		}
	}
	n := float64(len(times))
	return accuracy{100 * float64(over) / n, 100 * float64(under) / n, 100 * float64(worst) / accuracyN}
}

// TestLimiterAccuracyTable prints the table of the README, and holds it to what is
// promised of each algorithm.
func TestLimiterAccuracyTable(t *testing.T) {
	loads := accuracyLoads()
	var b strings.Builder
	b.WriteString("| algorithm |")
	for _, l := range loads {
		fmt.Fprintf(&b, " %s |", l.name)
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(loads)) + "\n")
	for _, c := range []struct {
		name string
		p    Policy
		most float64 // fullest window, %
	}{
		{"sliding log", per(accuracyN, accuracyPer, SlidingLog), 100},
		{"sliding counter", per(accuracyN, accuracyPer, SlidingCounter), 200},
		{"fixed window", per(accuracyN, accuracyPer, FixedWindow), 200},
		{"token bucket, burst 100", per(accuracyN, accuracyPer, TokenBucket), 200},
		{"leaky bucket, burst 100", per(accuracyN, accuracyPer, LeakyBucket), 200},
		{"GCRA, burst 100", per(accuracyN, accuracyPer, GCRA), 200},
		{"GCRA, burst 10", Policy{Algorithm: GCRA, Rate: Rate{accuracyN, accuracyPer}, Burst: 10}, 110},
	} {
		fmt.Fprintf(&b, "| %s |", c.name)
		for _, l := range loads {
			a := measure(t, c.p, l.times)
			fmt.Fprintf(&b, " +%.1f −%.1f, %.0f |", a.over, a.under, a.worst)
			if a.worst > c.most {
				t.Errorf("%s under %s: %.0f %% in one window, at most %.0f", c.name, l.name, a.worst, c.most)
			}
			if c.p.Algorithm == SlidingLog && (a.over != 0 || a.under != 0) {
				t.Errorf("the log differs from itself: %+v", a)
			}
			if c.p.Algorithm == FixedWindow && l.name == "window edge" && a.worst < 190 {
				t.Errorf("the window-edge load does not show the edge: %+v", a)
			}
		}
		b.WriteString("\n")
	}
	t.Logf("%d per %s, %d windows. Each cell: %% of requests allowed against the exact log (+), refused against it (−); fullest window in %% of the limit\n%s",
		accuracyN, accuracyPer, windows, b.String())
}

// TestLimiterMemoryTable prints and bounds what one client costs, its quota of
// 100 fully used.
func TestLimiterMemoryTable(t *testing.T) {
	srv := redistest.Start(t)
	rdb := srv.Client()
	var b strings.Builder
	b.WriteString("| algorithm | Redis, bytes | memory, bytes |\n|---|---|---|\n")
	for _, c := range []struct {
		a    Algorithm
		most int64 // in Redis
	}{
		{FixedWindow, 220}, {SlidingLog, 1700}, {SlidingCounter, 220}, {TokenBucket, 220}, {LeakyBucket, 220}, {GCRA, 240}, {Concurrency, 16000},
	} {
		p := per(100, time.Hour, c.a)
		if c.a == Concurrency {
			p = Policy{Algorithm: c.a, Places: 100}
		}
		fill := func(s LimitStore, key string) {
			t.Helper()
			for i := range 100 {
				ds, err := s.Decide(t.Context(), []Ask{{Limit: "limit", Policy: p, Key: key, Place: fmt.Sprintf("0190b5a0-0000-7000-8000-%012d", i)}})
				if err != nil || !ds[0].Allowed {
					t.Fatalf("%s: %+v %v", c.a, ds, err)
				}
			}
		}
		fill(NewRedisLimitStore(rdb, ""), "client")
		keys := rdb.Keys(t.Context(), "*").Val()
		if len(keys) != 1 {
			t.Fatalf("keys %v", keys)
		}
		inRedis := rdb.MemoryUsage(t.Context(), keys[0], 0).Val()
		rdb.FlushAll(t.Context())
		if inRedis > c.most {
			t.Errorf("%s: %d bytes in Redis, at most %d are stated", c.a, inRedis, c.most)
		}
		const clients = 1000
		s := NewMemoryLimitStore(MemoryLimits{})
		before := heap()
		for i := range clients {
			fill(s, fmt.Sprintf("client-%05d", i))
		}
		fmt.Fprintf(&b, "| %s | %d | %d |\n", c.a, inRedis, (heap()-before)/clients)
		runtime.KeepAlive(s)
	}
	t.Logf("bytes for one client with 100 units used\n%s", b.String())
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func BenchmarkLimiter(b *testing.B) {
	for _, a := range Algorithms()[:6] {
		p := per(1000, time.Second, a)
		b.Run("memory/"+string(a), func(b *testing.B) {
			s := NewMemoryLimitStore(MemoryLimits{})
			for b.Loop() {
				takeOne(b, s, p, "k", 1)
			}
		})
		b.Run("redis/"+string(a), func(b *testing.B) {
			s := NewRedisLimitStore(redistest.Start(b).Client(), "")
			for b.Loop() {
				takeOne(b, s, p, "k", 1)
			}
		})
	}
}
