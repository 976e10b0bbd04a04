package worker

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/penstock-io/penstock/internal/redistest"
	"github.com/penstock-io/penstock/queue"
	"github.com/penstock-io/penstock/shaper"
)

// TestStop is the stop sequence: a call under way ends within the grace, the
// parked jobs are back at the head of the line in their order, no job is
// called twice. Leave out endWaits and the parked ones are called during the
// stop; shut asynq down before awaitCalls and it gives back jobs whose calls
// still run.
func TestStop(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient, env *redistest.Env) {
		r := newRig(t, rdb, env)
		var got calls
		begun, end := make(chan string, 10), make(chan struct{})
		stop := r.start(r.worker(shaper.Limits{Concurrency: 1}, func(_ context.Context, j *Job) error {
			got.add(j.ID)
			begun <- j.ID
			<-end
			return nil
		}))
		for i := range 6 {
			r.enqueue(queue.Job{ID: fmt.Sprintf("j%d", i)})
		}
		first := <-begun
		env.Eventually(5*time.Second, "two jobs are parked", func() bool {
			return rdb.LLen(context.Background(), r.k.Asynq("active")).Val() == 3
		})
		stopped := make(chan struct{})
		go func() { stop(); close(stopped) }()
		env.Eventually(5*time.Second, "the parked jobs are back", func() bool {
			return rdb.LLen(context.Background(), r.k.Asynq("pending")).Val() == 5
		})
		select {
		case <-stopped:
			t.Error("stopped while a call runs")
		default:
		}
		close(end)
		<-stopped
		if ids := got.all(); len(ids) != 1 {
			t.Errorf("called %v", ids)
		}
		line := rdb.LRange(t.Context(), r.k.Asynq("pending"), 0, -1).Val()
		slices.Reverse(line) // the head is at the right
		want := []string{"j0", "j1", "j2", "j3", "j4", "j5"}
		want = slices.DeleteFunc(want, func(id string) bool { return id == first })
		// Only those that were parked may have changed places.
		slices.Sort(line[:2])
		if !slices.Equal(line, want) {
			t.Errorf("the line is %v, not %v", line, want)
		}
		if n := r.size(r.k.Asynq("active")) + r.size(r.k.Asynq("lease")); n != 0 {
			t.Errorf("%d left behind", n)
		}
		if r.stone(first).State != queue.Succeeded {
			t.Errorf("%s did not succeed", first)
		}
		for _, id := range want {
			if s := rdb.HGet(t.Context(), r.k.Task(id), "state").Val(); s != "pending" {
				t.Errorf("%s is %q", id, s)
			}
		}
		// Another worker does the rest.
		var rest calls
		stop2 := r.start(r.worker(shaper.Limits{}, func(_ context.Context, j *Job) error { rest.add(j.ID); return nil }))
		for _, id := range want {
			r.stone(id)
		}
		stop2()
		if len(rest.all()) != 5 {
			t.Errorf("the rest was called as %v", rest.all())
		}
		r.clean()
	})
}

// TestStopCutsAtGrace: at the end of the grace the call's context ends, its
// return is awaited, no attempt is spent, and the job is back in the line.
func TestStopCutsAtGrace(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient, env *redistest.Env) {
		r := newRig(t, rdb, env)
		begun := make(chan struct{})
		returned := false
		stop := r.start(r.worker(shaper.Limits{}, func(ctx context.Context, _ *Job) error {
			close(begun)
			<-ctx.Done()
			time.Sleep(50 * time.Millisecond)
			returned = true
			return ctx.Err()
		}, func(c *Config) { c.Grace = 100 * time.Millisecond }))
		r.enqueue(queue.Job{ID: "slow", Attempts: 1, Priority: queue.PriorityHigh})
		<-begun
		start := time.Now()
		stop()
		if d := time.Since(start); env.Virtual && d > time.Second {
			t.Errorf("stopped after %s; the grace was 100ms", d)
		}
		if !returned {
			t.Error("stopped before the call had returned")
		}
		var rest calls
		r.start(r.worker(shaper.Limits{}, func(_ context.Context, j *Job) error { rest.add(j.ID); return nil }))
		if s := r.stone("slow"); s.State != queue.Succeeded || s.Attempts != 1 {
			t.Errorf("%+v", s)
		}
	})
}

// TestStopWithDeadRedis: a stop ends, whatever Redis does, and panics nobody.
// Take the quit out of settle.go and it never ends.
func TestStopWithDeadRedis(t *testing.T) {
	redistest.Real(t, func(t *testing.T, rdb redis.UniversalClient, env *redistest.Env) {
		r := newRig(t, rdb, env)
		begun, end := make(chan struct{}), make(chan struct{})
		w := r.worker(shaper.Limits{Concurrency: 1}, func(context.Context, *Job) error {
			close(begun)
			<-end
			return nil
		})
		ctx, cancel := context.WithCancel(context.Background())
		over := make(chan error, 1)
		go func() { over <- w.Run(ctx) }()
		for i := range 3 {
			r.enqueue(queue.Job{ID: fmt.Sprint(i)})
		}
		<-begun
		env.Server.Kill()
		cancel()
		close(end)
		select {
		case err := <-over:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(90 * time.Second):
			t.Fatal("the stop hangs")
		}
		closing, done := context.WithTimeout(context.Background(), time.Second)
		defer done()
		_ = w.cfg.Guard.Close(closing)
	})
}

// TestClientWaitsForTheHandler: asynq's retry, archive, done and requeue of a
// job return when its handler has settled it, and not before; its recoverer
// finds nothing. Nothing of it reaches Redis: there is none here.
func TestClientWaitsForTheHandler(t *testing.T) {
	sent := map[kind]call{}
	all, err := probe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range all {
		sent[recognise(shapes(), c.sha, c.keys, len(c.args))] = c
	}
	for _, k := range []kind{done, complete, retry, archive, requeue} {
		synctest.Test(t, func(t *testing.T) {
			got, hs := sent[k], newHands()
			c := &client{known: shapes(), hands: hs}
			id := got.args[0].(string)
			if !hs.add(id, "p", "", false) {
				t.Fatal("not added")
			}
			h, ctx := hs.begin(t.Context(), id)
			returned := false
			go func() {
				if err := c.EvalSha(context.Background(), got.sha, got.keys, got.args...).Err(); err != nil {
					t.Error(err)
				}
				returned = true
			}()
			synctest.Wait()
			if returned {
				t.Errorf("%s returned while the handler runs", k)
			}
			if asked := context.Cause(ctx) == errCancelled; asked != (k == retry || k == archive) {
				t.Errorf("%s: asked to cancel is %v", k, asked)
			}
			hs.settled(h)
			synctest.Wait()
			if !returned {
				t.Errorf("%s did not return", k)
			}
			if err := c.EvalSha(context.Background(), got.sha, got.keys, got.args...).Err(); err != nil {
				t.Errorf("%s of a settled job: %v", k, err)
			}
		})
	}
	old := sent[expiredList]
	c := &client{known: shapes(), hands: newHands()}
	if ids, err := c.EvalSha(t.Context(), old.sha, old.keys, old.args...).Slice(); err != nil || len(ids) != 0 {
		t.Errorf("the recoverer finds %v, %v", ids, err)
	}
}

// TestSlotIsHeldWhileTheHandlerRuns: at a task's deadline, and on its cancel
// button, asynq frees the slot and gives the task away though its handler runs
// on. Here it waits, and the job is called once. Answer retry in client.go
// without waiting and it is called again.
func TestSlotIsHeldWhileTheHandlerRuns(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient, env *redistest.Env) {
		r := newRig(t, rdb, env)
		var got calls
		stop := r.start(r.worker(shaper.Limits{}, func(_ context.Context, j *Job) error {
			got.add(j.ID)
			time.Sleep(2500 * time.Millisecond)
			return nil
		}))
		// A task that another program put in, with a deadline of asynq's.
		_, err := asynq.NewClientFromRedisClient(rdb).Enqueue(asynq.NewTask("mail", []byte("x")), asynq.Queue(provider1),
			asynq.TaskID("foreign"), asynq.Timeout(time.Second), asynq.MaxRetry(0))
		if err != nil {
			t.Fatal(err)
		}
		if s := r.stone("foreign"); s.State != queue.Succeeded {
			t.Errorf("%+v", s)
		}
		stop()
		if n := len(got.all()); n != 1 {
			t.Errorf("called %d times", n)
		}
		r.clean()
	})
}

// TestRedisStall: a stall of Redis longer than its timeouts, with calls that
// end in it, makes no job run twice. plain asynq: 8 of 10, because it repairs
// with a cancelled context.
func TestRedisStall(t *testing.T) {
	redistest.Real(t, func(t *testing.T, _ redis.UniversalClient, env *redistest.Env) {
		quick := env.Server.ClientWith(redis.Options{ReadTimeout: 300 * time.Millisecond, WriteTimeout: 300 * time.Millisecond, MaxRetries: -1})
		r := newRig(t, quick, env)
		var got calls
		begun, end := make(chan struct{}, 10), make(chan struct{})
		stop := r.start(r.worker(shaper.Limits{Concurrency: 10}, func(_ context.Context, j *Job) error {
			got.add(j.ID)
			begun <- struct{}{}
			<-end
			return nil
		}))
		for i := range 10 {
			r.enqueue(queue.Job{ID: fmt.Sprint("j", i)})
		}
		for range 10 {
			<-begun
		}
		env.Server.Stop()
		close(end)
		time.Sleep(1500 * time.Millisecond)
		env.Server.Continue()
		for i := range 10 {
			if s := r.stone(fmt.Sprint("j", i)); s.State != queue.Succeeded || s.Attempts != 1 {
				t.Errorf("%+v", s)
			}
		}
		env.Eventually(15*time.Second, "all are settled", func() bool {
			return quick.LLen(context.Background(), r.k.Asynq("active")).Val() == 0
		})
		stop()
		if n := len(got.all()); n != 10 {
			t.Errorf("%d calls of 10 jobs", n)
		}
		r.clean()
	})
}

// TestScriptsAreNotCancelled is the WithoutCancel of client.go by itself.
func TestScriptsAreNotCancelled(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient, _ *redistest.Env) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		script := redis.NewScript(`return redis.call('INCR', KEYS[1])`)
		for name, c := range map[string]redis.UniversalClient{
			"inlet": &client{UniversalClient: rdb, known: shapes()}, "plain": plainClient{rdb},
		} {
			if err := script.Run(ctx, c, []string{name}).Err(); err != nil { // EVALSHA, then EVAL
				t.Errorf("%s: %v", name, err)
			}
			if err := script.Run(ctx, c, []string{name}).Err(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if n := rdb.Get(t.Context(), name).Val(); n != "2" {
				t.Errorf("%s ran %s times", name, n)
			}
		}
	})
}
