package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/hibiken/asynq"

	"github.com/penstock-io/penstock/queue"
	"github.com/penstock-io/penstock/queue/internal/layout"
	"github.com/penstock-io/penstock/retrybudget"
	"github.com/penstock-io/penstock/shaper"
	"github.com/penstock-io/penstock/shaper/guard"
)

const (
	// startWait is how long Redis may take to answer at start.
	startWait = 5 * time.Second
	// lastWait is how long what became of jobs may take to be stored after the
	// last call has ended. Then Redis keeps what it knows, and the jobs come back.
	lastWait = 5 * time.Second
)

// ErrRan is returned by a second Run of the same Worker.
var ErrRan = errors.New("worker: Run was called before; make a new Worker")

// Worker calls the jobs of one provider. Make it with New.
type Worker struct {
	cfg     Config
	keys    layout.Keys
	process string // a name of its own for every Worker, not only every process
	log     *slog.Logger
	http    caller
	backoff retrybudget.Backoff
	queue   *queue.Client
	guard   func(context.Context, guard.Request, guard.Call) error
	ran     atomic.Bool
	expect  func(due time.Time) // tells the inlet

	hands    *hands
	places   chan struct{} // for calls: one element each
	clock    *clock
	settler  *settler
	ticker   *ticker
	complain seldom
}

// New checks cfg and returns its worker. Nothing is sent yet.
func New(cfg Config) (*Worker, error) {
	cfg, err := cfg.normal()
	if err != nil {
		return nil, err
	}
	w := &Worker{
		cfg: cfg, keys: layout.For(cfg.Namespace, cfg.Provider), process: uuid.NewString(),
		log:     cfg.Logger.With("provider", cfg.Provider),
		backoff: retrybudget.Backoff{Base: cfg.Retry.Base, Max: cfg.Retry.Max},
		guard:   cfg.Guard.Do, hands: newHands(), places: make(chan struct{}, cfg.Concurrency), clock: &clock{}, complain: seldom{every: 10 * time.Second},
	}
	if w.http, err = cfg.caller(); err != nil {
		return nil, err
	}
	if w.queue, err = queue.NewClient(queue.Config{Redis: cfg.Redis, Namespace: cfg.Namespace}); err != nil {
		return nil, fmt.Errorf("worker: %w", err)
	}
	w.settler = newSettler(cfg.Redis, w.keys, w.process, slotsFor(cfg.Concurrency), w.hands, w.log)
	w.ticker = newTicker(w)
	return w, nil
}

// spec is what producers must know of the provider.
func (w *Worker) spec() queue.Spec {
	s := w.cfg.Spec
	// Limits change while running, and with them what they could ever grant.
	if most := w.cfg.Guard.Gate().Limits().MaxCost(); s.MaxCost == 0 || most > 0 && most < s.MaxCost {
		s.MaxCost = most
	}
	s.Attempts, s.MaxAge, s.Keep = w.cfg.Retry.Attempts, w.cfg.Retry.MaxAge, w.cfg.Keep
	return s
}

// Run publishes the provider and works until ctx ends; then it stops in this
// order: no more jobs are taken; those that wait for their slot go back to the
// head of the line; calls under way may end within the grace, are then
// cancelled, and are waited for; what became of them is stored. No job is
// called twice for a stop.
//
// It returns nil after a stop, and an error when it could not start: Redis
// does not answer, or is unfit. Afterwards close the guard, then the Redis
// client, in this order.
func (w *Worker) Run(ctx context.Context) error {
	if w.ran.Swap(true) {
		return ErrRan
	}
	if w.http != nil {
		defer w.http.Close()
	}
	if err := w.start(ctx); err != nil {
		return err
	}
	fit := selfTest(ctx)
	if ctx.Err() != nil {
		return nil
	}
	if fit != nil {
		return w.runPlain(ctx, fit)
	}
	return w.run(ctx)
}

func (w *Worker) start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startWait)
	defer cancel()
	report, err := queue.CheckServer(ctx, w.cfg.Redis)
	if err != nil {
		return fmt.Errorf("worker %s: %w", w.cfg.Provider, err)
	}
	if !w.cfg.Checked {
		for _, warning := range report.Warnings {
			w.log.Warn("redis: " + warning)
		}
	}
	// First the name: limits are not written into another installation's gate.
	if err := w.queue.Publish(ctx, w.cfg.Provider, w.spec()); errors.Is(err, queue.ErrFull) {
		w.log.Error("redis is full: the provider cannot be published, its jobs are worked off", "error", err)
	} else if err != nil {
		return fmt.Errorf("worker %s: cannot publish the provider: %w", w.cfg.Provider, err)
	}
	if err := w.cfg.Guard.Open(ctx); err != nil {
		return fmt.Errorf("worker %s: %w", w.cfg.Provider, err)
	}
	return nil
}

// inForce are the limits that the gate goes by now, whatever it took them from.
func (w *Worker) inForce() shaper.Limits {
	l := w.cfg.Guard.Gate().Limits()
	interval, concurrency := w.cfg.Guard.Gate().InForce()
	if interval > l.Interval() {
		l.Rate = shaper.Rate{N: 1, Per: interval}
	}
	l.Concurrency = concurrency
	return l
}

func (w *Worker) run(ctx context.Context) error {
	waker := w.cfg.Guard.Gate().Waker()
	jobs, noJobs := waker.Listen(w.keys.Own(layout.Jobs))
	defer noJobs()
	gate, noGate := waker.Listen(w.keys.Own(layout.Wake))
	defer noGate()
	defer waker.Messages(w.keys.Own(layout.Cancelled), func(id string) { w.hands.ask(id) })()

	in := newInlet(w.cfg.Redis, w.keys, w.process, w.cfg.Concurrency, w.inForce, w.hands, w.clock, w.log, jobs, gate)
	w.expect = in.expect
	srv := asynq.NewServerFromRedisClient(&client{
		UniversalClient: w.cfg.Redis, known: shapes(), dequeue: in.dequeue, hands: w.hands, nextMove: map[string]time.Time{},
		giveUp: w.giveUp, moved: func() { in.wake(false) },
	}, w.asynqConfig(10*time.Millisecond))

	var side sync.WaitGroup
	settled, ticked := make(chan struct{}), make(chan struct{})
	side.Go(func() { w.settler.run(settled) })
	side.Go(func() { w.ticker.run(ticked) })
	defer side.Wait()
	defer close(settled)
	defer close(ticked)
	if err := srv.Start(asynq.HandlerFunc(w.handle)); err != nil {
		return fmt.Errorf("worker %s: %w", w.cfg.Provider, err)
	}
	w.log.Info("worker started", "limits", w.cfg.Guard.Gate().Limits(), "process", w.process)
	<-ctx.Done()
	w.stop(in, srv)
	return nil
}

func (w *Worker) asynqConfig(check time.Duration) asynq.Config {
	return asynq.Config{
		Queues: map[string]int{w.keys.Queue: 1}, Concurrency: slotsFor(w.cfg.Concurrency),
		Logger: asynqLog{w.log}, LogLevel: asynq.WarnLevel,
		TaskCheckInterval: check, DelayedTaskCheckInterval: time.Second,
		ShutdownTimeout: time.Nanosecond, // 0 means 8 s
		RetryDelayFunc:  plainDelay, IsFailure: plainFailure,
	}
}

// stop is the stop sequence; see Run.
func (w *Worker) stop(in *inlet, srv *asynq.Server) {
	w.log.Info("worker stops: no more jobs are taken")
	in.stop()
	w.settler.hasten()
	w.hands.endWaits()
	srv.Stop()
	for _, id := range in.leftover() {
		if h, _ := w.hands.drop(id); h != nil {
			go w.giveUp(h, false) // awaitHandlers waits for it
		}
	}
	w.awaitCalls()
	late := time.AfterFunc(lastWait, func() {
		w.hands.endAll()
		close(w.settler.quit)
	})
	w.awaitHandlers()
	srv.Shutdown()
	late.Stop()
	w.ticker.forget()
	w.log.Info("worker stopped")
}

// awaitCalls waits for the calls under way, cancels them at the end of the
// grace, and waits for their return.
func (w *Worker) awaitCalls() {
	calm := w.hands.noCalls()
	grace := time.NewTimer(max(0, w.cfg.Grace))
	defer grace.Stop()
	select {
	case <-calm:
		return
	case <-grace.C:
	}
	w.log.Warn("the grace is over; calls under way are cancelled", "calls", w.hands.cutCalls())
	for {
		remind := time.NewTimer(10 * time.Second)
		select {
		case <-calm:
			remind.Stop()
			return
		case <-remind.C:
			w.log.Warn("waiting for a handler that does not heed its context")
		}
	}
}

// awaitHandlers waits until no job is in hand: asynq would requeue one whose
// handler still runs.
func (w *Worker) awaitHandlers() {
	for {
		if n, _ := w.hands.counts(); n == 0 {
			return
		}
		<-w.hands.freed
	}
}

// giveUp puts a job back that no handler has seen.
func (w *Worker) giveUp(h *hand, asked bool) {
	defer w.hands.settled(h)
	o := &order{kind: 'b', h: h}
	if !asked && w.settler.put(o) != answerCancelled {
		return
	}
	m, err := layout.ParseMessage([]byte(h.raw))
	if err != nil {
		return
	}
	k := &task{hand: h, typ: m.Type, headers: m.Headers, payload: m.Payload}
	k.env, _ = layout.Decode(m.Headers)
	w.settler.put(w.order(k, fate{verdict: final, state: layout.Canceled, reason: cancelled("")}))
}
