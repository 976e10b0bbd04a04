package provider

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptrace"
	"slices"
	"sync/atomic"
	"time"

	"github.com/penstock-io/penstock/breaker"
)

const (
	// DefaultTimeout is what a zero Config.Timeout means.
	DefaultTimeout = 30 * time.Second
	// DefaultKeep is what a zero Config.KeepBytes means.
	DefaultKeep = 16 << 10

	// connectTimeout bounds the making of a connection, which may go on behind a
	// call that has ended.
	connectTimeout = 10 * time.Second
	// idleTimeout is shorter than what common servers wait before they close an
	// idle connection (node and Apache: 5 s). A request that meets the closing is
	// lost and must count as an attempt, since nobody can tell whether it was read.
	idleTimeout = 4 * time.Second
	// maxIdle is how many idle connections are kept. The gate's concurrency bounds
	// the connections in use; a limit below it would only make them anew each time.
	maxIdle = 1024
	// maxHeader bounds an answer's header.
	maxHeader = 64 << 10
	// drain is how much of an answer beyond what is kept is read so that its
	// connection can be used again. More than that is cheaper to cut.
	drain = 256 << 10
	// maxFresh is how often a call is moved to another connection because the
	// one it was given had been closed before a byte was written.
	maxFresh = 3
)

// Config is one provider, as far as calling it is concerned.
type Config struct {
	// Name is the provider's name, for logs. Required.
	Name string
	// BaseURL is the http or https URL that every job's path is joined to.
	// Required. A user and password in it become an Authorization header.
	BaseURL string
	// Headers are added to every call and win over a job's. They are never logged.
	Headers map[string]string
	// Timeout bounds a call from the first byte to the last. Zero: DefaultTimeout.
	Timeout time.Duration
	// KeepBytes is how much of an answer's body is kept. Zero: DefaultKeep.
	KeepBytes int
	// AllowPrivate lets calls go to private and loopback addresses. It is implied
	// by a base URL that names an address; one that names localhost opens the
	// loopback addresses. Link-local addresses and metadata services are never called.
	AllowPrivate bool
	// Again lists 4xx statuses after which a job is tried again, an attempt spent,
	// where it would be dead. 401, 403, 407, 408, 425 and 429 have a meaning of
	// their own and cannot be listed.
	Again []int
	// Prepare, if set, is called for every attempt with the request as it is about
	// to be sent and its body, e.g. to sign both with the attempt's own time. It
	// may set headers and must keep neither argument. It must be safe for several
	// goroutines at once.
	Prepare func(req *http.Request, body []byte)
	// Logger hears of answers that make no sense, once. Nil: slog.Default().
	Logger *slog.Logger
}

// Provider makes calls. It is safe for several goroutines at once. Close it
// when it is no longer used.
type Provider struct {
	name      string
	base      base
	headers   http.Header
	timeout   time.Duration
	keep      int
	again     []int
	prepare   func(*http.Request, []byte)
	logger    *slog.Logger
	oddSaid   atomic.Bool
	dialer    *net.Dialer
	transport *http.Transport
}

// String names the provider and nothing of its configuration, which holds secrets.
func (c Config) String() string { return "provider " + c.Name }

// LogValue is String, for slog.
func (c Config) LogValue() slog.Value { return slog.StringValue(c.String()) }

// String names the provider and nothing of its configuration, which holds secrets.
func (p *Provider) String() string { return "provider " + p.name }

// New checks the configuration and returns a Provider. It connects to nothing.
// Its errors name the field and hold no secret.
func New(cfg Config) (*Provider, error) {
	p := &Provider{name: cfg.Name, timeout: cfg.Timeout, keep: cfg.KeepBytes,
		again: slices.Clone(cfg.Again), prepare: cfg.Prepare, logger: cfg.Logger}
	if p.timeout == 0 {
		p.timeout = DefaultTimeout
	}
	if p.keep == 0 {
		p.keep = DefaultKeep
	}
	if p.logger == nil {
		p.logger = slog.Default()
	}
	var err error
	if p.base, err = parseBase(cfg.BaseURL); err == nil {
		p.headers, err = ownHeaders(cfg.Headers, p.base)
	}
	switch {
	case cfg.Name == "":
		return nil, errors.New("provider: name is missing")
	case err != nil:
		return nil, fmt.Errorf("provider %s: %w", cfg.Name, err)
	case p.timeout < 0:
		return nil, fmt.Errorf("provider %s: timeout %v is negative; leave it out for %v", cfg.Name, cfg.Timeout, DefaultTimeout)
	case p.keep < 0:
		return nil, fmt.Errorf("provider %s: %d bytes of an answer to keep; leave it out for %d", cfg.Name, cfg.KeepBytes, DefaultKeep)
	}
	for _, status := range p.again {
		if status < 400 || status > 499 || slices.Contains(decided, status) {
			return nil, fmt.Errorf("provider %s: status %d cannot be listed as one to try again after; only 4xx other than %v can", cfg.Name, status, decided)
		}
	}
	p.connect(reachOf(p.base.name, cfg.AllowPrivate))
	return p, nil
}

// ownHeaders are the configured ones, with the base URL's user among them.
func ownHeaders(configured map[string]string, b base) (http.Header, error) {
	headers, err := canonical(configured)
	if err != nil {
		return nil, fmt.Errorf("headers: %w", err)
	}
	if _, set := headers[idempotencyKey]; set {
		return nil, errors.New("headers: Idempotency-Key cannot be configured: with one key for all, the provider would take every call but the first for a repetition")
	}
	if b.user == nil {
		return headers, nil
	}
	if _, set := headers["Authorization"]; set {
		return nil, errors.New("base_url holds a user, and headers hold Authorization; keep one of them")
	}
	password, _ := b.user.Password()
	secret := base64.StdEncoding.EncodeToString([]byte(b.user.Username() + ":" + password))
	headers["Authorization"] = []string{"Basic " + secret}
	return headers, nil
}

// connect makes the dialer and the pool of connections.
func (p *Provider) connect(r reach) {
	p.dialer = &net.Dialer{Timeout: connectTimeout, Control: r.control}
	p.transport = &http.Transport{
		Proxy:                  nil, // none from the environment: a proxy would dial where it likes
		DialContext:            p.dialer.DialContext,
		TLSHandshakeTimeout:    connectTimeout,
		MaxIdleConns:           maxIdle,
		MaxIdleConnsPerHost:    maxIdle,
		IdleConnTimeout:        idleTimeout,
		MaxResponseHeaderBytes: maxHeader,
		DisableCompression:     true, // what is kept is what came
		ForceAttemptHTTP2:      true,
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: connectTimeout, PingTimeout: connectTimeout / 2},
	}
}

// Close closes the idle connections. Calls under way are not touched.
func (p *Provider) Close() { p.transport.CloseIdleConnections() }

// Result is what came of one attempt.
type Result struct {
	Verdict
	// Status is the answer's, or 0 where there was none.
	Status int
	// Header is the answer's, nil where there was none.
	Header http.Header
	// Body is the beginning of the answer's body.
	Body []byte
	// Truncated says that the body was longer, or ended before its end.
	Truncated bool
	// Sent says that some of the request may have reached the provider: a call
	// without an answer may have been carried out all the same.
	Sent bool
	// Err is why there was no whole answer. It holds no secret and no URL.
	Err error
}

// Call makes one attempt. It returns when the answer was read, at the
// provider's timeout or ctx's own deadline (both are a timeout), or when ctx is
// cancelled. It never panics for any call and never returns a zero Outcome or Fate.
//
// The answer's status decides the job's fate, even where its body then breaks
// off or does not end in time: the provider has said what became of the call,
// and to make it once more could do it twice. Only the outcome shows the trouble.
func (p *Provider) Call(ctx context.Context, call Call) Result {
	if ctx.Err() != nil {
		return Result{
			Verdict: Verdict{Outcome: breaker.Excluded, Fate: AgainFree, Reason: "no time left for the call"},
			Err:     context.Cause(ctx),
		}
	}
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	sent := new(atomic.Bool)
	answer, err := p.send(ctx, call, sent)
	if err != nil {
		return Result{Verdict: JudgeError(ctx, err), Sent: sent.Load(), Err: err}
	}
	defer answer.Body.Close()
	result := Result{
		Verdict: Judge(answer.StatusCode, answer.Header, time.Now(), p.again),
		Status:  answer.StatusCode, Header: answer.Header, Sent: true,
	}
	if answer.StatusCode >= 200 { // a 101 hands over the connection, which has no end
		result.Body, result.Truncated, result.Err = p.read(answer)
	}
	if result.Err != nil && result.Outcome == breaker.OK {
		result.Outcome = JudgeError(ctx, result.Err).Outcome
	}
	if result.Odd != "" && p.oddSaid.CompareAndSwap(false, true) {
		p.logger.Warn("provider stated a wait that makes no sense; said once", "provider", p.name, "status", result.Status, "wait", result.Odd)
	}
	return result
}

// send makes the request, on another connection where the first was closed
// before a byte of it was written.
func (p *Provider) send(ctx context.Context, call Call, sent *atomic.Bool) (*http.Response, error) {
	for try := 1; ; try++ {
		var reused atomic.Bool
		traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
			GotConn:          func(info httptrace.GotConnInfo) { reused.Store(info.Reused) },
			WroteHeaderField: func(string, []string) { sent.Store(true) },
		})
		req, err := p.request(traced, call)
		if err != nil {
			return nil, err
		}
		if p.prepare != nil {
			p.prepare(req, call.Body)
			if err := checkPrepared(req.Header); err != nil {
				return nil, err
			}
		}
		sendOnce(req, call.Body)
		answer, err := p.transport.RoundTrip(req)
		if err == nil {
			return answer, nil
		}
		if sent.Load() || !reused.Load() || try == maxFresh || ctx.Err() != nil {
			return nil, err
		}
	}
}

// checkPrepared looks once more at headers that Prepare may have set.
func checkPrepared(header http.Header) error {
	for _, name := range slices.Sorted(maps.Keys(header)) {
		for _, value := range header[name] {
			if err := checkHeader(name, value); err != nil {
				return unsendable(err.Error())
			}
		}
	}
	return nil
}

// read keeps the beginning of a body and reads a bounded rest, so that the
// connection can be used again.
func (p *Provider) read(answer *http.Response) (body []byte, truncated bool, err error) {
	body, err = io.ReadAll(io.LimitReader(answer.Body, int64(p.keep)))
	if err != nil || len(body) < p.keep {
		return body, err != nil, err
	}
	if answer.ContentLength > int64(p.keep)+drain {
		return body, true, nil
	}
	rest, err := io.CopyN(io.Discard, answer.Body, drain)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return body, rest > 0 || err != nil, err
}
