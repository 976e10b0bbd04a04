package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"time"
)

// Patience is how a client takes it when a server tells it to come back later.
type Patience struct {
	// Wait is how long is waited in a row, without a job being accepted in
	// between. Zero: not at all.
	Wait time.Duration
	// Waiting is told of each wait before it begins. Nil: nobody.
	Waiting func(d time.Duration, why *Problem)

	// sleep is time's own where it is nil.
	sleep func(ctx context.Context, d time.Duration) error
}

// Bounds of what one request of a patient batch holds without an answer.
const (
	maxUnanswered      = 10_000
	maxUnansweredBytes = 8 << 20
	maxClientLine      = 512 << 20
)

// BatchPatiently is Batch for a server with limits: lines that it refuses with
// 429, and all that it has not answered when it refuses the whole request, are
// sent again after the time that it names, until patience ends. The results'
// lines are those of the input; results of lines sent again come later than
// those of their neighbours. An error that is not about limits ends it, as it
// ends Batch.
func (c *Client) BatchPatiently(ctx context.Context, lines io.Reader, p Patience) iter.Seq2[BatchLine, error] {
	return func(yield func(BatchLine, error) bool) {
		if p.sleep == nil {
			p.sleep = sleep
		}
		f := newFeed(lines)
		defer f.close()
		for waited := time.Duration(0); ; {
			part := f.open()
			got, over := c.batchPart(ctx, part, p, yield)
			unanswered, end, err := part.end()
			switch {
			case over:
				return
			case got.refused != nil:
				wait := time.Duration(min(max(1, got.refused.RetryAfter), 1<<30)) * time.Second
				if got.accepted {
					waited = 0
				}
				if waited += wait; waited > p.Wait {
					f.giveUp(got.refused, yield)
					return
				}
				if p.Waiting != nil {
					p.Waiting(wait, got.refused)
				}
				if err := p.sleep(ctx, wait); err != nil {
					yield(BatchLine{}, err)
					return
				}
			case unanswered > 0 || end == partOpen:
				yield(BatchLine{}, fmt.Errorf("%w any more: it ended its answer, and %d lines have no result", ErrServerAway, unanswered))
				return
			case err != nil:
				yield(BatchLine{}, err)
				return
			case end == partLast:
				return
			}
		}
	}
}

// round is what came of one request.
type round struct {
	accepted bool
	// refused is the longest refusal by a limit; nil: there was none.
	refused *Problem
}

func (r *round) refuse(p *Problem) {
	if r.refused == nil || p.RetryAfter > r.refused.RetryAfter {
		r.refused = p
	}
}

// batchPart sends one request and yields what is not to be sent again. over
// says that nothing more is to come.
func (c *Client) batchPart(ctx context.Context, part *part, p Patience, yield func(BatchLine, error) bool) (got round, over bool) {
	for l, err := range c.Batch(ctx, part) {
		if prob, ok := errors.AsType[*Problem](err); ok && prob.Status == http.StatusTooManyRequests && p.Wait > 0 {
			got.refuse(prob)
			return got, false
		}
		if err != nil {
			yield(BatchLine{}, err)
			return got, true
		}
		again := l.Error != nil && l.Status == http.StatusTooManyRequests && p.Wait > 0
		line, ok := part.answered(l.Line, again)
		if !ok {
			yield(BatchLine{}, errors.New("the server answered a line that was not sent; check that --server is a Penstock server"))
			return got, true
		}
		if again {
			got.refuse(l.Error)
			continue
		}
		got.accepted = got.accepted || l.Error == nil
		if l.Line = line; !yield(l, nil) {
			return got, true
		}
	}
	return got, false
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}
