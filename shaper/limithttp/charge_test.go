package limithttp

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/penstock-io/penstock/shaper"
)

// chargeUpTo sends a request whose handler charges.
func (d *testDoor) chargeUpTo(t *testing.T, method string, units int64) (taken int64, ref *Refusal, h http.Header) {
	t.Helper()
	w := httptest.NewRecorder()
	d.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var err error
		taken, err = ChargeUpTo(r.Context(), units)
		if le, ok := errors.AsType[*LimitedError](err); ok {
			ref = &le.Refusal
		} else if err != nil {
			t.Error(err)
		}
	})).ServeHTTP(w, httptest.NewRequest(method, "/", nil))
	return taken, ref, w.Header()
}

// A stream gets what there is room for, and is told when one unit more could
// be had, also where it asked for more than could ever be granted at once.
func TestChargeUpTo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newTestDoor(t, Config{Rules: []Rule{
			{Name: "tight", Policy: shaper.Policy{Algorithm: shaper.TokenBucket, Rate: shaper.Rate{N: 60, Per: time.Minute}, Burst: 10}},
			{Name: "wide", Policy: perMinute(100, shaper.FixedWindow)},
			{Name: "shadow", Policy: perMinute(1, shaper.FixedWindow), Shadow: true},
			{Name: "requests", Policy: perMinute(100, shaper.FixedWindow), PerRequest: true},
			{Name: "places", Policy: shaper.Policy{Algorithm: shaper.Concurrency, Places: 1}},
		}})
		taken, ref, h := d.chargeUpTo(t, "POST", 4) // and one for the request
		if left := `"tight";r=5;t=5, "wide";r=95;t=60`; taken != 4 || ref != nil || h.Get("RateLimit") != left {
			t.Errorf("with room: %d %v %v", taken, ref, h)
		}
		taken, ref, _ = d.chargeUpTo(t, "POST", 50)
		if taken != 4 || ref == nil {
			t.Fatalf("in part: %d %v", taken, ref)
		}
		want := Refusal{Status: 429, Rule: "tight", Rules: []string{"tight"}, RetryAfter: time.Second}
		if diff := cmp.Diff(want, *ref); diff != "" {
			t.Error(diff)
		}
		time.Sleep(2 * time.Second)
		if taken, ref, _ = d.chargeUpTo(t, "POST", 1_000_000); taken != 1 || ref == nil || ref.RetryAfter != time.Second {
			t.Errorf("after 2 s: %d %v", taken, ref)
		}
		time.Sleep(time.Second)
		if taken, ref, _ = d.chargeUpTo(t, "POST", 1); taken != 0 || ref == nil || ref.RetryAfter != time.Second || ref.Status != 429 {
			t.Errorf("nothing left: %d %+v", taken, ref)
		}
		got := d.seen.n
		if got["requests allowed"] != 4 || got["tight refused"] != 3 || got["wide refused"] != 0 || got["shadow refused"] != 0 {
			t.Errorf("counted %v", got)
		}
	})
}

func TestChargeUpToWithoutADoor(t *testing.T) {
	for _, n := range []int64{-1, 0, 5} {
		if got, err := ChargeUpTo(t.Context(), n); got != max(0, n) || err != nil {
			t.Errorf("%d: %d %v", n, got, err)
		}
	}
}

// failing is a store that can be made to fail.
type failing struct {
	shaper.LimitStore
	fail atomic.Bool
}

func (s *failing) Decide(ctx context.Context, asks []shaper.Ask) ([]shaper.Decision, error) {
	if s.fail.Load() {
		return nil, shaper.ErrStoreAway
	}
	return s.LimitStore.Decide(ctx, asks)
}

// A closed rule grants nothing while the store is away.
func TestChargeUpToClosed(t *testing.T) {
	store := &failing{LimitStore: shaper.NewMemoryLimitStore(shaper.MemoryLimits{})}
	d := newTestDoor(t, Config{Store: store, Rules: []Rule{{Name: "r", Policy: perMinute(10, shaper.GCRA), Away: shaper.Away{Mode: shaper.FailClosed}}}})
	w := httptest.NewRecorder()
	d.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		store.fail.Store(true)
		n, err := ChargeUpTo(r.Context(), 3)
		le, ok := errors.AsType[*LimitedError](err)
		if n != 0 || !ok || le.Refusal.Status != 503 || le.Refusal.RetryAfter != time.Second {
			t.Errorf("%d %v", n, err)
		}
	})).ServeHTTP(w, httptest.NewRequest("POST", "/", nil))
}
