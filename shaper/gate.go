package shaper

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// Defaults of a gate's times.
const (
	DefaultHorizon = 50 * time.Millisecond
	PermitLease    = 10 * time.Second
)

// Errors that say why a permit was not given. Waiting for the provider is not
// an error: Acquire waits for it.
var (
	// ErrRunning: the job holds a live permit already.
	ErrRunning = errors.New("the job is running already")
	// ErrDone: the job's record stands; its call was made. See DoneError.
	ErrDone = errors.New("the job is done already")
	// ErrPoison: the job's holders died too often.
	ErrPoison = errors.New("the job's workers died too often")
	// ErrClosed: the gate was closed while waiting.
	ErrClosed = errors.New("the gate is closed")
	// ErrStoreAway: Redis does not answer. A gate waits for it instead.
	ErrStoreAway = errors.New("redis does not answer")
	// ErrLost: the lease of a permit was lost, and its place is taken.
	ErrLost = errors.New("the permit's lease was lost")
)

// DoneError is the ErrDone of a job whose record stands.
type DoneError struct{ Record string }

func (e *DoneError) Error() string { return ErrDone.Error() }

// Is makes errors.Is(err, ErrDone) true.
func (e *DoneError) Is(target error) bool { return target == ErrDone }

// Record is written in the same script as a settlement: what a queue keeps of
// a job that is final. Name is below the gate's prefix ("id:<job>").
type Record struct {
	Name  string
	Value string
	TTL   time.Duration
	// Index, if set, is a sorted set below the prefix that gets Member at the
	// time of the settlement (milliseconds).
	Index  string
	Member string
}

// RecordName is the usual name of a job's record, and the cheapest one.
func RecordName(job string) string { return "id:" + job }

// Observer hears what a gate does. Methods are called from several goroutines
// and must not block.
type Observer interface {
	// GateRequest is told of each request to Redis: how many arrivals and
	// settlements it carried, and how long it took.
	GateRequest(provider string, arrivals, settlements int, took time.Duration, err error)
	// Denied counts arrivals that had to wait or were refused, by reason.
	Denied(provider, reason string)
	// Waited is how long an arrival waited for its permit.
	Waited(provider string, d time.Duration)
}

// GateConfig is one gate.
type GateConfig struct {
	// Redis is required. The gate never closes it.
	Redis redis.UniversalClient
	// Name of the queue, the hash tag of all its keys. Required.
	Name string
	// Limits are the file's. Written at Open where they differ from the file's
	// values last written; what stands in Redis is what is obeyed.
	Limits Limits
	// Account pays for retries. Zero: there is none, and they go like any other.
	Account Account
	// Tag is a fingerprint of the credentials; when it changes, a hold for
	// refused credentials is released.
	Tag string
	// Horizon is how far ahead slots are given. Zero: DefaultHorizon.
	Horizon time.Duration
	// Lease of a permit, renewed while its call lives. Zero: PermitLease.
	Lease time.Duration
	// Waker shares one subscription with others. Nil: one of its own.
	Waker *Waker
	// Observer. Nil: nobody.
	Observer Observer
	// Logger. Nil: slog.Default().
	Logger *slog.Logger
}

// Gate gives permits for one provider, over the whole fleet. It is safe for
// several goroutines. Its one goroutine runs only while there is something to
// do; Close ends it.
type Gate struct {
	cfg     GateConfig
	script  *Script
	proc    string // this gate in this process; part of every permit's id
	prefix  string
	account string // as the script reads it

	mu      sync.Mutex
	kick    chan struct{}
	running bool
	closed  bool
	// abandoned: Close gave up on settlements that Redis did not take.
	abandoned bool
	quit      chan struct{}
	stopped   chan struct{} // of the running loop
	unlisten  func()

	waiting   []*waiter // who asks for a permit, in order
	settles   []*settlement
	live      map[string]*Permit
	notBefore time.Time // arrivals need not ask earlier
	eager     bool      // the last denial may be lifted by a settlement of ours
	settleAt  time.Time // settlements go at the latest then
	renewAt   time.Time
	pending   *request  // sent, not answered: repeated unchanged
	touched   time.Time // the last sign of life
	asked     time.Time // the last request with arrivals
	failures  int
	retryAt   time.Time

	permits  int64
	requests int64
	seq      int64 // the gate's sequence number last seen
	seen     view  // of the last answer
	opened   bool
}

// view is what the last answer said of the gate.
type view struct {
	known       bool
	limits      Limits
	version     int64
	interval    time.Duration
	inFlight    int
	processes   int
	shut        string
	shutUntil   time.Time
	concurrency int
	generation  uint64
	phase       string
	probing     bool // one call at a time goes
}

// NewGate checks cfg; nothing is sent yet.
func NewGate(cfg GateConfig) (*Gate, error) {
	if cfg.Redis == nil {
		return nil, errors.New("gate: Redis is missing; give a client")
	}
	if cfg.Name == "" {
		return nil, errors.New("gate: Name is missing; give the queue's name")
	}
	if err := cfg.Limits.Validate(); err != nil {
		return nil, fmt.Errorf("gate %s: %w", cfg.Name, err)
	}
	if err := cfg.Account.Validate(); err != nil {
		return nil, fmt.Errorf("gate %s: %w", cfg.Name, err)
	}
	if cfg.Horizon < 0 || cfg.Lease < 0 {
		return nil, fmt.Errorf("gate %s: %w: horizon and lease must not be negative", cfg.Name, ErrBadLimit)
	}
	if cfg.Horizon == 0 {
		cfg.Horizon = DefaultHorizon
	}
	if cfg.Lease == 0 {
		cfg.Lease = PermitLease
	}
	if cfg.Waker == nil {
		cfg.Waker = NewWaker(cfg.Redis)
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	cfg.Limits = cfg.Limits.Normal()
	id := make([]byte, 8)
	if _, err := rand.Read(id); err != nil {
		return nil, fmt.Errorf("gate %s: %w", cfg.Name, err)
	}
	return &Gate{
		cfg:     cfg,
		script:  gateScript,
		proc:    hex.EncodeToString(id),
		prefix:  Prefix(cfg.Name),
		account: cfg.Account.String(),
		kick:    make(chan struct{}, 1),
		quit:    make(chan struct{}),
		live:    map[string]*Permit{},
	}, nil
}

// Prefix is what all keys of a queue's gate begin with.
func Prefix(queue string) string { return "penstock:{" + queue + "}:" }

// Name returns the queue's name.
func (g *Gate) Name() string { return g.cfg.Name }

// Waker returns the subscription the gate listens on, to be shared.
func (g *Gate) Waker() *Waker { return g.cfg.Waker }

// Arrival asks for one permit.
type Arrival struct {
	// Job is the job's id; at most one live permit exists for it. Empty: none.
	Job string
	// Record is the name of the record whose existence refuses the arrival
	// with ErrDone. Empty: not looked for.
	Record string
	// Cost in calls of the rate. Zero: 1.
	Cost int
	// Pays says that this is a retry, which the account pays for. Where a token
	// is needed and there is none, it is refused with an *AccountError.
	Pays bool
}

type waiter struct {
	Arrival
	id     string
	since  time.Time
	reason string
	gone   bool // the caller went away while the request was under way
	result chan grant
}

type grant struct {
	permit *Permit
	err    error
}

// Acquire waits until the call may start, and returns its permit at the moment
// of its slot. It ends early with context.Cause(ctx), ErrClosed, or what is
// wrong with this job alone: ErrRunning, ErrDone, ErrPoison, *AccountError.
// On any error nothing is taken. Every permit must be settled or released.
func (g *Gate) Acquire(ctx context.Context, a Arrival) (*Permit, error) {
	if a.Cost == 0 {
		a.Cost = 1
	}
	if a.Cost < 0 || a.Cost > MaxBurst {
		return nil, fmt.Errorf("%w: cost must be from 1 to %d, not %d", ErrBadLimit, MaxBurst, a.Cost)
	}
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	w := &waiter{Arrival: a, since: time.Now()}
	for front := false; ; front = true {
		p, err := g.ask(ctx, w, front)
		if err != nil {
			return nil, err
		}
		onTime, err := p.awaitSlot(ctx)
		if err != nil {
			p.Release()
			return nil, err
		}
		if onTime {
			if o := g.cfg.Observer; o != nil {
				o.Waited(g.cfg.Name, time.Since(w.since))
			}
			return p, nil
		}
		p.Release() // missed: it would land on the heels of a later one
		g.denied("missed_slot")
	}
}

// ask queues w, at the head of the line where front, and waits for its answer.
func (g *Gate) ask(ctx context.Context, w *waiter, front bool) (*Permit, error) {
	w.result = make(chan grant, 1)
	g.mu.Lock()
	if g.closed {
		g.mu.Unlock()
		return nil, ErrClosed
	}
	g.permits++
	w.id = g.proc + "-" + strconv.FormatInt(g.permits, 36) + ":" + w.Job
	w.gone = false
	if front {
		g.waiting = append([]*waiter{w}, g.waiting...)
		g.notBefore = time.Time{}
	} else {
		g.waiting = append(g.waiting, w)
	}
	g.startLocked()
	g.mu.Unlock()
	select {
	case r := <-w.result:
		return r.permit, r.err
	case <-ctx.Done():
	case <-g.quit:
	}
	g.abandon(w)
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	return nil, ErrClosed
}

// abandon takes w out of the line, or sees to it that a permit that is under
// way to it goes back.
func (g *Gate) abandon(w *waiter) {
	g.mu.Lock()
	w.gone = true
	for i, x := range g.waiting {
		if x == w {
			g.waiting = append(g.waiting[:i], g.waiting[i+1:]...)
			break
		}
	}
	g.mu.Unlock()
	select {
	case r := <-w.result:
		if r.permit != nil {
			r.permit.Release()
		}
	default:
	}
}

func (g *Gate) denied(reason string) {
	if o := g.cfg.Observer; o != nil {
		o.Denied(g.cfg.Name, reason)
	}
}

// Limits returns the limits in force as last seen; before the first answer,
// the configured ones.
func (g *Gate) Limits() Limits {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.seen.known {
		return g.seen.limits
	}
	return g.cfg.Limits
}

// InForce returns the interval between calls and the calls in flight that the
// gate last went by: those of the limits, or less where health says so. Zero:
// no limit.
func (g *Gate) InForce() (interval time.Duration, concurrency int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.seen.known {
		l := g.cfg.Limits
		return l.Interval(), l.Concurrency
	}
	return g.seen.interval, g.seen.concurrency
}

// Phase returns the breaker's phase that the gate obeyed when it was last
// asked; empty where health decides nothing.
func (g *Gate) Phase() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.seen.phase
}

// Waiting returns how many callers in this process wait for a permit.
func (g *Gate) Waiting() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.waiting)
}

// Processes returns how many processes used the gate in the last 15 s, at
// least 1, as last seen.
func (g *Gate) Processes() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return max(1, g.seen.processes)
}

// Close refuses new arrivals, ends those who wait with ErrClosed, and returns
// when all settlements are stored or ctx ends. Permits that are still held are
// left to their leases.
func (g *Gate) Close(ctx context.Context) error {
	g.mu.Lock()
	if !g.closed {
		g.closed = true
		close(g.quit)
	}
	if g.running || len(g.settles) > 0 || g.pending != nil {
		g.startLocked()
	}
	stopped := g.stopped
	g.mu.Unlock()
	if stopped == nil {
		return nil
	}
	select {
	case <-stopped:
		return nil
	case <-ctx.Done():
		g.mu.Lock()
		g.abandoned = true
		g.startLocked()
		g.mu.Unlock()
		<-stopped
		return fmt.Errorf("gate %s: settlements not stored: %w", g.cfg.Name, context.Cause(ctx))
	}
}
