package guard

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/penstock-io/penstock/breaker"
	"github.com/penstock-io/penstock/internal/redistest"
	"github.com/penstock-io/penstock/shaper"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func testGuard(t *testing.T, rdb redis.UniversalClient, change ...func(*Config)) *Guard {
	t.Helper()
	cfg := Config{Redis: rdb, Provider: "sms"}
	for _, f := range change {
		f(&cfg)
	}
	g := New(cfg)
	if err := g.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = g.Close(ctx)
	})
	return g
}

type said struct {
	error
	rep Report
}

func (s said) Report() Report { return s.rep }
func (s said) Unwrap() error  { return s.error }

// hears is an Observer that remembers outcomes.
type hears struct{ outcomes [6]atomic.Int64 }

func (h *hears) Attempt(_ string, o breaker.Outcome, _ time.Duration) { h.outcomes[o].Add(1) }
func (h *hears) GateRequest(string, int, int, time.Duration, error)   {}
func (h *hears) Denied(string, string)                                {}
func (h *hears) Changed(string, Change)                               {}
func (h *hears) Waited(string, time.Duration)                         {}
func (h *hears) all() (out [6]int64) {
	for i := range out {
		out[i] = h.outcomes[i].Load()
	}
	return out
}

// Every way a call can end is heard once, with its outcome.
func TestOutcomes(t *testing.T) {
	redistest.Virtual(t, func(t *testing.T, rdb redis.UniversalClient, env *redistest.Env) {
		h := &hears{}
		g := testGuard(t, rdb, func(c *Config) { c.Observer, c.Timeout = h, time.Second })
		fault := errors.New("fault")
		do := func(ctx context.Context, call Call, want error) {
			t.Helper()
			if err := g.Do(ctx, Request{}, call); !errors.Is(err, want) {
				t.Errorf("got %v, want %v", err, want)
			}
		}
		ctx := t.Context()
		do(ctx, func(context.Context) error { return nil }, nil)
		do(ctx, func(context.Context) error { return fault }, fault)
		do(ctx, func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, context.DeadlineExceeded)
		do(ctx, func(context.Context) error { return said{fault, Report{Outcome: breaker.Throttled}} }, fault)
		left, cancel := context.WithCancelCause(ctx)
		do(left, func(ctx context.Context) error { cancel(fault); <-ctx.Done(); return context.Cause(ctx) }, fault)
		do(left, func(context.Context) error { t.Error("called after the caller left"); return nil }, ErrNotCalled)
		func() {
			defer func() {
				if recover() != "boom" {
					t.Error("the panic was swallowed")
				}
			}()
			_ = g.Do(ctx, Request{}, func(context.Context) error { panic("boom") })
		}()
		want := [6]int64{breaker.OK: 1, breaker.Failed: 2, breaker.Timeout: 1, breaker.Throttled: 1, breaker.Excluded: 1}
		if d := cmp.Diff(want, h.all()); d != "" {
			t.Error(d)
		}
	})
}

// A place is given back however the call ends, a panic included.
func TestPlaceComesBack(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient, env *redistest.Env) {
		g := testGuard(t, rdb, func(c *Config) { c.Limits.Concurrency, c.Timeout = 1, 200*time.Millisecond })
		ends := []Call{
			func(context.Context) error { return nil },
			func(context.Context) error { return errors.New("x") },
			func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
			func(context.Context) error { panic("boom") },
		}
		for range 3 {
			for _, call := range ends {
				func() {
					defer func() { _ = recover() }()
					_ = g.Do(t.Context(), Request{}, call)
				}()
			}
		}
		if err := g.Do(t.Context(), Request{}, ends[0]); err != nil {
			t.Fatal(err)
		}
	})
}

// A record is stored before Do returns, and refuses the job afterwards.
func TestRecord(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient, env *redistest.Env) {
		g := testGuard(t, rdb)
		record := func(err error, rep Report) *shaper.Record {
			if err != nil || rep.Outcome != breaker.OK {
				return nil
			}
			return &shaper.Record{Name: "id:7", Value: "v", TTL: time.Hour, Index: "done", Member: "7"}
		}
		calls := 0
		call := func(context.Context) error { calls++; return nil }
		if err := g.Do(t.Context(), Request{Job: "7", Record: record}, call); err != nil {
			t.Fatal(err)
		}
		if v := rdb.Get(t.Context(), "penstock:{sms}:id:7").Val(); v != "v" {
			t.Error("the record is not stored when Do returns")
		}
		if n := rdb.ZCard(t.Context(), "penstock:{sms}:done").Val(); n != 1 {
			t.Error("the record is not in its index")
		}
		var done *shaper.DoneError
		err := g.Do(t.Context(), Request{Job: "7", Record: record}, call)
		if !errors.As(err, &done) || done.Record != "v" || !errors.Is(err, ErrNotCalled) || calls != 1 {
			t.Errorf("%v after %d calls", err, calls)
		}
	})
}

// RET-05, WANTED 17: what has expired is not called, before or while waiting.
func TestExpires(t *testing.T) {
	redistest.Virtual(t, func(t *testing.T, rdb redis.UniversalClient, env *redistest.Env) {
		g := testGuard(t, rdb, func(c *Config) { c.Limits.Rate = shaper.Rate{N: 1, Per: time.Minute} })
		never := func(context.Context) error { t.Error("called"); return nil }
		if err := g.Do(t.Context(), Request{Expires: time.Now().Add(-time.Second)}, never); !errors.Is(err, ErrExpired) {
			t.Error(err)
		}
		if err := g.Do(t.Context(), Request{}, func(context.Context) error { return nil }); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		err := g.Do(t.Context(), Request{Expires: time.Now().Add(10 * time.Second)}, never)
		if !errors.Is(err, ErrExpired) || !errors.Is(err, ErrNotCalled) || time.Since(start) != 10*time.Second {
			t.Errorf("%v after %s", err, time.Since(start))
		}
	})
}

// RA-23: more than 900 s is asked for: held for 900 s (and up to a twentieth),
// then one call at a time. Short waits hold nobody.
func TestRetryAfterIsBounded(t *testing.T) {
	for asked, want := range map[time.Duration]time.Duration{
		30 * time.Second: 30 * time.Second, 86400 * time.Second: 900 * time.Second, time.Second: 0, -time.Second: 0,
	} {
		redistest.Virtual(t, func(t *testing.T, rdb redis.UniversalClient, env *redistest.Env) {
			g := testGuard(t, rdb)
			_ = g.Do(t.Context(), Request{}, func(context.Context) error {
				return said{errors.New("429"), Report{Outcome: breaker.Throttled, RetryAfter: asked}}
			})
			start := time.Now()
			if err := g.Do(t.Context(), Request{}, func(context.Context) error { return nil }); err != nil {
				t.Fatal(err)
			}
			if d := time.Since(start); d < want || d > want+want/20+3*time.Second {
				t.Errorf("asked for %s: held %s, want %s", asked, d, want)
			}
		})
	}
}

// Faults of the configuration and the request are named, at every Do.
func TestFaults(t *testing.T) {
	for name, cfg := range map[string]Config{
		"no redis":      {Provider: "sms"},
		"no provider":   {},
		"name":          {Provider: "SMS"},
		"namespace":     {Provider: "sms", Namespace: "a:b"},
		"timeout":       {Provider: "sms", Timeout: -1},
		"BRK-10 braces": {Provider: "s}ms"},
	} {
		g := New(cfg)
		if g.Err() == nil {
			t.Errorf("%s: accepted", name)
		}
		err := g.Do(t.Context(), Request{}, func(context.Context) error { t.Error("called"); return nil })
		if !errors.Is(err, ErrNotCalled) {
			t.Errorf("%s: %v", name, err)
		}
		if err := g.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}
