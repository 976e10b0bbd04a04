package worker

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/penstock-io/penstock/queue/internal/layout"
)

// Plain mode is what is left when the self-test fails: asynq was upgraded and
// its scripts are not what take.lua and settle.lua stand in for. Then asynq
// polls and settles as it always does, every call still goes through the
// guard, and a mover brings due jobs from the lanes to pending. What is lost
// is said at start: order between priorities, dead jobs beyond asynq's 10,000,
// recovery in less than a minute, and quiet polling.

//go:embed move.lua
var moveLua string

// plainClient gives asynq's scripts a context that is not cancelled, and
// changes nothing else.
type plainClient struct{ redis.UniversalClient }

func (c plainClient) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	return c.UniversalClient.EvalSha(context.WithoutCancel(ctx), sha, keys, args...)
}

func (c plainClient) Eval(ctx context.Context, script string, keys []string, args ...any) *redis.Cmd {
	return c.UniversalClient.Eval(context.WithoutCancel(ctx), script, keys, args...)
}

// plainAgain is what a handler returns in plain mode for a job that comes back.
type plainAgain struct {
	d      time.Duration
	spent  bool
	reason string
}

func (e *plainAgain) Error() string { return e.reason }

// plainDelay is asynq's RetryDelayFunc: our own delay, and never asynq's
// default, which is negative from the 310th retry on.
func plainDelay(n int, err error, _ *asynq.Task) time.Duration {
	if e, ok := errors.AsType[*plainAgain](err); ok {
		return e.d + time.Second // asynq cuts to whole seconds
	}
	if errors.Is(err, asynq.ErrLeaseExpired) {
		return 0
	}
	return time.Duration(min(n+1, 60)) * 10 * time.Second
}

// plainFailure is asynq's IsFailure.
func plainFailure(err error) bool {
	if e, ok := errors.AsType[*plainAgain](err); ok {
		return e.spent
	}
	return err != nil && !errors.Is(err, asynq.ErrLeaseExpired) && !errors.Is(err, context.Canceled)
}

func (w *Worker) runPlain(ctx context.Context, why error) error {
	w.log.Error("asynq's scripts are not as expected: working as plain asynq does, still shaped. "+
		"Pin github.com/hibiken/asynq to v0.26.0, or upgrade penstock. Until then priorities are only kept roughly, "+
		"dead jobs are kept as asynq keeps them (10,000), and crashed workers' jobs come back after minutes", "why", why)
	waker := w.cfg.Guard.Gate().Waker()
	defer waker.Messages(w.keys.Own(layout.Cancelled), func(id string) { w.hands.ask(id) })()
	srv := asynq.NewServerFromRedisClient(plainClient{w.cfg.Redis}, w.asynqConfig(200*time.Millisecond))
	moving, stopMoving := context.WithCancel(context.WithoutCancel(ctx))
	var side sync.WaitGroup
	side.Go(func() { w.move(moving) })
	defer side.Wait()
	defer stopMoving()
	if err := srv.Start(asynq.HandlerFunc(w.handlePlain)); err != nil {
		return fmt.Errorf("worker %s: %w", w.cfg.Provider, err)
	}
	<-ctx.Done()
	w.hands.endWaits()
	srv.Stop()
	w.awaitCalls()
	late := time.AfterFunc(lastWait, w.hands.endAll)
	defer late.Stop()
	w.awaitHandlers()
	srv.Shutdown()
	return nil
}

// handlePlain is asynq's handler in plain mode: what becomes of the job is
// said to asynq.
func (w *Worker) handlePlain(ctx context.Context, t *asynq.Task) error {
	id, _ := asynq.GetTaskID(ctx)
	w.hands.add(id, "p", "", false)
	h, own := w.hands.begin(ctx, id)
	if h == nil {
		return &plainAgain{runningDelay, false, "running elsewhere"}
	}
	defer w.hands.settled(h)
	k, f := w.attempt(own, h, t)
	w.observeEnd(k, f)
	if f.verdict == final && !k.record {
		tomb := w.tombstone(k, f)
		if err := w.cfg.Redis.Set(context.WithoutCancel(ctx), w.keys.Tombstone(id), tomb.Encode(), k.env.KeepOr(w.cfg.Keep)).Err(); err != nil {
			f = fate{verdict: again, delay: time.Second, reason: "redis did not answer"}
		}
	}
	if live := t.Headers(); live != nil { // asynq stores them at a retry
		counted := k.after(f)
		clear(live)
		maps.Copy(live, counted)
	}
	switch {
	case f.verdict == back:
		return &plainAgain{0, false, "the worker stopped"}
	case f.verdict == again:
		return &plainAgain{w.delay(k, f), f.spent, f.reason}
	case f.state == layout.Succeeded:
		return nil
	}
	return fmt.Errorf("%s: %s: %w", f.state, f.reason, asynq.SkipRetry)
}

// move brings due jobs from the lanes to pending until ctx ends.
func (w *Worker) move(ctx context.Context) {
	script := layout.NewScript(moveLua)
	a := w.keys.Asynq
	keys := append([]string{a("pending"), a("scheduled"), a("retry")}, w.keys.Lanes()...)
	for ctx.Err() == nil {
		n, err := script.Run(ctx, w.cfg.Redis, keys, a("t:"), reclaimBatch).Int()
		if err == nil && n == reclaimBatch {
			continue
		}
		if err != nil && ctx.Err() == nil && w.complain.ok(time.Now()) {
			w.log.Error("due jobs cannot be moved to pending", "error", err)
		}
		timer := time.NewTimer(time.Second)
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
	}
}
