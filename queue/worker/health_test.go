package worker

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/penstock-io/penstock/internal/redistest"
	"github.com/penstock-io/penstock/queue"
	"github.com/penstock-io/penstock/queue/internal/layout"
	"github.com/penstock-io/penstock/shaper"
)

// What health decided shuts the inlet: nothing is taken while the breaker is
// open, one job a process while it is half-open, all when it is closed, and all
// where the record is only watched.
func TestInletObeysHealth(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient, env *redistest.Env) {
		r := newRig(t, rdb, env)
		for range 20 {
			r.enqueue(queue.Job{})
		}
		decide := func(c shaper.Control) {
			c.OpenUntil = time.Now().Add(time.Minute)
			rdb.Set(t.Context(), r.k.Own(layout.Control), c.String()+"\n{}", 0)
		}
		in := r.bare("p1", 1000, shaper.Limits{})
		take := func(what string, want int) {
			t.Helper()
			if got := r.take(in, 4); len(got) != want {
				t.Errorf("%s: %d jobs taken, want %d", what, len(got), want)
			}
		}
		decide(shaper.Control{Mode: "on", Phase: "open"})
		take("open", 0)
		if !in.shut || in.nextDue.Before(time.Now().Add(30*time.Second)) {
			t.Errorf("open: shut %v, next look at %s", in.shut, in.nextDue)
		}
		decide(shaper.Control{Mode: "on", Phase: "half_open"})
		take("half-open", 1)
		take("half-open, one in hand", 0)
		if in.allowed() != 1 {
			t.Errorf("half-open: %d jobs allowed", in.allowed())
		}
		other := r.bare("p2", 1000, shaper.Limits{})
		if got := r.take(other, 4); len(got) != 1 {
			t.Errorf("half-open, another process: %d jobs taken", len(got))
		}
		decide(shaper.Control{Mode: "shadow", Phase: "open"})
		take("shadow", 4)
		decide(shaper.Control{Mode: "off", Phase: "open"})
		take("off", 4)
		decide(shaper.Control{Mode: "on", Phase: "closed"})
		take("closed", 4)
	})
}

// An outage spends at most what failed before the breaker opened, and no
// attempt on a probe: no job dies of it, and all are done afterwards.
func TestOutageSpendsNothing(t *testing.T) {
	redistest.Virtual(t, func(t *testing.T, rdb redis.UniversalClient, env *redistest.Env) {
		r := newRig(t, rdb, env)
		var down atomic.Bool
		var calls atomic.Int64
		stop := r.start(r.worker(shaper.Limits{Rate: shaper.PerSecond(20)}, func(context.Context, *Job) error {
			calls.Add(1)
			if down.Load() {
				return errors.New("down")
			}
			return nil
		}, func(c *Config) { c.Retry = Retry{Attempts: 3, Base: time.Second, Max: time.Minute} }))
		down.Store(true)
		const jobs, outage = 200, 10 * time.Minute
		var ids []string
		for range jobs {
			ids = append(ids, r.enqueue(queue.Job{}))
		}
		time.Sleep(outage)
		if n := calls.Load(); n > 15+5+outage.Milliseconds()/20_000 {
			t.Errorf("%d calls in an outage of %s", n, outage)
		}
		down.Store(false)
		spent := 0
		for _, id := range ids {
			s := r.stoneWithin(id, 5*time.Minute)
			if s.State != queue.Succeeded {
				t.Errorf("%s: %+v", id, s)
			}
			spent += s.Attempts
		}
		if spent > jobs+20 {
			t.Errorf("%d attempts spent on %d jobs", spent, jobs)
		}
		t.Logf("%d calls, %d attempts for %d jobs", calls.Load(), spent, jobs)
		stop()
	})
}
