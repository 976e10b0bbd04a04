// Package app puts the rooms together: configuration, Redis, guards, workers,
// API; it starts them in order, and stops them in the order that loses nothing.
// It also keeps the architecture: its tests say which package may import which,
// and why.
//
// Start: the address to listen on, the store (a few tries, then a clear error),
// the providers' specs and limits, workers, API. Stop: the API takes no more;
// workers stop as queue/worker says (no more jobs, waiting ones back to the
// line, calls under way may end); what the guards settled is stored; then the
// connections close. [Serve] does all of it.
package app
