package worker

import (
	"bytes"
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/penstock-io/penstock/internal/redistest"
	"github.com/penstock-io/penstock/queue"
	"github.com/penstock-io/penstock/queue/internal/layout"
	"github.com/penstock-io/penstock/shaper"
)

// TestRecordIsObeyed: a job delivered again whose record stands is not called,
// and ends as its record says. So a job is called twice only if its worker
// died in the call.
func TestRecordIsObeyed(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient, env *redistest.Env) {
		r := newRig(t, rdb, env)
		ctx := context.Background()
		for _, s := range []layout.State{layout.Succeeded, layout.Dead} {
			r.enqueue(queue.Job{ID: string(s)})
			rdb.Set(ctx, r.k.Tombstone(string(s)), layout.Tombstone{State: s, Attempts: 1, At: 1, Reason: "before"}.Encode(), time.Hour)
		}
		var got calls
		stop := r.start(r.worker(shaper.Limits{}, func(_ context.Context, j *Job) error { got.add(j.ID); return nil }))
		env.Eventually(10*time.Second, "both are settled", func() bool {
			return rdb.Get(ctx, r.k.Asynq("processed")).Val() == "2"
		})
		stop()
		if ids := got.all(); len(ids) != 0 {
			t.Errorf("called %v", ids)
		}
		if n := r.size(r.k.Asynq("completed")); n != 1 {
			t.Errorf("%d are kept", n)
		}
		r.clean()
	})
}

// TestBodies: a large body travels in a key of its own, which asynq's
// heartbeat does not rewrite, byte for byte, and is gone after success.
// QUE-17: numbers in it are bytes like all others.
func TestBodies(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient, env *redistest.Env) {
		r := newRig(t, rdb, env)
		bodies := map[string][]byte{
			"empty": nil, "small": []byte(`{"id": 9007199254740993, "amount": 1e400}`),
			"large": bytes.Repeat([]byte{0, 255, '"'}, 100_000),
		}
		var wrong atomic.Int32
		stop := r.start(r.worker(shaper.Limits{}, func(_ context.Context, j *Job) error {
			if !bytes.Equal(j.Body, bodies[j.ID]) {
				wrong.Add(1)
			}
			if j.Attempt == 1 {
				return fmt.Errorf("once more")
			}
			return nil
		}))
		for id, b := range bodies {
			r.enqueue(queue.Job{ID: id, Body: b})
		}
		for id := range bodies {
			if s := r.stone(id); s.State != queue.Succeeded || s.Attempts != 2 {
				t.Errorf("%s: %+v", id, s)
			}
		}
		stop()
		if n := wrong.Load(); n != 0 {
			t.Errorf("%d calls with another body", n)
		}
		if n := rdb.Exists(t.Context(), r.k.Body("large")).Val() + r.size(r.k.Own(layout.Bodies)); n != 0 {
			t.Error("the body stayed behind")
		}
		r.clean()
	})
}

// TestStrangers: tasks that other programs put in with asynq, without headers
// and with few retries, are called, counted and deferred like our own. asynq
// itself would archive them at a deferral on the last attempt.
func TestStrangers(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient, env *redistest.Env) {
		r := newRig(t, rdb, env)
		c := asynq.NewClientFromRedisClient(rdb)
		var got calls
		stop := r.start(r.worker(shaper.Limits{}, func(_ context.Context, j *Job) error {
			switch n := got.add(j.ID); {
			case j.Type != "mail:send" || string(j.Body) != "hello":
				return Discard(fmt.Sprintf("it is %+v", j))
			case j.ID == "deferred" && n < 4:
				return Defer(time.Millisecond, "not now")
			case j.ID == "fails":
				return fmt.Errorf("boom")
			}
			return nil
		}))
		for id, opts := range map[string][]asynq.Option{
			"plain": {}, "deferred": {asynq.MaxRetry(0)}, "fails": {asynq.MaxRetry(2)},
			"unique": {asynq.Unique(time.Hour)}, "kept": {asynq.Retention(time.Hour)}, "later": {asynq.ProcessIn(time.Second)},
		} {
			opts = append(opts, asynq.Queue(provider1), asynq.TaskID(id))
			if _, err := c.Enqueue(asynq.NewTask("mail:send", []byte("hello")), opts...); err != nil {
				t.Fatal(err)
			}
		}
		for id, want := range map[string]struct {
			state    queue.State
			attempts int
		}{
			"plain": {queue.Succeeded, 1}, "deferred": {queue.Succeeded, 1}, "fails": {queue.Dead, 3},
			"unique": {queue.Succeeded, 1}, "kept": {queue.Succeeded, 1}, "later": {queue.Succeeded, 1},
		} {
			if s := r.stone(id); s.State != want.state || s.Attempts != want.attempts {
				t.Errorf("%s: %+v", id, s)
			}
		}
		stop()
		r.clean()
		if _, err := c.Enqueue(asynq.NewTask("mail:send", []byte("hello")), asynq.Queue(provider1), asynq.Unique(time.Hour)); err != nil {
			t.Errorf("QUE-04: the unique lock of a finished task is stuck: %v", err)
		}
	})
}

// TestExpiredLine, LIM-17: 10,000 expired jobs at the head cost the live one
// behind them no slot: it is called at once, though only ten go in a second.
func TestExpiredLine(t *testing.T) {
	redistest.Real(t, func(t *testing.T, rdb redis.UniversalClient, env *redistest.Env) {
		r := newRig(t, rdb, env)
		jobs := func(yield func(queue.Job) bool) {
			for range 10_000 {
				if !yield(queue.Job{Provider: provider1, Type: "t", MaxAge: time.Millisecond}) {
					return
				}
			}
		}
		for _, err := range r.q.EnqueueAll(t.Context(), jobs) {
			if err != nil {
				t.Fatal(err)
			}
		}
		r.enqueue(queue.Job{ID: "live"})
		var got calls
		w := r.worker(shaper.Limits{Rate: shaper.PerSecond(10)}, func(_ context.Context, j *Job) error { got.add(j.ID); return nil })
		stop := r.start(w)
		if s := r.stoneWithin("live", 30*time.Second); s.State != queue.Succeeded {
			t.Errorf("%+v", s)
		}
		stop()
		if ids := got.all(); len(ids) != 1 {
			t.Errorf("%d calls", len(ids))
		}
		if n := rdb.ZCard(t.Context(), r.k.Done(queue.Expired)).Val(); n != 10_000 {
			t.Errorf("%d expired", n)
		}
	})
}

// TestTakesWhenItsTurnIsNear: priorities stay meaningful, because jobs stay in
// their lanes until their turn is near. With plain asynq all 60 are taken.
func TestTakesWhenItsTurnIsNear(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient, env *redistest.Env) {
		r := newRig(t, rdb, env)
		for i := range 60 {
			r.enqueue(queue.Job{ID: fmt.Sprintf("low%02d", i), Priority: queue.PriorityLow})
		}
		var got calls
		begun := make(chan struct{}, 100)
		stop := r.start(r.worker(shaper.Limits{Rate: shaper.PerSecond(8)}, func(_ context.Context, j *Job) error {
			got.add(j.ID)
			begun <- struct{}{}
			return nil
		}))
		<-begun
		if n := rdb.ZCard(t.Context(), r.k.Lane(layout.Low)).Val(); n < 56 {
			t.Errorf("only %d of 60 wait in their lane", n)
		}
		r.enqueue(queue.Job{ID: "urgent", Priority: queue.PriorityHigh})
		r.stone("urgent")
		stop()
		at := 0
		for i, id := range got.all() {
			if id == "urgent" {
				at = i
			}
		}
		if at == 0 || at > 6 {
			t.Errorf("the urgent job was call %d", at)
		}
	})
}

// TestFullRedis: with maxmemory reached, workers still drain: taking, settling,
// giving back and recovering are allowed (allow-oom), enqueuing is not. Take
// the flags off take.lua and no job is ever called again. (settle.lua would do
// without them: it removes before it writes.)
func TestFullRedis(t *testing.T) {
	redistest.Real(t, func(t *testing.T, rdb redis.UniversalClient, env *redistest.Env) {
		r := newRig(t, rdb, env)
		for i := range 200 {
			r.enqueue(queue.Job{ID: fmt.Sprint("j", i), Body: make([]byte, 1000)})
		}
		env.Server.Config("maxmemory", "1")
		env.Server.Config("maxmemory-policy", "noeviction")
		if err := rdb.Set(t.Context(), "x", "y", 0).Err(); err == nil {
			t.Fatal("redis is not full")
		}
		w := r.worker(shaper.Limits{}, func(_ context.Context, j *Job) error {
			if j.ID == "j7" {
				return Discard("no")
			}
			if j.ID == "j8" && j.Attempt == 1 {
				return fmt.Errorf("once more")
			}
			return nil
		})
		stop := r.start(w)
		for i := range 200 {
			r.stoneWithin(fmt.Sprint("j", i), 30*time.Second)
		}
		stop()
		r.clean()
		env.Server.Config("maxmemory", "0")
	})
}

// TestQuiet, QUE-29: an idle worker asks little: 6.7 commands/s measured over
// a long time, those in scripts counted; a short time has its chance peaks.
func TestQuiet(t *testing.T) {
	redistest.Real(t, func(t *testing.T, rdb redis.UniversalClient, env *redistest.Env) {
		r := newRig(t, rdb, env)
		// No job before it: health ticks on for 10 s after the last one.
		r.start(r.worker(shaper.Limits{}, func(context.Context, *Job) error { return nil }))
		env.Eventually(5*time.Second, "the worker runs", func() bool {
			return rdb.ZCard(context.Background(), r.k.Own(layout.Procs)).Val() == 1
		})
		before := commandsOf(t, rdb)
		time.Sleep(10 * time.Second)
		if n := (commandsOf(t, rdb) - before) / 10; n > 12 {
			t.Errorf("%.1f commands/s while idle", n)
		}
	})
}

// TestNeighbour, QUE-31 and QUE-32: a provider that stands still with many jobs
// takes nothing from its neighbour in the same process, and holds none of its
// own jobs in memory.
func TestNeighbour(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient, env *redistest.Env) {
		r := newRig(t, rdb, env)
		other := &rig{t: t, rdb: rdb, env: env, q: r.q, k: layout.For("", "mail")}
		if err := r.q.Publish(t.Context(), "mail", queue.Spec{}); err != nil {
			t.Fatal(err)
		}
		stuck := r.worker(shaper.Limits{}, func(context.Context, *Job) error { return nil })
		if err := stuck.cfg.Guard.Gate().Pause(t.Context()); err != nil {
			t.Fatal(err)
		}
		for i := range 500 {
			r.enqueue(queue.Job{ID: fmt.Sprint(i)})
		}
		stopStuck := r.start(stuck)
		stop := other.start(other.workerFor("mail", shaper.Limits{}, func(context.Context, *Job) error { return nil }))
		for range 20 {
			other.stone(other.enqueue(queue.Job{Provider: "mail"}))
		}
		if all, _ := stuck.hands.counts(); all != 0 {
			t.Errorf("the stuck provider has %d jobs in hand", all)
		}
		stop()
		stopStuck()
	})
}
