package demo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/penstock-io/penstock/examples/jobs"
	"github.com/penstock-io/penstock/internal/api"
	"github.com/penstock-io/penstock/internal/bench"
	"github.com/penstock-io/penstock/internal/fragile"
	"github.com/penstock-io/penstock/queue"
	"github.com/penstock-io/penstock/queue/embedded"
	"github.com/penstock-io/penstock/shaper"
)

// Bounds of Options.Duration.
const (
	DefaultDuration = 30 * time.Second
	MinDuration     = 8 * time.Second
	MaxDuration     = time.Hour
)

// Options of Run.
type Options struct {
	// Duration of the whole, about. Zero: DefaultDuration.
	Duration time.Duration
	// Break takes the headroom away and sets the rates above the limits, to
	// prove that the verdict would tell.
	Break bool
	// Out gets the live view. Required.
	Out io.Writer
	// Terminal says that Out can move its cursor: the view is redrawn in place.
	// Otherwise it is a plain line every two seconds.
	Terminal bool
	// Logger hears of warnings. Nil: nobody.
	Logger *slog.Logger
}

// provider is one of the two, its limits known to nobody but itself and, as
// configuration, to the workers.
type provider struct {
	name        string
	perSecond   int
	concurrency int
	latency     fragile.Latency
}

func providers() []provider {
	const ms = time.Millisecond
	return []provider{
		{"sms", 120, 20, fragile.Latency{Mean: 40 * ms, Jitter: 20 * ms}},
		{"payments", 15, 5, fragile.Latency{Mean: 150 * ms, Jitter: 50 * ms, Shape: fragile.Normal}},
	}
}

func (p provider) shop() fragile.Config {
	return fragile.Config{Name: p.name, Limit: fragile.Rate{N: p.perSecond, Per: time.Second}, InFlight: p.concurrency, Latency: p.latency}
}

// limits are what the workers are told: the provider's own, or with broken
// what must break them.
func (p provider) limits(broken bool) shaper.Limits {
	l := shaper.Limits{Rate: shaper.PerSecond(int64(p.perSecond)), Concurrency: p.concurrency}
	if broken {
		l.Rate.N += l.Rate.N/4 + 1
		l.Headroom = shaper.NoHeadroom
	}
	return l
}

// fleetSize is how many workers each provider has: limits that hold for one
// process are no art.
const fleetSize = 2

// The shares of the time: shaped, unshaped; the rest is starting and stopping.
const (
	shapedShare   = 0.7
	unshapedShare = 0.2
)

// Run shows it and returns the verdict. When ctx ends early, the verdict is
// about what was seen so far.
func Run(ctx context.Context, opt Options) (Verdict, error) {
	if opt.Duration == 0 {
		opt.Duration = DefaultDuration
	}
	if opt.Duration < MinDuration || opt.Duration > MaxDuration {
		return Verdict{}, fmt.Errorf("duration: must be from %s to %s, not %s", MinDuration, MaxDuration, opt.Duration)
	}
	if opt.Logger == nil {
		opt.Logger = slog.New(slog.DiscardHandler)
	}
	d := &demo{opt: opt, store: embedded.Start()}
	v, err := d.run(ctx)
	return v, errors.Join(err, d.store.Close())
}

type demo struct {
	opt   Options
	store *embedded.Store
}

func (d *demo) run(ctx context.Context) (Verdict, error) {
	shapedTime := time.Duration(shapedShare * float64(d.opt.Duration))
	fmt.Fprintf(d.opt.Out, "Note: %s.\n", embedded.Warning)
	v := Verdict{Break: d.opt.Break}
	var err error
	// Even a run that does not finish shows its verdict: hence the slack.
	if v.Shaped, err = d.phase(ctx, "shaped by Penstock", shapedTime, shapedTime+d.opt.Duration/20, d.shaped); err != nil || ctx.Err() != nil {
		return v, err
	}
	d.store.Flush()
	rest := time.Duration(unshapedShare * float64(d.opt.Duration))
	v.Unshaped, err = d.phase(ctx, "the same jobs unshaped (plain asynq)", shapedTime, rest, d.unshaped)
	return v, err
}

// phase is the same jobs through one system, to providers of their own.
func (d *demo) phase(ctx context.Context, title string, work, most time.Duration, start starter) (seen []Seen, err error) {
	var shops []*fragile.Server
	defer func() {
		for _, s := range shops {
			err = errors.Join(err, s.Close())
		}
	}()
	for _, p := range providers() {
		s, err := fragile.Start("", p.shop())
		if err != nil {
			return nil, err
		}
		shops = append(shops, s)
	}
	counts := map[string]int{}
	for _, p := range providers() {
		// Without the last half second, so that it ends by itself.
		counts[p.name] = int(float64(p.perSecond) * (work.Seconds() - 0.5) / (1 + shaper.DefaultHeadroom.Seconds()))
	}
	stop, err := start(ctx, shops, counts)
	if err != nil {
		return nil, err
	}
	begun := time.Now()
	d.watch(ctx, title, shops, counts, most)
	watched := time.Since(begun)
	err = stop()
	for _, s := range shops {
		rep := s.Report()
		seen = append(seen, Seen{Report: rep, Jobs: counts[rep.Name], Watched: watched})
	}
	return seen, err
}

// starter enqueues so many jobs of each provider, starts what calls the
// shops, and returns what stops that.
type starter func(ctx context.Context, shops []*fragile.Server, counts map[string]int) (stop func() error, err error)

func (d *demo) shaped(ctx context.Context, shops []*fragile.Server, counts map[string]int) (func() error, error) {
	client, err := queue.NewClient(queue.Config{Redis: d.store.Client(), Logger: d.opt.Logger})
	if err != nil {
		return nil, err
	}
	for _, p := range providers() {
		if err := client.Publish(ctx, p.name, queue.Spec{}); err != nil {
			return nil, err
		}
	}
	for _, err := range client.EnqueueAll(ctx, theJobs(counts)) {
		if err != nil {
			return nil, fmt.Errorf("enqueue: %w", err)
		}
	}
	var stops []func() error
	stop := func() (err error) {
		for _, s := range stops {
			err = errors.Join(err, s())
		}
		return err
	}
	for range fleetSize {
		var configs []bench.ShapedConfig
		for i, p := range providers() {
			configs = append(configs, bench.ShapedConfig{Name: p.name, URL: shops[i].URL(), Limits: p.limits(d.opt.Break)})
		}
		rdb := d.store.NewClient()
		fleet, err := bench.StartShaped(rdb, d.opt.Logger, configs...)
		if err != nil {
			return nil, errors.Join(err, rdb.Close(), stop())
		}
		stops = append(stops, func() error { return errors.Join(fleet.Close(), rdb.Close()) })
	}
	return stop, nil
}

func (d *demo) unshaped(ctx context.Context, shops []*fragile.Server, counts map[string]int) (func() error, error) {
	rdb := d.store.NewClient()
	var servers []*bench.PlainServer
	stop := func() error {
		for _, s := range servers {
			s.Close()
		}
		return rdb.Close()
	}
	if err := enqueuePlain(ctx, rdb, counts); err != nil {
		return nil, errors.Join(err, stop())
	}
	for i, p := range providers() {
		s, err := bench.StartPlain(bench.PlainConfig{Redis: rdb, Queue: p.name, Concurrency: p.concurrency, URL: shops[i].URL() + "/"})
		if err != nil {
			return nil, errors.Join(err, stop())
		}
		servers = append(servers, s)
	}
	return stop, nil
}

func enqueuePlain(ctx context.Context, rdb redis.UniversalClient, counts map[string]int) error {
	put := bench.PlainEnqueuer(rdb)
	for j := range theJobs(counts) {
		if err := put(ctx, j.Provider, j.ID, j.Body); err != nil {
			return fmt.Errorf("enqueue: %w", err)
		}
	}
	return nil
}

// theJobs yields so many jobs of each provider, in the file's order, from the
// beginning again where the file is too short, with ids of their own.
func theJobs(counts map[string]int) iter.Seq[queue.Job] {
	return func(yield func(queue.Job) bool) {
		left, sum := map[string]int{}, 0
		for name, n := range counts {
			left[name], sum = n, sum+n
		}
		for lap := 1; sum > 0; lap++ {
			for line := range bytes.Lines(jobs.NDJSON) {
				j, err := api.DecodeJob(line)
				if err != nil {
					panic(err) // a file of this repository, checked by a test
				}
				if left[j.Provider] == 0 {
					continue
				}
				left[j.Provider]--
				sum--
				if lap > 1 {
					j.ID = fmt.Sprintf("%s-%d", j.ID, lap)
				}
				if !yield(j) || sum == 0 {
					return
				}
			}
		}
	}
}
