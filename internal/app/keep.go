package app

import (
	"context"
	"time"

	"github.com/penstock-io/penstock/internal/config"
	"github.com/penstock-io/penstock/queue"
)

// keep tends the providers now and then until ctx ends.
func (a *app) keep(ctx context.Context) {
	tick := time.NewTicker(keepEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			a.tend(ctx)
		}
	}
}

// tend publishes each provider again, so that it comes back after a loss of
// data, and, where this process works, sweeps its queue: forgets final jobs
// after their keep, and finds what lies in no lane.
func (a *app) tend(ctx context.Context) {
	for _, p := range a.cfg.Providers {
		one, cancel := context.WithTimeout(ctx, keepEvery)
		err := a.queue.Publish(one, p.Name, spec(p, a.limits(p)))
		if err == nil && a.opt.Role != RoleAPI {
			err = a.sweep(one, p)
		}
		cancel()
		if err != nil && ctx.Err() == nil {
			a.log.Warn("a provider's queue could not be tended; it is tried again", "provider", p.Name, "error", err)
		}
	}
}

func (a *app) sweep(ctx context.Context, p config.Provider) error {
	s := a.sweepers[p.Name]
	if s == nil {
		var err error
		if s, err = a.queue.NewSweeper(p.Name); err != nil {
			return err
		}
		if a.sweepers == nil {
			a.sweepers = map[string]*queue.Sweeper{}
		}
		a.sweepers[p.Name] = s
	}
	done, err := s.Sweep(ctx, p.Keep)
	if done.Adopted+done.Stray+done.Bodies > 0 {
		a.log.Info("swept", "provider", p.Name, "adopted", done.Adopted, "stray", done.Stray, "bodies", done.Bodies)
	}
	return err
}
