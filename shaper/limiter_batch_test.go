package shaper

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// countingStore counts the questions that reach it.
type countingStore struct {
	LimitStore
	asked atomic.Int64
	err   error
}

func (s *countingStore) Decide(ctx context.Context, asks []Ask) ([]Decision, error) {
	s.asked.Add(1)
	if s.err != nil {
		return nil, s.err
	}
	return s.LimitStore.Decide(ctx, asks)
}

// batchFleet is several processes on one store, on one clock.
func batchFleet(n int) ([]*BatchLimitStore, *countingStore, *testClock) {
	clock := &testClock{us: doorStart}
	m := NewMemoryLimitStore(MemoryLimits{})
	m.now = clock.now
	c := &countingStore{LimitStore: m}
	out := make([]*BatchLimitStore, n)
	for i := range out {
		out[i] = NewBatchLimitStore(c)
		out[i].now = func() time.Time { return time.UnixMicro(clock.us) }
	}
	return out, c, clock
}

// The stated bound: no window holds more than the algorithm's own promise and
// I·b, whatever comes to whichever process.
func TestRapidBatchBound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		procs := rapid.IntRange(1, 4).Draw(t, "processes")
		fleet, _, clock := batchFleet(procs)
		clock.us += rapid.Int64Range(0, 1_000_000).Draw(t, "begin")
		a := Ask{Limit: "x", Key: "k", Cost: 1}
		a.Policy = per(rapid.Int64Range(1, 200).Draw(t, "n"), time.Second,
			rapid.SampledFrom([]Algorithm{FixedWindow, SlidingCounter, TokenBucket, LeakyBucket, GCRA}).Draw(t, "algorithm"))
		a.SyncEvery = rapid.SampledFrom([]time.Duration{time.Millisecond, 10 * time.Millisecond, 100 * time.Millisecond, 500 * time.Millisecond}).Draw(t, "sync")
		n, width := a.Policy.Rate.N, int64(1_000_000)
		b := max(1, int64(float64(n)*a.SyncEvery.Seconds()))
		most := 2*n + int64(procs)*b
		var times []int64
		for range rapid.IntRange(1, 400).Draw(t, "requests") {
			clock.us += rapid.Int64Range(0, 2*width/n).Draw(t, "dt")
			d, err := fleet[rapid.IntRange(0, procs-1).Draw(t, "which")].Decide(t.Context(), []Ask{a})
			if err != nil {
				t.Fatal(err)
			}
			if d[0].Allowed != (d[0].Taken == 1) || d[0].Remaining < 0 || !d[0].Allowed && d[0].RetryAfter <= 0 {
				t.Fatalf("%+v", d[0])
			}
			if !d[0].Allowed {
				continue
			}
			times = append(times, clock.us)
			var inside, aligned int64
			for _, x := range times {
				if x > clock.us-width {
					inside++
				}
				if x/width == clock.us/width {
					aligned++
				}
			}
			if inside > most {
				t.Fatalf("%d in a window of %s, at most %d are promised with b = %d", inside, a.Policy, most, b)
			}
			if a.Policy.Algorithm == FixedWindow && aligned > n+int64(procs)*b {
				t.Fatalf("%d in one fixed window, at most %d", aligned, n+int64(procs)*b)
			}
		}
	})
}

// Under a steady demand above the limit, the fleet gets the limit within I·b,
// and asks far less often than it is asked.
func TestBatchSteady(t *testing.T) {
	for _, a := range []Algorithm{FixedWindow, SlidingCounter, TokenBucket, LeakyBucket, GCRA} {
		t.Run(string(a), func(t *testing.T) {
			const procs, n, seconds = 3, 1000, 20
			fleet, store, clock := batchFleet(procs)
			ask := Ask{Limit: "x", Key: "k", Policy: per(n, time.Second, a), SyncEvery: 50 * time.Millisecond}
			b := int64(n / 20)
			rnd := rand.New(rand.NewPCG(1, 2))
			perSecond := make([]int64, seconds)
			requests := 0
			for clock.us < doorStart+seconds*1_000_000 {
				d, err := fleet[rnd.IntN(procs)].Decide(t.Context(), []Ask{ask})
				if err != nil {
					t.Fatal(err)
				}
				requests++
				if d[0].Allowed {
					perSecond[(clock.us-doorStart)/1_000_000]++
				}
				clock.us += int64(rnd.ExpFloat64() * 500) // 2,000 a second
			}
			for i, got := range perSecond[1:] { // the first has the burst
				if got < n-procs*b || got > n+procs*b {
					t.Errorf("second %d: %d, want %d ± %d", i+1, got, n, procs*b)
				}
			}
			asked := store.asked.Load()
			t.Logf("%d requests cost %d questions (%.1f %%)", requests, asked, 100*float64(asked)/float64(requests))
			if asked*5 > int64(requests) {
				t.Errorf("%d requests cost %d questions", requests, asked)
			}
		})
	}
}

// A client that comes seldom is counted as without batching.
func TestBatchIdleClientIsExact(t *testing.T) {
	fleet, _, clock := batchFleet(4)
	ask := Ask{Limit: "x", Key: "k", Policy: per(70, time.Minute, FixedWindow), SyncEvery: 3 * time.Second}
	allowed := 0
	for i := range 75 {
		d, err := fleet[i%4].Decide(t.Context(), []Ask{ask})
		if err != nil {
			t.Fatal(err)
		}
		if d[0].Allowed {
			allowed++
		}
		clock.sleep(799 * time.Millisecond) // each process is asked every 3.2 s
	}
	if allowed != 70 {
		t.Errorf("%d of 75 allowed, want 70", allowed)
	}
}

func TestBatchTogether(t *testing.T) {
	fleet, store, clock := batchFleet(1)
	s := fleet[0]
	key := Ask{Limit: "key", Key: "a", Policy: per(10, time.Second, TokenBucket), SyncEvery: 500 * time.Millisecond}
	all := Ask{Limit: "all", Policy: per(1000, time.Second, GCRA), SyncEvery: 100 * time.Millisecond}
	org := Ask{Limit: "org", Key: "o", Policy: per(20, time.Second, SlidingLog)}
	decide := func(asks ...Ask) []Decision {
		t.Helper()
		ds, err := s.Decide(t.Context(), asks)
		if err != nil {
			t.Fatal(err)
		}
		return ds
	}
	for i := range 10 {
		ds := decide(key, all)
		if !ds[0].Allowed || !ds[1].Allowed || ds[0].Remaining != int64(9-i) || ds[1].Remaining != int64(999-i) {
			t.Fatalf("%d: %+v", i, ds)
		}
	}
	asked := store.asked.Load()
	if asked > 8 {
		t.Errorf("10 requests cost %d questions", asked)
	}
	for range 5 { // the last grant was less than wanted: that is remembered
		if ds := decide(key, all); ds[0].Allowed || ds[0].RetryAfter != 125*time.Millisecond {
			t.Fatalf("%+v", ds)
		}
	}
	if got := store.asked.Load() - asked; got != 0 {
		t.Errorf("5 refusals cost %d questions", got)
	}
	if ds := decide(org, key); ds[0].Taken != 0 || ds[1].Allowed {
		t.Fatalf("a limit that is refused already: %+v", ds)
	}
	if ds := decide(org); ds[0].Remaining != 19 {
		t.Errorf("a refused request was counted: %+v", ds)
	}
	clock.sleep(125 * time.Millisecond)
	if ds := decide(org, key); !ds[0].Allowed || !ds[1].Allowed || ds[0].Remaining != 18 {
		t.Errorf("in time: %+v", ds)
	}
	shadow := key
	shadow.Shadow = true
	if ds := decide(shadow, all); ds[0].Allowed || !ds[1].Allowed || ds[1].Taken != 1 {
		t.Errorf("a shadow refuses nobody: %+v", ds)
	}
}

func TestSyncRefused(t *testing.T) {
	for name, c := range map[string]struct {
		p     Policy
		every time.Duration
	}{
		"log":         {per(10, time.Second, SlidingLog), 10 * time.Millisecond},
		"concurrency": {Policy{Algorithm: Concurrency, Places: 2}, 10 * time.Millisecond},
		"too long":    {per(10, time.Second, GCRA), 501 * time.Millisecond},
		"too short":   {per(10, time.Second, GCRA), time.Microsecond},
		"negative":    {per(10, time.Second, GCRA), -1},
	} {
		if err := CheckSync(c.p, c.every); !errors.Is(err, ErrBadLimit) {
			t.Errorf("%s: %v", name, err)
		}
		fleet, _, _ := batchFleet(1)
		if _, err := fleet[0].Decide(t.Context(), []Ask{{Limit: "x", Policy: c.p, SyncEvery: c.every, Place: "p"}}); c.every > 0 && !errors.Is(err, ErrBadLimit) {
			t.Errorf("%s: Decide: %v", name, err)
		}
	}
}

// A store that fails loses what was taken ahead, never gives it out twice.
func TestBatchStoreFails(t *testing.T) {
	fleet, store, clock := batchFleet(1)
	ask := Ask{Limit: "x", Key: "k", Policy: per(10, time.Second, TokenBucket), SyncEvery: 500 * time.Millisecond}
	for range 3 {
		if _, err := fleet[0].Decide(t.Context(), []Ask{ask}); err != nil {
			t.Fatal(err)
		}
	}
	store.err = ErrStoreAway
	clock.sleep(600 * time.Millisecond)
	if _, err := fleet[0].Decide(t.Context(), []Ask{ask}); !errors.Is(err, ErrStoreAway) {
		t.Fatalf("%v", err)
	}
	store.err = nil
	if d, err := fleet[0].Decide(t.Context(), []Ask{ask}); err != nil || !d[0].Allowed {
		t.Fatalf("%+v %v", d, err)
	}
}

func TestBatchForgets(t *testing.T) {
	fleet, _, clock := batchFleet(1)
	for i := range 1000 {
		if _, err := fleet[0].Decide(t.Context(), []Ask{{Limit: "x", Key: fmt.Sprint(i), Policy: per(10, time.Second, GCRA), SyncEvery: 100 * time.Millisecond}}); err != nil {
			t.Fatal(err)
		}
	}
	clock.sleep(time.Minute)
	if _, err := fleet[0].Decide(t.Context(), []Ask{{Limit: "x", Key: "new", Policy: per(10, time.Second, GCRA), SyncEvery: 100 * time.Millisecond}}); err != nil {
		t.Fatal(err)
	}
	if n := len(fleet[0].leases); n != 1 {
		t.Errorf("%d leases are kept", n)
	}
}
