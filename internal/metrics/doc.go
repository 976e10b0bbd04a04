// Package metrics shows Penstock to Prometheus.
//
// It is an adapter: the rooms know small Observer interfaces, [Metrics]
// implements them, and nobody else imports Prometheus. What happens is counted
// as it happens; what stands (backlog, rates, calls in flight) is read from its
// owner at each scrape, through the function given to [Metrics.Watch].
//
// The labels are the provider's name and words from fixed lists. A key, a job's
// id, a path or a text that somebody else may choose is never a label.
//
// [New] is where to begin; names.go lists the words, snapshot.go the figures
// that are read at scrape.
package metrics
