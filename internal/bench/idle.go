package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/penstock-io/penstock/internal/fragile"
	"github.com/penstock-io/penstock/queue"
)

const idleProviders = 20

func idleName(i int) string { return fmt.Sprintf("idle-%d", i) }

// idle: what 20 providers without work cost in one process, and how long it
// takes from enqueue to call when a job comes all the same.
func (r *rig) idle(run int) error {
	for _, side := range []string{sidePenstock, sidePlain} {
		r.progress("idle %s, run %d of %d", side, run, r.opt.Runs)
		res, err := r.idleOnce(side)
		if err != nil {
			return fmt.Errorf("%s: %w", side, err)
		}
		res.Run = run
		r.add(res)
	}
	return nil
}

func (r *rig) idleOnce(side string) (res Result, err error) {
	if err := r.redis.flush(r.ctx); err != nil {
		return res, err
	}
	shop, err := fragile.Start("", fragile.Config{Remember: 10_000})
	if err != nil {
		return res, err
	}
	defer func() { err = errors.Join(err, shop.Close()) }()
	spec := workerSpec{Side: side, Concurrency: 10}
	for i := range idleProviders {
		spec.Providers = append(spec.Providers, providerSpec{Name: idleName(i), URL: shop.URL(), Concurrency: 10})
	}
	f, err := r.start(spec, 0)
	if err != nil {
		return res, err
	}
	defer func() { err = errors.Join(err, f.stop(r.ctx)) }()
	commands, span, cpu, err := r.quiet(f.processes[0])
	if err != nil {
		return res, err
	}
	pickups, err := r.pickups(side, shop)
	if err != nil {
		return res, err
	}
	m := []Metric{
		figure("commands", PerSec, float64(commands.total())/span),
		figure("cpu", Share, cpu),
		figure("pick-up p50", Millis, median(pickups)),
		figure("most", Millis, quantile(pickups, 1)),
		figure("picked up", Count, float64(len(pickups))),
	}
	if side == sidePenstock {
		m[0], m[1], m[2] = m[0].atMost(150), m[1].atMost(0.02), m[2].atMost(10)
	}
	return Result{Bench: "idle", Case: fmt.Sprintf("%d providers", idleProviders), Side: side, Metrics: m,
		Note: "commands a second: " + commands.most(span)}, nil
}

// quiet returns the Redis commands of some seconds in which nothing is to be
// done, how many seconds, and the share of a core.
func (r *rig) quiet(p *process) (commands commandStats, span, cpu float64, err error) {
	if err := pause(r.ctx, 3*time.Second); err != nil { // the start is not idle
		return nil, 0, 0, err
	}
	before, err := r.redis.commands(r.ctx)
	if err != nil {
		return nil, 0, 0, err
	}
	u1, err := p.usage(r.ctx)
	if err != nil {
		return nil, 0, 0, err
	}
	begun := time.Now()
	if err := pause(r.ctx, time.Duration(10*max(0.2, r.opt.Scale)*float64(time.Second))); err != nil {
		return nil, 0, 0, err
	}
	span = time.Since(begun).Seconds()
	u2, err := p.usage(r.ctx)
	if err != nil {
		return nil, 0, 0, err
	}
	after, err := r.redis.commands(r.ctx)
	if err != nil {
		return nil, 0, 0, err
	}
	return after.since(before), span, (u2.CPU - u1.CPU).Seconds() / span, nil
}

// pickups enqueues single jobs into the quiet and returns the milliseconds
// from before the enqueue to the arrival at the provider, of each.
func (r *rig) pickups(side string, shop *fragile.Server) ([]float64, error) {
	c := r.redis.client()
	defer c.Close()
	put, err := r.putter(side, c)
	if err != nil {
		return nil, err
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	sent := map[string]time.Duration{}
	n := r.scaled(100)
	for i := range n {
		id := jobID(i)
		sent[id] = shop.Now()
		if err := put(r.ctx, idleName(rnd.IntN(idleProviders)), id); err != nil {
			return nil, err
		}
		if err := pause(r.ctx, 50*ms+time.Duration(rnd.Int64N(int64(100*ms)))); err != nil {
			return nil, err
		}
	}
	if err := r.await(shop, n, 10*time.Second); err != nil {
		return nil, err
	}
	var took []float64
	for _, call := range shop.Calls() {
		if at, ok := sent[call.Key]; ok {
			took = append(took, float64(call.At-at)/float64(ms))
		}
	}
	return took, nil
}

// putter returns what stores one job of a side.
func (r *rig) putter(side string, c redis.UniversalClient) (func(ctx context.Context, provider, id string) error, error) {
	if side == sidePlain {
		put := PlainEnqueuer(c)
		return func(ctx context.Context, provider, id string) error {
			return put(ctx, provider, id, body)
		}, nil
	}
	client, err := queue.NewClient(queue.Config{Redis: c})
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, provider, id string) error {
		_, err := client.Enqueue(ctx, queue.Job{Provider: provider, ID: id, Path: "/messages", Body: body})
		return err
	}, nil
}
