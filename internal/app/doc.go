// Package app puts the rooms together: configuration, Redis, guards, workers,
// API; it starts them in order, and stops them in the order that loses nothing.
// It also keeps the architecture: its tests say which package may import which,
// and why.
package app
