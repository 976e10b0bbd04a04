package limithttp

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock-io/penstock/internal/redistest"
	"github.com/penstock-io/penstock/shaper"
	"github.com/penstock-io/penstock/shaper/guard"
)

func shaped(t *testing.T, cfg guard.Config, h http.HandlerFunc) (*http.Client, string, *guard.Guard) {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	cfg.Redis, cfg.Provider = redistest.Start(t).Client(), "vendor"
	g := guard.New(cfg)
	if err := g.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = g.Close(t.Context()) })
	return &http.Client{Transport: Transport(g, srv.Client().Transport)}, srv.URL, g
}

// The place is held until the body is read, and no longer.
func TestTransportHoldsUntilBodyIsRead(t *testing.T) {
	var inFlight, most atomic.Int64
	c, url, _ := shaped(t, guard.Config{Limits: shaper.Limits{Concurrency: 2}}, func(w http.ResponseWriter, _ *http.Request) {
		n := inFlight.Add(1)
		defer inFlight.Add(-1)
		most.Store(max(most.Load(), n))
		_, _ = io.WriteString(w, strings.Repeat("x", 1<<16))
	})
	first, err := c.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	second, err := c.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	third := make(chan error, 1)
	go func() {
		r, err := c.Get(url)
		if err == nil {
			err = r.Body.Close()
		}
		third <- err
	}()
	select {
	case err := <-third:
		t.Fatalf("a third call went while two bodies were unread: %v", err)
	case <-time.After(300 * time.Millisecond):
	}
	if n, err := io.Copy(io.Discard, first.Body); err != nil || n != 1<<16 {
		t.Fatalf("read %d bytes, %v", n, err)
	}
	if err := <-third; err != nil {
		t.Fatal(err)
	}
	_ = second.Body.Close()
	if most.Load() > 2 {
		t.Errorf("%d in flight, limit 2", most.Load())
	}
}

// A vendor's SDK that knows nothing of us stops at a Retry-After, and the
// caller still sees the answer.
func TestTransportHearsRetryAfter(t *testing.T) {
	var calls atomic.Int64
	c, url, g := shaped(t, guard.Config{}, func(w http.ResponseWriter, _ *http.Request) {
		calls.Add(1)
		w.Header().Set("Retry-After", "3600")
		w.WriteHeader(http.StatusTooManyRequests)
	})
	r, err := c.Post(url, "text/plain", strings.NewReader("hello"))
	if err != nil || r.StatusCode != http.StatusTooManyRequests {
		t.Fatalf("%v %v", r, err)
	}
	_ = r.Body.Close()
	deadline := time.Now().Add(5 * time.Second)
	for {
		s, err := g.Gate().Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if !s.HeldUntil.IsZero() {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the provider is not held")
		}
		time.Sleep(5 * time.Millisecond)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if r, err := c.Do(req); err == nil {
		_ = r.Body.Close()
		t.Fatal("a call went while held")
	} else if !errors.Is(err, guard.ErrNotCalled) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v, want ErrNotCalled and the context's", err)
	}
	if calls.Load() != 1 {
		t.Errorf("%d calls, want 1", calls.Load())
	}
}

// A bad guard is an error of the first call, not a panic or a hang.
func TestTransportOfABadGuard(t *testing.T) {
	c := &http.Client{Transport: Transport(guard.New(guard.Config{Provider: "Not A Name"}), nil)}
	if r, err := c.Get("http://127.0.0.1:1/"); err == nil {
		_ = r.Body.Close()
		t.Fatal("no error")
	} else if !errors.Is(err, guard.ErrNotCalled) {
		t.Errorf("error %v, want ErrNotCalled", err)
	}
}
