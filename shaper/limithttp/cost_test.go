package limithttp

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/penstock-io/penstock/internal/redistest"
	"github.com/penstock-io/penstock/shaper"
)

// TestDoorCost prints what the door adds to a handler; it asserts nothing of
// time. Two rules, real Redis on loopback, one request at a time.
func TestDoorCost(t *testing.T) {
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "ok") })
	rules := func(sync time.Duration) []Rule {
		p := func(a shaper.Algorithm) shaper.Policy {
			return shaper.Policy{Algorithm: a, Rate: shaper.Rate{N: 1_000_000, Per: time.Second}}
		}
		return []Rule{
			{Name: "key", By: []string{"api_key"}, Policy: p(shaper.GCRA), SyncEvery: sync},
			{Name: "address", By: []string{"address"}, Policy: p(shaper.SlidingCounter), SyncEvery: sync},
		}
	}
	srv := redistest.Start(t)
	for _, c := range []struct {
		name string
		cfg  *Config
	}{
		{"the handler alone", nil},
		{"memory", &Config{Store: shaper.NewMemoryLimitStore(shaper.MemoryLimits{}), Rules: rules(0)}},
		{"Redis", &Config{Store: shaper.NewRedisLimitStore(srv.Client(), "a"), Rules: rules(0)}},
		{"Redis, sync_every 100ms", &Config{Store: shaper.NewRedisLimitStore(srv.Client(), "b"), Rules: rules(100 * time.Millisecond)}},
	} {
		h := http.Handler(handler)
		if c.cfg != nil {
			c.cfg.Logger = slog.New(slog.DiscardHandler)
			d, err := New(*c.cfg)
			if err != nil {
				t.Fatal(err)
			}
			h = d.Handler(handler)
		}
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("X-Api-Key", "k")
		var took []time.Duration
		for range 3000 {
			w := httptest.NewRecorder()
			start := time.Now()
			h.ServeHTTP(w, r)
			took = append(took, time.Since(start))
			if w.Code != 200 {
				t.Fatal(w.Code)
			}
		}
		slices.Sort(took)
		t.Logf("%-25s p50 %8s  p99 %8s", c.name, took[len(took)/2].Round(100*time.Nanosecond), took[len(took)*99/100].Round(100*time.Nanosecond))
	}
}
