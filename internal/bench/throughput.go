package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hibiken/asynq"

	"github.com/penstock-io/penstock/queue"
)

// throughput: no limit set, gate on, a handler that does nothing; plain asynq
// with the same handler and concurrency right beside each run.
func (r *rig) throughput(run int) error {
	n := r.scaled(20_000)
	rates := map[string]float64{}
	order := []string{sidePlain, sidePenstock}
	if run%2 == 0 {
		order[0], order[1] = order[1], order[0]
	}
	for _, side := range order {
		r.progress("throughput %s, pair %d of %d: %d jobs", side, run, r.opt.Runs, n)
		rate, err := r.nothing(side, n)
		if err != nil {
			return fmt.Errorf("%s: %w", side, err)
		}
		rates[side] = rate
	}
	r.add(Result{Bench: "throughput", Case: "no limit, 40 at once", Run: run, Metrics: []Metric{
		figure("penstock", PerSec, rates[sidePenstock]),
		figure("asynq", PerSec, rates[sidePlain]),
		figure("penstock/asynq", Ratio, rates[sidePenstock]/rates[sidePlain]).atLeast(1.2),
	}})
	return nil
}

// nothing drains n jobs that do nothing with one process, and returns its rate.
func (r *rig) nothing(side string, n int) (rate float64, err error) {
	if err := r.redis.flush(r.ctx); err != nil {
		return 0, err
	}
	c := r.redis.client()
	defer c.Close()
	if side == sidePlain {
		err = plainEnqueue(r.ctx, c, providerName, n, body)
	} else {
		err = enqueueJobs(r.ctx, c, providerName, n, "nothing")
	}
	if err != nil {
		return 0, err
	}
	f, err := r.start(workerSpec{Side: side, Nothing: true, Concurrency: 40, InHand: 40,
		Providers: []providerSpec{{Name: providerName, URL: "http://127.0.0.1:1"}}}, 0)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, f.stop(r.ctx)) }()
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); {
		u, err := f.processes[0].usage(r.ctx)
		if err != nil {
			return 0, err
		}
		if u.Handled >= int64(n) {
			return float64(n-1) / u.Span.Seconds(), nil
		}
		if err := pause(r.ctx, 50*time.Millisecond); err != nil {
			return 0, err
		}
	}
	return 0, errors.New("not drained within two minutes")
}

// enqueue: one producer, one job after the other, and in bulk.
func (r *rig) enqueue(run int) error {
	n := r.scaled(10_000)
	sides := []struct {
		name  string
		store func(context.Context, int) error
	}{{"asynq", r.storePlain}, {"one by one", r.storeSingly}, {"bulk", r.storeBulk}}
	if run%2 == 0 {
		sides[0], sides[1] = sides[1], sides[0]
	}
	rates := map[string]float64{}
	for _, s := range sides {
		r.progress("enqueue %s, run %d of %d: %d jobs", s.name, run, r.opt.Runs, n)
		if err := r.redis.flush(r.ctx); err != nil {
			return err
		}
		begun := time.Now()
		if err := s.store(r.ctx, n); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		rates[s.name] = float64(n) / time.Since(begun).Seconds()
	}
	r.add(Result{Bench: "enqueue", Case: "one producer", Run: run, Metrics: []Metric{
		figure("asynq", PerSec, rates["asynq"]),
		figure("Enqueue", PerSec, rates["one by one"]),
		figure("EnqueueAll", PerSec, rates["bulk"]),
		figure("Enqueue/asynq", Ratio, rates["one by one"]/rates["asynq"]).atLeast(1),
		figure("EnqueueAll/asynq", Ratio, rates["bulk"]/rates["asynq"]).atLeast(2),
	}})
	return nil
}

func (r *rig) storePlain(ctx context.Context, n int) error {
	c := r.redis.client()
	defer c.Close()
	client := asynq.NewClientFromRedisClient(c)
	for range n {
		if _, err := client.EnqueueContext(ctx, asynq.NewTask(PlainType, body), asynq.Queue(providerName)); err != nil {
			return err
		}
	}
	return nil
}

func (r *rig) storeSingly(ctx context.Context, n int) error {
	c := r.redis.client()
	defer c.Close()
	client, err := queue.NewClient(queue.Config{Redis: c})
	if err != nil {
		return err
	}
	if err := client.Publish(ctx, providerName, queue.Spec{}); err != nil {
		return err
	}
	for range n {
		if _, err := client.Enqueue(ctx, queue.Job{Provider: providerName, Path: "/messages", Body: body}); err != nil {
			return err
		}
	}
	return nil
}

func (r *rig) storeBulk(ctx context.Context, n int) error {
	c := r.redis.client()
	defer c.Close()
	return enqueueJobs(ctx, c, providerName, n, "")
}
