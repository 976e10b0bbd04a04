package metrics

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/penstock-io/penstock/breaker"
)

// Buckets: times in seconds, then numbers.
var (
	callBuckets   = []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}
	permitBuckets = []float64{.001, .005, .01, .025, .05, .1, .25, .5, 1, 5, 30, 120}
	waitBuckets   = []float64{.005, .025, .1, .5, 1, 5, 15, 60, 300, 900, 3600, 4 * 3600, 24 * 3600}
	gateBuckets   = []float64{.00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .5, 2}
	triesBuckets  = []float64{1, 2, 3, 4, 5, 8, 12, 20}
	sizeBuckets   = []float64{1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024}
)

// Metrics counts what it is told, in a registry of its own. Its methods are
// safe for several goroutines at once and do not block. Make it with New.
type Metrics struct {
	registry *prometheus.Registry
	watched  watched
	hooks    hookMetrics
	health   healthMetrics
	limits   limitMetrics

	attempts     *prometheus.CounterVec
	callTime     *prometheus.HistogramVec
	permitWait   *prometheus.HistogramVec
	jobWait      *prometheus.HistogramVec
	gateTime     *prometheus.HistogramVec
	gateErrors   *prometheus.CounterVec
	gateArrivals *prometheus.HistogramVec
	gateSettled  *prometheus.HistogramVec
	denied       *prometheus.CounterVec
	deferred     *prometheus.CounterVec
	retries      *prometheus.CounterVec
	finished     *prometheus.CounterVec
	jobAttempts  *prometheus.HistogramVec
	reclaimed    *prometheus.CounterVec
}

// New makes a Metrics with every series of Penstock and those of the Go
// runtime and the process.
func New() *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry()}
	m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))

	m.attempts = m.counter("penstock_attempts_total", "Calls made to the provider, by what they showed of it.", "outcome")
	m.callTime = m.histogram("penstock_call_duration_seconds", "Time of one call, from its start to the end of its answer.", callBuckets, "outcome")
	m.permitWait = m.histogram("penstock_permit_wait_seconds", "Time from asking the gate to getting a permit.", permitBuckets)
	m.jobWait = m.histogram("penstock_job_wait_seconds", "Time from a job's due time to the start of its call; delayed says whether it had been delayed or tried before.", waitBuckets, "delayed")
	m.gateTime = m.histogram("penstock_gate_request_duration_seconds", "Time of one request of the gate to Redis.", gateBuckets)
	m.gateErrors = m.counter("penstock_gate_request_errors_total", "Requests of the gate that Redis did not answer.")
	m.gateArrivals = m.histogram("penstock_gate_request_arrivals", "Arrivals carried by one request of the gate.", sizeBuckets)
	m.gateSettled = m.histogram("penstock_gate_request_settlements", "Settlements carried by one request of the gate.", sizeBuckets)
	m.denied = m.counter("penstock_gate_denials_total", "Arrivals at the gate that had to wait or were refused, by reason.", "reason")
	m.deferred = m.counter("penstock_deferrals_total", "Jobs put back without an attempt spent, by reason.", "reason")
	m.retries = m.counter("penstock_retries_total", "Jobs put back to be tried again, an attempt spent.")
	m.finished = m.counter("penstock_jobs_finished_total", "Jobs that became final, by their final state.", "state")
	m.jobAttempts = m.histogram("penstock_job_attempts", "Attempts of a job that became final.", triesBuckets)
	m.reclaimed = m.counter("penstock_jobs_reclaimed_total", "Jobs given back to the line that others lost, by cause.", "cause")
	m.watched.init(m.registry)
	m.hooks.init(m.registry)
	m.health.init(m.registry)
	m.limits.init(m.registry)
	return m
}

// counter and histogram register a vector whose first label is the provider.
func (m *Metrics) counter(name, help string, labels ...string) *prometheus.CounterVec {
	v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, append([]string{"provider"}, labels...))
	m.registry.MustRegister(v)
	return v
}

func (m *Metrics) histogram(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	v := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, append([]string{"provider"}, labels...))
	m.registry.MustRegister(v)
	return v
}

// Handler serves the metrics in the form that the scraper asks for.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		ErrorHandling:       promhttp.ContinueOnError,
		EnableOpenMetrics:   true,
		MaxRequestsInFlight: 4,
	})
}

// Attempt counts one call really made, its outcome and its time.
func (m *Metrics) Attempt(provider string, outcome breaker.Outcome, took time.Duration) {
	word := other
	if outcome >= breaker.OK && outcome <= breaker.Excluded {
		word = outcome.String()
	}
	m.attempts.WithLabelValues(provider, word).Inc()
	m.callTime.WithLabelValues(provider, word).Observe(took.Seconds())
}

// Waited is told how long an arrival at the gate waited for its permit.
func (m *Metrics) Waited(provider string, d time.Duration) {
	m.permitWait.WithLabelValues(provider).Observe(d.Seconds())
}

// Denied counts an arrival that had to wait or was refused.
func (m *Metrics) Denied(provider, reason string) {
	m.denied.WithLabelValues(provider, known(reason, denials)).Inc()
}

// GateRequest is told of each request of the gate to Redis: what it carried,
// how long it took, and its error.
func (m *Metrics) GateRequest(provider string, arrivals, settlements int, took time.Duration, err error) {
	m.gateTime.WithLabelValues(provider).Observe(took.Seconds())
	m.gateArrivals.WithLabelValues(provider).Observe(float64(arrivals))
	m.gateSettled.WithLabelValues(provider).Observe(float64(settlements))
	if err != nil {
		m.gateErrors.WithLabelValues(provider).Inc()
	}
}

// Started is told when a job's call begins: how long after its due time, and
// whether the job had been delayed or tried before.
func (m *Metrics) Started(provider string, waited time.Duration, delayed bool) {
	m.jobWait.WithLabelValues(provider, strconv.FormatBool(delayed)).Observe(max(waited, 0).Seconds())
}

// Settled counts a job that became final, and its attempts.
func (m *Metrics) Settled(provider, state string, attempts int) {
	m.finished.WithLabelValues(provider, known(state, finalStates)).Inc()
	m.jobAttempts.WithLabelValues(provider).Observe(float64(attempts))
}

// Deferred counts a job that will come back: a retry if an attempt is spent,
// else a deferral. A reason that is none of Penstock's own counts as "other".
func (m *Metrics) Deferred(provider, reason string, spent bool) {
	if spent {
		m.retries.WithLabelValues(provider).Inc()
		return
	}
	m.deferred.WithLabelValues(provider, known(reason, deferrals)).Inc()
}

// Reclaimed counts jobs given back to the line that others lost: their process
// died, their lease ran out, nobody held them.
func (m *Metrics) Reclaimed(provider, cause string, jobs int) {
	m.reclaimed.WithLabelValues(provider, known(cause, causes)).Add(float64(max(jobs, 0)))
}

// begin makes a provider's counters stand at zero, so that the first event is
// an increase that a query can see.
func (m *Metrics) begin(provider string) {
	for _, o := range breaker.Outcomes() {
		m.attempts.WithLabelValues(provider, o.String())
	}
	for _, state := range finalStates {
		m.finished.WithLabelValues(provider, state)
	}
	for _, v := range []*prometheus.CounterVec{m.gateErrors, m.retries, m.watched.errors} {
		v.WithLabelValues(provider)
	}
	m.health.begin(provider)
}

// forget drops a provider's series.
func (m *Metrics) forget(provider string) {
	label := prometheus.Labels{"provider": provider}
	m.health.changes.DeletePartialMatch(label)
	for _, v := range []*prometheus.CounterVec{m.attempts, m.gateErrors, m.denied, m.deferred, m.retries, m.finished, m.reclaimed, m.watched.errors} {
		v.DeletePartialMatch(label)
	}
	for _, v := range []*prometheus.HistogramVec{m.callTime, m.permitWait, m.jobWait, m.gateTime, m.gateArrivals, m.gateSettled, m.jobAttempts} {
		v.DeletePartialMatch(label)
	}
}
