package shaper

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/penstock-io/penstock/internal/redistest"
)

// SEM-03: permits are one arrival's, not one name's. The same job id in two
// queues takes a place in each; in one queue it runs once, and however many ask
// for it, the places that are taken are counted.
func TestPermitsAreNotShared(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient, _ *redistest.Env) {
		named := func(name string) func(*GateConfig) { return func(c *GateConfig) { c.Name = name } }
		two := Limits{Concurrency: 2}
		a, b, c := testGate(t, rdb, two, named("a")), testGate(t, rdb, two, named("a")), testGate(t, rdb, two, named("b"))
		first := mustAcquire(t, a, Arrival{Job: "order-1"})
		other := mustAcquire(t, c, Arrival{Job: "order-1"}) // another queue's
		if _, err := b.Acquire(t.Context(), Arrival{Job: "order-1"}); !errors.Is(err, ErrRunning) {
			t.Errorf("the same job again: %v", err)
		}
		// Without a job nothing tells arrivals apart but their permits.
		second := mustAcquire(t, b, Arrival{})
		refused(t, a, Arrival{}, 300*time.Millisecond)
		refused(t, b, Arrival{Job: "order-2"}, 300*time.Millisecond)
		ids, err := rdb.ZRange(t.Context(), "penstock:{a}:permits", 0, -1).Result()
		if err != nil || len(slices.Compact(ids)) != 2 || !strings.HasSuffix(ids[0]+" "+ids[1], ":order-1") && !strings.HasSuffix(ids[1]+" "+ids[0], ":order-1") {
			t.Errorf("permits are %v, %v", ids, err)
		}
		for _, p := range []*Permit{first, second, other} { // stored: another gate asks next
			if err := p.SettleWait(t.Context(), Settlement{OK: true}, time.Second); err != nil {
				t.Fatal(err)
			}
		}
		mustAcquire(t, b, Arrival{Job: "order-1"}).Release()
	})
}

// SEM-11: rate and concurrency are set apart: 12 calls a minute that last 15 s
// each are reached, with three in flight.
func TestSlowCallsReachTheRate(t *testing.T) {
	redistest.Virtual(t, func(t *testing.T, rdb redis.UniversalClient, _ *redistest.Env) {
		g := testGate(t, rdb, Limits{Rate: Rate{N: 12, Per: time.Minute}, Concurrency: 10})
		var mu sync.Mutex
		inFlight, peak := 0, 0
		var starts []time.Time
		var all sync.WaitGroup
		for i := range 60 {
			all.Go(func() {
				p := mustAcquireIn(t, g, Arrival{Job: fmt.Sprint(i)}, 10*time.Minute)
				mu.Lock()
				starts = append(starts, time.Now())
				inFlight++
				peak = max(peak, inFlight)
				mu.Unlock()
				time.Sleep(15 * time.Second)
				mu.Lock()
				inFlight--
				mu.Unlock()
				p.Settle(Settlement{OK: true})
			})
		}
		all.Wait()
		// 59 intervals of (60 s + headroom) / 12.
		took, want := starts[len(starts)-1].Sub(starts[0]), 59*g.Limits().Interval()
		if took < want-time.Second || took > want+time.Second {
			t.Errorf("60 calls in %s, want %s", took, want)
		}
		if peak != 3 && peak != 4 {
			t.Errorf("%d in flight, want 3", peak)
		}
	})
}

// LIM-18: 1 per 60 s and five calls: one goes, the others a minute after each
// other.
func TestOneAMinute(t *testing.T) {
	redistest.Virtual(t, func(t *testing.T, rdb redis.UniversalClient, _ *redistest.Env) {
		g := testGate(t, rdb, Limits{Rate: Rate{N: 1, Per: time.Minute}, Headroom: NoHeadroom})
		begun := time.Now()
		for i := range 5 {
			mustAcquireIn(t, g, Arrival{}, 2*time.Minute).Settle(Settlement{OK: true})
			want := time.Duration(i) * time.Minute
			if at := time.Since(begun); at < want-time.Second || at > want+time.Second {
				t.Errorf("call %d went after %s, want %s", i, at, want)
			}
		}
	})
}

// LIM-17: a job that is finished already is refused before any slot is asked
// for: ten thousand of them do not move the line.
func TestNoTokensForWhatIsDone(t *testing.T) {
	redistest.Virtual(t, func(t *testing.T, rdb redis.UniversalClient, _ *redistest.Env) {
		g := testGate(t, rdb, Limits{Rate: PerSecond(10)})
		if err := rdb.Set(t.Context(), "penstock:{sms}:id:done", "x", time.Hour).Err(); err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		var all sync.WaitGroup
		for range 2000 {
			all.Go(func() {
				if _, err := g.Acquire(t.Context(), Arrival{Job: "done", Record: "id:done"}); !errors.Is(err, ErrDone) {
					t.Errorf("got %v", err)
				}
			})
		}
		all.Wait()
		mustAcquire(t, g, Arrival{}).Settle(Settlement{OK: true})
		if took := time.Since(begun); took > 200*time.Millisecond {
			t.Errorf("a live job went after %s", took)
		}
	})
}

func mustAcquireIn(t *testing.T, g *Gate, a Arrival, limit time.Duration) *Permit {
	t.Helper()
	p, err := g.Acquire(until(time.Now().Add(limit)), a)
	if err != nil {
		t.Errorf("acquire %+v: %v", a, err)
		return &Permit{gate: g}
	}
	return p
}
