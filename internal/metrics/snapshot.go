package metrics

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/penstock-io/penstock/shaper/guard"
)

// readTimeout bounds the reading of one provider's snapshot at a scrape.
const readTimeout = 2 * time.Second

// readsAtOnce bounds how many snapshots are read at the same time: a scrape
// must not take all of the pool's connections to Redis.
const readsAtOnce = 16

// Snapshot is how a provider stands at the moment of a scrape.
type Snapshot struct {
	// RateAllowed is the rate in force, in calls a second. Zero: there is no
	// limit, and no series.
	RateAllowed float64
	// RateUsed is the rate of the calls made lately, in calls a second.
	RateUsed float64
	// Concurrency is how many calls may be in flight. Zero: there is no limit,
	// and no series.
	Concurrency int64
	// InFlight is how many are, over the whole fleet.
	InFlight int64
	// Held and Paused say why nobody goes.
	Held, Paused bool
	// Health is the word for how it stands, one of guard.States; empty: nothing
	// is known, and no series.
	Health string
	// Factor is the share of the rate that failures leave, from (0, 1]; Ceiling
	// what refusals left of the rate, in calls a second. Zero: no series.
	Factor, Ceiling float64
	// Jobs is the backlog by state: waiting, delayed, retrying, running. A state
	// that is missing counts as zero; others are left out.
	Jobs map[string]int64
}

// Watch makes the provider part of every scrape: read is then asked how it
// stands. It must return when its context ends, must be safe for several
// goroutines at once, and an error of it leaves the provider's figures out of
// that scrape and is counted. Watching a provider again replaces read. The
// function returned ends it and drops the provider's series.
func (m *Metrics) Watch(provider string, read func(context.Context) (Snapshot, error)) (stop func()) {
	this := &watch{read: read}
	m.watched.mu.Lock()
	m.watched.by[provider] = this
	m.begin(provider)
	m.watched.mu.Unlock()
	return func() {
		m.watched.mu.Lock()
		defer m.watched.mu.Unlock()
		if m.watched.by[provider] == this {
			delete(m.watched.by, provider)
			m.forget(provider)
		}
	}
}

type watch struct {
	read func(context.Context) (Snapshot, error)
}

// watched are the providers to be read at a scrape: a prometheus.Collector.
type watched struct {
	mu     sync.Mutex
	by     map[string]*watch
	errors *prometheus.CounterVec

	rateAllowed, rateUsed, concurrency, inFlight, held, paused, jobs *prometheus.Desc
	health, factor, ceiling                                          *prometheus.Desc
}

func (w *watched) init(registry *prometheus.Registry) {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, append([]string{"provider"}, labels...), nil)
	}
	w.by = map[string]*watch{}
	w.rateAllowed = desc("penstock_rate_allowed", "Calls a second that are allowed at the moment; no series where there is no limit.")
	w.rateUsed = desc("penstock_rate_used", "Calls a second that were made lately.")
	w.concurrency = desc("penstock_concurrency_allowed", "Calls in flight that are allowed; no series where there is no limit.")
	w.inFlight = desc("penstock_calls_in_flight", "Calls in flight, over the whole fleet.")
	w.held = desc("penstock_held", "1 while the provider is held and nobody may call it.")
	w.paused = desc("penstock_paused", "1 while an operator has paused the provider.")
	w.jobs = desc("penstock_jobs", "Jobs that are not final, by state.", "state")
	w.health = desc("penstock_health", "1 for the state that the provider is in, 0 for the others.", "state")
	w.factor = desc("penstock_health_factor", "Share of the rate that the provider's failures leave; 1: all.")
	w.ceiling = desc("penstock_health_ceiling", "Calls a second that the provider's refusals leave; no series where there are none.")
	w.errors = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "penstock_snapshot_errors_total", Help: "Scrapes for which a provider's figures could not be read.",
	}, []string{"provider"})
	registry.MustRegister(w, w.errors)
}

// Describe implements prometheus.Collector.
func (w *watched) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{w.rateAllowed, w.rateUsed, w.concurrency, w.inFlight, w.held, w.paused, w.jobs, w.health, w.factor, w.ceiling} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (w *watched) Collect(out chan<- prometheus.Metric) {
	w.mu.Lock()
	by := maps.Clone(w.by)
	w.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), readTimeout)
	defer cancel()
	var reading sync.WaitGroup
	places := make(chan struct{}, readsAtOnce)
	for _, provider := range slices.Sorted(maps.Keys(by)) {
		places <- struct{}{}
		reading.Go(func() {
			defer func() { <-places }()
			s, err := by[provider].read(ctx)
			if err != nil {
				w.failed(provider, by[provider])
				return
			}
			w.write(out, provider, s)
		})
	}
	reading.Wait()
}

// failed counts an error, unless the provider was dropped in the meantime.
func (w *watched) failed(provider string, which *watch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.by[provider] == which {
		w.errors.WithLabelValues(provider).Inc()
	}
}

func (w *watched) write(out chan<- prometheus.Metric, provider string, s Snapshot) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, append([]string{provider}, labels...)...)
	}
	if s.RateAllowed > 0 {
		gauge(w.rateAllowed, s.RateAllowed)
	}
	if s.Concurrency > 0 {
		gauge(w.concurrency, float64(s.Concurrency))
	}
	gauge(w.rateUsed, s.RateUsed)
	gauge(w.inFlight, float64(s.InFlight))
	gauge(w.held, oneIf(s.Held))
	gauge(w.paused, oneIf(s.Paused))
	if s.Health != "" {
		for _, state := range guard.States() {
			gauge(w.health, oneIf(s.Health == state), state)
		}
	}
	if s.Factor > 0 {
		gauge(w.factor, s.Factor)
	}
	if s.Ceiling > 0 {
		gauge(w.ceiling, s.Ceiling)
	}
	for _, state := range openStates {
		gauge(w.jobs, float64(s.Jobs[state]), state)
	}
}

func oneIf(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
