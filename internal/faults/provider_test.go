//go:build faults

package faults

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock-io/penstock/internal/api"
	"github.com/penstock-io/penstock/internal/fragile"
	"github.com/penstock-io/penstock/queue"
)

// The breaker would have its own say in these: it is tested in its own room.
const alone = "\nadaptive: off"

// The provider hangs for a while. Each call ends at the timeout and its place
// is free again; later every job succeeds.
func TestFaultProviderHangs(t *testing.T) {
	t.Parallel()
	const jobs = 100
	h := build(t, 2, fragile.Config{}, "rate: 100/s\nconcurrency: 10\ntimeout: 1s\nretry: {attempts: 20, base: 200ms, max: 1s}"+alone)
	h.trouble("0s..5s hang")
	h.enqueue(0, jobs, "")
	h.awaitSucceeded(time.Minute, jobs)
	h.awaitStates(soon, map[queue.State]int64{queue.Succeeded: jobs})
	r := h.shop.Report()
	// Calls that are given up all at once are seen to leave a little later.
	if r.Left < 20 || r.PeakInFlight > 20 || r.SucceededTwice > 0 {
		t.Errorf("the provider saw %+v", r)
	}
	h.attemptsAreCalls(jobs)
}

// The provider cuts half of the connections, some of them after the work was
// done. Every call is an attempt that was counted: nothing below repeats one by
// itself, and each carries the same Idempotency-Key.
func TestFaultProviderCuts(t *testing.T) {
	t.Parallel()
	const jobs = 300
	h := build(t, 2, fragile.Config{}, "rate: 200/s\nconcurrency: 10\nretry: {attempts: 50, base: 100ms, max: 500ms}"+alone)
	h.trouble("0s.. cut 40% x300")
	h.trouble("0s.. lose 20% x100")
	h.enqueue(0, jobs, "")
	h.awaitStates(time.Minute, map[queue.State]int64{queue.Succeeded: jobs})
	r := h.shop.Report()
	if r.Jobs != jobs || r.Cut < 50 || r.Lost < 20 || r.WithoutKey > 0 {
		t.Errorf("the provider saw %+v", r)
	}
	h.attemptsAreCalls(jobs)
}

// attemptsAreCalls checks that Penstock counts as many attempts as the provider
// saw calls, job by job.
func (h *house) attemptsAreCalls(jobs int) {
	h.t.Helper()
	calls := map[string]int{}
	for _, c := range h.shop.Calls() {
		calls[c.Key]++
	}
	for n := range jobs {
		if i := h.job(id(n)); i.Attempts != calls[id(n)] || i.Attempts == 0 {
			h.t.Errorf("%s: %d attempts counted, the provider saw %d", id(n), i.Attempts, calls[id(n)])
		}
	}
}

// The provider refuses who we are. Five refusals hold it for the whole fleet;
// of 12,000 jobs none is lost or dead, and no attempt is spent. Resume goes on.
func TestFaultCredentials(t *testing.T) {
	t.Parallel()
	const jobs = 12_000
	h := build(t, 2, fragile.Config{}, "rate: 50/s\nconcurrency: 1\nretry: {attempts: 1}"+alone)
	h.trouble("0s.. error 401 x5")
	h.enqueue(0, jobs, "")
	h.await(soon, "held", func() bool { return h.status().HeldReason == "credentials" })
	time.Sleep(3 * time.Second)
	if r := h.shop.Report(); r.Calls != 5 {
		t.Errorf("%d calls", r.Calls)
	}
	// What workers had taken before stays with them.
	s := h.status()
	if s.Jobs[queue.Retrying] != 5 || s.Jobs[queue.Waiting]+s.Jobs[queue.Running] != jobs-5 {
		t.Errorf("%+v", s)
	}
	if _, err := h.client.SetLimits(t.Context(), provider, []byte(`{"rate":null,"concurrency":50}`), false); err != nil {
		t.Fatal(err)
	}
	env := []string{"PENSTOCK_SERVER=" + h.url, "PENSTOCK_TOKEN=" + operator}
	if code, said := command(t, env, "providers", "resume", provider); code != 0 {
		t.Fatalf("resume: %d %s", code, said)
	}
	h.awaitSucceeded(90*time.Second, jobs)
	h.awaitStates(soon, map[queue.State]int64{queue.Succeeded: jobs})
	if r := h.shop.Report(); r.Calls != jobs+5 || r.SucceededTwice > 0 {
		t.Errorf("the provider saw %+v", r)
	}
	for n := range 5 {
		if i := h.job(id(n)); i.Attempts != 1 {
			t.Errorf("%+v", i)
		}
	}
}

// 12,000 jobs are refused for good, more than asynq's archive keeps: all can be
// seen, and called again.
func TestFaultManyDead(t *testing.T) {
	t.Parallel()
	const jobs = 12_000
	h := build(t, 2, fragile.Config{}, "concurrency: 50"+alone)
	h.trouble("0s.. error 422 x12000")
	h.enqueue(0, jobs, "")
	h.awaitStates(2*time.Minute, map[queue.State]int64{queue.Dead: jobs})
	seen := map[string]bool{}
	var last api.JobInfo
	for cursor := ""; ; {
		page, err := h.client.Jobs(t.Context(), provider, queue.Filter{State: queue.Dead, Limit: queue.MaxPage, Cursor: cursor})
		if err != nil {
			t.Fatal(err)
		}
		for _, last = range page.Jobs {
			seen[last.ID] = true
		}
		if cursor = page.Next; cursor == "" {
			break
		}
	}
	if len(seen) != jobs || last.Attempts != 1 || last.Status != 422 {
		t.Errorf("%d of %d are listed; one is %+v", len(seen), jobs, last)
	}
	for _, n := range []int{0, jobs / 2, jobs - 1} {
		if _, err := h.client.Replay(t.Context(), provider, id(n)); err != nil {
			t.Error(err)
		}
	}
	h.awaitStates(soon, map[queue.State]int64{queue.Dead: jobs - 3, queue.Succeeded: 3})
}

// A provider that is not there at all: nothing is lost, attempts are spent, and
// what the operator sees says why.
func TestFaultProviderAway(t *testing.T) {
	t.Parallel()
	const jobs = 20
	h := build(t, 1, fragile.Config{}, "rate: 100/s\nretry: {attempts: 2, base: 100ms, max: 200ms}"+alone)
	if err := h.closeShop(); err != nil {
		t.Fatal(err)
	}
	h.enqueue(0, jobs, "")
	h.awaitStates(soon, map[queue.State]int64{queue.Dead: jobs})
	i := h.job(id(0))
	if i.Attempts != 2 || !strings.Contains(i.Reason+i.LastError, "refused") {
		t.Errorf("%+v", i)
	}
}

// OUT-06: what a provider sends unasked, behind an answer that has no body, is
// its own affair: it is not in the log, which stays one JSON object a line.
func TestFaultUnasked(t *testing.T) {
	t.Parallel()
	const secret = "unasked-4111111111111111"
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = io.WriteString(conn, "HTTP/1.1 204 No Content\r\n\r\n"+secret)
		time.Sleep(200 * time.Millisecond)
		_ = conn.Close()
	}))
	defer provider.Close()
	h := build(t, 0, fragile.Config{}, "rate: 100/s"+alone)
	b, err := os.ReadFile(h.config)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(h.config, []byte(strings.ReplaceAll(string(b), h.shop.URL(), provider.URL)), 0o600); err != nil {
		t.Fatal(err)
	}
	w := start(t, "worker", "serve", "--config", h.config, "--role", "worker", "--log-format", "json")
	w.says(soon, `"worker started"`)
	h.enqueue(0, 20, "")
	h.awaitStates(soon, map[queue.State]int64{queue.Succeeded: 20})
	w.signal(syscall.SIGTERM)
	w.ends(soon)
	for line := range strings.Lines(w.out.String()) {
		if !json.Valid([]byte(line)) || strings.Contains(line, "4111") {
			t.Errorf("the log says %q", line)
		}
	}
}
