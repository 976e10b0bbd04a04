package metrics

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/penstock-io/penstock/shaper/guard"
)

// healthMetrics counts how a provider's state changes. How it stands now is in
// its Snapshot.
type healthMetrics struct{ changes *prometheus.CounterVec }

func (h *healthMetrics) init(registry *prometheus.Registry) {
	h.changes = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "penstock_health_changes_total",
		Help: "Changes of a provider's state, by the state it came to; shadow says that nothing was changed. Counted by one process of the fleet.",
	}, []string{"provider", "state", "shadow"})
	registry.MustRegister(h.changes)
}

func (h *healthMetrics) begin(provider string) {
	for _, state := range guard.States() {
		h.changes.WithLabelValues(provider, state, "false")
	}
}

// Changed counts a change of the provider's state.
func (m *Metrics) Changed(provider string, c guard.Change) {
	m.health.changes.WithLabelValues(provider, known(c.To, guard.States()), strconv.FormatBool(c.Shadow)).Inc()
}
