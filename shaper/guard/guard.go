// Package guard composes all that stands between a caller and one provider:
// the gate's limits and, later, its health and its retry budget, decided
// together in the gate's one script.
package guard

import (
	"context"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/penstock-io/penstock/breaker"
	"github.com/penstock-io/penstock/shaper"
)

// Config is one provider's guard.
type Config struct {
	// Redis is required. The guard never closes it.
	Redis redis.UniversalClient
	// Provider is the provider's name. Required.
	Provider string
	// Namespace keeps several installations on one Redis apart. Empty: none.
	Namespace string
	// Limits are what the configuration says; live changes in Redis win.
	Limits shaper.Limits
	// Timeout bounds one call. Zero: 30 s.
	Timeout time.Duration
	// Observer hears of every attempt. Nil: nobody.
	Observer Observer
	// Logger. Nil: slog.Default().
	Logger *slog.Logger
}

// Observer hears what a guard does. Methods are called from several
// goroutines at once and must not block.
type Observer interface {
	shaper.Observer
	// Attempt is told once for each call really made.
	Attempt(provider string, outcome breaker.Outcome, took time.Duration)
}

// Request is what a caller asks permission for.
type Request struct {
	// Job is the job's id where there is one: no two calls of one job ever run
	// at once, and a job whose record stands is not called again. Empty: none.
	Job string
	// Key is what the job is limited and shared fairly by inside the provider.
	Key string
	// Cost in calls. Zero: 1.
	Cost int
	// Retry says that this is not the job's first attempt.
	Retry bool
	// Expires is the moment after which the call must not start. Zero: never.
	Expires time.Time
	// Record, if set, is asked after the call (with its error) for what is to be
	// written in the same script as the settlement, e.g. the tombstone of a job
	// that is final now. Nil means nothing to write. When it returns a record,
	// Do returns only after the record is stored.
	Record func(err error, rep Report) *shaper.Record
}

// Report is what a call's error may say beyond "it failed". An error that has
// a method Report() Report is taken at its word; nil is OK; a context's
// deadline is Timeout; everything else is Failed.
type Report struct {
	Outcome breaker.Outcome
	// RetryAfter is the wait the provider asked for. Zero: none.
	RetryAfter time.Duration
	// Credentials says that the provider refused who we are (401, 403, 407).
	Credentials bool
}

// Reporter is an error that knows what it says of the provider.
type Reporter interface {
	error
	Report() Report
}

// Call is one call to the provider. Its context carries the permit's deadline
// and is not cancelled by trouble with Redis.
type Call func(ctx context.Context) error
