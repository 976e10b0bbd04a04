package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/penstock-io/penstock/internal/provider"
	"github.com/penstock-io/penstock/queue"
	"github.com/penstock-io/penstock/retrybudget"
	"github.com/penstock-io/penstock/shaper/guard"
)

// Defaults of Config and Retry.
const (
	DefaultConcurrency = 1000
	DefaultGrace       = 30 * time.Second
	DefaultAttempts    = 15
	DefaultMaxAge      = 24 * time.Hour
)

// Config is one provider's worker.
type Config struct {
	// Redis is required. Several workers of a process share one client. The
	// worker never closes it; close it after Run has returned.
	Redis redis.UniversalClient
	// Provider is the provider's name. Empty: the guard's.
	Provider string
	// Namespace keeps several installations on one Redis apart, as in guard.Config.
	Namespace string
	// Guard is required: the provider's guard, for the same Redis and namespace.
	// The worker never closes it; close it after Run has returned.
	Guard *guard.Guard
	// Handler makes the attempts. Nil: jobs are plain HTTP calls, and HTTP is required.
	Handler Handler
	// HTTP says how the provider is called where Handler is nil.
	HTTP *HTTP
	// Retry says how often and when failed jobs are tried again.
	Retry Retry
	// Keep is how long the id of a final job is remembered, and how long those
	// that did not succeed can be seen and replayed, unless the job has a keep of
	// its own. Zero: queue.DefaultKeep.
	Keep time.Duration
	// Spec is what producers are told beside Retry and Keep: MaxBody, and
	// MaxCost where it is to be less than the guard's limits could ever grant.
	Spec queue.Spec
	// Checked says that whoever runs this worker has asked queue.CheckServer and
	// told of its warnings, so that of twenty workers not each one does.
	Checked bool
	// Concurrency is the most calls this worker makes at once. What bounds the
	// calls of the fleet is the guard's concurrency; this is only a high cap for
	// one process. Zero: DefaultConcurrency.
	Concurrency int
	// Grace is how long calls under way may go on after Run's context has ended;
	// then they are cancelled. Zero: DefaultGrace. Negative: none.
	Grace time.Duration
	// Observer hears what becomes of jobs. Nil: nobody.
	Observer Observer
	// Logger. Nil: slog.Default().
	Logger *slog.Logger
}

// HTTP is how a provider is called.
type HTTP struct {
	// BaseURL is the http or https URL that every job's path is joined to. Required.
	BaseURL string
	// Headers are added to every call and win over a job's. They are neither
	// stored in Redis nor logged.
	Headers map[string]string
	// Timeout bounds a call. Zero: the guard's. The guard's ends a call that takes longer.
	Timeout time.Duration
	// AllowPrivate lets calls go to private and loopback addresses; a BaseURL
	// that names such an address literally implies it.
	AllowPrivate bool
	// Again lists 4xx statuses after which a job is tried again where it would be dead.
	Again []int
	// Prepare, if set, is called for every attempt with the request as it is
	// about to be sent and its body, e.g. to sign both. It may set headers.
	Prepare func(req *http.Request, body []byte)
}

// Retry says how often and when failed jobs are tried again. A job may say
// otherwise for itself (attempts, max_age).
type Retry struct {
	// Attempts allowed, the first one counted. Zero: DefaultAttempts.
	Attempts int
	// Base and Max bound the back-off: see retrybudget.Backoff, with its defaults.
	Base, Max time.Duration
	// MaxAge is how long after its due time a job may still be called. Zero: DefaultMaxAge.
	MaxAge time.Duration
}

// Observer hears what becomes of jobs. Methods are called from several
// goroutines at once and must not block.
type Observer interface {
	// Started is told when a job's call begins: how long after its due time,
	// and whether it had been delayed or tried before (its due time then was
	// not the time of its enqueue).
	Started(provider string, waited time.Duration, delayed bool)
	// Settled is told when a job is final: succeeded, dead, expired, cancelled.
	Settled(provider, state string, attempts int)
	// Deferred is told when a job will come back: why, and whether an attempt is spent.
	Deferred(provider, reason string, spent bool)
	// Reclaimed is told of jobs given back that others lost: process_died,
	// lease_expired, no_lease, no_lane, not_in_hand.
	Reclaimed(provider, cause string, jobs int)
}

// Reasons that Observer.Deferred is told.
const (
	ReasonFailed    = "failed"    // an attempt failed
	ReasonThrottled = "throttled" // the provider said not now
	ReasonRefused   = "refused"   // the provider refused who we are
	ReasonHandler   = "handler"   // the handler said Defer
	ReasonBudget    = "budget"    // too little succeeds to pay for a retry
	ReasonOther     = "other"     // running elsewhere, Redis away, a fault of the worker's own
)

// normal returns cfg with its defaults, or what is wrong with it.
func (cfg Config) normal() (Config, error) {
	fail := func(format string, args ...any) (Config, error) {
		return cfg, fmt.Errorf("worker: "+format, args...)
	}
	if cfg.Redis == nil {
		return fail("Redis is missing; give it a redis.UniversalClient")
	}
	if cfg.Guard == nil {
		return fail("Guard is missing; make one with guard.New")
	}
	if err := cfg.Guard.Err(); err != nil {
		return fail("Guard: %w", err)
	}
	cfg.Provider = cmp.Or(cfg.Provider, cfg.Guard.Provider())
	if want := guard.QueueName(cfg.Namespace, cfg.Provider); cfg.Guard.Gate().Name() != want {
		return fail("Guard is for queue %q, and this worker for %q; give both the same Provider and Namespace", cfg.Guard.Gate().Name(), want)
	}
	switch {
	case cfg.Handler == nil && cfg.HTTP == nil:
		return fail("Handler and HTTP are both missing; set HTTP.BaseURL for plain HTTP calls, or a Handler")
	case cfg.Handler != nil && cfg.HTTP != nil:
		return fail("Handler and HTTP are both set; a worker has one of them")
	case cfg.Retry.Attempts < 0 || cfg.Retry.Attempts > queue.MaxAttempts:
		return fail("Retry.Attempts must be from 1 to %d (0 means %d), not %d", queue.MaxAttempts, DefaultAttempts, cfg.Retry.Attempts)
	case cfg.Retry.MaxAge < 0:
		return fail("Retry.MaxAge must be longer than 0 (0 means %s), not %s", DefaultMaxAge, cfg.Retry.MaxAge)
	case cfg.Keep < 0 || cfg.Keep > 0 && cfg.Keep < time.Second:
		return fail("Keep must be at least 1s (0 means %s), not %s", queue.DefaultKeep, cfg.Keep)
	case cfg.Concurrency < 0 || cfg.Concurrency > 100_000:
		return fail("Concurrency must be from 1 to 100000 (0 means %d), not %d", DefaultConcurrency, cfg.Concurrency)
	}
	if err := (retrybudget.Backoff{Base: cfg.Retry.Base, Max: cfg.Retry.Max}).Validate(); err != nil {
		return fail("Retry: %w", err)
	}
	cfg.Retry.Attempts = cmp.Or(cfg.Retry.Attempts, DefaultAttempts)
	cfg.Retry.MaxAge = cmp.Or(cfg.Retry.MaxAge, DefaultMaxAge)
	cfg.Keep = cmp.Or(cfg.Keep, queue.DefaultKeep)
	cfg.Concurrency = cmp.Or(cfg.Concurrency, DefaultConcurrency)
	cfg.Grace = cmp.Or(cfg.Grace, DefaultGrace)
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	return cfg, nil
}

// caller makes plain HTTP calls; tests put another in its place.
type caller interface {
	Call(ctx context.Context, call provider.Call) provider.Result
	Close()
}

func (cfg Config) caller() (caller, error) {
	if cfg.HTTP == nil {
		return nil, nil
	}
	p, err := provider.New(provider.Config{
		Name: cfg.Provider, BaseURL: cfg.HTTP.BaseURL, Headers: cfg.HTTP.Headers,
		Timeout: cmp.Or(cfg.HTTP.Timeout, cfg.Guard.Timeout()), AllowPrivate: cfg.HTTP.AllowPrivate,
		Again: cfg.HTTP.Again, Prepare: cfg.HTTP.Prepare, Logger: cfg.Logger,
	})
	if err != nil {
		return nil, errors.Join(errors.New("worker: HTTP"), err)
	}
	return p, nil
}
