package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/penstock-io/penstock/internal/config"
	"github.com/penstock-io/penstock/queue"
	"github.com/penstock-io/penstock/queue/embedded"
)

// storeTries is how often, and storeWait how long at first, a Redis that does
// not answer is waited for at start: about 6 s, for containers that start
// together. With a spool it is waited for without an end.
const (
	storeTries   = 5
	storeWait    = 400 * time.Millisecond
	storeMaxWait = 3 * time.Second
)

// store is the connection to Redis, or the store in this process.
type store struct {
	rdb      redis.UniversalClient
	embedded *embedded.Store
	cfg      config.Redis
	log      *slog.Logger
}

// openStore makes the client, which connects at its first command.
func openStore(cfg config.Redis, log *slog.Logger) (*store, error) {
	s := &store{cfg: cfg, log: log}
	if cfg.Embedded {
		s.embedded = embedded.Start()
		s.rdb = s.embedded.Client()
		log.Warn(embedded.Warning)
		return s, nil
	}
	var err error
	if s.rdb, err = cfg.Client(); err != nil {
		return nil, err
	}
	return s, nil
}

// await waits until Redis answers, and refuses a server that is unfit. It gives
// up after storeTries, unless patient.
func (s *store) await(ctx context.Context, patient bool) error {
	if s.embedded != nil {
		return nil
	}
	report, err := s.answer(ctx, patient)
	if err != nil {
		return err
	}
	for _, w := range report.Warnings {
		s.log.Warn("redis: " + w)
	}
	s.log.Info("connected", "store", s.cfg.Where(), "server", report.Name, "version", report.Version)
	return nil
}

func (s *store) answer(ctx context.Context, patient bool) (queue.ServerReport, error) {
	wait, cfg := storeWait, s.cfg
	for try := 1; ; try++ {
		one, cancel := context.WithTimeout(ctx, 5*time.Second)
		report, err := queue.CheckServer(one, s.rdb)
		cancel()
		switch {
		case err == nil:
			return report, nil
		case ctx.Err() != nil:
			return report, context.Cause(ctx)
		case !errors.Is(err, queue.ErrUnavailable), refusedLogin(err):
			return report, fmt.Errorf("%s: %w", cfg.Where(), err)
		case try >= storeTries && !patient:
			return report, fmt.Errorf("%s does not answer after %d tries: %w; start it, or set redis.url", cfg.Where(), try, err)
		}
		s.log.Warn("redis does not answer yet", "store", cfg.Where(), "try", try, "spooling", patient, "error", err)
		select {
		case <-ctx.Done():
			return report, context.Cause(ctx)
		case <-time.After(wait):
		}
		wait = min(2*wait, storeMaxWait)
	}
}

// refusedLogin: waiting does not make a password right.
func refusedLogin(err error) bool {
	for _, s := range []string{"WRONGPASS", "NOAUTH", "NOPERM", "certificate"} {
		if strings.Contains(err.Error(), s) {
			return true
		}
	}
	return false
}

// another makes a further client, which its user closes.
func (s *store) another() (redis.UniversalClient, error) {
	if s.embedded != nil {
		return s.embedded.NewClient(), nil
	}
	return s.cfg.Client()
}

func (s *store) close() error {
	if s.embedded != nil {
		return s.embedded.Close()
	}
	return s.rdb.Close()
}
