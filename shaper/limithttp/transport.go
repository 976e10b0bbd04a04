package limithttp

import (
	"context"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/penstock-io/penstock/internal/provider"
	"github.com/penstock-io/penstock/shaper/guard"
)

// Transport returns a RoundTripper that makes every request of base a guarded
// call: it waits for its permit, and what the answer says (429, Retry-After,
// refused credentials) holds the whole fleet. Give an http.Client with it to
// any vendor's SDK, and the SDK is shaped:
//
//	client := &http.Client{Transport: limithttp.Transport(g, nil)}
//
// A nil base is http.DefaultTransport. The permit is held until the answer's
// body is read to its end or closed, and the guard's timeout bounds all of it.
// Every answer is returned as it came, whatever its status; errors are base's,
// or guard's where no call was made (errors.Is(err, guard.ErrNotCalled)).
// A redirect that the client follows is a call of its own, with its own permit.
func Transport(g *guard.Guard, base http.RoundTripper) http.RoundTripper {
	if base == nil {
		base = http.DefaultTransport
	}
	return &transport{guard: g, base: base}
}

type transport struct {
	guard *guard.Guard
	base  http.RoundTripper
}

type roundTrip struct {
	resp *http.Response
	err  error
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	answered := make(chan roundTrip, 1)
	go func() {
		called := false
		err := t.guard.Do(req.Context(), guard.Request{}, func(ctx context.Context) error {
			called = true
			return t.call(ctx, req, answered)
		})
		if !called {
			if req.Body != nil {
				_ = req.Body.Close() // a RoundTripper closes it, on errors too
			}
			answered <- roundTrip{err: err}
		}
	}()
	r := <-answered
	return r.resp, r.err
}

// call makes the request, hands the answer over, and stays until its body is
// done with: until then the call is in flight.
func (t *transport) call(ctx context.Context, req *http.Request, answered chan<- roundTrip) error {
	resp, err := t.base.RoundTrip(req.Clone(ctx))
	if err != nil {
		answered <- roundTrip{err: err}
		return verdictErr(provider.JudgeError(ctx, err), err)
	}
	body := &watchedBody{ReadCloser: resp.Body, done: make(chan struct{})}
	resp.Body = body
	answered <- roundTrip{resp: resp}
	verdict := provider.Judge(resp.StatusCode, resp.Header, time.Now(), nil)
	select {
	case <-body.done:
		return verdictErr(verdict, nil)
	case <-ctx.Done():
		return verdictErr(provider.JudgeError(ctx, context.Cause(ctx)), context.Cause(ctx))
	}
}

// watchedBody tells when an answer's body was read to its end or closed.
type watchedBody struct {
	io.ReadCloser
	once sync.Once
	done chan struct{}
}

func (b *watchedBody) finish() { b.once.Do(func() { close(b.done) }) }

func (b *watchedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.finish()
	}
	return n, err
}

func (b *watchedBody) Close() error {
	defer b.finish()
	return b.ReadCloser.Close()
}

// verdictError carries a verdict to the guard; the caller of RoundTrip never
// sees it.
type verdictError struct {
	provider.Verdict
	cause error
}

func (e *verdictError) Error() string {
	if e.cause != nil {
		return e.cause.Error()
	}
	return e.Reason
}
func (e *verdictError) Unwrap() error { return e.cause }

// Report implements guard.Reporter.
func (e *verdictError) Report() guard.Report {
	return guard.Report{Outcome: e.Outcome, RetryAfter: e.RetryAfter, Credentials: e.Credentials}
}

// verdictErr is nil for a good answer, and what the guard is told of any other.
func verdictErr(v provider.Verdict, cause error) error {
	if cause == nil && v.Fate == provider.Succeeded {
		return nil
	}
	return &verdictError{Verdict: v, cause: cause}
}
