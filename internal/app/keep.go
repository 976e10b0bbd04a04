package app

import (
	"context"
	"time"
)

// keep publishes the providers again now and then, so that they come back after
// a loss of data, and sweeps their queues, until ctx ends.
func (a *app) keep(ctx context.Context) {
	tick := time.NewTicker(keepEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for _, p := range a.cfg.Providers {
			one, cancel := context.WithTimeout(ctx, keepEvery)
			if err := a.queue.Publish(one, p.Name, spec(p)); err != nil && ctx.Err() == nil {
				a.log.Warn("a provider could not be published again", "provider", p.Name, "error", err)
			}
			cancel()
		}
	}
}
