package worker

import (
	"context"
	"io"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/penstock-io/penstock/internal/redistest"
	"github.com/penstock-io/penstock/queue"
	"github.com/penstock-io/penstock/queue/internal/layout"
	"github.com/penstock-io/penstock/shaper"
	"github.com/penstock-io/penstock/shaper/guard"
)

// rig is a provider with a producer, for one suite.
type rig struct {
	t   *testing.T
	rdb redis.UniversalClient
	env *redistest.Env
	q   *queue.Client
	k   layout.Keys
}

const provider1 = "sms"

func newRig(t *testing.T, rdb redis.UniversalClient, env *redistest.Env) *rig {
	t.Helper()
	q, err := queue.NewClient(queue.Config{Redis: rdb})
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, rdb: rdb, env: env, q: q, k: layout.For("", provider1)}
	if err := q.Publish(t.Context(), provider1, queue.Spec{}); err != nil {
		t.Fatal(err)
	}
	return r
}

func quietLog() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

// testLog goes to the test's output.
func testLog(t *testing.T) *slog.Logger {
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelInfo}))
}

// worker makes a worker, with changes to its configuration.
func (r *rig) worker(limits shaper.Limits, h Handler, change ...func(*Config)) *Worker {
	r.t.Helper()
	return r.workerFor(provider1, limits, h, change...)
}

func (r *rig) workerFor(name string, limits shaper.Limits, h Handler, change ...func(*Config)) *Worker {
	r.t.Helper()
	g := guard.New(guard.Config{Redis: r.rdb, Provider: name, Limits: limits, Logger: testLog(r.t)})
	cfg := Config{Redis: r.rdb, Guard: g, Handler: h, Logger: testLog(r.t), Retry: Retry{Base: 10 * time.Millisecond, Max: 20 * time.Millisecond}}
	for _, f := range change {
		f(&cfg)
	}
	w, err := New(cfg)
	if err != nil {
		r.t.Fatal(err)
	}
	return w
}

// start runs a worker; the returned function stops it and its guard, and waits.
func (r *rig) start(w *Worker) (stop func()) {
	r.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan error, 1)
	go func() { over <- w.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-over; err != nil {
			r.t.Errorf("Run: %v", err)
		}
		closing, done := context.WithTimeout(context.Background(), 5*time.Second)
		defer done()
		if err := w.cfg.Guard.Close(closing); err != nil {
			r.t.Errorf("closing the guard: %v", err)
		}
	})
	r.t.Cleanup(stop)
	return stop
}

func (r *rig) enqueue(j queue.Job) string {
	r.t.Helper()
	if j.Provider == "" {
		j.Provider = provider1
	}
	if j.Type == "" && j.Path == "" {
		j.Type = "test"
	}
	rec, err := r.q.Enqueue(r.t.Context(), j)
	if err != nil {
		r.t.Fatal(err)
	}
	return rec.ID
}

// stone waits for a job's tombstone.
func (r *rig) stone(id string) layout.Tombstone {
	r.t.Helper()
	var s layout.Tombstone
	r.env.Eventually(20*time.Second, "job "+id+" is final", func() bool {
		raw, err := r.rdb.Get(context.Background(), r.k.Tombstone(id)).Result()
		if err != nil {
			return false
		}
		if s, err = layout.ParseTombstone(raw); err != nil {
			r.t.Fatal(err)
		}
		return true
	})
	return s
}

// clean fails unless Redis holds nothing of a job on its way.
func (r *rig) clean() {
	r.t.Helper()
	ctx := context.Background()
	for _, key := range []string{"active", "lease", "pending", "scheduled", "retry", "archived"} {
		if n := r.size(r.k.Asynq(key)); n != 0 {
			r.t.Errorf("%s still has %d", key, n)
		}
	}
	for _, key := range append(r.k.Lanes(), r.k.Own(layout.Cancel)) {
		if n := r.rdb.ZCard(ctx, key).Val(); n != 0 {
			r.t.Errorf("%s still has %d", key, n)
		}
	}
}

func (r *rig) size(key string) int64 {
	ctx := context.Background()
	switch r.rdb.Type(ctx, key).Val() {
	case "list":
		return r.rdb.LLen(ctx, key).Val()
	case "zset":
		return r.rdb.ZCard(ctx, key).Val()
	case "set":
		return r.rdb.SCard(ctx, key).Val()
	case "hash":
		return r.rdb.HLen(ctx, key).Val()
	}
	return 0
}

// calls writes down the ids that were called, in order.
type calls struct {
	mu  sync.Mutex
	ids []string
}

func (c *calls) add(id string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ids = append(c.ids, id)
	n := 0
	for _, x := range c.ids {
		if x == id {
			n++
		}
	}
	return n
}

func (c *calls) all() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.ids)
}

func (l *lines) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }
