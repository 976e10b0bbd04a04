package queue

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/penstock-io/penstock/internal/redistest"
	"github.com/penstock-io/penstock/queue/internal/layout"
)

// fixture is a client with the provider sms published.
type fixture struct {
	*Client
	t   *testing.T
	rdb redis.UniversalClient
	env *redistest.Env
	k   layout.Keys
}

// both runs a suite with a fixture on the real server and in virtual time.
func both(t *testing.T, suite func(t *testing.T, f *fixture)) {
	t.Helper()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient, env *redistest.Env) {
		suite(t, newFixture(t, rdb, env))
	})
}

func newFixture(t *testing.T, rdb redis.UniversalClient, env *redistest.Env) *fixture {
	t.Helper()
	c, err := NewClient(Config{Redis: rdb})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Publish(t.Context(), "sms", Spec{}); err != nil {
		t.Fatal(err)
	}
	return &fixture{Client: c, t: t, rdb: rdb, env: env, k: layout.For("", "sms")}
}

func (f *fixture) put(j Job) Receipt {
	f.t.Helper()
	if j.Provider == "" {
		j.Provider = "sms"
	}
	r, err := f.Enqueue(f.t.Context(), j)
	if err != nil {
		f.t.Fatalf("enqueue %s: %v", j.ID, err)
	}
	return r
}

func (f *fixture) info(id string) Info {
	f.t.Helper()
	i, err := f.Get(f.t.Context(), "sms", id)
	if err != nil {
		f.t.Fatalf("get %s: %v", id, err)
	}
	return i
}

func (f *fixture) state(id string) State { f.t.Helper(); return f.info(id).State }

// take does what a worker's dequeue does: the oldest waiting job is active.
func (f *fixture) take() string {
	f.t.Helper()
	id, err := f.rdb.RPopLPush(f.t.Context(), f.k.Asynq("pending"), f.k.Asynq("active")).Result()
	if err != nil {
		f.t.Fatal(err)
	}
	f.activate(id)
	return id
}

// takeID takes one waiting job out of its turn.
func (f *fixture) takeID(id string) {
	f.t.Helper()
	f.must(f.rdb.LRem(f.t.Context(), f.k.Asynq("pending"), 0, id).Err())
	f.must(f.rdb.LPush(f.t.Context(), f.k.Asynq("active"), id).Err())
	f.activate(id)
}

func (f *fixture) activate(id string) {
	f.t.Helper()
	f.must(f.rdb.HSet(f.t.Context(), f.k.Task(id), "state", "active").Err())
	f.must(f.rdb.ZAdd(f.t.Context(), f.k.Asynq("lease"), redis.Z{Score: float64(time.Now().Add(30 * time.Second).Unix()), Member: id}).Err())
}

// settle does what a worker's end of a job does: tombstone, index, and the
// task gone (succeeded) or kept as completed.
func (f *fixture) settle(id string, s State, keep time.Duration) {
	f.t.Helper()
	ctx := f.t.Context()
	now := time.Now()
	stone := layout.Tombstone{State: s, Hash: f.info(id).hash, Attempts: 3, At: now.UnixMilli(), Reason: "because", Status: 422}.Encode()
	f.must(f.rdb.Set(ctx, f.k.Tombstone(id), stone, keep).Err())
	f.must(f.rdb.ZAdd(ctx, f.k.Done(s), redis.Z{Score: float64(now.UnixMilli()), Member: id}).Err())
	f.must(f.rdb.LRem(ctx, f.k.Asynq("active"), 0, id).Err())
	f.must(f.rdb.ZRem(ctx, f.k.Asynq("lease"), id).Err())
	if s == Succeeded {
		f.must(f.rdb.Del(ctx, f.k.Task(id), f.k.Body(id)).Err())
		return
	}
	msg := f.rdb.HGet(ctx, f.k.Task(id), "msg").Val() + string(layout.CompletedSuffix(now.Unix(), int64(keep.Seconds()), "because"))
	f.must(f.rdb.HSet(ctx, f.k.Task(id), "msg", msg, "state", "completed", "result", stone).Err())
	f.must(f.rdb.ZAdd(ctx, f.k.Asynq("completed"), redis.Z{Score: float64(now.Add(keep).Unix()), Member: id}).Err())
}

func (f *fixture) must(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
}
