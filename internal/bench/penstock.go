package bench

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/penstock-io/penstock/queue/worker"
	"github.com/penstock-io/penstock/shaper"
	"github.com/penstock-io/penstock/shaper/guard"
)

// ShapedConfig is one shaped provider of a Shaped.
type ShapedConfig struct {
	Name string
	// URL is the provider's base URL. Not needed with a Handler.
	URL     string
	Headers map[string]string
	Limits  shaper.Limits
	// Concurrency is the most jobs in hand; zero is the worker's default.
	Concurrency int
	// Handler instead of the HTTP call. Nil: the call.
	Handler worker.Handler
}

// Shaped is Penstock's workers in this process, one per provider, put together
// from the public packages as a user would.
type Shaped struct {
	cancel context.CancelFunc
	guards []*guard.Guard
	all    sync.WaitGroup
	mu     sync.Mutex
	err    error
}

// StartShaped starts the workers. Close them before their Redis client.
func StartShaped(rdb redis.UniversalClient, log *slog.Logger, configs ...ShapedConfig) (*Shaped, error) {
	ctx, cancel := context.WithCancel(context.Background())
	s := &Shaped{cancel: cancel}
	waker := shaper.NewWaker(rdb)
	for _, cfg := range configs {
		g := guard.New(guard.Config{Redis: rdb, Provider: cfg.Name, Limits: cfg.Limits, Waker: waker, Logger: log})
		s.guards = append(s.guards, g)
		wc := worker.Config{Redis: rdb, Guard: g, Handler: cfg.Handler, Concurrency: cfg.Concurrency, Logger: log}
		if cfg.Handler == nil {
			wc.HTTP = &worker.HTTP{BaseURL: cfg.URL, Headers: cfg.Headers, AllowPrivate: true}
		}
		w, err := worker.New(wc)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("%s: %w", cfg.Name, err), s.Close())
		}
		s.all.Go(func() { s.failed(w.Run(ctx)) })
	}
	return s, nil
}

func (s *Shaped) failed(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = errors.Join(s.err, err)
}

// Close stops the workers in order and returns what went wrong with any of
// them, from the start on.
func (s *Shaped) Close() error {
	s.cancel()
	s.all.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	for _, g := range s.guards {
		s.failed(g.Close(ctx))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// penstockSide is a worker process of ours.
type penstockSide struct {
	client *redis.Client
	shaped *Shaped
}

func startPenstock(spec workerSpec, count *counter) (side, error) {
	var configs []ShapedConfig
	for _, p := range spec.Providers {
		cfg := ShapedConfig{Name: p.Name, URL: p.URL, Headers: map[string]string{processHeader: spec.Process},
			Limits: shaper.Limits{Concurrency: p.Concurrency}, Concurrency: spec.InHand}
		if p.Rate != "" {
			rate, err := shaper.ParseRate(p.Rate)
			if err != nil {
				return nil, err
			}
			cfg.Limits.Rate = rate
		}
		if spec.Nothing {
			cfg.Handler = func(context.Context, *worker.Job) error { count.count(); return nil }
		}
		configs = append(configs, cfg)
	}
	s := &penstockSide{client: redis.NewClient(&redis.Options{Addr: spec.Redis})}
	// Warnings would be about this Redis, which is without persistence on purpose.
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	var err error
	if s.shaped, err = StartShaped(s.client, log, configs...); err != nil {
		return nil, errors.Join(err, s.client.Close())
	}
	return s, nil
}

func (s *penstockSide) stop() error { return errors.Join(s.shaped.Close(), s.client.Close()) }
