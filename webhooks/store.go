package webhooks

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/penstock-io/penstock/queue"
)

// askAgain is how long after a failed try Redis is left alone: meanwhile
// deliveries are answered, or spooled, at once instead of each waiting for its
// own timeout. Then one of them tries.
const askAgain = 500 * time.Millisecond

// store puts jobs into the queue, bounded in time. Safe for several goroutines.
type store struct {
	queue   Enqueuer
	timeout time.Duration
	fuse    *gobreaker.CircuitBreaker[Result]
}

func newStore(q Enqueuer, timeout time.Duration) *store {
	return &store{queue: q, timeout: timeout, fuse: gobreaker.NewCircuitBreaker[Result](gobreaker.Settings{
		Name: "webhooks", MaxRequests: 1, Timeout: askAgain,
		ReadyToTrip:  func(c gobreaker.Counts) bool { return c.ConsecutiveFailures > 0 },
		IsSuccessful: func(err error) bool { return !isAway(err) },
	})}
}

// put stores a job. Whatever Redis does, it returns within the timeout; then
// the job may or may not be stored, and its id makes a repeat harmless.
func (s *store) put(ctx context.Context, j queue.Job) (Result, error) {
	return s.fuse.Execute(func() (Result, error) {
		r, err := s.enqueue(context.WithoutCancel(ctx), j)
		switch {
		case err == nil && r.Known, errors.Is(err, queue.ErrConflict):
			// A conflict is the same event with other bytes round it: Stripe counts
			// pending_webhooks in the body, Slack its retries in a header.
			return Duplicate, nil
		case err == nil:
			return Accepted, nil
		}
		return Refused, err
	})
}

// enqueue gives up waiting at the timeout even where the client does not: a
// go-redis client without ContextTimeoutEnabled waits for its own.
func (s *store) enqueue(ctx context.Context, j queue.Job) (queue.Receipt, error) {
	type answer struct {
		r   queue.Receipt
		err error
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	done := make(chan answer, 1)
	go func() {
		r, err := s.queue.Enqueue(ctx, j)
		done <- answer{r, err}
	}()
	select {
	case a := <-done:
		return a.r, a.err
	case <-ctx.Done():
		return queue.Receipt{}, fmt.Errorf("%w within %s: %w", queue.ErrUnavailable, s.timeout, ctx.Err())
	}
}

// isAway tells trouble of the store from a refusal of the job.
func isAway(err error) bool {
	switch {
	case err == nil, errors.Is(err, queue.ErrInvalid), errors.Is(err, queue.ErrTooLarge),
		errors.Is(err, queue.ErrConflict), errors.Is(err, queue.ErrUnknownProvider), errors.Is(err, queue.ErrFull):
		return false
	}
	return true
}

// unstored says why a job could not be stored.
func unstored(err error) *Refusal {
	r := &Refusal{Genuine: true, cause: err}
	switch {
	case errors.Is(err, queue.ErrTooLarge):
		r.Reason, r.Detail, r.Fix = TooLarge, "the body is larger than the destination takes", "raise the provider's max_body"
	case errors.Is(err, queue.ErrInvalid):
		r.Reason, r.Detail, r.Fix = Misconfigured, "the queue refuses such a job", "see the receiver's log"
	case errors.Is(err, queue.ErrUnknownProvider):
		r.Reason, r.Detail, r.Fix = NoDestination, "nobody serves the destination", "start a worker for it, or correct the webhook's provider; deliver again later"
	case errors.Is(err, queue.ErrFull):
		r.Reason, r.Detail, r.Fix = StoreFull, "the store has no room", "deliver again later"
	default:
		r.Reason, r.Detail, r.Fix = StoreAway, "the store does not answer", "deliver again later"
	}
	return r
}
