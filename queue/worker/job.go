package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/penstock-io/penstock/queue"
	"github.com/penstock-io/penstock/queue/internal/layout"
)

// Job is one job on its way to its call.
type Job struct {
	// Job is what was enqueued, with its defaults filled in. Due is when it was
	// to be called. A task that another program put into the queue with asynq
	// itself has its type in Type and its payload in Body.
	queue.Job
	// Expires is the moment after which it is not called.
	Expires time.Time
	// Attempt is the number of this attempt, from 1. Attempts is how many are allowed.
	Attempt int
	// Deferrals and Throttles are how often it came back without an attempt
	// spent, and how often of them because the provider said not now.
	Deferrals, Throttles int
	// LastError is why the last attempt failed; empty at the first.
	LastError string
}

// Handler makes one attempt at a job, under the gate's permit: return nil when
// it is done, [Defer] to come back later with no attempt spent, [Discard] when
// trying again is useless; any other error spends an attempt. An error with a
// method Report() guard.Report says itself what it shows of the provider, and
// its RetryAfter is obeyed.
//
// The context ends at the guard's timeout, or when the worker's grace is over;
// it is not cancelled by trouble with Redis. A handler that does not return
// then keeps its permit and holds up the worker's stop. A panic is a failed
// attempt. Handlers run in several goroutines at once and must not change the job.
type Handler func(ctx context.Context, job *Job) error

// task is one attempt's state.
type task struct {
	hand    *hand
	typ     string
	headers map[string]string
	payload []byte
	env     layout.Envelope
	expires int64 // ms
	allowed int
	fate    *fate // once the call has returned
	record  bool  // the gate stores the tombstone
}

// open reads a task. Its error is final: the task can never be called.
func (w *Worker) open(ctx context.Context, h *hand, t *asynq.Task) (*task, error) {
	k := &task{hand: h, typ: t.Type(), headers: t.Headers(), payload: t.Payload()}
	if !layout.IsTask(k.typ) {
		k.adopt(ctx)
	} else {
		env, err := layout.Decode(k.headers)
		if err != nil {
			return k, fmt.Errorf("malformed: %w", err)
		}
		k.env = env
	}
	k.allowed = cmp.Or(k.env.Allowed, w.cfg.Retry.Attempts)
	k.expires = k.env.Expires
	if k.expires == 0 {
		start := cmp.Or(k.env.Due, k.env.Accepted)
		if start == 0 { // a stranger's, seen for the first time
			start = w.clock.ms()
			k.env.Due = start
		}
		k.expires = start + w.cfg.Retry.MaxAge.Milliseconds()
	}
	return k, nil
}

// adopt takes on a task that another program put in with asynq: from its first
// return on it carries an envelope.
func (k *task) adopt(ctx context.Context) {
	if env, err := layout.Decode(k.headers); err == nil {
		k.env = env
		return
	}
	k.env = layout.Envelope{Version: layout.Version, Type: k.typ, Priority: layout.Default, Cost: 1}
	if n, ok := asynq.GetMaxRetry(ctx); ok {
		k.env.Allowed = n + 1
	}
	if n, ok := asynq.GetRetryCount(ctx); ok {
		k.env.Attempts = n
	}
}

var errNoBody = errors.New("its body is gone from redis")

// body returns the job's body, from its own key where it has one.
func (w *Worker) body(ctx context.Context, k *task) ([]byte, error) {
	if !k.env.BodyKey {
		return k.payload, nil
	}
	b, err := w.cfg.Redis.Get(ctx, w.keys.Body(k.hand.id)).Bytes()
	if errors.Is(err, redis.Nil) {
		return nil, errNoBody
	}
	return b, err
}

// job is what a handler sees.
func (w *Worker) job(k *task, body []byte) *Job {
	e := k.env
	return &Job{
		Job: queue.Job{
			Provider: w.cfg.Provider, ID: k.hand.id, Type: e.Type, Method: e.Method, Path: e.Path,
			Headers: maps.Clone(e.Headers), Body: body, IdempotencyKey: cmp.Or(e.IdempotencyKey, k.hand.id),
			Key: e.Key, Priority: queue.Priority(e.Priority), Due: moment(cmp.Or(e.Due, e.Accepted)),
			MaxAge: time.Duration(k.expires-cmp.Or(e.Due, e.Accepted)) * time.Millisecond, Attempts: k.allowed, Cost: e.Cost,
			Keep: e.KeepOr(w.cfg.Keep),
		},
		Expires: moment(k.expires), Attempt: e.Attempts + 1, Deferrals: e.Deferrals, Throttles: e.Throttles, LastError: e.LastError,
	}
}

func moment(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}
