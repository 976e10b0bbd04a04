package queue

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/penstock-io/penstock/internal/redistest"
)

// blip is a hook that makes the commands of a client fail, as a Redis does
// that is away for the time of one lot.
type blip struct{ from, to, n atomic.Int64 }

var errBlip = &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}

func (b *blip) away() error {
	if n := b.n.Add(1); n >= b.from.Load() && n < b.to.Load() {
		return errBlip
	}
	return nil
}
func (b *blip) DialHook(next redis.DialHook) redis.DialHook { return next }
func (b *blip) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if err := b.away(); err != nil {
			cmd.SetErr(err)
			return err
		}
		return next(ctx, cmd)
	}
}
func (b *blip) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if err := b.away(); err != nil {
			for _, c := range cmds {
				c.SetErr(err)
			}
			return err
		}
		return next(ctx, cmds)
	}
}

// Whoever stops at the first error of the store and begins there again has all
// of it in its order, wherever Redis was away for a moment.
func TestEnqueueAllKeepsOrderOverABlip(t *testing.T) {
	srv := redistest.Start(t)
	const n = 600
	var want []string
	for i := range n {
		want = append(want, fmt.Sprintf("j%03d", i))
	}
	for at := range int64(8) {
		rdb := srv.Client()
		if err := rdb.FlushAll(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		c, err := NewClient(Config{Redis: rdb})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Publish(t.Context(), "sms", Spec{}); err != nil {
			t.Fatal(err)
		}
		b := &blip{}
		b.from.Store(at)
		b.to.Store(at + 1 + at%3)
		rdb.AddHook(b)
		tries := 0
		for next := 0; next < n; tries++ {
			if tries > 20 {
				t.Fatalf("blip at %d: no end", at)
			}
			jobs := func(yield func(Job) bool) {
				for _, id := range want[next:] {
					if !yield(Job{Provider: "sms", ID: id}) {
						return
					}
				}
			}
			for _, err := range c.EnqueueAll(t.Context(), jobs) {
				if err != nil {
					break
				}
				next++
			}
		}
		b.to.Store(0)
		got := rdb.LRange(t.Context(), c.keys("sms").Asynq("pending"), 0, -1).Val()
		slices.Reverse(got)
		if !slices.Equal(got, want) {
			t.Errorf("blip at %d: %d jobs, and not in their order", at, len(got))
		}
	}
}
