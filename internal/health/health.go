package health

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/penstock-io/penstock/breaker"
	"github.com/penstock-io/penstock/shaper"
)

// Mode is how far the law is obeyed. The zero value is On.
type Mode uint8

const (
	// On: the law's decision is the gate's.
	On Mode = iota
	// Shadow: it is computed, logged and counted, and changes nothing.
	Shadow
	// Off: nothing is computed; a record of before is put out of force.
	Off
)

func (m Mode) word() string {
	return [...]string{shaper.ControlOn, shaper.ControlShadow, shaper.ControlOff}[m]
}

// modeOf reads word; what is no mode is own.
func modeOf(word string, own Mode) Mode {
	for _, m := range []Mode{On, Shadow, Off} {
		if m.word() == word {
			return m
		}
	}
	return own
}

// Config is one provider's health.
type Config struct {
	// Redis is required, and never closed.
	Redis redis.UniversalClient
	// Queue is the hash tag of its keys; Provider its name in logs.
	Queue, Provider string
	// Mode is written at Open where it differs from the one in force: the last
	// process that starts decides for the fleet.
	Mode Mode
	// Law is checked with Validate. Its Rate and Concurrency come from Limits.
	Law breaker.Config
	// Limits returns the limits in force. Required.
	Limits func() shaper.Limits
	// Waiting returns how many callers wait in this process. Nil: none.
	Waiting func() int
	// Processes returns how many processes use the provider. Nil: one.
	Processes func() int
	// Changed hears each change of the provider's state, once in the fleet. It
	// must not block. Nil: nobody.
	Changed func(Change)
	// Logger. Nil: slog.Default().
	Logger *slog.Logger
}

// Health is the sensor of one provider in this process, and one of those who
// tick. Safe for several goroutines. Its one goroutine runs only while there is
// something to do; Close ends it.
type Health struct {
	cfg  Config
	proc string

	mu       sync.Mutex
	window   window
	pending  *flush // sent, and not answered
	requests int64
	inFlight int
	lastCall time.Time
	seen     uint64 // the newest generation known here
	view     View
	running  bool
	closed   bool
	stopped  chan struct{}
	quit     chan struct{}
	kick     chan struct{}
	long     bool // the pause under way is a long one
	failures int
}

// View is what this process knew when it last asked. The zero value: nothing.
type View struct {
	// Mode in force over the fleet.
	Mode Mode
	// State of the law; the zero value is a provider that nothing is wrong with.
	State breaker.State
	// Phase is the breaker's as the gate obeys it: closed, open or half_open;
	// always closed in shadow and off.
	Phase string
	// OpenUntil is when an open breaker begins to probe, by this machine's clock.
	OpenUntil time.Time
}

// New checks cfg. Nothing is sent yet.
func New(cfg Config) (*Health, error) {
	switch {
	case cfg.Redis == nil || cfg.Queue == "" || cfg.Limits == nil:
		return nil, errors.New("health: Redis, Queue and Limits are required")
	case cfg.Mode > Off:
		return nil, fmt.Errorf("health %s: mode %d is none of on, shadow, off", cfg.Queue, cfg.Mode)
	}
	if err := cfg.Law.Validate(); err != nil {
		return nil, fmt.Errorf("health %s: %w", cfg.Queue, err)
	}
	cfg.Law = cfg.Law.Normal()
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	id := make([]byte, 8)
	if _, err := rand.Read(id); err != nil {
		return nil, fmt.Errorf("health %s: %w", cfg.Queue, err)
	}
	return &Health{
		cfg: cfg, proc: hex.EncodeToString(id), quit: make(chan struct{}), kick: make(chan struct{}, 1),
		view: View{Mode: cfg.Mode, Phase: shaper.PhaseClosed},
	}, nil
}

// Open writes this process's mode where it differs, and learns how the provider
// stands: one that is open is ticked from now on though nobody calls it.
func (h *Health) Open(ctx context.Context) error {
	s, err := h.sense(ctx, &flush{}, false, h.cfg.Mode.word())
	if err != nil {
		return fmt.Errorf("health of %s: %w", h.cfg.Provider, err)
	}
	h.learn(s)
	if h.cfg.Mode == Off {
		return h.putOut(ctx, s)
	}
	h.Poke()
	return nil
}

// putOut ends the force of a record that a process in another mode left.
func (h *Health) putOut(ctx context.Context, s sensed) error {
	r := s.record
	if r.newer || r.version == "" || r.control.Mode == shaper.ControlOff {
		return nil
	}
	state := r.begin(Off, h.known())
	_, err := h.publish(ctx, r, control(state, h.law(), Off, r.control.Version+1), state, nil)
	return err
}

// Started is told that a call begins, in the generation of its permit.
func (h *Health) Started(generation uint64) {
	if h.cfg.Mode == Off {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.window.started(generation)
	h.inFlight++
	h.touchLocked(generation)
}

// Ended is told what the call showed, and how long it took.
func (h *Health) Ended(generation uint64, o breaker.Outcome, took time.Duration) {
	if h.cfg.Mode == Off {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.window.ended(generation, o, took)
	h.inFlight--
	h.touchLocked(generation)
}

func (h *Health) touchLocked(generation uint64) {
	h.lastCall = time.Now()
	h.seen = max(h.seen, generation)
	h.startLocked()
	if h.long {
		h.long = false
		select {
		case h.kick <- struct{}{}:
		default:
		}
	}
}

// Poke starts the ticks where there is something to do: a caller waits, or the
// state is not at rest.
func (h *Health) Poke() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.startLocked()
}

func (h *Health) startLocked() {
	if h.running || h.closed || h.cfg.Mode == Off {
		return
	}
	h.running = true
	h.stopped = make(chan struct{})
	go h.loop(h.stopped)
}

// View returns what was seen last.
func (h *Health) View() View {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.view
}

func (h *Health) known() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.seen
}

// law is the configuration with the limits that are in force now.
func (h *Health) law() breaker.Config {
	l, c := h.cfg.Limits(), h.cfg.Law
	c.Rate, c.Concurrency = 0, l.Concurrency
	if iv := l.Interval(); iv > 0 {
		c.Rate = 1 / iv.Seconds()
	}
	return c
}

// Close flushes what was counted and ends the ticks. It returns when they have
// ended, or ctx.
func (h *Health) Close(ctx context.Context) error {
	h.mu.Lock()
	if !h.closed {
		h.closed = true
		close(h.quit)
	}
	stopped := h.stopped
	h.mu.Unlock()
	if stopped == nil {
		return nil
	}
	select {
	case <-stopped:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
