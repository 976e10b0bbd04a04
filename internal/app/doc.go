// Package app puts the rooms together: configuration, Redis, guards, workers,
// API; it starts them in order, and stops them in the order that loses nothing.
// It also keeps the architecture: its tests say which package may import which,
// and why.
//
// Start: the address to listen on, which webhooks with a spool are taken in at
// from then on; the store (a few tries, then a clear error; with a spool it is
// waited for), the providers' specs and limits, API, workers. Stop: the API and
// webhooks take no more; workers stop as queue/worker says (no more jobs, waiting ones back to the
// line, calls under way may end); what the guards settled is stored; then the
// connections close. [Serve] does all of it.
package app
