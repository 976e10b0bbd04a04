package fragile

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// maxBody is how much of a request's body is read before it is answered.
const maxBody = 16 << 20

// Provider is the rehearsal provider as an http.Handler. Safe for several
// goroutines. See the package's documentation for what a call goes through.
type Provider struct {
	cfg Config
	mu  sync.Mutex
	run *run
}

// New returns a provider whose script starts now.
func New(cfg Config) (*Provider, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.normal()
	return &Provider{cfg: cfg, run: newRun(cfg, time.Now())}, nil
}

// Reset starts the script, the limiters and the account anew. Calls in flight
// are told to the account that they arrived in.
func (p *Provider) Reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.run = newRun(p.cfg, time.Now())
}

// Inject adds a trouble to the script whose times count from now.
func (p *Provider) Inject(t Trouble) error {
	if err := t.validate(); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.run.inject(time.Since(p.run.zero), t)
	return nil
}

// Now is the provider's time: since its start or its last reset.
func (p *Provider) Now() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Since(p.run.zero)
}

// Calls returns the last Config.Remember calls that have ended, in the order
// in which they ended.
func (p *Provider) Calls() []Call {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.run.acc.remembered()
}

// ServeHTTP takes a call. Paths that begin with /__ are the provider's own:
// see admin.
func (p *Provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if strings.HasPrefix(r.URL.Path, "/__") {
		p.admin(w, r)
		return
	}
	t := p.arrive(r.Header)
	if r.ContentLength != 0 {
		// An unread body would cost the connection. What is wrong with it shows below.
		_, _ = io.Copy(io.Discard, io.LimitReader(r.Body, maxBody))
	}
	if !wait(r.Context(), t) {
		t.call.Status, t.call.End = 0, Left
	}
	// Told before it is written: who has the answer finds the place free and
	// the account complete.
	p.finish(t)
	answer(w, t)
}

func (p *Provider) arrive(h http.Header) ticket {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.run.arrive(time.Since(p.run.zero), h.Get("Idempotency-Key"))
	if p.cfg.CountBy != "" {
		p.run.acc.countBy(h.Get(p.cfg.CountBy))
	}
	return t
}

func (p *Provider) finish(t ticket) {
	p.mu.Lock()
	defer p.mu.Unlock()
	t.call.Took = time.Since(t.run.zero) - t.call.At
	t.run.acc.end(t.call, t.accepted)
}

// wait lets the time of the call pass, and reports whether the caller stayed.
func wait(ctx context.Context, t ticket) bool {
	if t.hang {
		<-ctx.Done()
		return false
	}
	if t.delay <= 0 {
		return true
	}
	timer := time.NewTimer(t.delay)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

var (
	bodyOK      = []byte(`{"status":"ok"}` + "\n")
	bodyRefused = []byte(`{"status":"too many requests"}` + "\n")
	bodyFailed  = []byte(`{"status":"failed"}` + "\n")
)

func answer(w http.ResponseWriter, t ticket) {
	if t.call.Status == 0 {
		cut(w)
		return
	}
	h := w.Header()
	h["Content-Type"] = []string{"application/json"}
	if t.reply != "" {
		h["Retry-After"] = []string{t.reply}
	}
	body := bodyOK
	switch {
	case t.call.Status == http.StatusTooManyRequests:
		body = bodyRefused
	case t.call.Status >= 400:
		body = bodyFailed
	}
	w.WriteHeader(t.call.Status)
	_, _ = w.Write(body) // a caller that left is counted already
}

// cut resets the connection, or aborts the answer where it cannot be had.
func cut(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // a reset instead of an orderly end
	}
	_ = conn.Close()
}
