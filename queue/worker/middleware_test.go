package worker

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/penstock-io/penstock/internal/redistest"
	"github.com/penstock-io/penstock/shaper"
	"github.com/penstock-io/penstock/shaper/guard"
)

// existing is an asynq server as others have it, behind the middleware.
type existing struct {
	client *asynq.Client
	insp   *asynq.Inspector
	guard  *guard.Guard
}

func newExisting(t *testing.T, rdb redis.UniversalClient, limits shaper.Limits, timeout time.Duration, h asynq.HandlerFunc) (*existing, func()) {
	t.Helper()
	g := guard.New(guard.Config{Redis: rdb, Provider: "api", Limits: limits, Timeout: timeout, Logger: quietLog()})
	srv := asynq.NewServerFromRedisClient(rdb, asynq.Config{
		Concurrency: 10, Logger: quiet{}, LogLevel: asynq.FatalLevel, TaskCheckInterval: 10 * time.Millisecond,
		DelayedTaskCheckInterval: 50 * time.Millisecond, IsFailure: IsFailure, ShutdownTimeout: time.Second,
		RetryDelayFunc: RetryDelay(func(int, error, *asynq.Task) time.Duration { return 0 }),
	})
	mux := asynq.NewServeMux()
	mux.Use(Middleware(g))
	mux.HandleFunc("call", h)
	if err := srv.Start(mux); err != nil {
		t.Fatal(err)
	}
	stop := sync.OnceFunc(func() {
		srv.Shutdown()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = g.Close(ctx)
	})
	t.Cleanup(stop)
	return &existing{asynq.NewClientFromRedisClient(rdb), asynq.NewInspectorFromRedisClient(rdb), g}, stop
}

func (e *existing) enqueue(t *testing.T, id string, opts ...asynq.Option) {
	t.Helper()
	if _, err := e.client.Enqueue(asynq.NewTask("call", []byte(id)), append(opts, asynq.TaskID(id))...); err != nil {
		t.Fatal(err)
	}
}

// TestMiddlewareShapes: tasks of an existing server keep the guard's limits,
// and waiting costs no retry.
func TestMiddlewareShapes(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient, env *redistest.Env) {
		var mu sync.Mutex
		at, most, now := []time.Time{}, 0, 0
		e, stop := newExisting(t, rdb, shaper.Limits{Rate: shaper.PerSecond(50), Headroom: shaper.NoHeadroom, Concurrency: 2}, time.Second,
			func(context.Context, *asynq.Task) error {
				mu.Lock()
				at = append(at, time.Now())
				now++
				most = max(most, now)
				mu.Unlock()
				time.Sleep(30 * time.Millisecond)
				mu.Lock()
				now--
				mu.Unlock()
				return nil
			})
		for i := range 20 {
			e.enqueue(t, string(rune('a'+i)), asynq.MaxRetry(0), asynq.Timeout(time.Minute))
		}
		env.Eventually(10*time.Second, "all ran", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return len(at) == 20 && now == 0
		})
		stop()
		if most > 2 {
			t.Errorf("%d at once", most)
		}
		if d := at[19].Sub(at[0]); d < 19*20*time.Millisecond-50*time.Millisecond {
			t.Errorf("20 calls in %s", d)
		}
		info, err := e.insp.GetQueueInfo("default")
		if err != nil || info.Archived+info.Retry != 0 || info.Failed != 0 {
			t.Errorf("%+v, %v", info, err)
		}
	})
}

// TestMiddlewareGivesBackInTime: a task whose turn does not come before its
// deadline is near goes back uncharged, not at its last attempt.
func TestMiddlewareGivesBackInTime(t *testing.T) {
	redistest.Virtual(t, func(t *testing.T, rdb redis.UniversalClient, env *redistest.Env) {
		var got calls
		e, stop := newExisting(t, rdb, shaper.Limits{}, time.Second, func(_ context.Context, task *asynq.Task) error {
			got.add(string(task.Payload()))
			return nil
		})
		if err := e.guard.Gate().Pause(t.Context()); err != nil {
			t.Fatal(err)
		}
		e.enqueue(t, "more", asynq.MaxRetry(1), asynq.Timeout(4*time.Second))
		e.enqueue(t, "last", asynq.MaxRetry(0), asynq.Timeout(20*time.Second))
		time.Sleep(15 * time.Second)
		for _, id := range []string{"more", "last"} {
			info, err := e.insp.GetTaskInfo("default", id)
			if err != nil || info.State == asynq.TaskStateArchived || info.Retried != 0 {
				t.Errorf("%s: %+v, %v", id, info, err)
			}
		}
		if err := e.guard.Gate().Resume(t.Context()); err != nil {
			t.Fatal(err)
		}
		env.Eventually(10*time.Second, "both ran", func() bool { return len(got.all()) == 2 })
		stop()
		if ids := got.all(); len(ids) != 2 {
			t.Errorf("called %v", ids)
		}
	})
}

// TestMiddlewareFates: Defer and Discard mean what they mean in a Worker, and
// a deferral at the last attempt waits instead of archiving the task.
func TestMiddlewareFates(t *testing.T) {
	redistest.Virtual(t, func(t *testing.T, rdb redis.UniversalClient, env *redistest.Env) {
		var got calls
		e, stop := newExisting(t, rdb, shaper.Limits{}, time.Second, func(_ context.Context, task *asynq.Task) error {
			id := string(task.Payload())
			n := got.add(id)
			switch {
			case id == "discard":
				return Discard("no")
			case id == "fails":
				return errors.New("boom")
			case n < 3:
				return Defer(100*time.Millisecond, "not now")
			}
			return nil
		})
		for _, id := range []string{"discard", "fails", "defer"} {
			e.enqueue(t, id, asynq.MaxRetry(2), asynq.Timeout(time.Minute))
		}
		e.enqueue(t, "deferlast", asynq.MaxRetry(0), asynq.Timeout(time.Minute))
		time.Sleep(20 * time.Second)
		stop()
		want := map[string]int{"discard": 1, "fails": 3, "defer": 3, "deferlast": 3}
		for id, n := range want {
			if m := got.add(id) - 1; m != n {
				t.Errorf("%s was called %d times, not %d", id, m, n)
			}
		}
		info, err := e.insp.GetQueueInfo("default")
		if err != nil || info.Archived != 2 {
			t.Errorf("%+v, %v", info, err)
		}
	})
}
