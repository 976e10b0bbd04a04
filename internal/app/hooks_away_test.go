package app

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/penstock-io/penstock/internal/redistest"
	"github.com/penstock-io/penstock/queue"
)

// status asks a path of the API, which needs no token for it.
func (r *running) status(path string) int {
	r.t.Helper()
	resp, err := http.Get(r.url + path)
	if err != nil {
		r.t.Fatal(err)
	}
	resp.Body.Close()
	http.DefaultClient.CloseIdleConnections()
	return resp.StatusCode
}

// sometime waits for what another goroutine does.
func (r *running) sometime(what string, cond func() bool) {
	r.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !cond(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			r.t.Fatalf("never: %s", what)
		}
	}
}

// Redis away and no spool: 503 with Retry-After at once, so that the sender
// repeats; the repeat is taken when Redis is back.
func TestWebhookRedisAway(t *testing.T) {
	d := newDownstream(t)
	srv := redistest.Start(t, "appendonly", "yes", "appendfsync", "always")
	r := serve(t, hookSource("redis://"+srv.Addr, d.URL, ""), Options{})
	s := r.stripe()
	if a := s.send(s.delivery(`{"id":"evt_1"}`, time.Now())); a.status != 200 {
		t.Fatalf("%+v", a)
	}
	r.until("sms", "stripe:evt_1", queue.Succeeded) // so the worker has started
	srv.Kill()
	for i := range 3 {
		a := s.send(s.delivery(fmt.Sprintf(`{"id":"evt_away_%d"}`, i), time.Now()))
		if a.status != 503 || a.retry != "5" || a.reason != "store_away" || a.fix == "" {
			t.Errorf("%+v", a)
		}
	}
	if got := r.metricsOf(`reason="store_away",webhook="stripe"`); !strings.Contains(got, "refusals_total") || !strings.Contains(got, "} 3") {
		t.Errorf("counted %q", got)
	}
	if n := r.status("/readyz"); n != 503 {
		t.Errorf("/readyz: %d", n)
	}
	srv.Restart()
	r.sometime("the sender's repeat is taken", func() bool {
		a := s.send(s.delivery(`{"id":"evt_away_0"}`, time.Now()))
		return a.status == 200
	})
	r.until("sms", "stripe:evt_away_0", queue.Succeeded)
}

// With a spool deliveries are acknowledged while Redis is away: also by a
// process that starts then. They reach the application in their order.
func TestWebhookSpool(t *testing.T) {
	d := newDownstream(t)
	srv := redistest.Start(t, "appendonly", "yes", "appendfsync", "always")
	dir := filepath.Join(t.TempDir(), "spool")
	src := hookSource("redis://"+srv.Addr, d.URL, fmt.Sprintf("spool: {dir: %q, max_bytes: 1MiB}\n", dir))
	r := serve(t, src, Options{})
	s := r.stripe()
	send := func(id string, want ...string) {
		t.Helper()
		if a := s.send(s.delivery(fmt.Sprintf(`{"id":%q}`, id), time.Now())); a.status != 200 || !slices.Contains(want, a.result) {
			t.Fatalf("%s: %+v, want %v", id, a, want)
		}
	}
	send("evt_before", "accepted")
	r.until("sms", "stripe:evt_before", queue.Succeeded)
	srv.Kill()
	for i := range 20 {
		send(fmt.Sprintf("evt_%02d", i), "spooled")
	}
	send("evt_before", "spooled") // a repeat, which only Redis can know
	if n := r.status("/readyz"); n != 200 {
		t.Errorf("/readyz with room in the spool: %d", n)
	}
	if got := r.metricsOf("penstock_webhook_spool_deliveries"); !strings.Contains(got, " 21\n") {
		t.Errorf("waiting: %q", got)
	}
	if err := r.stop(); err != nil {
		t.Logf("the stop without Redis: %v", err)
	}

	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := ln.Addr().String()
	ln.Close()
	again := launch(t, src, Options{Role: RoleAPI, Listen: addr})
	again.url = "http://" + addr
	again.sometime("it listens", func() bool {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
	s = again.stripe()
	for i := 20; i < 30; i++ {
		send(fmt.Sprintf("evt_%02d", i), "spooled")
	}
	for path, want := range map[string]int{"/healthz": 200, "/readyz": 200, "/v1/jobs": 503} {
		if n := again.status(path); n != want {
			t.Errorf("%s before there is a store: %d, want %d", path, n, want)
		}
	}
	srv.Restart()
	again.started()
	again.sometime("an empty spool", func() bool {
		return strings.Contains(again.metricsOf("penstock_webhook_spool_deliveries"), " 0\n")
	})
	order := srv.Client().LRange(t.Context(), "asynq:{sms}:pending", 0, -1).Val()
	slices.Reverse(order)
	var want []string
	for i := range 30 {
		want = append(want, fmt.Sprintf("stripe:evt_%02d", i))
	}
	if !slices.Equal(order, want) {
		t.Errorf("the line is %v", order)
	}
	serve(t, src, Options{Role: RoleWorker})
	for i := range 30 {
		again.until("sms", fmt.Sprintf("stripe:evt_%02d", i), queue.Succeeded)
	}
	d.mu.Lock()
	if d.total != 31 {
		t.Errorf("%d calls for 31 events", d.total)
	}
	d.mu.Unlock()
	if got := again.metricsOf(`penstock_webhook_replayed_total{result="duplicate"`); !strings.Contains(got, " 1\n") {
		t.Errorf("the repeat was counted as %q", got)
	}
	send("evt_after", "accepted")
}

// A full spool says so, is counted, and takes again when there is room.
func TestWebhookSpoolFull(t *testing.T) {
	d := newDownstream(t)
	srv := redistest.Start(t)
	dir := t.TempDir()
	src := strings.Replace(hookSource("redis://"+srv.Addr, d.URL, fmt.Sprintf("spool: {dir: %q, max_bytes: 1MiB, fsync: false}\n", dir)), "max_body: 1KiB", "max_body: 64KiB", 1)
	r := serve(t, src, Options{Role: RoleAPI})
	srv.Kill()
	s := r.stripe()
	big := strings.Repeat(" ", 60<<10)
	full := answer{}
	for i := range 40 {
		if full = s.send(s.delivery(fmt.Sprintf(`{"id":"evt_%02d"}`, i)+big, time.Now())); full.status != 200 {
			break
		}
	}
	if full.status != 503 || full.reason != "spool_full" || full.retry == "" {
		t.Errorf("%+v", full)
	}
	if got := r.metricsOf(`penstock_webhook_refusals_total{reason="spool_full",webhook="stripe"}`); !strings.Contains(got, " 1\n") {
		t.Errorf("counted %q", got)
	}
	if !strings.Contains(r.logs.String(), "reason=spool_full") {
		t.Error("no line of it")
	}
	// Two processes on one directory would tear each other's files.
	if err := Serve(t.Context(), parse(t, src), Options{Role: RoleAPI}); err == nil || !strings.Contains(err.Error(), "needs its own") {
		t.Errorf("a second process with the same spool: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "position")); err == nil {
		t.Error("something was replayed")
	}
}
