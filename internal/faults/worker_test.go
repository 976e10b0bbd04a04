//go:build faults

package faults

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock-io/penstock/internal/fragile"
	"github.com/penstock-io/penstock/queue"
)

// One of two workers is stopped for 45 s, longer than its permits' leases
// (10 s) and than a process is waited for (30 s), and goes on. The other has
// taken its jobs over: none is lost, and only what was in flight is called
// twice. Its places come back within 11 s of the stop.
func TestFaultWorkerStopped(t *testing.T) {
	t.Parallel()
	const jobs, places = 1800, 8
	h := build(t, 2, latency(200*time.Millisecond), "rate: 200/s\nconcurrency: 8\ntimeout: 5s\nretry: {attempts: 1, base: 500ms, max: 2s}")
	h.enqueue(0, jobs, "")
	h.awaitSucceeded(soon, 100)
	stopped := h.shop.Now()
	h.workers[0].signal(syscall.SIGSTOP)
	h.await(30*time.Second, "every place is used again", func() bool { return h.shop.Now() > stopped+time.Second && h.shop.Live().InFlight == places })
	if took := h.shop.Now() - stopped; took > 16*time.Second {
		t.Errorf("the places came back after %s", took)
	}
	time.Sleep(stopped + 45*time.Second - h.shop.Now())
	h.workers[0].signal(syscall.SIGCONT)
	on := h.shop.Now()
	h.awaitSucceeded(2*time.Minute, jobs)
	// One attempt is all they have: what the stop interrupted is not charged.
	h.awaitStates(time.Minute, map[queue.State]int64{queue.Succeeded: jobs})
	if now := h.shop.Now(); now < on+2*time.Second {
		t.Errorf("all was done %s after it went on: too early to show anything", now-on)
	}
	twice := h.calledTwice(span{stopped, stopped + settleTime})
	t.Logf("%d jobs were called twice", len(twice))
	if len(twice) > places {
		t.Errorf("%d jobs were called twice, and %d could be in flight", len(twice), places)
	}
	if peak := h.shop.Report().PeakInFlight; peak > 2*places {
		t.Errorf("%d calls in flight", peak)
	}
	for _, w := range h.workers {
		w.signal(syscall.SIGTERM)
		if how := w.ends(soon); how != "0" {
			t.Errorf("%s ended with %s", w.name, how)
		}
	}
}

// A worker that gets SIGTERM in the middle of calls lets them end, and puts
// what it has taken and not called to the head of the line, in order. Another
// one goes on there. Nothing is called twice, no attempt is spent.
func TestFaultWorkerTerminated(t *testing.T) {
	t.Parallel()
	const jobs = 120
	h := build(t, 1, latency(1500*time.Millisecond), "rate: 20/s\nconcurrency: 100\nretry: {attempts: 1}")
	h.enqueue(0, jobs, "")
	for range 2 {
		w := h.workers[len(h.workers)-1]
		before := h.shop.Report().Calls
		h.await(soon, "some jobs are called", func() bool { return h.shop.Report().Calls >= before+20 })
		w.signal(syscall.SIGTERM)
		if how := w.ends(soon); how != "0" {
			t.Fatalf("%s ended with %s", w.name, how)
		}
		if s := h.shop.Report(); s.InFlight != 0 || s.Left != 0 {
			t.Fatalf("it ended with %d calls in flight, and left %d", s.InFlight, s.Left)
		}
		h.waitsInOrder(jobs)
		h.worker()
	}
	h.awaitSucceeded(time.Minute, jobs)
	if twice := h.calledTwice(); len(twice) > 0 {
		t.Errorf("called twice: %v", twice)
	}
	h.awaitStates(soon, map[queue.State]int64{queue.Succeeded: jobs})
	if p := h.status().Processes; p < 1 {
		t.Errorf("%d processes", p)
	}
}

// waitsInOrder checks that just the jobs not called yet wait, in their order.
func (h *house) waitsInOrder(jobs int) {
	h.t.Helper()
	line, err := h.rdb.LRange(h.t.Context(), "asynq:{"+provider+"}:pending", 0, -1).Result()
	if err != nil {
		h.t.Fatal(err)
	}
	slices.Reverse(line) // the next one is at the right
	called := map[string]bool{}
	for _, c := range h.shop.Calls() {
		called[c.Key] = true
	}
	var want []string
	for n := range jobs {
		if !called[id(n)] {
			want = append(want, id(n))
		}
	}
	if !slices.Equal(line, want) {
		h.t.Errorf("waiting are %v, want %v", line, want)
	}
	if n, err := h.rdb.LLen(h.t.Context(), "asynq:{"+provider+"}:active").Result(); err != nil || n > 0 {
		h.t.Errorf("%d jobs are active with nobody there (%v)", n, err)
	}
}

// The provider hangs when the worker is told to stop. After the grace the calls
// are cancelled, the worker ends in order, and the jobs wait at the head of the
// line with no attempt spent.
func TestFaultGraceOver(t *testing.T) {
	t.Parallel()
	const jobs = 20
	h := build(t, 0, fragile.Config{}, "rate: 100/s\nconcurrency: 10\ntimeout: 60s\nretry: {attempts: 1}")
	w := h.worker("--grace", "2s")
	h.trouble("0s.. hang x10")
	h.enqueue(0, jobs, "")
	h.await(soon, "10 calls hang", func() bool { return h.shop.Report().InFlight == 10 })
	w.signal(syscall.SIGTERM)
	if how := w.ends(20 * time.Second); how != "0" {
		t.Errorf("the worker ended with %s", how)
	}
	if !strings.Contains(w.out.String(), "the grace is over") {
		t.Error("it does not say that the grace is over")
	}
	h.awaitStates(soon, map[queue.State]int64{queue.Waiting: jobs})
	h.worker()
	h.awaitSucceeded(soon, jobs)
	h.awaitStates(soon, map[queue.State]int64{queue.Succeeded: jobs})
	if i := h.job(id(0)); i.Attempts != 1 {
		t.Errorf("got %+v", i)
	}
}

// A second SIGTERM ends the worker at once. Another one calls its jobs again
// within 45 s, with no attempt charged.
func TestFaultTerminatedTwice(t *testing.T) {
	t.Parallel()
	const jobs = 20
	h := build(t, 2, fragile.Config{}, "rate: 100/s\nconcurrency: 10\ntimeout: 60s\nretry: {attempts: 1}")
	h.trouble("0s.. hang x10")
	// The second worker must have none of the calls.
	second := h.workers[1]
	second.signal(syscall.SIGSTOP)
	h.enqueue(0, jobs, "")
	h.await(soon, "10 calls hang", func() bool { return h.shop.Report().InFlight == 10 })
	second.signal(syscall.SIGCONT)
	w := h.workers[0]
	w.signal(syscall.SIGTERM)
	w.says(soon, `msg=stopping`)
	w.signal(syscall.SIGTERM)
	if how := w.ends(10 * time.Second); how != syscall.SIGTERM.String() {
		t.Errorf("after a second SIGTERM it ended with %q", how)
	}
	h.awaitSucceeded(time.Minute, jobs)
	h.awaitStates(soon, map[queue.State]int64{queue.Succeeded: jobs})
	for n := range jobs {
		if i := h.job(id(n)); i.Attempts != 1 {
			t.Errorf("%s: %d attempts", id(n), i.Attempts)
		}
	}
}

// A process that only serves the API ends in order, too.
func TestFaultAPITerminated(t *testing.T) {
	t.Parallel()
	h := build(t, 0, fragile.Config{}, "rate: 100/s")
	h.enqueue(0, 10, "")
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		h.api.signal(sig)
		if how := h.api.ends(soon); how != "0" {
			t.Errorf("after %s it ended with %s", sig, how)
		}
		h.startAPI()
	}
	h.awaitStates(soon, map[queue.State]int64{queue.Waiting: 10})
}

// The API is killed while eight producers send. What was acknowledged is
// there; what was not is sent again with the same id, and each is called once.
func TestFaultAPIKilled(t *testing.T) {
	t.Parallel()
	const producers, each = 8, 400
	h := build(t, 0, fragile.Config{}, "rate: 1000/s", durable...)
	type result struct{ acked, failed []string }
	results := make(chan result, producers)
	send := func(client int) {
		var r result
		for n := range each {
			id := fmt.Sprintf("p%d-%d", client, n)
			if a := h.post("/v1/jobs", fmt.Sprintf(`{"provider":%q,"id":%q}`, provider, id)); a.status == 202 {
				r.acked = append(r.acked, id)
			} else {
				r.failed = append(r.failed, id)
			}
		}
		results <- r
	}
	for c := range producers {
		go send(c)
	}
	h.await(soon, "some jobs are accepted", func() bool { return h.status().Jobs[queue.Waiting] > 200 })
	h.api.signal(syscall.SIGKILL)
	h.api.ends(soon)
	var acked, failed []string
	for range producers {
		r := <-results
		acked, failed = append(acked, r.acked...), append(failed, r.failed...)
	}
	if len(acked) < 200 || len(failed) < 10 {
		t.Fatalf("%d were accepted and %d not: nothing is shown", len(acked), len(failed))
	}
	h.redis.Restart() // Redis, too
	h.startAPI()
	for _, id := range acked {
		if i, err := h.client.Job(t.Context(), provider, id); err != nil || i.State != queue.Waiting {
			t.Errorf("%s was accepted and is %+v %v", id, i, err)
		}
	}
	known := 0
	for _, id := range failed {
		r, err := h.client.Enqueue(t.Context(), fmt.Appendf(nil, `{"provider":%q,"id":%q}`, provider, id))
		if err != nil {
			t.Fatal(err)
		}
		if r.Known {
			known++
		}
	}
	t.Logf("%d accepted, %d sent again, %d of them were stored already", len(acked), len(failed), known)
	h.worker()
	h.awaitSucceeded(time.Minute, producers*each)
	if twice := h.calledTwice(); len(twice) > 0 {
		t.Errorf("%d jobs were called twice", len(twice))
	}
	h.awaitStates(soon, map[queue.State]int64{queue.Succeeded: producers * each})
}
