package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/penstock-io/penstock/queue"
	"github.com/penstock-io/penstock/shaper"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// The one table of errors: what the server makes of an error, the client gives
// back as the same error.
func TestErrorsThereAndBack(t *testing.T) {
	seen := map[Code]bool{}
	n := 0
	for _, e := range codes {
		if seen[e.code] || e.status < 400 || e.title == "" || http.StatusText(e.status) == "" {
			t.Errorf("%s stands twice, or lacks something", e.code)
		}
		seen[e.code] = true
		for _, is := range e.is {
			n++
			w := httptest.NewRecorder()
			problemOf(fmt.Errorf("wrapped: %w", is)).write(w)
			got := readProblem(w.Code, w.Header().Get("Retry-After"), w.Body.Bytes())
			if w.Code != e.status || got.Code != e.code || !errors.Is(got, is) {
				t.Errorf("%v came back as %d %v", is, w.Code, got)
			}
		}
	}
	if n < 8 {
		t.Fatalf("only %d errors", n)
	}
	for _, is := range []error{queue.ErrInvalid, queue.ErrTooLarge, queue.ErrUnknownProvider, queue.ErrConflict, queue.ErrFull,
		queue.ErrUnavailable, queue.ErrNotFound, queue.ErrState, shaper.ErrBadLimit} {
		if codeOf(is) == CodeInternal {
			t.Errorf("%v has no code", is)
		}
	}
}

// OUT-06: what is nobody's fault but ours goes to the log, not to the caller.
func TestInternalErrorsSayNothing(t *testing.T) {
	p := problemOf(errors.New("dial redis://:topsecret@host failed"))
	b, err := json.Marshal(p)
	if err != nil || p.Code != CodeInternal || strings.Contains(string(b), "topsecret") {
		t.Errorf("%s %v", b, err)
	}
	if p := problemOf(&queue.UnavailableError{Err: errors.New("dial redis://:topsecret@host")}); p.Code != CodeStoreAway || strings.Contains(p.Error(), "topsecret") {
		t.Errorf("%v", p)
	}
	if p := problemOf(fmt.Errorf("x: %w", context.DeadlineExceeded)); p.Code != CodeStoreAway {
		t.Errorf("%v", p)
	}
}

// What is no Penstock server is said so.
func TestClientOfAnotherServer(t *testing.T) {
	for _, tt := range []struct {
		status int
		body   string
	}{{200, "<html>"}, {404, "not found"}, {502, "bad gateway"}, {302, ""}, {200, ""}} {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "https://evil.example/")
			w.WriteHeader(tt.status)
			_, _ = io.WriteString(w, tt.body)
		}))
		c, err := NewClient(srv.URL, "t")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Job(t.Context(), "sms", "1"); err == nil || !strings.Contains(err.Error(), "--server") {
			t.Errorf("%d %q: %v", tt.status, tt.body, err)
		}
		for _, err := range c.Batch(t.Context(), strings.NewReader("x\n")) {
			if err == nil {
				t.Errorf("%d %q: a batch had a result", tt.status, tt.body)
			}
		}
		srv.Close()
		if _, err := c.Providers(t.Context()); !errors.Is(err, ErrServerAway) {
			t.Errorf("a server that is gone: %v", err)
		}
	}
	for _, bad := range []string{"", "localhost:8080", "ftp://x", "http://u:topsecret@x", "http://x?a", "http://"} {
		if _, err := NewClient(bad, ""); err == nil || strings.Contains(err.Error(), "topsecret") {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if _, err := NewClient("http://x", "a\nb"); err == nil {
		t.Error("a token with a line break was taken")
	}
}
