package worker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/penstock-io/penstock/internal/redistest"
	"github.com/penstock-io/penstock/queue"
	"github.com/penstock-io/penstock/shaper"
)

// TestPlainMode: when asynq's scripts are not as expected, jobs are still
// shaped, counted, tried again, ended and remembered, lanes still move, and
// the log says it loudly.
func TestPlainMode(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient, env *redistest.Env) {
		r := newRig(t, rdb, env)
		var got calls
		log := &lines{}
		w := r.worker(shaper.Limits{Concurrency: 2}, func(_ context.Context, j *Job) error {
			n := got.add(j.ID)
			switch {
			case j.ID == "dead":
				return Discard("no")
			case j.ID == "deferred" && n < 3:
				return Defer(time.Millisecond, "not now")
			case j.ID == "fails":
				return errors.New("boom")
			}
			return nil
		}, func(c *Config) { c.Logger = log.logger() })
		if err := w.start(t.Context()); err != nil {
			t.Fatal(err)
		}
		r.enqueue(queue.Job{ID: "old", MaxAge: time.Millisecond})
		time.Sleep(3 * time.Millisecond)
		ctx, cancel := context.WithCancel(context.Background())
		over := make(chan error, 1)
		go func() { over <- w.runPlain(ctx, errors.New("no script dequeue of the known shape")) }()
		r.enqueue(queue.Job{ID: "good"})
		r.enqueue(queue.Job{ID: "high", Priority: queue.PriorityHigh})
		r.enqueue(queue.Job{ID: "later", Delay: 50 * time.Millisecond})
		r.enqueue(queue.Job{ID: "dead"})
		r.enqueue(queue.Job{ID: "deferred", Attempts: 1})
		r.enqueue(queue.Job{ID: "fails", Attempts: 2})
		for id, want := range map[string]struct {
			state    queue.State
			attempts int
		}{
			"good": {queue.Succeeded, 1}, "high": {queue.Succeeded, 1}, "later": {queue.Succeeded, 1}, "dead": {queue.Dead, 1},
			"deferred": {queue.Succeeded, 1}, "fails": {queue.Dead, 2}, "old": {queue.Expired, 0},
		} {
			if s := r.stone(id); s.State != want.state || s.Attempts != want.attempts {
				t.Errorf("%s: %+v", id, s)
			}
		}
		cancel()
		if err := <-over; err != nil {
			t.Error(err)
		}
		if err := w.cfg.Guard.Close(context.Background()); err != nil {
			t.Error(err)
		}
		if n := r.size(r.k.Asynq("archived")); n != 3 {
			t.Errorf("asynq has archived %d", n)
		}
		if n := r.size(r.k.Asynq("active")); n != 0 {
			t.Errorf("%d still active", n)
		}
		if !strings.Contains(log.text(), "not as expected") || !strings.Contains(log.text(), "level=ERROR") {
			t.Error("the log does not say it")
		}
	})
}

// TestSelfTestLeadsToPlainMode: a shape that does not fit is noticed before
// any job is taken.
func TestSelfTestLeadsToPlainMode(t *testing.T) {
	calls, err := probe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := compare(calls, shapes()); err != nil {
		t.Error(err)
	}
	for i, s := range shapes() {
		changed := shapes()
		changed[i].sha = strings.Repeat("0", 40)
		if err := compare(calls, changed); err == nil || !strings.Contains(err.Error(), s.kind.String()) {
			t.Errorf("a changed %s gives %v", s.kind, err)
		}
	}
}

// TestOwnDelay, BCK-02: asynq's default back-off is negative from the 310th
// retry on; ours is always installed and never is.
func TestOwnDelay(t *testing.T) {
	task := asynq.NewTask("t", nil)
	own := RetryDelay(asynq.DefaultRetryDelayFunc)
	for _, n := range []int{0, 1, 50, 99, 100, 300, 310, 500, 1 << 30} {
		for name, f := range map[string]asynq.RetryDelayFunc{"plain mode": plainDelay, "middleware": own} {
			if d := f(n, errors.New("x"), task); d < 0 || d > 24*time.Hour {
				t.Errorf("%s: %s after %d retries", name, d, n)
			}
		}
	}
	if d := plainDelay(0, fmt.Errorf("w: %w", &plainAgain{d: time.Minute}), task); d < time.Minute {
		t.Errorf("came back after %s", d)
	}
}

// lines is a log to be read.
type lines struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
