package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hibiken/asynq"

	"github.com/penstock-io/penstock/shaper"
	"github.com/penstock-io/penstock/shaper/guard"
)

// ErrNotYourTurn is in the error that Middleware returns for a task whose turn
// did not come before its deadline was too near: no call was made.
var ErrNotYourTurn = errors.New("its turn did not come in time")

// Middleware puts a guard before the handlers of an asynq server that exists
// already: each task waits for its permit, then its handler runs. Use it with
// [IsFailure] and [RetryDelay]:
//
//	srv := asynq.NewServer(redis, asynq.Config{
//		IsFailure:      worker.IsFailure,
//		RetryDelayFunc: worker.RetryDelay(asynq.DefaultRetryDelayFunc),
//	})
//	mux := asynq.NewServeMux()
//	mux.Use(worker.Middleware(g))
//
// A task waits inside its own deadline and leaves room for its call; when the
// room is used up it goes back to asynq's retry set with [ErrNotYourTurn],
// which IsFailure makes free of charge. At its last attempt asynq would archive
// it for that, so there it waits until its deadline. Give tasks a Timeout of
// whole seconds, much longer than their call.
//
// What a Middleware cannot do, a [Worker] does: asynq takes tasks before their
// turn, so they occupy its Concurrency while they wait, and priorities count
// only among those that were not taken yet. Only one server should wait for
// one guard in a process. A handler may return [Defer] and [Discard].
func Middleware(g *guard.Guard) asynq.MiddlewareFunc {
	return func(next asynq.Handler) asynq.Handler {
		return asynq.HandlerFunc(func(ctx context.Context, t *asynq.Task) error {
			for {
				wait, err := turn(ctx, g, next, t)
				if wait == 0 {
					return err
				}
				timer := time.NewTimer(wait)
				select {
				case <-timer.C:
				case <-ctx.Done():
					timer.Stop()
					return err
				}
			}
		})
	}
}

// turn makes one try. A wait above 0 says to try again after it, because err
// must not be returned at a last attempt.
func turn(ctx context.Context, g *guard.Guard, next asynq.Handler, t *asynq.Task) (wait time.Duration, err error) {
	retried, _ := asynq.GetRetryCount(ctx)
	allowed, _ := asynq.GetMaxRetry(ctx)
	id, _ := asynq.GetTaskID(ctx)
	queue, _ := asynq.GetQueueName(ctx)
	last := retried >= allowed

	waiting, give := context.WithCancelCause(ctx)
	defer give(nil)
	begin := func() bool { return true }
	if deadline, ok := ctx.Deadline(); ok && !last {
		left := time.Until(deadline)
		begin = time.AfterFunc(left-min(g.Timeout(), left/2), func() { give(ErrNotYourTurn) }).Stop
	}
	called := false
	err = g.Do(waiting, guard.Request{Job: queue + "/" + id, Retry: retried > 0}, func(ctx context.Context) error {
		if !begin() {
			return notBegun{}
		}
		called = true
		return next.ProcessTask(ctx, t)
	})
	begin()
	switch d, deferred := errors.AsType[*deferral](err); {
	case err == nil:
		return 0, nil
	case deferred && last:
		return d.d, err
	case deferred, called && !isDiscard(err):
		return 0, err
	case called:
		return 0, fmt.Errorf("%w: %w", err, asynq.SkipRetry)
	case errors.Is(err, shaper.ErrRunning) && last:
		return runningDelay, err
	case errors.Is(err, shaper.ErrDone):
		return 0, nil
	}
	if poor, ok := errors.AsType[*guard.Deferred](err); ok && last {
		return poor.After, err
	}
	return 0, fmt.Errorf("%w: %w", ErrNotYourTurn, err)
}

func isDiscard(err error) bool {
	_, ok := errors.AsType[*discard](err)
	return ok
}

// IsFailure is for asynq.Config.IsFailure beside [Middleware]: what spends no
// attempt is no failure, nor is a lease that asynq lost.
func IsFailure(err error) bool {
	if err == nil || errors.Is(err, ErrNotYourTurn) || errors.Is(err, asynq.ErrLeaseExpired) {
		return false
	}
	_, deferred := errors.AsType[*deferral](err)
	return !deferred
}

// RetryDelay is for asynq.Config.RetryDelayFunc beside [Middleware]: a task
// that waited in vain comes back at once, one that said [Defer] when it said,
// and none before the wait that the provider asked for. Everything else is
// other's, kept between 0 and a day (asynq's own default is negative from the
// 310th retry on).
func RetryDelay(other asynq.RetryDelayFunc) asynq.RetryDelayFunc {
	return func(n int, err error, t *asynq.Task) time.Duration {
		if d, ok := errors.AsType[*deferral](err); ok {
			return d.d + time.Second // asynq cuts to whole seconds
		}
		if poor, ok := errors.AsType[*guard.Deferred](err); ok {
			return poor.After + time.Second
		}
		if errors.Is(err, ErrNotYourTurn) || errors.Is(err, asynq.ErrLeaseExpired) {
			return 0
		}
		const day = 24 * time.Hour
		d := day
		if n < 100 {
			d = min(max(0, other(n, err, t)), day)
		}
		if r, ok := errors.AsType[guard.Reporter](err); ok {
			d = max(d, r.Report().RetryAfter+time.Second)
		}
		return d
	}
}
