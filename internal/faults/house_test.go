//go:build faults

package faults

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/penstock-io/penstock/internal/api"
	"github.com/penstock-io/penstock/internal/fragile"
	"github.com/penstock-io/penstock/internal/redistest"
	"github.com/penstock-io/penstock/queue"
)

const (
	operator = "operator-0123456789"
	provider = "shop"
	// soon is for what takes milliseconds on a machine with nothing else to do.
	soon = 30 * time.Second
)

// durable are the settings with which Redis keeps what it acknowledged.
var durable = []string{"appendonly", "yes", "appendfsync", "always"}

// house is a store, an API, workers and their provider.
type house struct {
	t     *testing.T
	redis *redistest.Server
	rdb   *redis.Client
	shop  *fragile.Server
	// closeShop ends the provider before the test does.
	closeShop func() error
	config    string
	api       *process
	url       string
	client    *api.Client
	workers   []*process
}

// build starts a store, a provider, an API and so many workers. settings are
// lines of the provider's configuration, indented by nothing.
func build(t *testing.T, workers int, shop fragile.Config, settings string, store ...string) *house {
	t.Helper()
	shop.Remember = 200_000
	f, err := fragile.Start("", shop)
	if err != nil {
		t.Fatal(err)
	}
	closed := sync.OnceValue(f.Close)
	t.Cleanup(func() { _ = closed() })
	h := &house{t: t, closeShop: closed, redis: redistest.Start(t, store...), shop: f, config: filepath.Join(t.TempDir(), "penstock.yaml")}
	h.rdb = h.redis.Client()
	h.configure(settings)
	h.startAPI()
	for range workers {
		h.worker()
	}
	return h
}

// configure writes the file.
func (h *house) configure(settings string) {
	h.t.Helper()
	settings = strings.ReplaceAll(strings.TrimSpace(settings), "\n", "\n    ")
	text := fmt.Sprintf(`redis: %q
listen: 127.0.0.1:0
auth: {operators: [{name: ops, token: %s}]}
providers:
  %s:
    base_url: %q
    %s
`, h.redis.URL(), operator, provider, h.shop.URL(), settings)
	if err := os.WriteFile(h.config, []byte(text), 0o600); err != nil {
		h.t.Fatal(err)
	}
}

func (h *house) startAPI() {
	h.t.Helper()
	h.api = start(h.t, "api", "serve", "--config", h.config, "--role", "api")
	h.url = "http://" + h.api.says(soon, `msg=listening addr=(\S+)`)
	var err error
	if h.client, err = api.NewClient(h.url, operator); err != nil {
		h.t.Fatal(err)
	}
}

// worker starts one more.
func (h *house) worker(flags ...string) *process {
	h.t.Helper()
	args := append([]string{"serve", "--config", h.config, "--role", "worker"}, flags...)
	w := start(h.t, fmt.Sprintf("worker %d", len(h.workers)+1), args...)
	w.says(soon, `msg="worker started"`)
	h.workers = append(h.workers, w)
	return w
}

// id names the nth job.
func id(n int) string { return fmt.Sprintf("j-%05d", n) }

// enqueue sends jobs from..to-1 as one batch; fields are further ones of each.
func (h *house) enqueue(from, to int, fields string) {
	h.t.Helper()
	var lines strings.Builder
	for n := from; n < to; n++ {
		fmt.Fprintf(&lines, `{"provider":%q,"id":%q,"path":"/orders","body":{"n":%d}%s}`+"\n", provider, id(n), n, fields)
	}
	got := 0
	for l, err := range h.client.Batch(h.t.Context(), strings.NewReader(lines.String())) {
		if err != nil || l.Error != nil || l.Known {
			h.t.Fatalf("line %+v: %v", l, err)
		}
		got++
	}
	if got != to-from {
		h.t.Fatalf("%d of %d lines were answered", got, to-from)
	}
}

// await waits for something.
func (h *house) await(limit time.Duration, what string, cond func() bool) {
	h.t.Helper()
	for end := time.Now().Add(limit); !cond(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			h.t.Fatalf("not within %s: %s; the provider saw %+v", limit, what, h.shop.Report())
		}
	}
}

// awaitSucceeded waits until the provider has done n different jobs.
func (h *house) awaitSucceeded(limit time.Duration, n int) {
	h.t.Helper()
	h.await(limit, fmt.Sprintf("%d jobs succeeded", n), func() bool { return h.shop.Report().JobsSucceeded >= n })
}

// awaitStates waits until Penstock counts so many jobs in each state that is
// named, and none in any other.
func (h *house) awaitStates(limit time.Duration, want map[queue.State]int64) {
	h.t.Helper()
	var last string
	same := func() bool {
		s, err := h.client.Provider(h.t.Context(), provider)
		last = fmt.Sprint(s.Jobs, err)
		if err != nil {
			return false
		}
		for _, state := range queue.States() {
			if s.Jobs[state] != want[state] {
				return false
			}
		}
		return true
	}
	for end := time.Now().Add(limit); !same(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			h.t.Fatalf("not within %s: jobs by state are %s, want %v", limit, last, want)
		}
	}
}

// status of the provider as Penstock shows it.
func (h *house) status() api.ProviderStatus {
	h.t.Helper()
	s, err := h.client.Provider(h.t.Context(), provider)
	if err != nil {
		h.t.Fatal(err)
	}
	return s
}

// job as Penstock shows it.
func (h *house) job(id string) api.JobInfo {
	h.t.Helper()
	i, err := h.client.Job(h.t.Context(), provider, id)
	if err != nil {
		h.t.Fatal(err)
	}
	return i
}

// trouble adds one to the provider's script, from now on.
func (h *house) trouble(line string) {
	h.t.Helper()
	tr, err := fragile.ParseTrouble(line)
	if err == nil {
		err = h.shop.Inject(tr)
	}
	if err != nil {
		h.t.Fatal(err)
	}
}

// settleTime is how long before a fault a call may have ended whose end was
// not stored yet.
const settleTime = time.Second

// span is a time of the provider's.
type span struct{ from, to time.Duration }

// calledTwice lists the jobs that were called more than once; any whose first
// call was not in flight during one of the faults is an error.
func (h *house) calledTwice(faults ...span) []string {
	h.t.Helper()
	first := map[string]fragile.Call{}
	n := map[string]int{}
	for _, c := range h.shop.Calls() {
		if f, ok := first[c.Key]; !ok || c.At < f.At {
			first[c.Key] = c
		}
		n[c.Key]++
	}
	if len(n) == 0 {
		h.t.Fatal("no call is remembered")
	}
	var twice []string
	for key, calls := range n {
		if calls == 1 {
			continue
		}
		twice = append(twice, key)
		f, excused := first[key], false
		for _, s := range faults {
			excused = excused || f.At <= s.to && f.At+f.Took >= s.from-settleTime
		}
		if !excused {
			h.t.Errorf("%s was called %d times, first at %s for %s, and was in flight at none of %v", key, calls, f.At, f.Took, faults)
		}
	}
	return twice
}

// arrivals between two moments of the provider's time.
func (h *house) arrivals(s span) (n int, last time.Duration) {
	for _, c := range h.shop.Calls() {
		if c.At > s.from && c.At < s.to {
			n++
			last = max(last, c.At)
		}
	}
	return n, last
}
