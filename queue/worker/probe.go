package worker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

// call is one script that asynq sent while it was probed.
type call struct {
	sha  string
	keys []string
	args []any
}

// stage is a Redis client without a Redis: a hook answers everything and
// writes down the scripts. It plays one task of every kind to an asynq server.
type stage struct {
	mu    sync.Mutex
	calls []call
	todo  []string // encoded messages that dequeue still has to give out

	stored   bool // all tasks are enqueued
	forwards int
	moved    chan struct{} // closed when both delayed sets were looked at
}

func (s *stage) forwarded() {
	if s.forwards++; s.forwards == 2 {
		close(s.moved)
	}
}

// message takes what was enqueued, and begins a new record.
func (s *stage) messages() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.calls {
		i := slices.IndexFunc(c.args, func(a any) bool { _, ok := a.([]byte); return ok })
		if i < 0 {
			return errors.New("asynq's enqueue has another shape: it sends no message")
		}
		s.todo = append(s.todo, string(c.args[i].([]byte)))
	}
	s.calls, s.stored = nil, true
	return nil
}

// DialHook refuses connections: nothing may leave the process.
func (s *stage) DialHook(redis.DialHook) redis.DialHook {
	return func(context.Context, string, string) (net.Conn, error) { return nil, errProbe }
}

// ProcessPipelineHook answers nothing; asynq sends no pipelines.
func (s *stage) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(context.Context, []redis.Cmder) error { return errProbe }
}

// ProcessHook records EVALSHA and gives out the next message to a dequeue.
func (s *stage) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(_ context.Context, cmd redis.Cmder) error {
		c, isCmd := cmd.(*redis.Cmd)
		if !isCmd || cmd.Name() != "evalsha" {
			return nil
		}
		got := parseEval(cmd.Args())
		s.mu.Lock()
		defer s.mu.Unlock()
		s.calls = append(s.calls, got)
		switch {
		case len(got.keys) == 4 && len(got.args) == 2: // dequeue
			if len(s.todo) == 0 {
				c.SetErr(redis.Nil)
				return redis.Nil
			}
			c.SetVal(s.todo[0])
			s.todo = s.todo[1:]
		case len(got.keys) == 1 && len(got.args) == 2: // expired leases
			c.SetVal([]any{})
		case len(got.keys) == 2 && len(got.args) == 4: // forward: nothing moved
			c.SetVal(int64(0))
			s.forwarded()
		case len(s.todo) == 0 && !s.stored: // enqueue: stored
			c.SetVal(int64(1))
		default:
			c.SetVal("OK")
		}
		return nil
	}
}

var errProbe = errors.New("the self-test has no redis")

// parseEval splits "evalsha sha n keys… args…".
func parseEval(a []any) call {
	if len(a) < 3 {
		return call{}
	}
	n, _ := a[2].(int)
	if n < 0 || len(a) < 3+n {
		return call{}
	}
	got := call{args: a[3+n:]}
	got.sha, _ = a[1].(string)
	for _, k := range a[3 : 3+n] {
		s, _ := k.(string)
		got.keys = append(got.keys, s)
	}
	return got
}

// probe plays one task of every fate to an asynq client and server on the
// stage and returns the scripts that the server sent. It takes some
// milliseconds and leaves nothing behind.
func probe(ctx context.Context) ([]call, error) {
	st := &stage{moved: make(chan struct{})}
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:0", MaxRetries: -1})
	rdb.AddHook(st)
	defer rdb.Close()
	client := asynq.NewClientFromRedisClient(rdb)
	fates := map[string][]asynq.Option{
		"ok": nil, "again": nil, "dead": nil, "park": nil,
		"keep":     {asynq.Retention(time.Hour)},
		"once":     {asynq.Unique(time.Hour)},
		"keeponce": {asynq.Unique(time.Hour), asynq.Retention(time.Hour)},
	}
	for f, opts := range fates {
		opts = append(opts, asynq.Queue("probe"), asynq.TaskID(f))
		if _, err := client.Enqueue(asynq.NewTaskWithHeaders(f, nil, map[string]string{"x": "y"}), opts...); err != nil {
			return nil, fmt.Errorf("asynq's enqueue: %w", err)
		}
	}
	if err := st.messages(); err != nil {
		return nil, err
	}
	err := st.play(ctx, asynq.NewServerFromRedisClient(rdb, asynq.Config{
		Queues: map[string]int{"probe": 1}, Concurrency: len(fates), LogLevel: asynq.FatalLevel, Logger: quiet{},
		ShutdownTimeout: time.Nanosecond, TaskCheckInterval: time.Millisecond, DelayedTaskCheckInterval: time.Millisecond,
		RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return time.Hour },
	}), len(fates))
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.calls, err
}

// play runs the server until every task ran, and shuts it down with one of
// them still running, so that it is requeued.
func (s *stage) play(ctx context.Context, srv *asynq.Server, tasks int) error {
	ran := make(chan struct{}, tasks)
	over := make(chan struct{})
	err := srv.Start(asynq.HandlerFunc(func(_ context.Context, t *asynq.Task) error {
		ran <- struct{}{}
		switch t.Type() {
		case "again":
			return errProbe
		case "dead":
			return asynq.SkipRetry
		case "park":
			<-over
		}
		return nil
	}))
	if err != nil {
		return fmt.Errorf("asynq's server: %w", err)
	}
	timeout := time.NewTimer(5 * time.Second)
	defer timeout.Stop()
	moved := s.moved
	for tasks > 0 || moved != nil {
		select {
		case <-ran:
			tasks--
			continue
		case <-moved:
			moved = nil
			continue
		case <-timeout.C:
			err = errors.New("asynq did not run the self-test's tasks: its dequeue has another shape")
		case <-ctx.Done():
			err = ctx.Err()
		}
		break
	}
	srv.Shutdown()
	close(over)
	return err
}

// selfTest reports whether every script that the wrapped client answers
// itself looks as it should. Its error names the first that does not.
func selfTest(ctx context.Context) error {
	calls, err := probe(ctx)
	if err != nil {
		return err
	}
	return compare(calls, shapes())
}

// compare looks for every shape among what was sent.
func compare(calls []call, known []shape) error {
	for _, s := range known {
		if !slices.ContainsFunc(calls, func(c call) bool { return s.fits(c.sha, c.keys, len(c.args)) }) {
			return fmt.Errorf("asynq sends no script %s of the known shape", s.kind)
		}
	}
	return nil
}
