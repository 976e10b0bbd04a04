package guard

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/penstock-io/penstock/breaker"
	"github.com/penstock-io/penstock/internal/redistest"
	"github.com/penstock-io/penstock/retrybudget"
	"github.com/penstock-io/penstock/shaper"
)

// changes is an Observer that remembers changes of state.
type changes struct {
	hears
	mu  sync.Mutex
	all []Change
}

func (c *changes) Changed(_ string, ch Change) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = append(c.all, ch)
}
func (c *changes) to() (out []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, ch := range c.all {
		out = append(out, ch.To)
	}
	return out
}

var errDown = errors.New("down")

// A shadow computes, logs and counts what on does, and changes nothing: the
// same minute of outage is the same number of calls as with off.
func TestShadowAgainstOn(t *testing.T) {
	made := map[Adaptive]int64{}
	for _, mode := range []Adaptive{On, Shadow, Off} {
		redistest.Virtual(t, func(t *testing.T, rdb redis.UniversalClient, env *redistest.Env) {
			told := &changes{}
			g := testGuard(t, rdb, func(c *Config) {
				c.Limits, c.Adaptive, c.Observer = shaper.Limits{Rate: shaper.PerSecond(50)}, mode, told
			})
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			var calls atomic.Int64
			var wg sync.WaitGroup
			for range 4 {
				wg.Go(func() {
					for ctx.Err() == nil {
						_ = g.Do(ctx, Request{Retry: true}, func(context.Context) error { calls.Add(1); return errDown })
					}
				})
			}
			wg.Wait()
			made[mode] = calls.Load()
			switch to := told.to(); {
			case mode == Off && len(to) > 0:
				t.Errorf("off, and yet told of %v", to)
			case mode != Off && (len(to) == 0 || to[0] != "open"):
				t.Errorf("%s: told of %v", mode, to)
			case mode == Shadow && (!told.all[0].Shadow || g.Health().State == "closed" || !g.Health().Shadow || !g.Health().OpenUntil.IsZero()):
				t.Errorf("shadow: told %+v, health %+v", told.all[0], g.Health())
			}
		})
	}
	t.Logf("calls in a minute of outage: on %d, shadow %d, off %d", made[On], made[Shadow], made[Off])
	if made[On] > 40 {
		t.Errorf("on made %d calls into an outage", made[On])
	}
	if d := made[Shadow] - made[Off]; d < -5 || d > 5 || made[Off] < 2500 {
		t.Errorf("shadow made %d calls, off %d", made[Shadow], made[Off])
	}
}

// RET-08, RET-10: while first attempts wait, a retry without a token is
// deferred; it costs nothing, and it is no call. An idle provider retries freely.
func TestBudgetDefers(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient, env *redistest.Env) {
		g := testGuard(t, rdb, func(c *Config) {
			c.Limits = shaper.Limits{Concurrency: 1}
			c.Budget = retrybudget.Budget{Cap: 2000, Contended: time.Minute}
		})
		ok := func(context.Context) error { return nil }
		for range 10 {
			if err := g.Do(t.Context(), Request{Retry: true}, ok); err != nil {
				t.Fatalf("nobody waits: %v", err)
			}
		}
		// A first attempt finds no place, and waits.
		busy, leave := make(chan struct{}), make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() {
			_ = g.Do(t.Context(), Request{}, func(context.Context) error { close(busy); <-leave; return errDown })
		})
		<-busy
		short, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		_ = g.Do(short, Request{}, ok)
		close(leave)
		wg.Wait()
		called := false
		err := g.Do(t.Context(), Request{Retry: true}, func(context.Context) error { called = true; return nil })
		d, isDeferred := errors.AsType[*Deferred](err)
		if !isDeferred || !errors.Is(err, ErrNotCalled) || called || d.After <= 0 || d.Reason != ReasonBudget {
			t.Fatalf("called %v, %v", called, err)
		}
		for range 11 { // a tenth of a token each
			if err := g.Do(t.Context(), Request{}, ok); err != nil {
				t.Fatal(err)
			}
		}
		if err := g.Do(t.Context(), Request{Retry: true}, ok); err != nil {
			t.Errorf("eleven successes did not pay for one retry: %v", err)
		}
	})
}

// The fuse of a process stops it after 15 failures in a row, before the fleet's
// breaker has heard of them; the caller waits, and one call at a time tries.
func TestFuse(t *testing.T) {
	redistest.Virtual(t, func(t *testing.T, rdb redis.UniversalClient, env *redistest.Env) {
		g := testGuard(t, rdb, func(c *Config) { c.Law.Opening.Row, c.Law.Opening.Calls = 1000, 10 })
		var calls, at atomic.Int64
		var wg sync.WaitGroup
		for range 30 {
			wg.Go(func() {
				_ = g.Do(t.Context(), Request{}, func(context.Context) error {
					if at.Add(1); at.Load() > fuseRow {
						calls.Add(1)
						return nil
					}
					return errDown
				})
			})
		}
		wg.Wait() // none was lost: the last ones waited until it was over
		if calls.Load() != 15 {
			t.Errorf("%d calls after the 15 failures, want 15", calls.Load())
		}
	})
	f := newFuse("x")
	for range fuseRow {
		end, ok := f.begin()
		if !ok {
			t.Fatal("blown too early")
		}
		end(breaker.Failed)
	}
	if _, ok := f.begin(); ok {
		t.Error("not blown after 15 failures in a row")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	told := 0
	if _, err := f.pass(ctx, func() { told++ }); err == nil || told != 1 {
		t.Errorf("a blown fuse lets pass: %v, told %d times", err, told)
	}
	f = newFuse("y")
	for i := range 100 {
		end, ok := f.begin()
		if !ok {
			t.Fatalf("blown at %d, with a success between, or by what says nothing", i)
		}
		end([]breaker.Outcome{breaker.Failed, breaker.Failed, breaker.OK, breaker.Throttled, breaker.Excluded}[i%5])
	}
	var none *fuse
	if _, ok := none.begin(); !ok {
		t.Error("no fuse is a blown fuse")
	}
}

// A probe, and a failure while the breaker is not closed, spend no attempt; and
// probes go one at a time over all processes (BRK-13: one that was cancelled
// counts for nothing, and its place is free again).
func TestProbesAreFree(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient, env *redistest.Env) {
		quick := func(c *Config) { c.Timeout, c.Law.Opening.First = 2*time.Second, 300*time.Millisecond }
		guards := []*Guard{testGuard(t, rdb, quick), testGuard(t, env.Client(), quick)}
		var now, most, free atomic.Int64
		var mode atomic.Int32 // 0: fails, 1: waits for its end, 2: well
		note := func(_ error, rep Report) *shaper.Record {
			if rep.Free {
				free.Add(1)
			}
			return nil
		}
		for range 16 {
			_ = guards[0].Do(t.Context(), Request{Record: note}, func(context.Context) error { return errDown })
			if guards[0].Health().State == "open" {
				break
			}
		}
		env.Eventually(5*time.Second, "open", func() bool { return guards[0].Health().State == "open" })
		mode.Store(1)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				for ctx.Err() == nil {
					_ = guards[i%2].Do(ctx, Request{Record: note}, func(ctx context.Context) error {
						most.Store(max(most.Load(), now.Add(1)))
						defer now.Add(-1)
						if mode.Load() == 1 {
							<-ctx.Done()
							return ctx.Err()
						}
						return nil
					})
				}
			})
		}
		env.Eventually(10*time.Second, "a probe", func() bool { return now.Load() == 1 })
		time.Sleep(500 * time.Millisecond)
		if most.Load() != 1 || !guards[0].Health().Probing {
			t.Errorf("%d at once while probing (%+v)", most.Load(), guards[0].Health())
		}
		cancel()
		wg.Wait()
		if free.Load() == 0 {
			t.Error("no probe was free")
		}
		time.Sleep(600 * time.Millisecond)
		if s := guards[0].Health().State; s != "half_open" {
			t.Errorf("a cancelled probe made it %s", s)
		}
	})
}

func TestRefusedAdaptive(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{})
	defer func() { _ = rdb.Close() }()
	for name, c := range map[string]Config{
		"mode":   {Adaptive: 9},
		"law":    {Law: breaker.Config{Window: time.Millisecond}},
		"budget": {Budget: retrybudget.Budget{Cap: 1}},
	} {
		c.Redis, c.Provider = rdb, "sms"
		if err := New(c).Err(); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
