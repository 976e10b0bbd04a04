package provider

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newProvider makes a provider that is closed when the test ends.
func newProvider(t *testing.T, cfg Config) *Provider {
	t.Helper()
	if cfg.Name == "" {
		cfg.Name = "sms"
	}
	p, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// serve starts a server on loopback that is closed when the test ends.
func serve(t testing.TB, handler http.HandlerFunc) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return server
}

// pipes is a listener whose connections are pipes inside this process, so that
// a synctest bubble holds both ends.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), closed: make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { p.once.Do(func() { close(p.closed) }); return nil }
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "unix"} }

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case p.conns <- theirs:
		return ours, nil
	case <-p.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// inBubble starts a server and a provider that reaches it through pipes. Call
// stop before the bubble ends.
func inBubble(t *testing.T, cfg Config, handler http.HandlerFunc) (p *Provider, stop func()) {
	t.Helper()
	listener := newPipes()
	server := &http.Server{Handler: handler}
	var running sync.WaitGroup
	running.Go(func() { server.Serve(listener) })
	cfg.Name, cfg.BaseURL = "sms", "http://sms.example"
	p, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	p.transport.DialContext = listener.dial
	return p, func() {
		p.Close()
		server.Close()
		running.Wait()
		time.Sleep(time.Minute) // of the bubble: handlers see that it is over, and end
	}
}
