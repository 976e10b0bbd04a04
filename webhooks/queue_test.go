package webhooks

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/penstock-io/penstock/internal/redistest"
	"github.com/penstock-io/penstock/queue"
)

// replica is a handler on a client of its own, as in another process.
func replica(t testing.TB, rdb redis.UniversalClient, change func(*Config)) *workbench {
	t.Helper()
	c, err := queue.NewClient(queue.Config{Redis: rdb, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Publish(t.Context(), "billing", queue.Spec{}); err != nil {
		t.Fatal(err)
	}
	return newWorkbench(t, func(cfg *Config) {
		cfg.Queue = c
		if change != nil {
			change(cfg)
		}
	})
}

func waitingJobs(t testing.TB, b *workbench) int {
	t.Helper()
	n, err := b.cfg.Queue.(*queue.Client).Counts(t.Context(), "billing")
	if err != nil {
		t.Fatal(err)
	}
	return int(n[queue.Waiting])
}

// WHK-01: the same delivery at the same moment on two replicas is one job.
func TestTwoReplicas(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient, env *redistest.Env) {
		a, b := replica(t, rdb, nil), replica(t, env.Client(), nil)
		const events, copies = 20, 8
		var mu sync.Mutex
		results := map[string]int{}
		for e := range events {
			var wg sync.WaitGroup
			for c := range copies {
				w := []*workbench{a, b}[c%2]
				r := w.request(t, fmt.Sprintf(`{"id":"evt_%d"}`, e))
				wg.Go(func() {
					rec := w.deliver(r)
					mu.Lock()
					defer mu.Unlock()
					results[fmt.Sprint(rec.Code, rec.Header().Get(ResultHeader))]++
				})
			}
			wg.Wait()
		}
		if results["200accepted"] != events || results["200duplicate"] != events*(copies-1) {
			t.Errorf("answers %v", results)
		}
		if n := waitingJobs(t, a); n != events {
			t.Errorf("%d jobs, want %d", n, events)
		}
	})
}

// WHK-03: the window of repeats is hours, the tolerance of time minutes.
func TestWindow(t *testing.T) {
	redistest.Virtual(t, func(t *testing.T, rdb redis.UniversalClient, _ *redistest.Env) {
		b := replica(t, rdb, nil)
		first := b.request(t, stripeBody)
		if w := b.deliver(first); w.Header().Get(ResultHeader) != "accepted" {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
		for _, later := range []time.Duration{6 * time.Hour, 64 * time.Hour} {
			time.Sleep(later)
			if w := b.deliver(b.request(t, stripeBody)); w.Code != 200 || w.Header().Get(ResultHeader) != "duplicate" {
				t.Errorf("%s later: %d %v", later, w.Code, w.Header())
			}
		}
		replayed := httptest.NewRequest("POST", "/", strings.NewReader(stripeBody))
		replayed.Header = first.Header
		if w := b.deliver(replayed); w.Code != 401 || b.seen.last().Reason != Stale {
			t.Errorf("the first one again: %d %+v", w.Code, b.seen.last())
		}
		if n := waitingJobs(t, b); n != 1 {
			t.Errorf("%d jobs", n)
		}
	})
}

func TestCheck(t *testing.T) {
	redistest.Virtual(t, func(t *testing.T, rdb redis.UniversalClient, _ *redistest.Env) {
		b := replica(t, rdb, nil)
		c := b.cfg.Queue.(*queue.Client)
		if err := c.Publish(t.Context(), "billing", queue.Spec{MaxBody: 1000}); err != nil {
			t.Fatal(err)
		}
		err := b.h.Check(t.Context())
		if !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), "raise its max_body") {
			t.Errorf("the provider takes less: %v", err)
		}
		if err := c.Publish(t.Context(), "billing", queue.Spec{}); err != nil {
			t.Fatal(err)
		}
		if err := b.h.Check(t.Context()); err != nil {
			t.Errorf("the provider takes as much: %v", err)
		}
		other := newWorkbench(t, func(cfg *Config) { cfg.Queue, cfg.To.Provider = c, "nobody" })
		if err := other.h.Check(t.Context()); !errors.Is(err, queue.ErrUnknownProvider) {
			t.Errorf("unknown provider: %v", err)
		}
		if w := other.deliver(other.request(t, stripeBody)); w.Code != 503 || other.seen.last().Reason != NoDestination {
			t.Errorf("%d %+v", w.Code, other.seen.last())
		}
		if err := newWorkbench(t, nil).h.Check(t.Context()); err != nil {
			t.Errorf("a queue that has no specs: %v", err)
		}
	})
}

// A storm while Redis (appendfsync always) is killed and started again: what
// was answered 200 is there, once; what was not is repeated by the sender.
func TestRedisKilledInTheStorm(t *testing.T) {
	for _, spooled := range []bool{false, true} {
		t.Run(fmt.Sprintf("spool=%v", spooled), func(t *testing.T) {
			srv := redistest.Start(t, "appendonly", "yes", "appendfsync", "always")
			rdb := srv.ClientWith(redis.Options{MaxRetries: -1, ContextTimeoutEnabled: true, DialTimeout: time.Second})
			b := replica(t, rdb, func(c *Config) {
				c.StoreTimeout = 500 * time.Millisecond
				if spooled {
					c.Spool = openSpool(t, t.TempDir(), c.Queue, nil)
				}
			})
			const events = 400
			var refused, acked int
			for i := range events {
				switch i {
				case 100:
					srv.Kill()
				case 200:
					srv.Restart()
				}
				body := fmt.Sprintf(`{"id":"evt_%d"}`, i)
				w := b.deliver(b.request(t, body))
				for tries := 0; w.Code != http.StatusOK; tries++ {
					refused++
					if w.Code != 503 || w.Header().Get("Retry-After") == "" || tries > 200 {
						t.Fatalf("%d %s", w.Code, w.Body)
					}
					if i < 200 {
						break // the sender comes again once Redis is back, see below
					}
					time.Sleep(50 * time.Millisecond)
					w = b.deliver(b.request(t, body))
				}
				if w.Code == http.StatusOK {
					acked++
				}
			}
			if spooled && (refused != 0 || acked != events) {
				t.Errorf("%d refused, %d acknowledged of %d with the spool on", refused, acked, events)
			}
			if !spooled && refused == 0 {
				t.Error("nobody was refused while Redis was dead")
			}
			if spooled {
				eventually(t, "spool empty", func() bool { return b.cfg.Spool.Len() == 0 })
			}
			for i := range events { // all of it once more, as senders do
				if w := b.deliver(b.request(t, fmt.Sprintf(`{"id":"evt_%d"}`, i))); w.Code != http.StatusOK {
					t.Fatalf("%d %s", w.Code, w.Body)
				}
			}
			if n := waitingJobs(t, b); n != events {
				t.Errorf("%d jobs, want %d", n, events)
			}
		})
	}
}

func BenchmarkVerifyAndEnqueue(b *testing.B) {
	srv := redistest.Start(b)
	w := replica(b, srv.Client(), func(c *Config) { c.Logger, c.Observer = slog.New(slog.DiscardHandler), nil })
	i := 0
	for b.Loop() {
		i++
		r := w.request(b, fmt.Sprintf(`{"id":"evt_%d","data":"%s"}`, i, strings.Repeat("x", 1000)))
		if rec := w.deliver(r); rec.Code != 200 {
			b.Fatal(rec.Code, rec.Body)
		}
	}
}
