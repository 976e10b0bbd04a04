//go:build faults

package faults

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock-io/penstock/internal/fragile"
	"github.com/penstock-io/penstock/queue"
)

// steady is a provider of 100 ms, called 100 times a second.
const steady = "rate: 100/s\nconcurrency: 40\nretry: {attempts: 3, base: 500ms, max: 2s}"

func latency(d time.Duration) fragile.Config {
	return fragile.Config{Latency: fragile.Latency{Mean: d}}
}

// neverMore fails if the provider was ever called more often than its rate in
// one second, with a half for the machine's own delays.
func (h *house) neverMore(perSecond, inFlight int) {
	h.t.Helper()
	r := h.shop.Report()
	if r.MostArrived > perSecond*3/2 {
		h.t.Errorf("%d calls in one second at a rate of %d/s", r.MostArrived, perSecond)
	}
	if r.PeakInFlight > inFlight {
		h.t.Errorf("%d calls in flight at a concurrency of %d", r.PeakInFlight, inFlight)
	}
}

// Redis, which keeps what it acknowledged, is killed under load and comes back
// after 8 s: nothing is lost, nothing called meanwhile, calls flow again within
// 5 s.
func TestFaultRedisKilled(t *testing.T) {
	t.Parallel()
	const jobs = 2000
	h := build(t, 2, latency(100*time.Millisecond), steady, durable...)
	h.enqueue(0, jobs, "")
	h.awaitSucceeded(soon, 300)

	h.redis.Kill()
	killed := h.shop.Now()
	time.Sleep(8 * time.Second)
	back := h.shop.Now()
	h.redis.Restart()
	answers := h.shop.Now()
	h.awaitSucceeded(2*time.Minute, jobs)

	if n, last := h.arrivals(span{killed + 2*time.Second, back}); n > 0 {
		t.Errorf("%d calls while Redis was away, the last %s after its end", n, last-killed)
	}
	if n, _ := h.arrivals(span{answers, answers + 5*time.Second}); n == 0 {
		t.Error("no call within 5 s of Redis's answer")
	}
	twice := h.calledTwice(span{killed, killed})
	t.Logf("%d jobs were called twice", len(twice))
	h.awaitStates(soon, map[queue.State]int64{queue.Succeeded: jobs})
	h.neverMore(100, 40)
}

// Redis stalls for 7 s under load, longer than any client's patience, and goes
// on: what was sent in vain before was done, and is repeated.
func TestFaultRedisStalls(t *testing.T) {
	t.Parallel()
	const jobs = 1500
	h := build(t, 2, latency(100*time.Millisecond), steady)
	h.enqueue(0, jobs, "")
	for range 2 {
		h.awaitSucceeded(soon, h.shop.Report().JobsSucceeded+200)
		h.redis.Stop()
		time.Sleep(7 * time.Second)
		h.redis.Continue()
	}
	h.awaitSucceeded(2*time.Minute, jobs)
	if twice := h.calledTwice(); len(twice) > 0 {
		t.Errorf("%d jobs were called twice", len(twice))
	}
	h.awaitStates(soon, map[queue.State]int64{queue.Succeeded: jobs})
	h.neverMore(100, 40)
}

// Every connection to Redis is cut again and again under load. Requests whose
// answer was lost are repeated, and mean the same the second time.
func TestFaultConnectionsCut(t *testing.T) {
	t.Parallel()
	const jobs = 1500
	h := build(t, 2, latency(50*time.Millisecond), steady)
	var cuts atomic.Int64
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			case <-time.After(150 * time.Millisecond):
			}
			for _, kind := range []string{"normal", "pubsub"} {
				n, err := h.rdb.ClientKillByFilter(t.Context(), "TYPE", kind, "SKIPME", "yes").Result()
				if err == nil {
					cuts.Add(n)
				}
			}
		}
	}()
	h.enqueueStubbornly(jobs)
	h.awaitSucceeded(2*time.Minute, jobs)
	close(stop)
	<-stopped
	if cuts.Load() < 50 {
		t.Errorf("only %d connections were cut", cuts.Load())
	}
	if twice := h.calledTwice(); len(twice) > 0 {
		t.Errorf("%d jobs were called twice", len(twice))
	}
	h.awaitStates(soon, map[queue.State]int64{queue.Succeeded: jobs})
	h.neverMore(100, 40)
}

// enqueueStubbornly sends jobs one by one, each until it is accepted: with the
// same id, so that one whose answer was lost is known.
func (h *house) enqueueStubbornly(jobs int) {
	h.t.Helper()
	again := 0
	for n := range jobs {
		job := fmt.Appendf(nil, `{"provider":%q,"id":%q,"body":{"n":%d}}`, provider, id(n), n)
		for end := time.Now().Add(soon); ; again++ {
			_, err := h.client.Enqueue(h.t.Context(), job)
			if err == nil {
				break
			}
			if time.Now().After(end) {
				h.t.Fatalf("job %d: %v", n, err)
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
	h.t.Logf("%d enqueues were sent again", again)
}

// Redis loses everything under load. The jobs in it are gone, of course; but
// workers and API go on, limits (also those changed live), registrations and
// what producers are told come back by themselves.
func TestFaultRedisFlushed(t *testing.T) {
	t.Parallel()
	const jobs = 300
	h := build(t, 2, latency(100*time.Millisecond), steady)
	if _, err := h.client.SetLimits(t.Context(), provider, []byte(`{"rate":"80/s","concurrency":16}`), false); err != nil {
		t.Fatal(err)
	}
	h.enqueue(0, 2000, "")
	// After each worker's first pulse, which tells producers of it anyhow.
	h.awaitSucceeded(soon, 700)
	if err := h.rdb.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	if err := h.rdb.ScriptFlush(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	flushed := h.shop.Now()
	// By the worker's pulse, not only by what is done each half minute anyhow.
	h.await(15*time.Second, "a job is accepted again", func() bool {
		_, err := h.client.Enqueue(t.Context(), fmt.Appendf(nil, `{"provider":%q,"id":"first-after"}`, provider))
		return err == nil
	})
	h.enqueue(2000, 2000+jobs, "")
	h.await(time.Minute, "every new job succeeded", func() bool {
		return h.status().Jobs[queue.Succeeded] >= jobs+1
	})
	if s := h.status(); s.Limits.Rate != "80/s" || s.Limits.Concurrency != 16 {
		t.Errorf("the limits after the flush are %+v", s.Limits)
	}
	h.await(soon, "the queue is registered with asynq", func() bool {
		list, err := h.rdb.SMembers(t.Context(), "asynq:queues").Result()
		return err == nil && slices.Contains(list, provider)
	})
	// Jobs in hand at the flush may be called or forgotten, never called twice.
	h.calledTwice(span{flushed, flushed})
	h.neverMore(80, 40)
	for _, p := range append(h.workers, h.api) {
		if s := p.out.String(); strings.Contains(s, "panic") {
			t.Errorf("%s panicked", p.name)
		}
	}
}

// Redis is full: jobs are refused with 507 and a time to come back, while those
// inside are worked off, whatever else happens to the workers; then jobs are
// taken again.
func TestFaultRedisFull(t *testing.T) {
	t.Parallel()
	h := build(t, 1, latency(10*time.Millisecond), "rate: 200/s\nmax_body: 200KiB", "maxmemory", "24mb")
	if _, err := h.client.Pause(t.Context(), provider); err != nil {
		t.Fatal(err)
	}
	body := strings.Repeat("x", 100<<10)
	job := func(n int) string {
		return fmt.Sprintf(`{"provider":%q,"id":%q,"body":%q}`, provider, id(n), body)
	}
	accepted, full := 0, 0
	for n := 0; full < 3; n++ {
		switch a := h.post("/v1/jobs", job(n)); {
		case a.status == 202:
			accepted++
		case a.status == 507 && a.header.Get("Retry-After") != "" && strings.Contains(a.body, `"fix"`):
			full++
		default:
			t.Fatalf("job %d: %d %v %s", n, a.status, a.header, a.body)
		}
		if n > 1000 {
			t.Fatalf("1,000 jobs of 100 KiB went into 24 MB, %d refused", full)
		}
	}
	// Truly full, and not for a moment less until all is worked off.
	h.redis.Config("maxmemory", "1mb")
	h.await(soon, "not ready", func() bool { return h.get("/readyz").status == 507 })
	late := h.worker() // one that starts while it is full
	if _, err := h.client.Resume(t.Context(), provider); err != nil {
		t.Fatal(err)
	}
	h.awaitSucceeded(time.Minute, accepted)
	h.awaitStates(soon, map[queue.State]int64{queue.Succeeded: int64(accepted)})
	late.signal(15)
	if how := late.ends(soon); how != "0" {
		t.Errorf("the worker that started while Redis was full ended with %s", how)
	}
	h.redis.Config("maxmemory", "24mb")
	h.await(soon, "jobs are taken again", func() bool { return h.post("/v1/jobs", job(5000)).status == 202 })
	h.awaitSucceeded(soon, accepted+1)
	h.awaitStates(soon, map[queue.State]int64{queue.Succeeded: int64(accepted) + 1})
	if twice := h.calledTwice(); len(twice) > 0 {
		t.Errorf("%d jobs were called twice", len(twice))
	}
}
