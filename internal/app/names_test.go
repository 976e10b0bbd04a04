package app

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/penstock-io/penstock/internal/redistest"
)

// Namespace a.b with provider c has the queue of namespace a with provider b.c:
// the second is refused, and has changed nothing of the first.
func TestNamesThatMeet(t *testing.T) {
	d := newDownstream(t)
	red := redistest.Start(t)
	source := func(namespace, provider, rate string) string {
		return fmt.Sprintf("redis: {url: %q, namespace: %s}\nlisten: 127.0.0.1:0\nauth: {operators: [{name: ops, token: %s}]}\nproviders: {%s: {base_url: %q, rate: %s}}\n",
			red.URL(), namespace, testToken, provider, d.URL, rate)
	}
	r := serve(t, source("a", "b.c", "5/s"), Options{})
	for _, role := range Roles() {
		err := Serve(t.Context(), parse(t, source("a.b", "c", "7/s")), Options{Role: role, Logger: slog.New(slog.DiscardHandler)})
		if err == nil || !strings.Contains(err.Error(), "rename") {
			t.Errorf("role %s: %v", role, err)
		}
	}
	if p, err := r.client.Provider(t.Context(), "b.c"); err != nil || p.Limits.Rate != "5/s" || p.Version != 1 {
		t.Errorf("%+v %v", p, err)
	}
}
