package shaper

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// silentStore answers nothing until it is told to.
type silentStore struct {
	LimitStore
	silent chan struct{} // open: silent
	asked  atomic.Int64
}

func (s *silentStore) Decide(ctx context.Context, asks []Ask) ([]Decision, error) {
	s.asked.Add(1)
	<-s.silent
	return s.LimitStore.Decide(ctx, asks)
}

// A store that says nothing costs one timeout; then each limit decides as its
// Away says, and each such decision is told.
func TestStoreAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &silentStore{LimitStore: NewMemoryLimitStore(MemoryLimits{}), silent: make(chan struct{})}
		told := map[string]int{}
		s := NewFallbackLimitStore(FallbackLimits{Store: store, OnAway: func(limit string, by Source, why error) {
			if !errors.Is(why, ErrStoreAway) {
				t.Errorf("%s: %v", limit, why)
			}
			told[limit+" "+string(by)]++
		}})
		open := Ask{Limit: "open", Policy: per(1, time.Minute, GCRA), Away: Away{Mode: FailOpen}}
		closed := Ask{Limit: "closed", Policy: per(1, time.Minute, GCRA), Away: Away{Mode: FailClosed}}
		local := Ask{Limit: "local", Policy: per(10, time.Minute, FixedWindow), Away: Away{Mode: LocalShare, Share: 0.25}}
		decide := func(asks ...Ask) []Decision {
			t.Helper()
			ds, err := s.Decide(t.Context(), asks)
			if err != nil {
				t.Fatal(err)
			}
			return ds
		}
		start := time.Now()
		if ds := decide(open); !ds[0].Allowed || ds[0].Source != FromOpen || time.Since(start) != DefaultLimitTimeout {
			t.Fatalf("%+v after %s", ds, time.Since(start))
		}
		start = time.Now()
		for range 3 {
			if ds := decide(open); !ds[0].Allowed {
				t.Fatalf("%+v", ds)
			}
		}
		if ds := decide(local, closed); ds[1].Allowed || ds[1].Source != FromClosed || ds[1].RetryAfter != time.Second {
			t.Fatalf("%+v", ds)
		}
		for i := range 3 { // a quarter of 10 is 2
			ds := decide(local, open)
			if ds[0].Allowed != (i < 2) || ds[0].Source != FromLocal || ds[0].Limit != 2 {
				t.Fatalf("%d: %+v", i, ds)
			}
		}
		shadow := closed
		shadow.Shadow = true
		if ds := decide(shadow, open); ds[0].Allowed || !ds[1].Allowed {
			t.Fatalf("%+v", ds)
		}
		if time.Since(start) != 0 || store.asked.Load() != 1 {
			t.Errorf("it took %s and %d questions more", time.Since(start), store.asked.Load()-1)
		}
		if told["open open"] != 8 || told["closed closed"] != 2 || told["local local"] != 4 {
			t.Errorf("told %v", told)
		}
		// Places: nothing fails, whatever is given back.
		c := Ask{Limit: "c", Policy: Policy{Algorithm: Concurrency, Places: 2}, Place: "x", Away: Away{Mode: LocalShare, Share: 0.5}}
		if ds := decide(c); !ds[0].Allowed || ds[0].Limit != 1 {
			t.Fatalf("%+v", ds)
		}
		if err := s.Renew(t.Context(), c); err != nil {
			t.Error(err)
		}
		if err := s.Release(t.Context(), c); err != nil {
			t.Error(err)
		}
		close(store.silent)
		time.Sleep(askStoreAgain + time.Millisecond)
		if ds := decide(closed); !ds[0].Allowed || ds[0].Source != FromStore {
			t.Fatalf("back again: %+v", ds)
		}
		if ds := decide(closed); ds[0].Allowed || ds[0].Source != FromStore {
			t.Fatalf("back again: %+v", ds)
		}
	})
}

// A client that goes away is not a store that does.
func TestStoreAwayCancelled(t *testing.T) {
	s := NewFallbackLimitStore(FallbackLimits{Store: NewMemoryLimitStore(MemoryLimits{})})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	ds, err := s.Decide(ctx, []Ask{{Limit: "x", Policy: per(1, time.Minute, GCRA)}})
	if err != nil || ds[0].Source != FromStore {
		t.Errorf("%+v, %v", ds, err)
	}
	if _, err := s.Decide(ctx, []Ask{{Limit: "x"}}); !errors.Is(err, ErrBadLimit) {
		t.Errorf("a bad policy: %v", err)
	}
	if ds, err := s.Decide(ctx, []Ask{{Limit: "x", Policy: per(1, time.Minute, GCRA)}}); err != nil || ds[0].Source != FromStore {
		t.Errorf("a bad question opened the fuse: %+v, %v", ds, err)
	}
}

func TestAwayValidated(t *testing.T) {
	for _, a := range []Away{{}, {Mode: FailOpen}, {Mode: FailClosed}, {Mode: LocalShare, Share: 1}, {Mode: LocalShare, Share: 1e-9}} {
		if err := a.Validate(); err != nil {
			t.Errorf("%+v: %v", a, err)
		}
	}
	for _, a := range []Away{
		{Mode: "open"}, {Mode: LocalShare}, {Mode: LocalShare, Share: 1.5}, {Mode: LocalShare, Share: -1},
		{Mode: LocalShare, Share: math.NaN()}, {Mode: LocalShare, Share: math.Inf(1)}, {Mode: FailOpen, Share: 0.5},
	} {
		if err := a.Validate(); !errors.Is(err, ErrBadLimit) {
			t.Errorf("LIM-07 %+v: %v", a, err)
		}
	}
	p := Policy{Algorithm: TokenBucket, Rate: Rate{N: 1, Per: time.Hour}, Burst: 5}.share(1e-9)
	if p.Rate.N != 1 || p.Burst != 1 || p.Validate() != nil {
		t.Errorf("%+v", p)
	}
	if got := fmt.Sprint(Policy{Algorithm: Concurrency, Places: 10}.share(0.3)); got != "3 at a time" {
		t.Error(got)
	}
}
