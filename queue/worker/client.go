package worker

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// client is the Redis client that asynq is given: a whole UniversalClient that
// answers some of asynq's scripts itself.
//
//   - dequeue goes to the inlet;
//   - done, complete, retry, archive and requeue do nothing: the handler stores
//     what becomes of a job before it returns. Where asynq is faster (its
//     timeout, its cancel button, its shutdown), it waits here for the handler,
//     so a slot is never free while its handler still runs;
//   - the recoverer finds no expired leases: it compares clocks of different
//     machines and charges a retry. tick.lua does that work;
//   - the forwarder looks seldom.
//
// Everything else passes through, scripts on a context that is not cancelled:
// asynq v0.26.0 repairs a failed "done" with a context cancelled long ago, and
// the job would run twice (processor.go, markAsDone).
type client struct {
	redis.UniversalClient
	known   []shape
	dequeue func() (string, error)
	hands   *hands
	// giveUp settles a job that asynq gave up before its handler began.
	giveUp func(h *hand, asked bool)
	// moved hears that the forwarder moved jobs to pending.
	moved func()

	mu       sync.Mutex
	nextMove map[string]time.Time
}

// forwardEvery is how often asynq's delayed sets are looked at. Our own jobs
// are never due there: scheduled has what others put in with asynq, and retry
// only what another kind of worker left behind.
func forwardEvery(set string) time.Duration {
	if strings.HasSuffix(set, ":retry") {
		return 10 * time.Second
	}
	return 2 * time.Second
}

// EvalSha answers asynq's scripts that are known, and passes on the others.
func (c *client) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	ctx = context.WithoutCancel(ctx)
	switch k := recognise(c.known, sha, keys, len(args)); k {
	case dequeue:
		msg, err := c.dequeue()
		if err != nil {
			return redis.NewCmdResult(nil, err)
		}
		return redis.NewCmdResult(msg, nil)
	case done, complete, retry, archive, requeue:
		if id, ok := args[0].(string); ok {
			c.wait(id, k)
			return redis.NewCmdResult("OK", nil)
		}
	case expiredList:
		return redis.NewCmdResult([]any{}, nil)
	case forward:
		return c.forward(ctx, sha, keys, args)
	}
	return c.UniversalClient.EvalSha(ctx, sha, keys, args...)
}

// Eval passes on with a context that is not cancelled.
func (c *client) Eval(ctx context.Context, script string, keys []string, args ...any) *redis.Cmd {
	return c.UniversalClient.Eval(context.WithoutCancel(ctx), script, keys, args...)
}

// wait returns when the job is settled. Most are: their handlers have
// returned. A retry or an archive for one that is not comes from asynq's
// cancel button or its timeout, and asks for the job's cancellation.
func (c *client) wait(id string, k kind) {
	asked := k == retry || k == archive
	if h, over := c.hands.drop(id); h != nil {
		c.giveUp(h, asked)
	} else if over != nil {
		if asked {
			c.hands.ask(id)
		}
		<-over
	}
}

func (c *client) forward(ctx context.Context, sha string, keys []string, args []any) *redis.Cmd {
	c.mu.Lock()
	now := time.Now()
	early := now.Before(c.nextMove[keys[0]])
	if !early {
		c.nextMove[keys[0]] = now.Add(forwardEvery(keys[0]))
	}
	c.mu.Unlock()
	if early {
		return redis.NewCmdResult(int64(0), nil)
	}
	cmd := c.UniversalClient.EvalSha(ctx, sha, keys, args...)
	if n, err := cmd.Int64(); err == nil && n > 0 {
		c.mu.Lock()
		delete(c.nextMove, keys[0]) // it moves 100 at a time and asks until none is left
		c.mu.Unlock()
		c.moved()
	}
	return cmd
}
