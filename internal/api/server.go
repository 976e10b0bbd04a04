package api

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"log/slog"
	"net/http"
	"os"
	"time"

	"golang.org/x/time/rate"

	"github.com/penstock-io/penstock/queue"
	"github.com/penstock-io/penstock/shaper"
)

// Jobs is what the API needs of a queue; *queue.Client is one. Its errors are
// those of package queue.
type Jobs interface {
	Enqueue(ctx context.Context, j queue.Job) (queue.Receipt, error)
	EnqueueAll(ctx context.Context, jobs iter.Seq[queue.Job]) iter.Seq2[queue.Receipt, error]
	Get(ctx context.Context, provider, id string) (queue.Info, error)
	List(ctx context.Context, provider string, f queue.Filter) (queue.Page, error)
	Cancel(ctx context.Context, provider, id string) (queue.Cancelling, error)
	Replay(ctx context.Context, provider, id string) (queue.Receipt, error)
}

// Fleet is what the API needs to know and to change of providers. Every method
// answers queue.ErrUnknownProvider for a name that nobody serves, and
// queue.ErrUnavailable when Redis is away.
type Fleet interface {
	// Providers lists all, by name.
	Providers(ctx context.Context) ([]ProviderStatus, error)
	Provider(ctx context.Context, name string) (ProviderStatus, error)
	// SetLimits changes the limits of the whole fleet at once. They are valid.
	SetLimits(ctx context.Context, name string, l shaper.Limits) error
	Pause(ctx context.Context, name string) error
	Resume(ctx context.Context, name string) error
}

// Config of a Server.
type Config struct {
	// Jobs and Fleet are required, but for OnlyHealth.
	Jobs  Jobs
	Fleet Fleet
	// Ready returns why jobs cannot be taken now; nil where they can. Its
	// errors are those of package queue. Nil: always ready.
	Ready func(ctx context.Context) error
	// Tokens. None: only loopback names are served, and everyone is an operator.
	Tokens []Token
	// MaxBody is the largest body of any provider, in bytes. Zero:
	// queue.DefaultMaxBody. The body of a request may be six times as long, as
	// JSON may write a byte in six.
	MaxBody int64
	// Metrics serves /metrics. Nil: 404.
	Metrics http.Handler
	// Queues serves asynqmon; see NewQueues. Nil: 404.
	Queues http.Handler
	// OnlyHealth serves /healthz, /readyz and /metrics, and nothing else.
	OnlyHealth bool
	// Charge is asked for each line of a batch but the first, which its request
	// has paid for. Nil: lines cost nothing.
	Charge Charge
	// Logger. Nil: slog.Default().
	Logger *slog.Logger

	// SlowBody is how long a caller may leave the server waiting for the next
	// part of a body, or for its answer to be taken. Zero: 30 s.
	SlowBody time.Duration
}

const (
	defaultSlowBody = 30 * time.Second
	// answerWithin bounds the work on one request, a batch's apart.
	answerWithin = 15 * time.Second
	// jobOverhead is what a request may hold beside the body of its job.
	jobOverhead = 256 << 10
	maxPatch    = 64 << 10
)

// Server answers HTTP. Make it with New; it is an http.Handler, safe for
// several goroutines, and starts nothing.
type Server struct {
	cfg    Config
	door   *door
	mux    *http.ServeMux
	log    *slog.Logger
	logins *rate.Limiter
}

// New checks the configuration.
func New(cfg Config) (*Server, error) {
	if (cfg.Jobs == nil || cfg.Fleet == nil) && !cfg.OnlyHealth {
		return nil, errors.New("api: Config.Jobs and Config.Fleet are required")
	}
	for _, t := range cfg.Tokens {
		if t.Secret == "" {
			return nil, errors.New("api: the token of " + t.Name + " is empty")
		}
	}
	if cfg.MaxBody == 0 {
		cfg.MaxBody = queue.DefaultMaxBody
	}
	if cfg.SlowBody == 0 {
		cfg.SlowBody = defaultSlowBody
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	s := &Server{cfg: cfg, door: newDoor(cfg.Tokens), log: cfg.Logger, logins: rate.NewLimiter(rate.Every(2*time.Second), 10)}
	s.routes()
	return s, nil
}

func (s *Server) routes() {
	s.mux = http.NewServeMux()
	s.mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") })
	s.mux.HandleFunc("GET /readyz", s.ready)
	if s.cfg.Metrics != nil {
		s.mux.Handle("GET /metrics", s.require(operator, s.cfg.Metrics))
	}
	if s.cfg.OnlyHealth {
		return
	}
	jobs := func(pattern string, h http.HandlerFunc) { s.mux.Handle(pattern, s.require(producer, s.bounded(h))) }
	ops := func(pattern string, h http.HandlerFunc) { s.mux.Handle(pattern, s.require(operator, s.bounded(h))) }

	jobs("POST /v1/jobs", s.enqueue)
	s.mux.Handle("POST /v1/jobs:batch", s.require(producer, http.HandlerFunc(s.batch)))
	jobs("GET /v1/jobs", s.listJobs)
	jobs("GET /v1/jobs/{provider}/{id}", s.getJob)
	jobs("DELETE /v1/jobs/{provider}/{id}", s.cancelJob)
	jobs("POST /v1/jobs/{provider}/{id}/replay", s.replayJob)
	jobs("GET /v1/jobs/{provider}/{id}/why", notBuilt("GET …/why", "look at the job itself and at its provider"))
	ops("GET /v1/providers", s.listProviders)
	ops("GET /v1/providers/{provider}", s.getProvider)
	ops("PATCH /v1/providers/{provider}", s.patchProvider)
	ops("POST /v1/providers/{provider}/pause", s.pauseProvider)
	ops("POST /v1/providers/{provider}/resume", s.resumeProvider)
	ops("GET /v1/events", notBuilt("GET /v1/events", "ask for /v1/providers now and then"))
	ops("GET /{$}", notBuilt("the dashboard at /", "use /queues, /v1/providers or penstock providers"))

	s.mux.HandleFunc("GET /login", s.login)
	s.mux.HandleFunc("POST /login", s.login)
	s.mux.HandleFunc("POST /logout", s.logout)
	if s.cfg.Queues != nil {
		s.mux.Handle("/queues", s.browse(s.cfg.Queues))
		s.mux.Handle("/queues/", s.browse(s.cfg.Queues))
	}
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer func() {
		if v := recover(); v != nil {
			if v == http.ErrAbortHandler {
				panic(v)
			}
			s.log.Error("a request made the server panic", "method", r.Method, "panic", v)
			problem(CodeInternal, "look into the server's log", "the request could not be served").write(w)
		}
	}()
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if r.Body != nil && r.Body != http.NoBody {
		r.Body = &slowBody{ReadCloser: r.Body, rc: http.NewResponseController(w), wait: s.cfg.SlowBody}
	}
	if r.Method == http.MethodPost && r.URL.Path == "/login" {
		r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	}
	if _, pattern := s.mux.Handler(r); pattern == "" {
		s.noRoute(w, r)
		return
	}
	s.mux.ServeHTTP(w, r)
}

// noRoute makes a document of what the mux answers in plain text.
func (s *Server) noRoute(w http.ResponseWriter, r *http.Request) {
	said := &discard{header: http.Header{}}
	h, _ := s.mux.Handler(r)
	h.ServeHTTP(said, r)
	switch allow := said.header.Get("Allow"); {
	case said.status >= 300 && said.status < 400:
		w.Header().Set("Location", said.header.Get("Location"))
		w.WriteHeader(said.status)
	case allow != "":
		w.Header().Set("Allow", allow)
		problem(CodeMethod, "use "+allow, "%s does not know %s", r.URL.Path, r.Method).write(w)
	default:
		problem(CodeNotFound, "see the contract for the paths there are; an id with special characters must be percent-encoded", "there is nothing at this path").write(w)
	}
}

// discard is a ResponseWriter that keeps the status and the header.
type discard struct {
	header http.Header
	status int
}

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) Write(b []byte) (int, error) { return len(b), nil }
func (d *discard) WriteHeader(status int)      { d.status = status }

// bounded gives a request a time to be answered in.
func (s *Server) bounded(h http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), s.cfg.SlowBody+answerWithin)
		defer cancel()
		h(w, r.WithContext(ctx))
	})
}

// slowBody gives each read of a body its own deadline: a slow sender is cut, a
// long one is not.
type slowBody struct {
	io.ReadCloser
	rc   *http.ResponseController
	wait time.Duration
}

func (b *slowBody) Read(p []byte) (int, error) {
	// A writer without deadlines (a test's) has none.
	_ = b.rc.SetReadDeadline(time.Now().Add(b.wait))
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF {
		// The deadline must not outlive the body: it would end the request.
		_ = b.rc.SetReadDeadline(time.Time{})
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = problem(CodeTooSlow, "send the body without long pauses", "nothing came for %s", b.wait)
	}
	return n, err
}

// readBody reads a whole body of at most limit bytes.
func readBody(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	if e := r.Header.Get("Content-Encoding"); e != "" && e != "identity" {
		return nil, problem(CodeMediaType, "send the body as it is", "Content-Encoding %q is not read", e)
	}
	large := func() error {
		return problem(CodeTooLarge, "store it elsewhere and send a reference, or raise the provider's max_body", "the request is longer than %d bytes", limit)
	}
	if r.ContentLength > limit {
		return nil, large()
	}
	b, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	if err == nil {
		return b, nil
	}
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, large()
	}
	if p, ok := errors.AsType[*Problem](err); ok {
		return nil, p
	}
	return nil, problem(CodeInvalid, "send it again", "the body is cut off")
}

// notBuilt answers for what the contract has and this version has not.
func notBuilt(what, fix string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		problem(CodeNotBuilt, fix, "%s is not built yet", what).write(w)
	}
}

// reply sends an answer.
func reply(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

// fail sends an error; what is nobody's fault but ours is logged.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() != nil && errors.Is(err, context.Canceled) {
		return // the caller is gone
	}
	p := problemOf(err)
	switch p.Code {
	case CodeInternal:
		s.log.Error("a request failed", "method", r.Method, "route", r.Pattern, "error", err)
	case CodeStoreAway, CodeFull:
		s.log.Debug("a request was refused", "route", r.Pattern, "error", err)
	}
	p.write(w)
}

// ready says whether jobs can be taken.
func (s *Server) ready(w http.ResponseWriter, r *http.Request) {
	if s.cfg.Ready != nil {
		ctx, cancel := context.WithTimeout(r.Context(), 2*time.Second)
		defer cancel()
		if err := s.cfg.Ready(ctx); err != nil {
			problemOf(err).write(w)
			return
		}
	}
	_, _ = io.WriteString(w, "ready\n")
}
