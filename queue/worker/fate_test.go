package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/penstock-io/penstock/breaker"
	"github.com/penstock-io/penstock/internal/provider"
	"github.com/penstock-io/penstock/internal/redistest"
	"github.com/penstock-io/penstock/queue"
	"github.com/penstock-io/penstock/queue/internal/layout"
	"github.com/penstock-io/penstock/shaper"
	"github.com/penstock-io/penstock/shaper/guard"
)

// throttled is a provider's "not now".
type throttled struct{ after time.Duration }

func (throttled) Error() string { return "http 429" }
func (e throttled) Report() guard.Report {
	return guard.Report{Outcome: breaker.Throttled, RetryAfter: e.after}
}

// TestFates is the table of outcomes, seen from the job's end.
func TestFates(t *testing.T) {
	boom := errors.New("boom")
	cases := []struct {
		name     string
		attempts int
		handler  func(call int) error
		state    queue.State
		calls    int // made
		spent    int // in the tombstone
		reason   string
	}{
		{"succeeds", 3, func(int) error { return nil }, queue.Succeeded, 1, 1, ""},
		{"RET-01 throttled six times costs no attempt", 3, func(n int) error {
			if n < 7 {
				return throttled{}
			}
			return nil
		}, queue.Succeeded, 7, 1, ""},
		{"a deferral on the last attempt", 1, func(n int) error {
			if n < 3 {
				return Defer(time.Millisecond, "busy")
			}
			return nil
		}, queue.Succeeded, 3, 1, ""},
		{"discarded", 3, func(int) error { return Discard("no such user") }, queue.Dead, 1, 1, "no such user"},
		{"RET-13 dead only after the last attempt", 3, func(int) error { return boom }, queue.Dead, 3, 3, "boom"},
		{"fails twice", 3, func(n int) error {
			if n < 3 {
				return boom
			}
			return nil
		}, queue.Succeeded, 3, 3, ""},
		{"a panic is an attempt", 2, func(int) error { panic("oops") }, queue.Dead, 2, 2, "oops"},
		{"RET-03 no retry allowed", 1, func(int) error { return boom }, queue.Dead, 1, 1, "boom"},
		{"our own deadline spends an attempt", 1, func(int) error { return context.DeadlineExceeded }, queue.Dead, 1, 1, "deadline"},
	}
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient, env *redistest.Env) {
		r := newRig(t, rdb, env)
		var got calls
		stop := r.start(r.worker(shaper.Limits{}, func(_ context.Context, j *Job) error {
			i, _ := strconv.Atoi(j.ID)
			return cases[i].handler(got.add(j.ID))
		}))
		for i, c := range cases {
			r.enqueue(queue.Job{ID: strconv.Itoa(i), Attempts: c.attempts})
		}
		for i, c := range cases {
			s := r.stone(strconv.Itoa(i))
			n := got.add(strconv.Itoa(i)) - 1
			if s.State != c.state || s.Attempts != c.spent || n != c.calls || !strings.Contains(s.Reason, c.reason) {
				t.Errorf("%s: %+v after %d calls; want %s, %d spent, %d calls, %q", c.name, s, n, c.state, c.spent, c.calls, c.reason)
			}
		}
		// RET-01: the count is kept, also of what is done and gone.
		if i, err := r.q.Get(t.Context(), provider1, "1"); err != nil || i.Throttles != 6 || i.Deferrals != 6 || i.Attempts != 1 {
			t.Errorf("throttled six times: %+v %v", i, err)
		}
		stop()
		r.clean()
	})
}

// TestDeadJobsAreKept: a dead job is completed in asynq, with a result and a
// retention, in our own index, and counted as asynq counts. Archived they
// would be trimmed at 10,000 without a trace.
func TestDeadJobsAreKept(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient, env *redistest.Env) {
		r := newRig(t, rdb, env)
		stop := r.start(r.worker(shaper.Limits{}, func(_ context.Context, j *Job) error {
			if strings.HasPrefix(j.ID, "dead") {
				return Discard("refused")
			}
			return nil
		}, func(c *Config) { c.Keep = time.Hour }))
		for i := range 5 {
			r.enqueue(queue.Job{ID: fmt.Sprintf("dead%d", i), Body: []byte("payload")})
			r.enqueue(queue.Job{ID: fmt.Sprintf("good%d", i)})
		}
		for i := range 5 {
			r.stone(fmt.Sprintf("dead%d", i))
			r.stone(fmt.Sprintf("good%d", i))
		}
		stop()
		r.clean()
		insp := asynq.NewInspectorFromRedisClient(rdb)
		info, err := insp.GetQueueInfo(provider1)
		if err != nil || info.Completed != 5 || info.Archived != 0 || info.Processed != 10 || info.Failed != 5 || info.ProcessedTotal != 10 || info.FailedTotal != 5 {
			t.Errorf("%+v, %v", info, err)
		}
		task, err := insp.GetTaskInfo(provider1, "dead3")
		if err != nil {
			t.Fatal(err)
		}
		var result layout.Tombstone
		if err := json.Unmarshal(task.Result, &result); err != nil || result.State != queue.Dead || result.Reason != "refused" {
			t.Errorf("result %s: %v", task.Result, err)
		}
		if string(task.Payload) != "payload" || task.CompletedAt.IsZero() || task.Retention != time.Hour {
			t.Errorf("%+v", task)
		}
		if n := rdb.ZCard(t.Context(), r.k.Done(queue.Dead)).Val(); n != 5 {
			t.Errorf("the index has %d", n)
		}
		if n := rdb.ZCard(t.Context(), r.k.Done(queue.Succeeded)).Val(); n != 5 {
			t.Errorf("the index of succeeded has %d", n)
		}
		if task, err := insp.GetTaskInfo(provider1, "good3"); err == nil {
			t.Errorf("a job that succeeded is still there: %+v", task)
		}
	})
}

// TestThrottleCounts, RET-07: each round of attempts has its own back-off of
// throttles, and the counts are kept apart.
func TestThrottleCounts(t *testing.T) {
	w := &Worker{clock: &clock{}, cfg: Config{Retry: Retry{MaxAge: time.Hour}}}
	k := &task{hand: &hand{}, typ: layout.TaskJob, headers: map[string]string{}, env: layout.Envelope{Version: 1, Cost: 1}}
	for round := 1; round <= 3; round++ {
		for n := 1; n <= 20; n++ {
			if k.env.Streak != n-1 {
				t.Fatalf("round %d, throttle %d: a streak of %d", round, n, k.env.Streak)
			}
			k.next(t, fate{verdict: again, called: true, held: true, reason: "http 429"})
		}
		k.next(t, fate{verdict: again, called: true, spent: true, reason: "http 500"})
		if k.env.Attempts != round || k.env.Throttles != 20*round || k.env.Deferrals != 20*round {
			t.Errorf("after round %d: %+v", round, k.env.Progress)
		}
	}
	_ = w
}

// next is the task as its next attempt sees it.
func (k *task) next(t *testing.T, f fate) {
	t.Helper()
	h := k.after(f)
	h["p-v"] = "1"
	env, err := layout.Decode(h)
	if err != nil {
		t.Fatal(err)
	}
	k.headers, k.env = h, env
}

// TestExpires: a job past its max_age is expired without a call, also when it
// passes while the job waits, and RET-05: after throttles without end, with
// the reason.
func TestExpires(t *testing.T) {
	redistest.Virtual(t, func(t *testing.T, rdb redis.UniversalClient, env *redistest.Env) {
		r := newRig(t, rdb, env)
		var got calls
		stop := r.start(r.worker(shaper.Limits{Concurrency: 1}, func(_ context.Context, j *Job) error {
			got.add(j.ID)
			switch j.ID {
			case "throttled":
				return throttled{after: 500 * time.Millisecond}
			case "long":
				time.Sleep(5 * time.Second)
			}
			return nil
		}, func(c *Config) { // the law would ask a provider that refuses all ever less often
			c.Guard = guard.New(guard.Config{Redis: rdb, Provider: provider1, Limits: shaper.Limits{Concurrency: 1}, Logger: c.Logger, Adaptive: guard.Off})
		}))
		begin := time.Now()
		r.enqueue(queue.Job{ID: "throttled", MaxAge: 2 * time.Minute})
		s := r.stoneWithin("throttled", 3*time.Minute)
		if s.State != queue.Expired || s.Reason != "throttled until max_age" || s.Attempts != 0 {
			t.Errorf("%+v", s)
		}
		if d := time.Since(begin); d < 2*time.Minute || d > 2*time.Minute+2*time.Second {
			t.Errorf("expired after %s", d)
		}
		if n := len(got.all()); n < 100 || n > 250 {
			t.Errorf("%d calls in two minutes of throttles at half a second", n)
		}
		r.enqueue(queue.Job{ID: "long"})
		time.Sleep(100 * time.Millisecond)
		r.enqueue(queue.Job{ID: "waits", MaxAge: time.Second})
		if s := r.stone("waits"); s.State != queue.Expired || s.Reason != "max_age passed" {
			t.Errorf("%+v", s)
		}
		if s := r.stone("long"); s.State != queue.Succeeded {
			t.Errorf("%+v", s)
		}
		stop()
		for _, id := range got.all() {
			if id == "waits" {
				t.Error("an expired job was called")
			}
		}
		r.clean()
	})
}

func (r *rig) stoneWithin(id string, d time.Duration) layout.Tombstone {
	r.t.Helper()
	r.env.Eventually(d, "job "+id+" is final", func() bool {
		return r.rdb.Exists(context.Background(), r.k.Tombstone(id)).Val() == 1
	})
	return r.stone(id)
}

// answers is a provider that answers by the job's path.
type answers struct {
	give func(path string) provider.Result
}

func (a answers) Call(_ context.Context, c provider.Call) provider.Result { return a.give(c.Path) }
func (answers) Close()                                                    {}

func status(code int) provider.Result {
	return provider.Result{Status: code, Verdict: provider.Judge(code, nil, time.Now(), nil)}
}

// TestCredentials: the first 401 of a job defers it 30 s with none spent, its
// second makes it dead; five different jobs hold the provider, and then no
// job dies of it; a good answer after a resume lets all go.
func TestCredentials(t *testing.T) {
	redistest.Virtual(t, func(t *testing.T, rdb redis.UniversalClient, env *redistest.Env) {
		r := newRig(t, rdb, env)
		code := 401
		w := r.worker(shaper.Limits{}, nil, func(c *Config) { c.HTTP = &HTTP{BaseURL: "http://127.0.0.1:1"} })
		w.http = answers{func(path string) provider.Result {
			if path == "/one" {
				return status(401)
			}
			return status(code)
		}}
		stop := r.start(w)
		begin := time.Now()
		r.enqueue(queue.Job{ID: "one", Path: "/one"})
		s := r.stoneWithin("one", time.Minute)
		if s.State != queue.Dead || s.Status != 401 || s.Attempts != 1 {
			t.Errorf("%+v", s)
		}
		if d := time.Since(begin); d < 30*time.Second || d > 36*time.Second {
			t.Errorf("dead after %s", d)
		}
		for i := range 20 {
			r.enqueue(queue.Job{ID: fmt.Sprint("j", i), Path: "/x"})
		}
		time.Sleep(10 * time.Minute)
		for i := range 20 {
			if rdb.Exists(t.Context(), r.k.Tombstone(fmt.Sprint("j", i))).Val() != 0 {
				t.Fatalf("j%d is final: %+v", i, r.stone(fmt.Sprint("j", i)))
			}
		}
		code = 200
		if err := w.cfg.Guard.Gate().Resume(t.Context()); err != nil {
			t.Fatal(err)
		}
		for i := range 20 {
			if s := r.stoneWithin(fmt.Sprint("j", i), 2*time.Minute); s.State != queue.Succeeded || s.Attempts != 1 || s.Status != 200 {
				t.Errorf("%+v", s)
			}
		}
		stop()
		r.clean()
	})
}

// TestHTTPFates: the answer's fate reaches the job; a 404 is dead at once, a
// 500 is tried again.
func TestHTTPFates(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient, env *redistest.Env) {
		r := newRig(t, rdb, env)
		w := r.worker(shaper.Limits{}, nil, func(c *Config) { c.HTTP = &HTTP{BaseURL: "http://127.0.0.1:1"} })
		var got calls
		w.http = answers{func(path string) provider.Result {
			n := got.add(path)
			code, _ := strconv.Atoi(strings.TrimPrefix(path, "/"))
			if code == 500 && n == 3 {
				code = 200
			}
			return status(code)
		}}
		stop := r.start(w)
		for _, code := range []int{200, 204, 301, 404, 422, 500, 501} {
			r.enqueue(queue.Job{ID: strconv.Itoa(code), Path: fmt.Sprint("/", code)})
		}
		for code, want := range map[int]queue.State{
			200: queue.Succeeded, 204: queue.Succeeded, 301: queue.Dead, 404: queue.Dead, 422: queue.Dead, 500: queue.Succeeded, 501: queue.Dead,
		} {
			s := r.stone(strconv.Itoa(code))
			attempts, status := 1, code
			if code == 500 {
				attempts, status = 3, 200
			}
			if s.State != want || s.Attempts != attempts || s.Status != status {
				t.Errorf("%d: %+v", code, s)
			}
		}
		stop()
		r.clean()
	})
}

// TestExpiredAsksForNoSlot: the handler ends an expired job without the guard.
func TestExpiredAsksForNoSlot(t *testing.T) {
	w := &Worker{clock: &clock{}, log: quietLog(), hands: newHands(), places: make(chan struct{}, 1), cfg: Config{Handler: func(context.Context, *Job) error { return nil }}}
	w.guard = func(context.Context, guard.Request, guard.Call) error {
		t.Error("the guard was asked")
		return nil
	}
	headers, err := layout.Envelope{Version: 1, Cost: 1, Due: 1, Expires: 2}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	_, f := w.attempt(t.Context(), &hand{id: "a"}, asynq.NewTaskWithHeaders(layout.TaskJob, nil, headers))
	if f.verdict != final || f.state != layout.Expired {
		t.Errorf("%+v", f)
	}
}
