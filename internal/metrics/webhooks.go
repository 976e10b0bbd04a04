package metrics

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/penstock-io/penstock/webhooks"
)

// ackBuckets are of the time until a sender is answered: senders give up after
// 3 to 30 s.
var ackBuckets = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2, 5}

// hookMetrics are those of deliveries taken in: a webhooks.Observer.
type hookMetrics struct {
	registry                                          *prometheus.Registry
	deliveries, refusals, matched, received, replayed *prometheus.CounterVec
	answerTime                                        *prometheus.HistogramVec
	spoolDeliveries, spoolBytes, spoolMax             prometheus.Gauge
}

func (h *hookMetrics) init(registry *prometheus.Registry) {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, append([]string{"webhook"}, labels...))
		registry.MustRegister(v)
		return v
	}
	h.registry = registry
	h.deliveries = counter("penstock_webhook_deliveries_total", "Deliveries answered, by what became of them: accepted, duplicate, spooled, challenged, refused.", "result")
	h.refusals = counter("penstock_webhook_refusals_total", "Deliveries refused, by reason.", "reason")
	h.matched = counter("penstock_webhook_signatures_total", "Genuine deliveries, by the label of the secret that they were signed with.", "secret")
	h.received = counter("penstock_webhook_received_bytes_total", "Bytes of bodies that were read.")
	h.replayed = counter("penstock_webhook_replayed_total", "Deliveries that left the spool: accepted, duplicate, or refused where the queue never takes them.", "result")
	h.answerTime = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "penstock_webhook_answer_duration_seconds", Help: "Time from a delivery's arrival to its answer.", Buckets: ackBuckets,
	}, []string{"webhook", "result"})
	registry.MustRegister(h.answerTime)
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	}
	h.spoolDeliveries = gauge("penstock_webhook_spool_deliveries", "Deliveries that wait on disk for Redis.")
	h.spoolBytes = gauge("penstock_webhook_spool_bytes", "Bytes of the spool on disk.")
	h.spoolMax = gauge("penstock_webhook_spool_max_bytes", "Bytes that the spool may take on disk.")
}

// WatchWebhook makes a webhook's counters stand at zero, so that the first
// event is an increase that a query can see.
func (m *Metrics) WatchWebhook(name string) {
	for _, r := range webhooks.Results() {
		m.hooks.deliveries.WithLabelValues(name, string(r))
	}
	for _, r := range webhooks.Reasons() {
		m.hooks.refusals.WithLabelValues(name, string(r))
	}
	m.hooks.received.WithLabelValues(name)
}

// WatchSpool shows the spool's figures, and how many bytes it may take. Call it
// once, before the spool is opened.
func (m *Metrics) WatchSpool(maxBytes int64) {
	h := &m.hooks
	h.registry.MustRegister(h.spoolDeliveries, h.spoolBytes, h.spoolMax)
	h.spoolMax.Set(float64(maxBytes))
}

// WebhookDelivery counts one request.
func (m *Metrics) WebhookDelivery(webhook string, d webhooks.Delivery) {
	h := &m.hooks
	result := resultWord(d.Result)
	h.deliveries.WithLabelValues(webhook, result).Inc()
	h.answerTime.WithLabelValues(webhook, result).Observe(d.Took.Seconds())
	h.received.WithLabelValues(webhook).Add(float64(max(d.Bytes, 0)))
	if d.Result == webhooks.Refused {
		h.refusals.WithLabelValues(webhook, reasonWord(d.Reason)).Inc()
	}
	if d.Secret != "" {
		h.matched.WithLabelValues(webhook, d.Secret).Inc()
	}
}

// WebhookSpool is told the spool's size.
func (m *Metrics) WebhookSpool(events int, bytes int64) {
	m.hooks.spoolDeliveries.Set(float64(events))
	m.hooks.spoolBytes.Set(float64(bytes))
}

// WebhookReplayed counts a delivery that left the spool.
func (m *Metrics) WebhookReplayed(webhook string, r webhooks.Result) {
	m.hooks.replayed.WithLabelValues(webhook, resultWord(r)).Inc()
}

// resultWord and reasonWord keep words that are in no list from making series.
func resultWord(r webhooks.Result) string {
	if slices.Contains(webhooks.Results(), r) {
		return string(r)
	}
	return other
}

func reasonWord(r webhooks.Reason) string {
	if slices.Contains(webhooks.Reasons(), r) {
		return string(r)
	}
	return other
}
