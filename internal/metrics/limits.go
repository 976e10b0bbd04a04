package metrics

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/penstock-io/penstock/shaper"
	"github.com/penstock-io/penstock/shaper/limithttp"
)

// decideBuckets are of the delay that the door adds to a request.
var decideBuckets = []float64{.00005, .0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, 1}

// limitMetrics are those of the door: a limithttp.Observer.
type limitMetrics struct {
	registry  *prometheus.Registry
	rules     []string
	decisions *prometheus.CounterVec
	away      *prometheus.CounterVec
	took      prometheus.Histogram
}

var (
	outcomes = []limithttp.Outcome{limithttp.Allowed, limithttp.Refused, limithttp.WouldRefuse, limithttp.Blocked, limithttp.DeniedByList, limithttp.PassedByList}
	// aways are who decides while the store is away.
	aways = []shaper.Source{shaper.FromOpen, shaper.FromClosed, shaper.FromLocal}
)

func (l *limitMetrics) init(registry *prometheus.Registry) {
	l.registry = registry
	l.decisions = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "penstock_limit_decisions_total", Help: "Decisions of the door, by rule and outcome: allowed, refused, would_refuse (shadows), blocked; denied and passed by list.",
	}, []string{"rule", "outcome"})
	l.away = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "penstock_limit_store_away_total", Help: "Decisions of the door that were made without Redis, by rule and how: open, closed, local.",
	}, []string{"rule", "by"})
	l.took = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "penstock_limit_decision_duration_seconds", Help: "Time that the door added to a request.", Buckets: decideBuckets,
	})
	registry.MustRegister(l.decisions, l.away)
}

// WatchDoor names the door's rules, and makes their counters stand at zero, so
// that the first event is an increase that a query can see. Call it once,
// before anything is decided: other rules than these count as "other".
func (m *Metrics) WatchDoor(rules []string) {
	l := &m.limits
	l.rules = slices.Clone(rules)
	l.registry.MustRegister(l.took)
	for _, rule := range rules {
		for _, o := range []limithttp.Outcome{limithttp.Allowed, limithttp.Refused} {
			l.decisions.WithLabelValues(rule, string(o))
		}
		for _, by := range aways {
			l.away.WithLabelValues(rule, string(by))
		}
	}
}

// LimitDecided counts a decision of the door.
func (m *Metrics) LimitDecided(rule string, o limithttp.Outcome, by shaper.Source) {
	l := &m.limits
	if rule != "deny" && rule != "allow" {
		rule = known(rule, l.rules)
	}
	word := other
	if slices.Contains(outcomes, o) {
		word = string(o)
	}
	l.decisions.WithLabelValues(rule, word).Inc()
	if slices.Contains(aways, by) {
		l.away.WithLabelValues(rule, string(by)).Inc()
	}
}

// LimitTook is told how long the door delayed a request.
func (m *Metrics) LimitTook(d time.Duration) { m.limits.took.Observe(d.Seconds()) }
