package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/penstock-io/penstock/internal/api"
	"github.com/penstock-io/penstock/internal/config"
	"github.com/penstock-io/penstock/internal/metrics"
	"github.com/penstock-io/penstock/queue"
	"github.com/penstock-io/penstock/webhooks"
)

// hooks are the webhooks of this process: their handlers by path, and the
// spool that they share.
type hooks struct {
	queue    *lateQueue
	handlers map[string]http.Handler
	spool    *webhooks.Spool // nil where there is none
}

// openHooks makes the handlers and opens the spool. Redis may be away.
func openHooks(cfg *config.Config, q *queue.Client, m *metrics.Metrics, log *slog.Logger) (*hooks, error) {
	spooled := len(cfg.Webhooks) > 0 && cfg.Spool.Dir != ""
	h := &hooks{queue: newLateQueue(q, spooled), handlers: map[string]http.Handler{}}
	if spooled {
		m.WatchSpool(cfg.Spool.MaxBytes)
		var err error
		h.spool, err = webhooks.OpenSpool(webhooks.SpoolConfig{
			Dir: cfg.Spool.Dir, MaxBytes: cfg.Spool.MaxBytes, NoSync: !cfg.Spool.Sync, Queue: h.queue, Observer: m, Logger: log,
		})
		if errors.Is(err, webhooks.ErrSpoolInUse) {
			return nil, fmt.Errorf("spool.dir %s: %w; each process that takes webhooks needs its own", cfg.Spool.Dir, err)
		}
		if err != nil {
			return nil, fmt.Errorf("spool.dir %s: %w", cfg.Spool.Dir, err)
		}
	}
	for _, w := range cfg.Webhooks {
		c := w.Config
		c.Queue, c.Spool, c.Observer, c.Logger = h.queue, h.spool, m, log
		handler, err := webhooks.New(c)
		if err != nil {
			return nil, errors.Join(err, h.close())
		}
		m.WatchWebhook(c.Name)
		h.handlers[w.Path] = handler
		log.Info("webhook", "webhook", c.Name, "path", w.Path, "scheme", c.Options.Scheme, "provider", c.To.Provider, "spool", h.spool != nil)
	}
	return h, nil
}

// spools reports whether deliveries can be taken though Redis is away.
func (h *hooks) spools() bool { return h.spool != nil && h.spool.Room() > 0 }

// close ends the spool; what waits in it stays on disk.
func (h *hooks) close() error {
	if h.spool == nil {
		return nil
	}
	return h.spool.Close()
}

// lateQueue is a queue that is waited for until everything runs: before, the
// destinations may not be known to it.
type lateQueue struct {
	client *queue.Client
	opened chan struct{}
	// spooled: single jobs wait only startWait, as there is a better place for them.
	spooled bool
}

// startWait is some times what starting takes where Redis answers.
const startWait = 200 * time.Millisecond

func newLateQueue(c *queue.Client, spooled bool) *lateQueue {
	return &lateQueue{client: c, opened: make(chan struct{}), spooled: spooled}
}

func (q *lateQueue) await(ctx context.Context) error {
	select {
	case <-q.opened:
		return nil
	case <-ctx.Done():
		return errStarting
	}
}

// Enqueue is the client's.
func (q *lateQueue) Enqueue(ctx context.Context, j queue.Job) (queue.Receipt, error) {
	short := ctx
	if q.spooled {
		var cancel context.CancelFunc
		short, cancel = context.WithTimeout(ctx, startWait)
		defer cancel()
	}
	if err := q.await(short); err != nil {
		return queue.Receipt{Provider: j.Provider, ID: j.ID}, err
	}
	return q.client.Enqueue(ctx, j)
}

// EnqueueAll is the client's.
func (q *lateQueue) EnqueueAll(ctx context.Context, jobs iter.Seq[queue.Job]) iter.Seq2[queue.Receipt, error] {
	return func(yield func(queue.Receipt, error) bool) {
		if err := q.await(ctx); err != nil {
			yield(queue.Receipt{}, err)
			return
		}
		q.client.EnqueueAll(ctx, jobs)(yield)
	}
}

// front is what a request meets behind the door: webhooks at their exact paths,
// which have a proof of their own, and the API with its tokens.
type front struct {
	hooks *hooks
	api   http.Handler
	log   *slog.Logger
	// started says that everything runs. Before, the API takes nothing.
	started atomic.Bool
}

// ServeHTTP answers one request.
func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if h := f.hooks.handlers[r.URL.Path]; h != nil {
		defer f.recovered(w, r)
		h.ServeHTTP(w, r)
		return
	}
	if !f.started.Load() {
		f.starting(w, r)
		return
	}
	f.api.ServeHTTP(w, r)
}

// open lets everything through, once: all of it runs.
func (f *front) open() {
	if f.hooks.queue != nil {
		close(f.hooks.queue.opened)
	}
	f.started.Store(true)
}

// recovered answers for a handler that panicked.
func (f *front) recovered(w http.ResponseWriter, r *http.Request) {
	v := recover()
	if v == nil {
		return
	}
	if v == http.ErrAbortHandler {
		panic(v)
	}
	f.log.Error("a webhook made the server panic", "path", r.URL.Path, "panic", v)
	w.WriteHeader(http.StatusInternalServerError)
}

// starting answers for the API while there is no store yet.
func (f *front) starting(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Method == http.MethodGet && r.URL.Path == "/healthz":
		_, _ = io.WriteString(w, "ok\n")
	case r.Method == http.MethodGet && r.URL.Path == "/readyz" && f.hooks.spools():
		_, _ = io.WriteString(w, "ready\n")
	default:
		api.Refuse(w, errStarting)
	}
}

// errStarting is why a process that starts takes no jobs.
var errStarting = &queue.UnavailableError{Err: errors.New("this process is starting"), Fix: "try again"}
