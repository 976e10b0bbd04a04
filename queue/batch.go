package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/penstock-io/penstock/queue/internal/layout"
)

const (
	bulkJobs  = 256     // jobs of one round trip
	bulkBytes = 4 << 20 // bytes of one round trip, about
	callJobs  = 64      // jobs of one script
)

// batch is the jobs of one round trip, in their order.
type batch struct {
	c     *Client
	slots []slot
	bytes int64
	sent  chan struct{} // closed when the lot is answered; nil: not on its way
	// failed are the store's errors by provider, met while the lot was made
	// ready: later jobs must not overtake.
	failed map[string]error
}

// slot is one job, and what became of it.
type slot struct {
	p       *prepared // nil: refused before it was sent
	receipt Receipt
	err     error
}

// call is one script on its way, for one job or several.
type call struct {
	script *layout.Script
	keys   []string
	args   []any
	slots  []int
	cmd    *redis.Cmd
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

// away reports that the store did not take some job of the lot.
func (b *batch) away() bool {
	return slices.ContainsFunc(b.slots, func(s slot) bool { return errors.Is(s.err, ErrUnavailable) })
}

func (b *batch) add(ctx context.Context, j Job) {
	s := slot{receipt: refused(j), err: b.failed[j.Provider]}
	if s.err == nil {
		s.p, s.err = b.c.prepare(ctx, j)
	}
	switch {
	case s.err == nil:
		b.bytes += s.p.size
	case errors.Is(s.err, ErrUnavailable):
		if b.failed == nil {
			b.failed = make(map[string]error)
		}
		b.failed[j.Provider] = s.err
		fallthrough
	default:
		s.p = nil
	}
	b.slots = append(b.slots, s)
}

// send runs all scripts in one pipeline, and once more those that the server
// did not have.
func (b *batch) send(ctx context.Context) {
	calls := b.calls()
	b.pipeline(ctx, calls, false)
	var missing []*call
	for _, c := range calls {
		if noScript(c.cmd.Err()) {
			missing = append(missing, c)
		}
	}
	b.pipeline(ctx, missing, true)
	for _, c := range calls {
		b.settle(ctx, c)
	}
}

// calls puts jobs that are plain together, as many as one script takes. Jobs
// of one provider stay in their order where order is: in the waiting line,
// and between jobs of one id.
func (b *batch) calls() []*call {
	var calls []*call
	open := make(map[string]*call)
	named := make(map[[2]string]bool)
	for i := range b.slots {
		p := b.slots[i].p
		if p == nil {
			continue
		}
		name := p.job.Provider
		if ref := [2]string{name, p.job.ID}; !p.ownID {
			if named[ref] {
				delete(open, name)
			}
			named[ref] = true
		}
		if p.script != b.c.scripts.enqueue || len(p.keys) > 3 {
			if p.script == b.c.scripts.enqueue {
				delete(open, name) // a body of its own: later ones come after it
			}
			calls = append(calls, &call{script: p.script, keys: p.keys, args: p.args, slots: []int{i}})
			continue
		}
		c := open[name]
		if c == nil || len(c.slots) == callJobs {
			c = &call{script: b.c.scripts.many, keys: []string{p.keys[1]}, args: []any{p.args[2]}}
			open[name] = c
			calls = append(calls, c)
		}
		c.keys = append(c.keys, p.keys[0], p.keys[2])
		c.args = append(c.args, p.args[1], p.args[0])
		c.slots = append(c.slots, i)
	}
	return calls
}

// pipeline sends calls. The first of a kind for a provider comes with its
// source, so that the others find it on that server.
func (b *batch) pipeline(ctx context.Context, calls []*call, source bool) {
	if len(calls) == 0 {
		return
	}
	type kind struct{ provider, script string }
	sent := make(map[kind]bool)
	pipe := b.c.rdb.Pipeline()
	for _, c := range calls {
		k := kind{b.slots[c.slots[0]].p.job.Provider, c.script.Hash()}
		if source || !sent[k] {
			c.cmd = pipe.Eval(ctx, c.script.Source(), c.keys, c.args...)
		} else {
			c.cmd = pipe.EvalSha(ctx, c.script.Hash(), c.keys, c.args...)
		}
		sent[k] = true
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
}

func noScript(err error) bool { return err != nil && strings.HasPrefix(err.Error(), "NOSCRIPT") }

// settle makes receipts of one call's answer.
func (b *batch) settle(ctx context.Context, c *call) {
	reply, err := c.cmd.Result()
	replies := []any{reply}
	if c.script == b.c.scripts.many && err == nil {
		replies, _ = reply.([]any)
		if len(replies) != len(c.slots) {
			err = fmt.Errorf("the enqueue script answered for %d of %d jobs", len(replies), len(c.slots))
		}
	}
	for at, i := range c.slots {
		s := &b.slots[i]
		if err != nil {
			s.receipt, s.err = s.p.receipt(false), mapError(err)
			continue
		}
		s.receipt, s.err = b.c.settle(ctx, s.p, replies[at])
	}
}

// yield hands out what became of the batch, and empties it.
func (b *batch) yield(yield func(Receipt, error) bool) bool {
	for _, s := range b.slots {
		if !yield(s.receipt, s.err) {
			return false
		}
	}
	clear(b.slots)
	clear(b.failed)
	b.slots, b.bytes = b.slots[:0], 0
	return true
}
