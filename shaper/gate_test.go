package shaper

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/penstock-io/penstock/internal/redistest"
)

func TestMain(m *testing.M) {
	if fleetMember() {
		return
	}
	goleak.VerifyTestMain(m)
}

// testGate opens a gate that is closed with the test.
func testGate(t *testing.T, rdb redis.UniversalClient, l Limits, change ...func(*GateConfig)) *Gate {
	t.Helper()
	cfg := GateConfig{Redis: rdb, Name: "sms", Limits: l}
	for _, f := range change {
		f(&cfg)
	}
	g, err := NewGate(cfg)
	if err != nil {
		t.Fatal(err)
	}
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

func mustAcquire(t *testing.T, g *Gate, a Arrival) *Permit {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	p, err := g.Acquire(ctx, a)
	if err != nil {
		t.Fatalf("acquire %+v: %v", a, err)
	}
	return p
}

// refused asks for a permit that must not be given within d.
func refused(t *testing.T, g *Gate, a Arrival, d time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	if p, err := g.Acquire(ctx, a); err == nil {
		p.Release()
		t.Fatalf("acquire %+v: a permit was given", a)
	} else if !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("acquire %+v: %v", a, err)
	}
}

// drain makes n calls with as many callers as it takes, and returns the slots
// in the script's time (with burst 1: the theoretical arrival time less the cost).
func drain(t *testing.T, n, callers int, took time.Duration, gates ...*Gate) (slots []int64, byGate []int) {
	t.Helper()
	var mu sync.Mutex
	var wg sync.WaitGroup
	byGate = make([]int, len(gates))
	left := n
	for i, g := range gates {
		for range callers {
			wg.Go(func() {
				for {
					mu.Lock()
					if left <= 0 {
						mu.Unlock()
						return
					}
					left--
					mu.Unlock()
					p, err := g.Acquire(t.Context(), Arrival{})
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					slots = append(slots, p.tat)
					byGate[i]++
					mu.Unlock()
					time.Sleep(took)
					p.Settle(Settlement{OK: true})
				}
			})
		}
	}
	wg.Wait()
	slices.Sort(slots)
	return slots, byGate
}

// checkSpacing fails where two slots are less than one interval apart.
func checkSpacing(t *testing.T, slots []int64, interval time.Duration) {
	t.Helper()
	for i := 1; i < len(slots); i++ {
		if d := slots[i] - slots[i-1]; d < interval.Microseconds() {
			t.Fatalf("slots %d and %d are %d µs apart, less than %s", i-1, i, d, interval)
		}
	}
}

// LIM-01, LIM-04, LIM-10: the fleet's slots are one interval apart, and
// nothing is lost to the limit when all have work.
func TestEvenOverTheFleet(t *testing.T) {
	for _, l := range []Limits{
		{Rate: PerSecond(100), Concurrency: 40}, {Rate: PerSecond(1000)}, {Rate: PerSecond(3)},
		{Rate: Rate{N: 12, Per: time.Minute}, Headroom: NoHeadroom}, {Rate: Rate{N: 2, Per: 3 * time.Second}},
	} {
		t.Run(strings.ReplaceAll(l.Rate.String(), "/", "_per_"), func(t *testing.T) {
			redistest.Virtual(t, func(t *testing.T, rdb redis.UniversalClient, env *redistest.Env) {
				gates := []*Gate{testGate(t, rdb, l), testGate(t, rdb, l), testGate(t, rdb, l)}
				start := time.Now()
				const n = 60
				slots, _ := drain(t, n, 4, time.Millisecond, gates...)
				if len(slots) != n {
					t.Fatalf("%d calls of %d", len(slots), n)
				}
				checkSpacing(t, slots, l.Interval())
				// Exact: in virtual time every slot is used.
				if got, want := slots[n-1]-slots[0], (n-1)*l.Interval().Microseconds(); got != want {
					t.Errorf("%d calls took %d µs, want exactly %d", n, got, want)
				}
				if took, want := time.Since(start), time.Duration(n)*l.Interval(); took > want+200*time.Millisecond {
					t.Errorf("took %s, want about %s", took, want)
				}
			})
		})
	}
}

// Between processes nobody starves: without turns the nearest takes all
// (research: 300 : 1). Remove the turn check in gate.lua and this fails.
func TestTurns(t *testing.T) {
	for name, l := range map[string]Limits{
		"rate 5":           {Rate: PerSecond(5)},
		"rate 200":         {Rate: PerSecond(200)},
		"concurrency only": {Concurrency: 10},
	} {
		t.Run(name, func(t *testing.T) {
			redistest.Virtual(t, func(t *testing.T, rdb redis.UniversalClient, env *redistest.Env) {
				far := env.Client()
				far.(*redis.Client).AddHook(delay(time.Millisecond))
				gates := []*Gate{testGate(t, rdb, l), testGate(t, far, l), testGate(t, env.Client(), l), testGate(t, env.Client(), l)}
				n := 400
				if l.Rate.N == 5 {
					n = 120
				}
				_, by := drain(t, n, 16, 20*time.Millisecond, gates...)
				for i, got := range by {
					if f := float64(got) / (float64(n) / 4); f < 0.9 || f > 1.1 {
						t.Errorf("process %d got %d of %d; all: %v", i, got, n, by)
					}
				}
			})
		})
	}
}

// delay is a network d away, each way.
type delay time.Duration

func (d delay) DialHook(next redis.DialHook) redis.DialHook { return next }
func (d delay) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		time.Sleep(time.Duration(d))
		defer time.Sleep(time.Duration(d))
		return next(ctx, cmd)
	}
}
func (d delay) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// state reads everything the gate keeps but what may differ between two equal
// states: sequence, last request, and when somebody was last refused.
func state(t *testing.T, rdb redis.UniversalClient) map[string]any {
	t.Helper()
	ctx := t.Context()
	gate := rdb.HGetAll(ctx, "penstock:{sms}:gate").Val()
	for _, f := range []string{"seq", "last", "xat", "fref"} {
		delete(gate, f)
	}
	return map[string]any{
		"gate":    gate,
		"permits": rdb.ZRange(ctx, "penstock:{sms}:permits", 0, -1).Val(),
		"running": rdb.HGetAll(ctx, "penstock:{sms}:running").Val(),
	}
}

// Nothing is taken on a denial, whatever denies.
func TestDenialTakesNothing(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient, env *redistest.Env) {
		ctx := t.Context()
		g := testGate(t, rdb, Limits{Rate: Rate{N: 1, Per: time.Hour}, Concurrency: 2})
		first := mustAcquire(t, g, Arrival{Job: "a"})
		before := state(t, rdb)
		check := func(what string) {
			t.Helper()
			if d := cmp.Diff(before, state(t, rdb)); d != "" {
				t.Errorf("%s took something:\n%s", what, d)
			}
		}
		refused(t, g, Arrival{Job: "b"}, 300*time.Millisecond)
		check("rate")
		if _, err := g.Acquire(ctx, Arrival{Job: "a"}); !errors.Is(err, ErrRunning) {
			t.Errorf("a second permit of one job: %v", err)
		}
		check("running")
		rdb.Set(ctx, "penstock:{sms}:id:c", `{"s":"succeeded"}`, 0)
		var done *DoneError
		if _, err := g.Acquire(ctx, Arrival{Job: "c", Record: "id:c"}); !errors.As(err, &done) || done.Record != `{"s":"succeeded"}` {
			t.Errorf("a job with a record: %v", err)
		}
		check("done")
		if err := g.Pause(ctx); err != nil {
			t.Fatal(err)
		}
		refused(t, g, Arrival{Job: "d"}, 300*time.Millisecond)
		check("paused")
		first.Settle(Settlement{OK: true})
	})
}

// An account that cannot pay refuses the arrival; a permit not used pays back.
func TestAccounts(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient, env *redistest.Env) {
		g := testGate(t, rdb, Limits{Concurrency: 1}, func(c *GateConfig) {
			c.Account = Account{Earn: 100, Spend: 1000, Trickle: 1, Cap: 1500, Contended: time.Hour, Longest: time.Hour}
		})
		tokens := func() string {
			n, _, _ := strings.Cut(rdb.HGet(t.Context(), "penstock:{sms}:gate", "acct").Val(), " ")
			return n
		}
		settle := func(p *Permit, s Settlement) {
			t.Helper()
			if err := p.SettleWait(t.Context(), s, time.Second); err != nil {
				t.Fatal(err)
			}
		}
		// Nobody waits: retries go, and take what there is.
		for range 3 {
			settle(mustAcquire(t, g, Arrival{Pays: true}), Settlement{})
		}
		if got := tokens(); got != "0" {
			t.Errorf("%s thousandths are left of 1500 after 3 retries", got)
		}
		// A first attempt was refused: now a token is needed, and there is none.
		p := mustAcquire(t, g, Arrival{})
		refused(t, g, Arrival{}, 50*time.Millisecond)
		settle(p, Settlement{OK: true, Earns: true})
		var poor *AccountError
		if _, err := g.Acquire(t.Context(), Arrival{Pays: true}); !errors.As(err, &poor) || poor.After < time.Second {
			t.Fatalf("an empty account paid: %v", err)
		}
		for range 9 {
			settle(mustAcquire(t, g, Arrival{}), Settlement{OK: true, Earns: true})
		}
		p = mustAcquire(t, g, Arrival{Pays: true})
		p.Release() // what was paid goes back, once
		p.Release()
		settle(mustAcquire(t, g, Arrival{Pays: true}), Settlement{OK: true})
		if _, err := g.Acquire(t.Context(), Arrival{Pays: true}); !errors.As(err, &poor) {
			t.Errorf("an account that paid once paid twice: %v", err)
		}
	})
}

// go-redis repeats a script whose reply was lost: the repetition gets the same
// answer and takes nothing.
func TestRepeatedRequest(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient, env *redistest.Env) {
		lossy := env.Client()
		hook := &loseReplies{}
		lossy.(*redis.Client).AddHook(hook)
		g := testGate(t, lossy, Limits{Rate: PerSecond(50), Concurrency: 4})
		hook.every.Store(3) // with every second one, each slot would be missed
		slots, _ := drain(t, 30, 6, 5*time.Millisecond, g)
		checkSpacing(t, slots, g.Limits().Interval())
		if hook.lost.Load() == 0 {
			t.Fatal("no reply was lost; the test shows nothing")
		}
		hook.every.Store(0)
		if err := mustAcquire(t, g, Arrival{}).SettleWait(t.Context(), Settlement{OK: true}, time.Second); err != nil {
			t.Fatal(err)
		}
		if n := rdb.ZCard(t.Context(), "penstock:{sms}:permits").Val(); n != 0 {
			t.Errorf("%d permits were left over", n)
		}
	})
}

// SEM-07: a second release and a release by a process that lost its lease
// change nothing. SEM-01: a lost holder's place is free after the lease.
func TestReleaseOnce(t *testing.T) {
	redistest.Virtual(t, func(t *testing.T, rdb redis.UniversalClient, env *redistest.Env) {
		l := Limits{Concurrency: 1}
		dead := testGate(t, rdb, l)
		g := testGate(t, env.Client(), l)
		old := mustAcquire(t, dead, Arrival{Job: "j"})
		freeze(dead)
		start := time.Now()
		p := mustAcquire(t, g, Arrival{Job: "other"})
		if took := time.Since(start); took > 11*time.Second {
			t.Errorf("the place was free after %s, want the lease", took)
		}
		thaw(dead)
		old.Settle(Settlement{OK: true})
		old.Release()
		time.Sleep(time.Second)
		refused(t, g, Arrival{Job: "k"}, 2*time.Second)
		p.Settle(Settlement{OK: true})
		p.Settle(Settlement{OK: true})
		mustAcquire(t, g, Arrival{Job: "k"}).Release()
	})
}

// freeze keeps a gate from talking to Redis, like a stopped process.
func freeze(g *Gate) {
	g.mu.Lock()
	g.retryAt = time.Now().Add(time.Hour)
	g.mu.Unlock()
}

func thaw(g *Gate) {
	g.mu.Lock()
	g.retryAt = time.Time{}
	g.startLocked()
	g.mu.Unlock()
}

// A job whose holders died three times is poison; a late settlement takes its
// death back; a call that ended clears the count.
func TestPoison(t *testing.T) {
	redistest.Virtual(t, func(t *testing.T, rdb redis.UniversalClient, env *redistest.Env) {
		g := testGate(t, rdb, Limits{})
		die := func() *Permit {
			d := testGate(t, env.Client(), Limits{})
			p := mustAcquire(t, d, Arrival{Job: "j"})
			freeze(d)
			for range 4 { // others go on: the store is alive
				time.Sleep(3 * time.Second)
				mustAcquire(t, g, Arrival{}).Release()
			}
			return p
		}
		die()
		die()
		last := die()
		if _, err := g.Acquire(t.Context(), Arrival{Job: "j"}); !errors.Is(err, ErrPoison) {
			t.Fatalf("after three deaths: %v", err)
		}
		thaw(last.gate)
		last.Settle(Settlement{})
		time.Sleep(time.Second)
		mustAcquire(t, g, Arrival{Job: "j"}).SettleWait(t.Context(), Settlement{OK: true}, time.Second)
		if n := rdb.HLen(t.Context(), "penstock:{sms}:crash").Val(); n != 0 {
			t.Errorf("%d crash counts left after a call that ended", n)
		}
	})
}

// SEM-04: a call longer than the lease keeps its place.
func TestLongCallKeepsItsPlace(t *testing.T) {
	redistest.Virtual(t, func(t *testing.T, rdb redis.UniversalClient, env *redistest.Env) {
		g, other := testGate(t, rdb, Limits{Concurrency: 1}), testGate(t, env.Client(), Limits{Concurrency: 1})
		p := mustAcquire(t, g, Arrival{})
		refused(t, other, Arrival{}, 45*time.Second)
		p.Settle(Settlement{OK: true})
		mustAcquire(t, other, Arrival{}).Release()
	})
}

// A process whose lease was taken over learns it, and its call is cancelled.
func TestLostLeaseCancels(t *testing.T) {
	redistest.Virtual(t, func(t *testing.T, rdb redis.UniversalClient, env *redistest.Env) {
		slow, g := testGate(t, rdb, Limits{Concurrency: 1}), testGate(t, env.Client(), Limits{Concurrency: 1})
		p := mustAcquire(t, slow, Arrival{})
		ctx, cancel := p.Context(t.Context())
		defer cancel(nil)
		freeze(slow)
		mustAcquire(t, g, Arrival{})
		thaw(slow)
		<-ctx.Done()
		if err := context.Cause(ctx); !errors.Is(err, ErrLost) {
			t.Errorf("cause %v, want ErrLost", err)
		}
	})
}

// SEM-08, LIM-03: limits change while running, for those who wait too; a
// restart keeps a live change, an edit of the file beats it.
func TestLiveLimits(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient, env *redistest.Env) {
		ctx := t.Context()
		file := Limits{Concurrency: 10}
		g := testGate(t, rdb, file)
		var held []*Permit
		for range 9 {
			held = append(held, mustAcquire(t, g, Arrival{}))
		}
		if err := g.SetLimits(ctx, Limits{Concurrency: 3}); err != nil {
			t.Fatal(err)
		}
		old := testGate(t, env.Client(), file) // a worker with the old file
		if got := old.Limits().Concurrency; got != 3 {
			t.Errorf("a restarted worker sees concurrency %d, want the live 3", got)
		}
		for range 6 {
			held[0].Settle(Settlement{OK: true})
			held = held[1:]
		}
		refused(t, old, Arrival{}, 500*time.Millisecond)
		held[0].Settle(Settlement{OK: true})
		mustAcquire(t, old, Arrival{}).Release()
		edited := testGate(t, env.Client(), Limits{Concurrency: 5})
		if got := edited.Limits().Concurrency; got != 5 {
			t.Errorf("an edited file gives concurrency %d, want 5", got)
		}
		// A raise acts at once: from one an hour to many a second.
		if err := g.SetLimits(ctx, Limits{Rate: Rate{N: 1, Per: time.Hour}}); err != nil {
			t.Fatal(err)
		}
		mustAcquire(t, g, Arrival{}).Release()
		got := make(chan error, 1)
		go func() {
			p, err := g.Acquire(ctx, Arrival{})
			if err == nil {
				p.Release()
			}
			got <- err
		}()
		refused(t, edited, Arrival{}, 300*time.Millisecond)
		if err := edited.SetLimits(ctx, Limits{Rate: PerSecond(100)}); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-got:
			if err != nil {
				t.Fatal(err)
			}
		case <-time.After(10 * time.Second):
			t.Error("the raised rate did not reach one who waits")
		}
		for _, p := range held {
			p.Release()
		}
	})
}

// RA-23, WANTED 3: one worker's Retry-After holds the whole fleet; after a
// capped wait one call at a time goes until one succeeds.
func TestHold(t *testing.T) {
	redistest.Virtual(t, func(t *testing.T, rdb redis.UniversalClient, env *redistest.Env) {
		g, other := testGate(t, rdb, Limits{}), testGate(t, env.Client(), Limits{})
		if err := mustAcquire(t, g, Arrival{}).SettleWait(t.Context(), Settlement{Hold: 30 * time.Second, Capped: true}, time.Second); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		p := mustAcquire(t, other, Arrival{})
		if d := time.Since(start); d < 30*time.Second || d > 33*time.Second {
			t.Errorf("the next call went after %s, want 30 s and little more", d)
		}
		refused(t, g, Arrival{}, 2*time.Second)
		p.SettleWait(t.Context(), Settlement{OK: true}, time.Second)
		mustAcquire(t, g, Arrival{}).Release()
		mustAcquire(t, other, Arrival{}).Release()
	})
}

// Five different jobs refused in a row hold the provider; a probe each minute;
// released by a good probe, by resume, by changed credentials.
func TestCredentials(t *testing.T) {
	redistest.Virtual(t, func(t *testing.T, rdb redis.UniversalClient, env *redistest.Env) {
		ctx := t.Context()
		tag := func(s string) func(*GateConfig) { return func(c *GateConfig) { c.Tag = s } }
		g := testGate(t, rdb, Limits{}, tag("one"))
		fail := func(job string) {
			t.Helper()
			mustAcquire(t, g, Arrival{Job: job}).SettleWait(ctx, Settlement{Refused: true}, time.Second)
		}
		shut := func() bool {
			t.Helper()
			s, err := g.Status(ctx)
			if err != nil {
				t.Fatal(err)
			}
			return !s.HeldUntil.IsZero() && s.HeldReason == "credentials"
		}
		for range 6 {
			fail("same")
		}
		for i := range 3 {
			fail(fmt.Sprint("x", i))
		}
		mustAcquire(t, g, Arrival{}).SettleWait(ctx, Settlement{OK: true}, time.Second)
		for i := range 4 {
			fail(fmt.Sprint("y", i))
		}
		if shut() {
			t.Fatal("held although no five different jobs in a row were refused")
		}
		fail("y4")
		if !shut() {
			t.Fatal("not held after five different jobs in a row")
		}
		start := time.Now()
		fail("probe")
		if d := time.Since(start); d < 59*time.Second || d > 65*time.Second {
			t.Errorf("the probe went after %s, want a minute", d)
		}
		if !shut() {
			t.Error("not held after a bad probe")
		}
		fresh := testGate(t, env.Client(), Limits{}, tag("two"))
		if shut() {
			t.Error("still held after the credentials changed")
		}
		mustAcquire(t, fresh, Arrival{}).SettleWait(ctx, Settlement{OK: true}, time.Second)
		for i := range 5 {
			fail(fmt.Sprint("z", i))
		}
		if err := g.Resume(ctx); err != nil {
			t.Fatal(err)
		}
		if shut() {
			t.Error("still held after resume")
		}
	})
}

// QUE-25: the script cache may vanish at any time. QUE-27: so may all the data.
func TestFlushed(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient, env *redistest.Env) {
		g := testGate(t, rdb, Limits{Rate: PerSecond(200), Concurrency: 8})
		if err := g.SetLimits(t.Context(), Limits{Rate: PerSecond(200), Concurrency: 4}); err != nil {
			t.Fatal(err)
		}
		held := mustAcquire(t, g, Arrival{Job: "kept"})
		rdb.ScriptFlush(t.Context())
		mustAcquire(t, g, Arrival{}).SettleWait(t.Context(), Settlement{OK: true}, time.Second)
		env.Flush(t.Context())
		start := time.Now()
		mustAcquire(t, g, Arrival{}).Settle(Settlement{OK: true})
		if d := time.Since(start); d > 5*time.Second {
			t.Errorf("calls flow again after %s, want at most 5 s", d)
		}
		if got := g.Limits().Concurrency; got != 4 {
			t.Errorf("concurrency %d after the flush, want the live 4", got)
		}
		if n := rdb.HGet(t.Context(), "penstock:{sms}:running", "kept").Val(); n != held.id {
			t.Errorf("the running job's permit was not registered again: %q", n)
		}
		held.Settle(Settlement{OK: true})
	})
}

// QUE-26, QUE-28: twenty thousand dead holders and processes are cleaned up in
// lots, and no request grows without bound.
func TestManyDead(t *testing.T) {
	redistest.Real(t, func(t *testing.T, rdb redis.UniversalClient, env *redistest.Env) {
		ctx := t.Context()
		g := testGate(t, rdb, Limits{Concurrency: 20_001})
		mustAcquire(t, g, Arrival{}).Release()
		for lot := range 20 {
			var dead []redis.Z
			turns := []any{}
			for i := range 1000 {
				dead = append(dead, redis.Z{Score: 1e15, Member: fmt.Sprintf("gone-%d:j%d-%d", i, lot, i)})
				turns = append(turns, fmt.Sprintf("p%d-%d", lot, i), "5 1000000000000000 1000000000000000")
			}
			rdb.ZAdd(ctx, "penstock:{sms}:permits", dead...)
			rdb.HSet(ctx, "penstock:{sms}:turns", turns...)
		}
		env.Eventually(60*time.Second, "all dead holders and processes are gone", func() bool {
			mustAcquire(t, g, Arrival{}).Release()
			return rdb.ZCard(ctx, "penstock:{sms}:permits").Val() <= 1 && rdb.HLen(ctx, "penstock:{sms}:turns").Val() <= 1
		})
	})
}

// QUE-23: with Redis full, places are still freed and given.
func TestFullRedis(t *testing.T) {
	redistest.Real(t, func(t *testing.T, rdb redis.UniversalClient, env *redistest.Env) {
		g := testGate(t, rdb, Limits{Concurrency: 1})
		p := mustAcquire(t, g, Arrival{Job: "a"})
		env.Server.Config("maxmemory-policy", "noeviction")
		env.Server.Config("maxmemory", "1")
		if err := rdb.Set(t.Context(), "x", "y", 0).Err(); err == nil {
			t.Fatal("Redis is not full; the test shows nothing")
		}
		p.Settle(Settlement{OK: true, Record: &Record{Name: "id:a", Value: "v", TTL: time.Hour}})
		mustAcquire(t, g, Arrival{Job: "b"}).Release()
		if v := rdb.Get(t.Context(), "penstock:{sms}:id:a").Val(); v != "v" {
			t.Error("the record of a call that was made is not stored")
		}
	})
}

// SEM-06: a caller that leaves while the answer is under way leaves nothing.
func TestLeaving(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient, env *redistest.Env) {
		g := testGate(t, rdb, Limits{Concurrency: 3})
		var wg sync.WaitGroup
		for i := range 40 {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i%7)*100*time.Microsecond)
				defer cancel()
				if p, err := g.Acquire(ctx, Arrival{Job: fmt.Sprint("é☕", i)}); err == nil {
					p.Release()
				}
			})
		}
		wg.Wait()
		env.Eventually(5*time.Second, "all places are free again", func() bool {
			return rdb.ZCard(t.Context(), "penstock:{sms}:permits").Val() == 0 &&
				rdb.HLen(t.Context(), "penstock:{sms}:running").Val() == 0
		})
		var three []*Permit
		for range 3 {
			three = append(three, mustAcquire(t, g, Arrival{}))
		}
		for _, p := range three {
			p.Release()
		}
	})
}

// SEM-10: one waiter for one place: the number of requests is linear.
func TestNoThunder(t *testing.T) {
	redistest.Virtual(t, func(t *testing.T, rdb redis.UniversalClient, env *redistest.Env) {
		count := &counting{}
		var gates []*Gate
		for range 10 {
			c := env.Client()
			gates = append(gates, testGate(t, c, Limits{Concurrency: 1}, func(c *GateConfig) { c.Observer = count }))
		}
		const n = 200
		drain(t, n, 10, 50*time.Millisecond, gates...)
		// Ten processes poll each 100 ms as a net: 20 calls/s make 100 polls/s.
		if got := count.requests.Load(); got > 12*n {
			t.Errorf("%d requests for %d calls", got, n)
		}
	})
}
