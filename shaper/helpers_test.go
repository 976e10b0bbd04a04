package shaper

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// counting is an Observer.
type counting struct{ requests, arrivals, settles atomic.Int64 }

func (c *counting) GateRequest(_ string, a, s int, _ time.Duration, _ error) {
	c.requests.Add(1)
	c.arrivals.Add(int64(a))
	c.settles.Add(int64(s))
}
func (c *counting) Denied(string, string)        {}
func (c *counting) Waited(string, time.Duration) {}

// loseReplies runs scripts and loses every n-th reply.
type loseReplies struct{ every, n, lost atomic.Int64 }

func (l *loseReplies) DialHook(next redis.DialHook) redis.DialHook { return next }
func (l *loseReplies) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		every := l.every.Load()
		if every > 0 && strings.HasPrefix(cmd.Name(), "eval") && err == nil && l.n.Add(1)%every == 0 {
			l.lost.Add(1)
			err = errors.New("the reply was lost")
			cmd.SetErr(err)
		}
		return err
	}
}
func (l *loseReplies) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// until is a context that ends at t.
func until(t time.Time) context.Context {
	ctx, cancel := context.WithDeadline(context.Background(), t)
	context.AfterFunc(ctx, cancel)
	return ctx
}
