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
	seen := map[string]nothingSeen{}
	order := []string{sidePlain, sidePenstock}
	if run%2 == 0 {
		order[0], order[1] = order[1], order[0]
	}
	for _, side := range order {
		r.progress("throughput %s, pair %d of %d: %d jobs", side, run, r.opt.Runs, n)
		var err error
		if seen[side], err = r.nothing(side, n); err != nil {
			return fmt.Errorf("%s: %w", side, err)
		}
	}
	ours, plain := seen[sidePenstock], seen[sidePlain]
	micros := func(d time.Duration) float64 { return float64(d) / float64(n) / float64(time.Microsecond) }
	r.add(Result{Bench: "throughput", Case: "no limit, 40 at once", Run: run, Metrics: []Metric{
		figure("penstock", PerSec, ours.rate),
		figure("asynq", PerSec, plain.rate),
		figure("penstock/asynq", Ratio, ours.rate/plain.rate).atLeast(1.2),
	}, Note: fmt.Sprintf("microseconds of a core per job: penstock %.0f and its Redis %.0f, asynq %.0f and its Redis %.0f",
		micros(ours.worker), micros(ours.redis), micros(plain.worker), micros(plain.redis))})
	return nil
}

// nothingSeen is what draining jobs that do nothing took.
type nothingSeen struct {
	rate          float64 // jobs a second
	worker, redis time.Duration
}

// nothing drains n jobs that do nothing with one process.
func (r *rig) nothing(side string, n int) (seen nothingSeen, err error) {
	if err := r.redis.flush(r.ctx); err != nil {
		return seen, err
	}
	c := r.redis.client()
	defer c.Close()
	if side == sidePlain {
		err = plainEnqueue(r.ctx, c, providerName, n, body)
	} else {
		err = enqueueJobs(r.ctx, c, providerName, n, "nothing")
	}
	if err != nil {
		return seen, err
	}
	before, err := r.redis.cpu(r.ctx)
	if err != nil {
		return seen, err
	}
	f, err := r.start(workerSpec{Side: side, Nothing: true, Concurrency: 40, InHand: 40,
		Providers: []providerSpec{{Name: providerName, URL: "http://127.0.0.1:1"}}}, 0)
	if err != nil {
		return seen, err
	}
	defer func() { err = errors.Join(err, f.stop(r.ctx)) }()
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); {
		u, err := f.processes[0].usage(r.ctx)
		if err != nil {
			return seen, err
		}
		if u.Handled >= int64(n) {
			after, err := r.redis.cpu(r.ctx)
			return nothingSeen{float64(n-1) / u.Span.Seconds(), u.CPU, after - before}, err
		}
		if err := pause(r.ctx, 50*time.Millisecond); err != nil {
			return seen, err
		}
	}
	return seen, errors.New("not drained within two minutes")
}

// enqueueRounds is into how many slices a run is cut, so that all three sides
// see the same weather.
const enqueueRounds = 5

// enqueue: one producer, one job after the other, and in bulk.
func (r *rig) enqueue(run int) error {
	n := r.scaled(2000)
	sides := []struct {
		name  string
		store func(context.Context, int) error
		took  time.Duration
	}{{name: "asynq", store: r.storePlain}, {name: "one by one", store: r.storeSingly}, {name: "bulk", store: r.storeBulk}}
	r.progress("enqueue, run %d of %d: %d jobs each", run, r.opt.Runs, n*enqueueRounds)
	for round := range enqueueRounds {
		for i := range sides {
			s := &sides[(i+round)%len(sides)]
			if err := r.redis.flush(r.ctx); err != nil {
				return err
			}
			begun := time.Now()
			if err := s.store(r.ctx, n); err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
			s.took += time.Since(begun)
		}
	}
	rate := func(i int) float64 { return float64(n*enqueueRounds) / sides[i].took.Seconds() }
	r.add(Result{Bench: "enqueue", Case: "one producer", Run: run, Metrics: []Metric{
		figure("asynq", PerSec, rate(0)),
		figure("Enqueue", PerSec, rate(1)),
		figure("EnqueueAll", PerSec, rate(2)),
		figure("Enqueue/asynq", Ratio, rate(1)/rate(0)).atLeast(1),
		figure("EnqueueAll/asynq", Ratio, rate(2)/rate(0)).atLeast(2),
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
