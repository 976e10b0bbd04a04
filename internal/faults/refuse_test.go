//go:build faults

package faults

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/penstock-io/penstock/internal/api"
	"github.com/penstock-io/penstock/internal/fragile"
	"github.com/penstock-io/penstock/queue"
)

// unknownLength hides how long a body is: it is sent in chunks.
type unknownLength struct{ io.Reader }

// What is refused is refused with its reason and a remedy, by the server as any
// client sees it, and leaves nothing behind.
func TestFaultRefusals(t *testing.T) {
	t.Parallel()
	h := build(t, 0, fragile.Config{}, "rate: 1/s\nmax_body: 1MiB")
	body := func(n int) string { return `{"provider":"shop","id":"big","body":"` + strings.Repeat("x", n) + `"}` }
	for _, c := range []struct {
		name   string
		body   io.Reader
		status int
		code   api.Code
		says   []string
	}{
		{"2 MiB", strings.NewReader(body(2 << 20)), 413, api.CodeTooLarge, []string{"max_body", "1048576"}},
		{"2 MiB in chunks", unknownLength{strings.NewReader(body(2 << 20))}, 413, api.CodeTooLarge, []string{"max_body", "1048576"}},
		{"one byte too many", strings.NewReader(body(1<<20 + 1)), 413, api.CodeTooLarge, []string{"max_body", "1048577"}},
		{"64 MiB in chunks", unknownLength{strings.NewReader(body(64 << 20))}, 413, api.CodeTooLarge, nil},
		{"an unknown provider", strings.NewReader(`{"provider":"nobody"}`), 404, api.CodeUnknownProvider, []string{"nobody", "/v1/providers"}},
		{"cut off", strings.NewReader(`{"provider":"shop","id":"x"`), 400, api.CodeInvalid, []string{"cut off"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := h.send(http.MethodPost, "/v1/jobs", c.body)
			var p api.Problem
			if err := json.Unmarshal([]byte(a.body), &p); err != nil {
				t.Fatalf("%d %s: %v", a.status, a.body, err)
			}
			if a.status != c.status || p.Code != c.code || p.Fix == "" || a.header.Get("Content-Type") != "application/problem+json" {
				t.Errorf("got %d %+v", a.status, p)
			}
			for _, s := range c.says {
				if !strings.Contains(p.Detail+p.Fix, s) {
					t.Errorf("%+v does not say %q", p, s)
				}
			}
		})
	}
	if a := h.send(http.MethodPost, "/v1/jobs", strings.NewReader(body(1<<20))); a.status != 202 {
		t.Errorf("1 MiB: %d %s", a.status, a.body)
	}
	h.awaitStates(soon, map[queue.State]int64{queue.Waiting: 1})
}
