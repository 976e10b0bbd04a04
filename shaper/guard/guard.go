// Package guard composes all that stands between a caller and one provider:
// health, retry budget and limits, decided together by the gate's one script.
//
// The order of the guards is: expired? then the fuse of this process, then the
// gate (held, open, paused, concurrency, rate, retry budget; it waits for its
// slot), then the call, its outcome, and the settlement; internal/health hears
// the outcome, and its decisions are the gate's. [Guard.Do] is all that most callers need: queue/worker,
// shaper/limithttp and any Go code without a queue use it alike.
package guard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"regexp"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/penstock-io/penstock/breaker"
	"github.com/penstock-io/penstock/internal/health"
	"github.com/penstock-io/penstock/retrybudget"
	"github.com/penstock-io/penstock/shaper"
)

const (
	// DefaultTimeout bounds one call where Config.Timeout is 0.
	DefaultTimeout = 30 * time.Second
	recordWait     = 2 * time.Second // for a record, when the caller is already leaving
)

// ErrNotCalled is what every error of Do is, where no call was made.
var ErrNotCalled = errors.New("no call was made")

// ErrExpired: the request's Expires passed before its turn came.
var ErrExpired = errors.New("expired before its turn came")

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
	// Timeout bounds one call. Zero: DefaultTimeout.
	Timeout time.Duration
	// Adaptive says whether limits follow the provider's health. Zero: On.
	Adaptive Adaptive
	// Law are the constants by which they do, and those of a stated wait. Zero
	// fields are their defaults; Rate, Concurrency and Timeout are the guard's own.
	Law breaker.Config
	// Budget is the retry budget. Zero fields are its defaults. It counts only
	// with Adaptive On.
	Budget retrybudget.Budget
	// CredentialsTag is a fingerprint (never the secret) of the credentials in
	// use; when it changes, a hold for refused credentials ends.
	CredentialsTag string
	// Waker shares one Redis subscription with other guards. Nil: its own.
	Waker *shaper.Waker
	// Observer hears of every attempt. Nil: nobody.
	Observer Observer
	// Logger. Nil: slog.Default().
	Logger *slog.Logger
}

// Observer hears what a guard does. Methods are called from several goroutines
// at once and must not block.
type Observer interface {
	shaper.Observer
	// Attempt is told once for each call really made.
	Attempt(provider string, outcome breaker.Outcome, took time.Duration)
	// Changed is told of each change of the provider's state, by one process of
	// the fleet.
	Changed(provider string, c Change)
}

// Request is what a caller asks permission for. The zero value is one call
// with no job behind it.
type Request struct {
	// Job is the job's id where there is one: no two calls of one job ever run
	// at once, and a job whose record stands is not called again. Empty: none.
	Job string
	// Key is what the job is limited and shared fairly by inside the provider.
	// Not built yet: a key that is not empty is refused.
	Key string
	// Cost in calls. Zero: 1.
	Cost int
	// Retry says that this is not the job's first attempt: the retry budget pays
	// for it, or Do returns a *Deferred. Only first attempts earn.
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
// a method Report() Report is taken at its word; nil is OK; a deadline is
// Timeout; the caller's own cancellation is Excluded; all else is Failed.
type Report struct {
	Outcome breaker.Outcome
	// RetryAfter is the wait the provider asked for. Zero: none.
	RetryAfter time.Duration
	// Credentials says that the provider refused who we are (401, 403, 407).
	Credentials bool
	// Free says that no attempt is to be spent, whatever became of the call: it
	// was a probe, or the breaker is not closed. Do sets it; a Reporter need not.
	Free bool
}

// Reporter is an error that knows what it says of the provider.
type Reporter interface {
	error
	Report() Report
}

// Call is one call to the provider. Its context carries the permit's deadline
// and is not cancelled by trouble with Redis.
type Call func(ctx context.Context) error

// Guard stands before one provider. Safe for several goroutines.
type Guard struct {
	cfg    Config
	gate   *shaper.Gate
	health *health.Health
	fuse   *fuse
	err    error
}

var nameShape = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,62}$`)

// New returns the guard of cfg. A fault in cfg is returned by Err and by every
// Do, so that New(…).Do(…) can stand in one line. Nothing is sent yet.
func New(cfg Config) *Guard {
	if cfg.Timeout == 0 {
		cfg.Timeout = DefaultTimeout
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	g := &Guard{cfg: cfg}
	switch {
	case !nameShape.MatchString(cfg.Provider):
		g.err = fmt.Errorf("guard: Provider %q: a name is 1-63 of a-z, 0-9, dot, dash and underscore, and begins with a letter or digit", cfg.Provider)
	case cfg.Namespace != "" && !nameShape.MatchString(cfg.Namespace):
		g.err = fmt.Errorf("guard %s: Namespace %q: the rule for provider names holds", cfg.Provider, cfg.Namespace)
	case cfg.Timeout < 0:
		g.err = fmt.Errorf("guard %s: Timeout must be longer than 0, not %s", cfg.Provider, cfg.Timeout)
	case cfg.Adaptive > Off:
		g.err = fmt.Errorf("guard %s: Adaptive must be On, Shadow or Off, not %s", cfg.Provider, cfg.Adaptive)
	}
	if g.err == nil {
		if err := errors.Join(cfg.Budget.Validate(), cfg.law().Validate()); err != nil {
			g.err = fmt.Errorf("guard %s: %w", cfg.Provider, err)
		}
	}
	if g.err != nil {
		return g
	}
	gc := shaper.GateConfig{
		Redis: cfg.Redis, Name: QueueName(cfg.Namespace, cfg.Provider), Limits: cfg.Limits, Tag: cfg.CredentialsTag,
		Waker: cfg.Waker, Logger: cfg.Logger, Account: cfg.account(),
	}
	if cfg.Observer != nil {
		gc.Observer = named{cfg.Observer, cfg.Provider}
	}
	if g.gate, g.err = shaper.NewGate(gc); g.err != nil {
		return g
	}
	if g.health, g.err = cfg.newHealth(g.gate); g.err != nil {
		g.gate = nil
		return g
	}
	if cfg.Adaptive == On {
		g.fuse = newFuse(cfg.Provider)
	}
	return g
}

// QueueName is the queue of a provider: its name, or namespace.provider.
func QueueName(namespace, provider string) string {
	if namespace == "" {
		return provider
	}
	return namespace + "." + provider
}

// Err returns what is wrong with the configuration, or nil.
func (g *Guard) Err() error { return g.err }

// Gate returns the guard's gate; nil where Err is not.
func (g *Guard) Gate() *shaper.Gate { return g.gate }

// Provider returns the provider's name.
func (g *Guard) Provider() string { return g.cfg.Provider }

// Timeout returns the bound of one call.
func (g *Guard) Timeout() time.Duration { return g.cfg.Timeout }

// Open writes and reads the limits (see shaper.Gate.Open), and learns how the
// provider stands. It need not be called; but a process that does sees to it
// that an open breaker is probed, though it has nothing to call itself.
func (g *Guard) Open(ctx context.Context) error {
	if g.err != nil {
		return g.err
	}
	if err := g.gate.Open(ctx); err != nil {
		return err
	}
	return g.health.Open(ctx)
}

// Close ends those who wait and stores what is settled; see shaper.Gate.Close.
func (g *Guard) Close(ctx context.Context) error {
	if g.gate == nil {
		return nil
	}
	return errors.Join(g.gate.Close(ctx), g.health.Close(ctx))
}

// Do waits for a permit, makes the call, and settles. It returns the call's
// own error. Where no call was made the error is ErrNotCalled, and besides one
// of: ErrExpired, *Deferred (a retry that the budget has no token for), shaper.ErrRunning, shaper.ErrDone (as *shaper.DoneError),
// shaper.ErrPoison, shaper.ErrClosed, context.Cause(ctx), or a fault in the
// configuration or the request. A panic of call is settled as a failure and
// goes on.
func (g *Guard) Do(ctx context.Context, req Request, call Call) error {
	if err := g.check(req); err != nil {
		return notCalled{err}
	}
	g.health.Poke()
	for {
		turn, err := g.acquire(ctx, req)
		if err != nil {
			return notCalled{err}
		}
		if turn != nil {
			return g.run(ctx, req, turn, call)
		}
	}
}

// turn is a permit whose slot has come.
type turn struct {
	permit *shaper.Permit
	blown  func(breaker.Outcome) // the fuse hears the outcome
	leave  func()
}

func (g *Guard) check(req Request) error {
	switch {
	case g.err != nil:
		return g.err
	case req.Key != "":
		return fmt.Errorf("guard %s: Key is not built yet; leave it empty", g.cfg.Provider)
	}
	return nil
}

// acquire waits for a turn; nil where the fuse blew in the last moment.
func (g *Guard) acquire(ctx context.Context, req Request) (*turn, error) {
	if !req.Expires.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadlineCause(ctx, req.Expires, ErrExpired)
		defer cancel()
	}
	leave, err := g.fuse.pass(ctx, func() { g.denied("fuse") })
	if err != nil {
		return nil, err
	}
	a := shaper.Arrival{Job: req.Job, Cost: req.Cost, Pays: req.Retry}
	if req.Job != "" {
		a.Record = shaper.RecordName(req.Job)
	}
	permit, err := g.gate.Acquire(ctx, a)
	if err != nil {
		leave()
		if poor, ok := errors.AsType[*shaper.AccountError](err); ok {
			err = deferred(poor)
		}
		return nil, err
	}
	t := &turn{permit: permit, leave: leave, blown: func(breaker.Outcome) {}}
	if permit.Probe() { // the fleet's decision, not this process's
		return t, nil
	}
	blown, ok := g.fuse.begin()
	if !ok {
		permit.Release()
		leave()
		return nil, nil
	}
	t.blown = blown
	return t, nil
}

func (g *Guard) denied(reason string) {
	if g.cfg.Observer != nil {
		g.cfg.Observer.Denied(g.cfg.Provider, reason)
	}
}

// run makes the call under the permit and settles it, whatever happens.
func (g *Guard) run(ctx context.Context, req Request, t *turn, call Call) (err error) {
	defer t.leave()
	permit := t.permit
	leased, cancel := permit.Context(ctx)
	defer cancel(nil)
	bounded, stop := context.WithTimeout(leased, g.cfg.Timeout)
	defer stop()
	start := time.Now()
	g.health.Started(permit.Generation())
	returned := false
	defer func() {
		if !returned { // a panic, or runtime.Goexit: it goes on by itself
			permit.Settle(shaper.Settlement{})
			g.observe(t, breaker.Failed, time.Since(start))
		}
	}()
	err = call(bounded)
	returned = true
	rep := report(err, leased, bounded)
	g.observe(t, rep.Outcome, time.Since(start))
	rep.Free = permit.Probe() || g.doubtful()
	g.settle(ctx, req, permit, err, rep)
	return err
}

// observe tells all who listen what a call showed.
func (g *Guard) observe(t *turn, o breaker.Outcome, took time.Duration) {
	t.blown(o)
	g.health.Ended(t.permit.Generation(), o, took)
	if g.cfg.Observer != nil {
		g.cfg.Observer.Attempt(g.cfg.Provider, o, took)
	}
}

func (g *Guard) settle(ctx context.Context, req Request, permit *shaper.Permit, err error, rep Report) {
	s := shaper.Settlement{
		OK:       rep.Outcome == breaker.OK && !rep.Credentials,
		Excluded: rep.Outcome == breaker.Excluded,
		Refused:  rep.Credentials,
	}
	s.Earns = s.OK && !req.Retry
	if rep.Outcome == breaker.Throttled {
		s.Hold, s.Capped = g.hold(rep.RetryAfter)
	}
	if s.Hold > 0 {
		g.cfg.Logger.Warn("provider asked for a pause; the whole fleet holds", "provider", g.cfg.Provider,
			"asked", rep.RetryAfter, "held", s.Hold.Round(time.Millisecond))
	}
	if req.Record != nil {
		s.Record = req.Record(err, rep)
	}
	if s.Record == nil {
		permit.Settle(s)
		return
	}
	if err := permit.SettleWait(ctx, s, recordWait); err != nil {
		g.cfg.Logger.Warn("a call's record is not stored yet", "provider", g.cfg.Provider, "err", err)
	}
}

// hold is how long a stated wait shuts the gate for everybody, with jitter
// only upwards, and whether that is less than what was asked. A short one is
// left to the job that was told.
func (g *Guard) hold(wait time.Duration) (time.Duration, bool) {
	now := time.Now()
	h := breaker.HoldFor(now, wait, g.cfg.Law, rand.Float64())
	if h.Until.IsZero() {
		return 0, false
	}
	return h.Until.Sub(now), h.Capped
}

// report says what err shows of the provider.
func report(err error, leased, bounded context.Context) Report {
	if err == nil {
		return Report{Outcome: breaker.OK}
	}
	if r, ok := errors.AsType[Reporter](err); ok {
		return r.Report()
	}
	switch {
	case leased.Err() != nil: // the caller left, or the lease was lost
		return Report{Outcome: breaker.Excluded}
	case bounded.Err() != nil || errors.Is(err, context.DeadlineExceeded):
		return Report{Outcome: breaker.Timeout}
	}
	return Report{Outcome: breaker.Failed}
}

// notCalled marks an error: no call was made.
type notCalled struct{ error }

func (e notCalled) Unwrap() error        { return e.error }
func (e notCalled) Is(target error) bool { return target == ErrNotCalled }

// named gives the gate's observations the provider's name, not the queue's.
type named struct {
	o        Observer
	provider string
}

func (n named) GateRequest(_ string, arrivals, settlements int, took time.Duration, err error) {
	n.o.GateRequest(n.provider, arrivals, settlements, took, err)
}
func (n named) Denied(_, reason string)          { n.o.Denied(n.provider, reason) }
func (n named) Waited(_ string, d time.Duration) { n.o.Waited(n.provider, d) }
