package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock-io/penstock/internal/api"
	"github.com/penstock-io/penstock/internal/config"
	"github.com/penstock-io/penstock/internal/metrics"
	"github.com/penstock-io/penstock/queue"
	"github.com/penstock-io/penstock/queue/worker"
	"github.com/penstock-io/penstock/shaper"
	"github.com/penstock-io/penstock/shaper/guard"
	"github.com/penstock-io/penstock/webhooks"
)

// Role says what a process does.
type Role string

// The roles.
const (
	RoleAll    Role = "all"    // API and workers
	RoleAPI    Role = "api"    // takes jobs, shows and changes, calls nobody
	RoleWorker Role = "worker" // calls providers; serves health and metrics where it is told to listen
)

// Roles are all roles.
func Roles() []Role { return []Role{RoleAll, RoleAPI, RoleWorker} }

const (
	// DefaultGrace is how long calls under way may go on at a stop. Below the 30 s
	// after which Kubernetes kills.
	DefaultGrace = 20 * time.Second
	// requestsWait is how long requests under way may take at a stop.
	requestsWait = 5 * time.Second
	// settleWait is how long what calls came to may take to be stored at a stop.
	settleWait = 3 * time.Second
	// keepEvery is how often specs are published again and queues are swept.
	keepEvery = 30 * time.Second
)

// Options of Serve.
type Options struct {
	// Role. Empty: RoleAll.
	Role Role
	// Listen is host:port to serve HTTP at. Empty: the file's; for RoleWorker none.
	Listen string
	// Grace is how long calls under way may go on at a stop. Zero: DefaultGrace.
	Grace time.Duration
	// Started is told once everything runs: where HTTP is served (nil: nowhere).
	// Nil: nobody.
	Started func(addr net.Addr)
	// Logger. Nil: slog.Default().
	Logger *slog.Logger
}

// Serve runs until ctx ends, and returns nil after a stop in order. Any error
// is one that the person who starts it must act on: the address is taken, Redis
// does not answer or is unfit, a name that another installation uses.
func Serve(ctx context.Context, cfg *config.Config, opt Options) error {
	opt.Role = cmp.Or(opt.Role, RoleAll)
	opt.Grace = cmp.Or(opt.Grace, DefaultGrace)
	if opt.Logger == nil {
		opt.Logger = slog.Default()
	}
	if !slices.Contains(Roles(), opt.Role) {
		return fmt.Errorf("role %q: must be all, api or worker", opt.Role)
	}
	ln, err := listen(cfg, opt)
	if err != nil {
		return err
	}
	st, err := openStore(cfg.Redis, opt.Logger)
	if err != nil {
		closeListener(ln)
		return err
	}
	a := &app{cfg: cfg, opt: opt, log: opt.Logger, store: st, metrics: metrics.New(), meters: &meters{}}
	err = a.run(ctx, ln)
	return errors.Join(ended(ctx, err), a.close())
}

// ended drops the error of something that was stopped while it started.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// app is what runs.
type app struct {
	cfg     *config.Config
	opt     Options
	log     *slog.Logger
	store   *store
	metrics *metrics.Metrics
	meters  *meters

	queue    *queue.Client
	hooks    *hooks
	door     *door
	waker    *shaper.Waker
	guards   []*guard.Guard
	workers  []*worker.Worker
	fleet    *fleet
	queues   *api.Queues
	sweepers map[string]*queue.Sweeper // of keep's goroutine
	unwatch  []func()
	stopping atomic.Bool
}

// run starts everything and returns when it has stopped, or could not start.
func (a *app) run(ctx context.Context, ln net.Listener) error {
	web, err := a.doors()
	if err != nil {
		closeListener(ln)
		return err
	}
	faults := make(chan error, len(a.cfg.Providers)+1)
	var srv *webServer
	if ln != nil {
		srv = startWeb(ln, a.door.handler(web), a.log, faults)
	}
	// With a spool webhooks are taken in from now on, whether Redis answers or not.
	if err := errors.Join(a.store.await(ctx, a.hooks.spools()), ctx.Err()); err != nil {
		srv.stop(requestsWait)
		return err
	}
	if err := a.build(ctx); err != nil {
		srv.stop(requestsWait)
		return err
	}
	web.open()
	var all sync.WaitGroup
	defer all.Wait()
	work, stopWork := context.WithCancel(context.WithoutCancel(ctx))
	defer stopWork()

	all.Go(func() { a.keep(work) })
	for _, w := range a.workers {
		all.Go(func() { faults <- ended(work, w.Run(work)) })
	}
	if ln != nil {
		a.log.Info("listening", "addr", ln.Addr().String(), "role", a.opt.Role)
	}
	if a.opt.Started != nil {
		a.opt.Started(addrOf(ln))
	}
	var fault error
	select {
	case <-ctx.Done():
		a.log.Info("stopping", "grace", a.opt.Grace)
	case fault = <-faults:
	}
	a.stopping.Store(true)
	srv.stop(requestsWait)
	stopWork()
	all.Wait()
	// A worker that could not start may not be the first to say so.
	for range len(faults) {
		fault = errors.Join(fault, <-faults)
	}
	return fault
}

// doors makes what jobs come in by, before the store has answered.
func (a *app) doors() (*front, error) {
	var err error
	if a.queue, err = queue.NewClient(queue.Config{Redis: a.store.rdb, Namespace: a.cfg.Redis.Namespace, Logger: a.log}); err != nil {
		return nil, err
	}
	a.waker = shaper.NewWaker(a.store.rdb)
	a.fleet = newFleet(a.store.rdb, a.queue, a.cfg.Redis.Namespace, a.waker)
	a.hooks = &hooks{}
	if a.opt.Role != RoleWorker {
		if a.hooks, err = openHooks(a.cfg, a.queue, a.metrics, a.log); err != nil {
			return nil, err
		}
	}
	web, err := a.web()
	if err != nil {
		return nil, err
	}
	a.door = &door{}
	if a.opt.Role != RoleWorker {
		if a.door, err = openDoor(a.cfg, a.store.rdb, web.Caller, a.metrics, a.log); err != nil {
			return nil, err
		}
	}
	return &front{hooks: a.hooks, api: web, log: a.log}, nil
}

// build makes the rooms of this role that need the store.
func (a *app) build(ctx context.Context) error {
	for _, p := range a.cfg.Providers {
		if err := a.provider(ctx, p); err != nil {
			return fmt.Errorf("provider %s: %w", p.Name, err)
		}
	}
	return nil
}

// provider makes a provider's guard and, where this process calls it, its worker.
func (a *app) provider(ctx context.Context, p config.Provider) error {
	watch := &observer{Metrics: a.metrics, meter: a.meters.of(p.Name)}
	adaptive, err := guard.ParseAdaptive(p.Adaptive)
	if err != nil {
		return err
	}
	g := guard.New(guard.Config{
		Redis: a.store.rdb, Provider: p.Name, Namespace: a.cfg.Redis.Namespace, Limits: p.Limits, Timeout: p.Timeout,
		CredentialsTag: credentialsTag(p), Waker: a.waker, Observer: watch, Logger: a.log,
		Adaptive: adaptive, Law: p.Law, Budget: p.Budget,
	})
	if err := g.Err(); err != nil {
		return err
	}
	a.guards = append(a.guards, g)
	a.fleet.know(p.Name, g.Gate())
	// First the name: limits are not written into another installation's gate.
	if err := a.queue.Publish(ctx, p.Name, spec(p, a.limits(p))); errors.Is(err, queue.ErrFull) {
		a.log.Error("redis is full: what producers are told is as it was; jobs are worked off", "provider", p.Name, "error", err)
	} else if err != nil {
		return err
	}
	if err := g.Open(ctx); err != nil {
		return err
	}
	a.unwatch = append(a.unwatch, a.metrics.Watch(p.Name, func(ctx context.Context) (metrics.Snapshot, error) {
		return a.fleet.snapshot(ctx, p.Name, watch.meter)
	}))
	if a.opt.Role == RoleAPI {
		return nil
	}
	http, err := httpOf(p)
	if err != nil {
		return err
	}
	w, err := worker.New(worker.Config{
		Redis: a.store.rdb, Provider: p.Name, Namespace: a.cfg.Redis.Namespace, Guard: g, HTTP: http,
		Retry: worker.Retry{Attempts: p.Retry.Attempts, Base: p.Retry.Base, Max: p.Retry.Max, MaxAge: p.Retry.MaxAge},
		Keep:  p.Keep, Spec: queue.Spec{MaxBody: p.MaxBody}, Checked: true, Grace: a.opt.Grace, Observer: watch, Logger: a.log,
	})
	if err != nil {
		return err
	}
	a.workers = append(a.workers, w)
	return nil
}

// limits are those last seen in force; before that the configuration's.
func (a *app) limits(p config.Provider) shaper.Limits {
	for _, g := range a.guards {
		if g.Provider() == p.Name {
			return g.Gate().Limits()
		}
	}
	return p.Limits
}

// spec is what producers must know of a provider, under the limits in force.
func spec(p config.Provider, l shaper.Limits) queue.Spec {
	return queue.Spec{
		MaxBody: p.MaxBody, MaxCost: l.MaxCost(), Attempts: p.Retry.Attempts, MaxAge: p.Retry.MaxAge, Keep: p.Keep,
	}
}

func httpOf(p config.Provider) (*worker.HTTP, error) {
	h := &worker.HTTP{BaseURL: p.BaseURL, Headers: reveal(p.Headers), Timeout: p.Timeout, AllowPrivate: p.AllowPrivate, Again: p.Retry.Again}
	if len(p.Sign) == 0 {
		return h, nil
	}
	var err error
	h.Prepare, err = webhooks.SignCalls(p.Sign...)
	return h, err
}

func reveal(h map[string]config.Secret) map[string]string {
	out := make(map[string]string, len(h))
	for k, v := range h {
		out[k] = v.Reveal()
	}
	return out
}

// close ends what run left: guards store what they settled, then the
// connections close.
func (a *app) close() error {
	for _, stop := range a.unwatch {
		stop()
	}
	ctx, cancel := context.WithTimeout(context.Background(), settleWait)
	defer cancel()
	var errs []error
	if a.hooks != nil {
		errs = append(errs, a.hooks.close())
	}
	for _, g := range a.guards {
		if err := g.Close(ctx); err != nil {
			a.log.Warn("not everything was stored; leases run out by themselves", "provider", g.Provider(), "error", err)
		}
	}
	if a.fleet != nil {
		a.fleet.close(ctx)
	}
	if a.queues != nil {
		errs = append(errs, a.queues.Close())
	}
	if a.door != nil {
		errs = append(errs, a.door.close())
	}
	return errors.Join(append(errs, a.store.close())...)
}
