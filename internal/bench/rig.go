package bench

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/penstock-io/penstock/internal/fragile"
	"github.com/penstock-io/penstock/queue"
)

// rig is what all comparisons share.
type rig struct {
	ctx     context.Context
	opt     Options
	redis   *redisServer
	results Results
}

func (r *rig) progress(format string, args ...any) {
	if r.opt.Progress != nil {
		r.opt.Progress(fmt.Sprintf(format, args...))
	}
}

func (r *rig) add(res Result) {
	r.results.Results = append(r.results.Results, res)
	if r.opt.Done != nil {
		r.opt.Done(res)
	}
}

func (r *rig) scaled(jobs int) int { return max(20, int(float64(jobs)*r.opt.Scale)) }

// body of every job: the size of a short message.
var body = []byte(`{"to":"+15550100","text":"Your appointment is tomorrow at 10:00. Reply C to cancel."}`)

// enqueueJobs stores n jobs for provider beforehand, ids "job-0" on.
func enqueueJobs(ctx context.Context, c redis.UniversalClient, provider string, n int, typ string) error {
	client, err := queue.NewClient(queue.Config{Redis: c})
	if err != nil {
		return err
	}
	if err := client.Publish(ctx, provider, queue.Spec{}); err != nil {
		return err
	}
	for _, err := range client.EnqueueAll(ctx, jobs(provider, n, typ)) {
		if err != nil {
			return fmt.Errorf("enqueue: %w", err)
		}
	}
	return ctx.Err()
}

func jobs(provider string, n int, typ string) iter.Seq[queue.Job] {
	return func(yield func(queue.Job) bool) {
		for i := range n {
			j := queue.Job{Provider: provider, ID: jobID(i), Type: typ, Path: "/messages", Body: body}
			if typ != "" {
				j.Path = ""
			}
			if !yield(j) {
				return
			}
		}
	}
}

// fleet is some worker processes, and the proxies that some of them go through.
type fleet struct {
	processes []*process
	proxies   []*proxy
	// roundTrips to Redis, by process.
	roundTrips []time.Duration
}

// start starts one process per entry of oneWay, which is its distance from Redis.
func (r *rig) start(spec workerSpec, oneWay ...time.Duration) (*fleet, error) {
	f := &fleet{}
	for i, d := range oneWay {
		spec.Redis, spec.Process = r.redis.addr, fmt.Sprint(i+1)
		if d > 0 {
			p, err := startProxy(r.redis.addr, d)
			if err != nil {
				return nil, errors.Join(err, f.stop(r.ctx))
			}
			f.proxies = append(f.proxies, p)
			spec.Redis = p.addr()
		}
		trip, err := roundTrip(r.ctx, spec.Redis)
		if err != nil {
			return nil, errors.Join(err, f.stop(r.ctx))
		}
		p, err := startProcess(r.ctx, r.opt.Command, spec)
		if err != nil {
			return nil, errors.Join(err, f.stop(r.ctx))
		}
		f.processes, f.roundTrips = append(f.processes, p), append(f.roundTrips, trip)
	}
	return f, nil
}

func (f *fleet) stop(ctx context.Context) error {
	var errs []error
	for _, p := range f.processes {
		errs = append(errs, p.stop(ctx))
	}
	for _, p := range f.proxies {
		errs = append(errs, p.Close())
	}
	return errors.Join(errs...)
}

// drain is one queue emptied by a fleet.
type drain struct {
	side    string
	jobs    int
	shop    fragile.Config // the provider's own limits
	shape   providerSpec   // what the workers are told: rate, concurrency
	oneWay  []time.Duration
	atOnce  int           // handlers of a process of plain asynq
	inHand  int           // calls at once of a process of ours; 0: its default
	workers bool          // start the workers first, then enqueue
	most    time.Duration // give up waiting then; what was seen is returned
}

// drained is what was seen of it.
type drained struct {
	report     fragile.Report
	commands   commandStats
	roundTrips []time.Duration
	took       time.Duration
}

func (d drained) commandsPerJob() float64 {
	return float64(d.commands.total()) / float64(max(1, d.report.JobsSucceeded))
}

func (r *rig) fill(d drain) error {
	c := r.redis.client()
	defer c.Close()
	if d.side == sidePlain {
		return plainEnqueue(r.ctx, c, providerName, d.jobs, body)
	}
	return enqueueJobs(r.ctx, c, providerName, d.jobs, "")
}

// providerName is the provider of comparisons with only one.
const providerName = "sms"

func (r *rig) drain(d drain) (out drained, err error) {
	if err := r.redis.flush(r.ctx); err != nil {
		return out, err
	}
	d.shop.CountBy = processHeader
	shop, err := fragile.Start("", d.shop)
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, shop.Close()) }()
	if !d.workers {
		if err := r.fill(d); err != nil {
			return out, err
		}
	}
	before, err := r.redis.commands(r.ctx)
	if err != nil {
		return out, err
	}
	d.shape.Name, d.shape.URL = providerName, shop.URL()
	f, err := r.start(workerSpec{Side: d.side, Providers: []providerSpec{d.shape}, Concurrency: d.atOnce, InHand: d.inHand}, d.oneWay...)
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, f.stop(r.ctx)) }()
	out.roundTrips = f.roundTrips
	if d.workers {
		// They are to be there, all of them, when the first job comes.
		if err := pause(r.ctx, time.Second); err != nil {
			return out, err
		}
		if err := r.fill(d); err != nil {
			return out, err
		}
	}
	begun := time.Now()
	if err := r.await(shop, d.jobs, d.most); err != nil {
		return out, err
	}
	out.took = time.Since(begun)
	if err := pause(r.ctx, 500*time.Millisecond); err != nil { // the last settlements
		return out, err
	}
	after, err := r.redis.commands(r.ctx)
	if err != nil {
		return out, err
	}
	out.commands = after.since(before)
	out.report = shop.Report()
	return out, nil
}

// await waits until so many jobs have succeeded, at most so long.
func (r *rig) await(shop *fragile.Server, jobs int, most time.Duration) error {
	deadline := time.Now().Add(most)
	for shop.Report().JobsSucceeded < jobs && time.Now().Before(deadline) {
		if err := pause(r.ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// distances is n processes beside Redis but for the last, which is so far away.
func distances(n int, last time.Duration) []time.Duration {
	return slices.Insert(make([]time.Duration, n-1), n-1, last)
}
