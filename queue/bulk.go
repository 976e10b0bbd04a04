package queue

import (
	"context"
	"iter"
	"strings"

	"github.com/redis/go-redis/v9"
)

const (
	bulkJobs  = 256     // jobs of one round trip
	bulkBytes = 4 << 20 // bytes of one round trip, about
)

// EnqueueAll stores many jobs, a few hundred in a round trip, and yields for
// each job, in their order, what Enqueue would return. An error of one job
// does not end the rest; an error of the store is yielded for each job it
// touched. Jobs are read while others are on their way; what has been read is
// never held back waiting for more, so a slow source has its receipts at once.
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
				cur.start(ctx)
			}
			next.fill(ctx, src, cur.sent)
			cur.wait()
			if !next.empty() && ctx.Err() == nil {
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

// batch is the jobs of one round trip, in their order.
type batch struct {
	c     *Client
	slots []slot
	bytes int64
	sent  chan struct{} // closed when the lot is answered; nil: not on its way
}

type slot struct {
	p       *prepared // nil: refused before it was sent
	cmd     *redis.Cmd
	receipt Receipt
	err     error
}

func (b *batch) open() bool { return len(b.slots) < bulkJobs && b.bytes < bulkBytes }

func (b *batch) empty() bool { return len(b.slots) == 0 }

// fill adds what has been read already, and what comes until done is closed
// (nil: closed).
func (b *batch) fill(ctx context.Context, src *source, done <-chan struct{}) {
	for b.open() {
		select {
		case j, ok := <-src.jobs:
			if !ok {
				return
			}
			b.add(ctx, j)
			continue
		default:
		}
		if done == nil {
			return
		}
		select {
		case j, ok := <-src.jobs:
			if !ok {
				return
			}
			b.add(ctx, j)
		case <-done:
			return
		}
	}
}

// start sends the lot in a goroutine of its own; wait waits for its end.
func (b *batch) start(ctx context.Context) {
	sent := make(chan struct{})
	b.sent = sent
	go func() {
		defer close(sent)
		b.send(ctx)
	}()
}

func (b *batch) wait() {
	if b.sent != nil {
		<-b.sent
		b.sent = nil
	}
}

func (b *batch) add(ctx context.Context, j Job) {
	s := slot{receipt: refused(j)}
	if s.p, s.err = b.c.prepare(ctx, j); s.err == nil {
		b.bytes += s.p.size
	} else {
		s.p = nil
	}
	b.slots = append(b.slots, s)
}

// send runs all scripts in one pipeline. The first of a kind for a server
// comes with its source, so that the others find it there; what finds it gone
// all the same (a flush in between, another node) is sent once more.
func (b *batch) send(ctx context.Context) {
	again := b.pipeline(ctx, func(*slot) bool { return true }, false)
	if again {
		b.pipeline(ctx, func(s *slot) bool { return s.cmd != nil && noScript(s.cmd.Err()) }, true)
	}
	for i := range b.slots {
		s := &b.slots[i]
		if s.p == nil {
			continue
		}
		reply, err := s.cmd.Result()
		if err != nil {
			s.receipt, s.err = s.p.receipt(false), mapError(err)
			continue
		}
		s.receipt, s.err = b.c.settle(ctx, s.p, reply)
	}
}

// pipeline sends the chosen slots and reports whether some script was missing.
func (b *batch) pipeline(ctx context.Context, chosen func(*slot) bool, source bool) (missing bool) {
	type kind struct{ provider, script string }
	sent := make(map[kind]bool)
	pipe := b.c.rdb.Pipeline()
	for i := range b.slots {
		s := &b.slots[i]
		if s.p == nil || !chosen(s) {
			continue
		}
		k := kind{s.p.job.Provider, s.p.script.Hash()}
		if source || !sent[k] {
			s.cmd = pipe.Eval(ctx, s.p.script.Source(), s.p.keys, s.p.args...)
		} else {
			s.cmd = pipe.EvalSha(ctx, s.p.script.Hash(), s.p.keys, s.p.args...)
		}
		sent[k] = true
	}
	if len(sent) == 0 {
		return false
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	for i := range b.slots {
		missing = missing || b.slots[i].cmd != nil && noScript(b.slots[i].cmd.Err())
	}
	return missing
}

func noScript(err error) bool { return err != nil && strings.HasPrefix(err.Error(), "NOSCRIPT") }

// yield hands out what became of the batch, and empties it.
func (b *batch) yield(yield func(Receipt, error) bool) bool {
	for _, s := range b.slots {
		if !yield(s.receipt, s.err) {
			return false
		}
	}
	clear(b.slots)
	b.slots, b.bytes = b.slots[:0], 0
	return true
}
