package queue

import (
	"context"
	"iter"
)

// EnqueueAll stores many jobs, a few hundred in a round trip, and yields for
// each job, in their order, what Enqueue would return. An error of one job
// does not end the rest; an error of the store is yielded for each job it
// touched. Jobs are read while others are on their way; what has been read is
// never held back waiting for more, so a slow source has its receipts at once.
// Nothing more is sent until the consumer has seen an error of the store: one
// that stops at the first has none of the later jobs of that provider stored.
//
// The source runs in a goroutine of its own, and a few hundred jobs ahead.
// When the consumer stops early, what was read is either stored or not, and
// EnqueueAll returns when the source has yielded once more or ended. A panic
// of the source is passed on. When ctx ends, it ends: the receipts of the last
// round trip carry its error, and what was read ahead is not stored.
func (c *Client) EnqueueAll(ctx context.Context, jobs iter.Seq[Job]) iter.Seq2[Receipt, error] {
	return func(yield func(Receipt, error) bool) {
		src := readAhead(jobs)
		defer src.close()
		// One lot is on its way while the next one is made ready.
		cur, next := &batch{c: c}, &batch{c: c}
		defer func() { cur.wait(); next.wait() }()
		for {
			if cur.empty() {
				select {
				case j, ok := <-src.jobs:
					if !ok {
						return
					}
					cur.add(ctx, j)
				case <-ctx.Done():
					return
				}
				cur.fill(ctx, src, nil)
			}
			if cur.sent == nil {
				cur.start(ctx)
			}
			next.fill(ctx, src, cur.sent)
			cur.wait()
			if !next.empty() && ctx.Err() == nil && !cur.away() {
				next.start(ctx)
			}
			if !cur.yield(yield) || ctx.Err() != nil {
				return
			}
			cur, next = next, cur
		}
	}
}

// source reads jobs ahead in its own goroutine.
type source struct {
	jobs     chan Job
	stop     chan struct{}
	panicked any
}

func readAhead(jobs iter.Seq[Job]) *source {
	s := &source{jobs: make(chan Job, bulkJobs), stop: make(chan struct{})}
	go func() {
		defer close(s.jobs)
		defer func() { s.panicked = recover() }()
		for j := range jobs {
			select {
			case s.jobs <- j:
			case <-s.stop:
				return
			}
		}
	}()
	return s
}

// close ends the goroutine, waits for its end, and passes its panic on.
func (s *source) close() {
	close(s.stop)
	for range s.jobs { // until it is closed
	}
	if s.panicked != nil {
		panic(s.panicked)
	}
}
