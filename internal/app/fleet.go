package app

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/penstock-io/penstock/internal/api"
	"github.com/penstock-io/penstock/internal/config"
	"github.com/penstock-io/penstock/internal/health"
	"github.com/penstock-io/penstock/internal/metrics"
	"github.com/penstock-io/penstock/queue"
	"github.com/penstock-io/penstock/shaper"
	"github.com/penstock-io/penstock/shaper/guard"
)

// maxForeign bounds how many gates are kept of providers that other
// configurations serve.
const maxForeign = 1024

// fleet is the api.Fleet of this Redis: the providers of the configuration and
// those that others published. Safe for several goroutines.
type fleet struct {
	rdb       redis.UniversalClient
	queue     *queue.Client
	namespace string
	waker     *shaper.Waker

	mu sync.Mutex
	// gates of the configuration, which their guards close, and of others.
	own, foreign map[string]*shaper.Gate
}

var _ api.Fleet = (*fleet)(nil)

func newFleet(rdb redis.UniversalClient, q *queue.Client, namespace string, w *shaper.Waker) *fleet {
	return &fleet{rdb: rdb, queue: q, namespace: namespace, waker: w, own: map[string]*shaper.Gate{}, foreign: map[string]*shaper.Gate{}}
}

// know adds a provider of the configuration.
func (f *fleet) know(name string, g *shaper.Gate) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.own[name] = g
}

// gate is a provider's gate; ErrUnknownProvider where nobody serves it. A
// foreign one is only looked at and told what to do, never opened: its limits
// are those of whoever serves it.
func (f *fleet) gate(ctx context.Context, name string) (*shaper.Gate, error) {
	f.mu.Lock()
	g := f.own[name]
	f.mu.Unlock()
	if g != nil {
		return g, nil
	}
	if _, err := f.queue.Spec(ctx, name); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if g := f.foreign[name]; g != nil {
		return g, nil
	}
	g, err := shaper.NewGate(shaper.GateConfig{Redis: f.rdb, Name: guard.QueueName(f.namespace, name), Waker: f.waker})
	if err != nil {
		return nil, err
	}
	if len(f.foreign) >= maxForeign {
		clear(f.foreign) // they hold no goroutine and no permit
	}
	f.foreign[name] = g
	return g, nil
}

// Providers lists all, by name. One that disappears meanwhile is left out.
func (f *fleet) Providers(ctx context.Context) ([]api.ProviderStatus, error) {
	names, err := f.queue.Providers(ctx)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	for name := range f.own {
		names = append(names, name)
	}
	f.mu.Unlock()
	slices.Sort(names)
	var out []api.ProviderStatus
	for _, name := range slices.Compact(names) {
		p, err := f.look(ctx, name)
		if errors.Is(err, queue.ErrUnknownProvider) {
			continue
		}
		if err != nil {
			return nil, err
		}
		out = append(out, p)
	}
	return out, nil
}

// Provider shows one, with what was observed of it.
func (f *fleet) Provider(ctx context.Context, name string) (api.ProviderStatus, error) {
	p, err := f.look(ctx, name)
	if err != nil {
		return api.ProviderStatus{}, err
	}
	o, err := health.Observe(ctx, f.rdb, guard.QueueName(f.namespace, name))
	if err != nil {
		return api.ProviderStatus{}, away(err)
	}
	p.Observed = observedOf(o)
	return p, nil
}

// observedOf is what operators see of what was observed; nil for nothing.
func observedOf(o health.Observed) *api.Observed {
	if o.To.IsZero() {
		return nil
	}
	return &api.Observed{
		From: o.From, To: o.To,
		Starts: o.Starts, Succeeded: o.OK, Refused: o.Throttled, Failed: o.Failed, TimedOut: o.Timeout,
		RateP50: round(o.RateP50), RateP95: round(o.RateP95), RateP99: round(o.RateP99), Accepted: round(o.Accepted),
		LatencyP50: round(o.LatencyP50.Seconds()), LatencyP95: round(o.LatencyP95.Seconds()), LatencyP99: round(o.LatencyP99.Seconds()),
		InFlight: round(o.RateP50 * o.LatencyP50.Seconds()),
	}
}

// look shows one as it stands now.
func (f *fleet) look(ctx context.Context, name string) (api.ProviderStatus, error) {
	g, err := f.gate(ctx, name)
	if err != nil {
		return api.ProviderStatus{}, err
	}
	s, err := g.Status(ctx)
	if err != nil {
		return api.ProviderStatus{}, away(err)
	}
	counts, err := f.queue.Counts(ctx, name)
	if err != nil {
		return api.ProviderStatus{}, err
	}
	asynqPaused, err := f.rdb.Exists(ctx, f.asynqPaused(name)).Result()
	if err != nil {
		return api.ProviderStatus{}, away(err)
	}
	spec, err := f.queue.Spec(ctx, name)
	if err != nil && !errors.Is(err, queue.ErrUnknownProvider) {
		return api.ProviderStatus{}, err
	}
	h, err := health.Read(ctx, f.rdb, g.Name())
	if err != nil {
		return api.ProviderStatus{}, away(err)
	}
	p := api.ProviderStatus{
		Health: healthOf(h, s.Limits),
		Name:   name, Limits: api.LimitsOf(s.Limits), InForce: s.Limits, Version: s.Version, InFlight: s.InFlight,
		Paused: s.Paused || asynqPaused > 0, HeldUntil: utc(s.HeldUntil), HeldReason: s.HeldReason, Cautious: s.Cautious,
		LearningUntil: utc(s.LearningUntil), Processes: s.Processes, Jobs: counts,
		Defaults: api.Defaults{MaxBody: spec.MaxBody, MaxCost: spec.MaxCost, Attempts: spec.Attempts},
	}
	if spec.MaxAge > 0 {
		p.Defaults.MaxAge = config.FormatDuration(spec.MaxAge)
	}
	if spec.Keep > 0 {
		p.Defaults.Keep = config.FormatDuration(spec.Keep)
	}
	return p, nil
}

// healthOf is what operators see of a provider's health; nil where there is
// nothing to see.
func healthOf(h health.Status, l shaper.Limits) *api.Health {
	if h.Mode == "" || h.State == "" {
		return nil
	}
	out := &api.Health{
		Adaptive: h.Mode, State: h.State, Factor: h.Factor, Ceiling: round(h.Ceiling), Concurrency: l.Concurrency,
		OpenUntil: utc(h.OpenUntil), Reason: h.Reason, ChangedAt: utc(h.Changed),
	}
	interval := l.Interval()
	if h.Mode == shaper.ControlOn {
		interval = max(interval, h.Interval)
		if h.InFlight > 0 && (l.Concurrency == 0 || h.InFlight < l.Concurrency) {
			out.Concurrency = h.InFlight
		}
	}
	if interval > 0 {
		out.Rate = round(1 / interval.Seconds())
	}
	return out
}

func round(v float64) float64 { return math.Round(v*1000) / 1000 }

// asynqPaused is asynq's own pause; either shuts the provider.
func (f *fleet) asynqPaused(name string) string {
	return "asynq:{" + guard.QueueName(f.namespace, name) + "}:paused"
}

// SetLimits changes a provider's limits for the whole fleet.
func (f *fleet) SetLimits(ctx context.Context, name string, l shaper.Limits) error {
	g, err := f.gate(ctx, name)
	if err != nil {
		return err
	}
	return away(g.SetLimits(ctx, l))
}

// Pause shuts the gate and asynq's queue.
func (f *fleet) Pause(ctx context.Context, name string) error {
	g, err := f.gate(ctx, name)
	if err != nil {
		return err
	}
	if err := g.Pause(ctx); err != nil {
		return away(err)
	}
	if err := f.queue.PauseQueue(ctx, name); err != nil && !errors.Is(err, queue.ErrFull) {
		return err
	}
	return nil // asynq's own pause is for asynqmon to see; the gate's is what counts
}

// Resume opens both, and ends any hold.
func (f *fleet) Resume(ctx context.Context, name string) error {
	g, err := f.gate(ctx, name)
	if err != nil {
		return err
	}
	if err := f.queue.ResumeQueue(ctx, name); err != nil {
		return err
	}
	return away(g.Resume(ctx))
}

// close ends the foreign gates; the others are their guards'.
func (f *fleet) close(ctx context.Context) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, g := range f.foreign {
		_ = g.Close(ctx) // nothing was acquired
	}
}

// ready says why jobs cannot be taken: the first provider that cannot.
func (f *fleet) ready(ctx context.Context) error {
	f.mu.Lock()
	names := make([]string, 0, len(f.own))
	for name := range f.own {
		names = append(names, name)
	}
	f.mu.Unlock()
	slices.Sort(names)
	for _, name := range names {
		if err := f.queue.Ready(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

// snapshot is what Prometheus sees of a provider.
func (f *fleet) snapshot(ctx context.Context, name string, used *meter) (metrics.Snapshot, error) {
	p, err := f.look(ctx, name)
	if err != nil {
		return metrics.Snapshot{}, err
	}
	jobs := make(map[string]int64, len(p.Jobs))
	for state, n := range p.Jobs {
		jobs[string(state)] = n
	}
	s := metrics.Snapshot{
		RateAllowed: p.InForce.Rate.PerSec(), RateUsed: used.perSecond(), Concurrency: int64(p.InForce.Concurrency),
		InFlight: int64(p.InFlight), Held: !p.HeldUntil.IsZero(), Paused: p.Paused, Jobs: jobs,
	}
	if h := p.Health; h != nil {
		s.Health, s.Factor, s.Ceiling, s.Concurrency = h.State, h.Factor, h.Ceiling, int64(h.Concurrency)
		if rate := p.InForce.Rate.PerSec(); rate == 0 || h.Rate < 0.9*rate { // else it is the headroom's
			s.RateAllowed = h.Rate
		}
	}
	return s, nil
}

// away names what a gate says of Redis; what is not a refusal of ours is taken
// for trouble with the store.
func away(err error) error {
	if err == nil || errors.Is(err, shaper.ErrBadLimit) || errors.Is(err, queue.ErrUnavailable) {
		return err
	}
	return &queue.UnavailableError{Err: fmt.Errorf("gate: %w", err)}
}

func utc(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return t.UTC()
}
