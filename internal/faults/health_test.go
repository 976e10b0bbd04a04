//go:build faults

package faults

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock-io/penstock/internal/fragile"
	"github.com/penstock-io/penstock/queue"
)

// during adds a trouble that begins now and lasts so long.
func (h *house) during(d time.Duration, what string) span {
	h.t.Helper()
	from := h.shop.Now()
	h.trouble(fmt.Sprintf("0s..%s %s", d, what)) // its times count from now
	return span{from, from + d}
}

// healthState is the word for how the provider stands; empty: nothing is known.
func (h *house) healthState() string {
	h.t.Helper()
	if s := h.status(); s.Health != nil {
		return s.Health.State
	}
	return ""
}

// awaitHealth waits for one of the states, and says when it came, in the
// provider's time.
func (h *house) awaitHealth(limit time.Duration, states ...string) time.Duration {
	h.t.Helper()
	h.await(limit, fmt.Sprintf("health is %v", states), func() bool { return slices.Contains(states, h.healthState()) })
	return h.shop.Now()
}

// overlap is the most calls that were in flight at once, of those that arrived
// within s.
func (h *house) overlap(s span) (most, calls int) {
	var in []fragile.Call
	for _, c := range h.shop.Calls() {
		if c.At > s.from && c.At < s.to {
			in = append(in, c)
		}
	}
	for _, c := range in {
		n := 0
		for _, o := range in {
			if o.At <= c.At && o.At+o.Took > c.At {
				n++
			}
		}
		most = max(most, n)
	}
	return most, len(in)
}

// One of eight workers is told Retry-After: 6. From half a second on nothing
// leaves any of them until then; afterwards all goes on, and nobody is charged.
func TestFaultRetryAfterHoldsTheFleet(t *testing.T) {
	t.Parallel()
	const jobs, wait = 1500, 6 * time.Second
	h := build(t, 8, latency(50*time.Millisecond), "rate: 100/s\nconcurrency: 40\nretry: {attempts: 1}")
	h.enqueue(0, jobs, "")
	h.awaitSucceeded(soon, 200)
	stall := stalls(t)
	h.trouble("0s.. error 429 x1 retry-after==6")
	h.await(soon, "held", func() bool { return h.status().HeldReason == "retry_after" })
	var told fragile.Call
	for _, c := range h.shop.Calls() {
		if c.Status == 429 {
			told = c
		}
	}
	answered := told.At + told.Took
	h.await(soon, "the wait is over", func() bool { return h.shop.Now() > answered+wait })
	still := answered + 500*time.Millisecond + stall()
	if n, last := h.arrivals(span{still, answered + wait}); n > 0 {
		t.Errorf("%d calls until the wait was over, the last %s after the answer", n, last-answered)
	}
	_, last := h.arrivals(span{answered, still})
	t.Logf("the last call came %s after the answer; this process stalled for up to %s", max(0, last-answered), stall())
	h.awaitStates(2*time.Minute, map[queue.State]int64{queue.Succeeded: jobs})
	if after, _ := h.arrivals(span{answered + wait, answered + time.Hour}); after < 100 {
		t.Errorf("only %d calls came after the wait: nothing is shown", after)
	}
	if i := h.job(told.Key); i.Attempts != 1 {
		t.Errorf("the job that was told: %+v", i)
	}
	if twice := h.calledTwice(span{answered, answered}); len(twice) > 1 {
		t.Errorf("called twice: %v", twice)
	}
	h.neverMore(100, 40)
}

// stalls tells the longest time for which this process did not run: what other
// work on the machine may have done to the workers, too.
func stalls(t *testing.T) (longest func() time.Duration) {
	var most atomic.Int64
	go func() {
		for t.Context().Err() == nil {
			before := time.Now()
			time.Sleep(5 * time.Millisecond)
			most.Store(max(most.Load(), int64(time.Since(before)-5*time.Millisecond)))
		}
	}()
	return func() time.Duration { return time.Duration(most.Load()) }
}

// Eight workers and an outage: at most one probe is in flight at a time, no
// probe spends an attempt, and every job succeeds though none may fail twice.
func TestFaultOneProbeInTheFleet(t *testing.T) {
	t.Parallel()
	const jobs, outage = 600, 25 * time.Second
	h := build(t, 8, latency(300*time.Millisecond),
		"rate: 50/s\nconcurrency: 20\nretry: {attempts: 3, base: 500ms, max: 2s}\nlaw: {opening: {first: 1s, longest: 3s}}")
	h.enqueue(0, jobs, "")
	h.awaitSucceeded(soon, 50)
	s := h.during(outage, "error 503")
	opened := h.awaitHealth(soon, "open", "half_open")
	h.await(soon+outage, "the outage is over", func() bool { return h.shop.Now() > s.to })
	inFlight := span{opened + 2*time.Second, s.to}
	most, probes := h.overlap(inFlight)
	if most > 1 || probes < 2 {
		t.Errorf("%d probes, %d at once", probes, most)
	}
	before, _ := h.arrivals(span{s.from, opened + 2*time.Second})
	t.Logf("%d calls before it was open, %d probes in the %s after", before, probes, inFlight.to-inFlight.from)
	h.awaitHealth(soon, "slow_start", "closed")
	h.awaitStates(2*time.Minute, map[queue.State]int64{queue.Succeeded: jobs})
	if r := h.shop.Report(); r.SucceededTwice > 0 {
		t.Errorf("%d jobs were done twice", r.SucceededTwice)
	}
}

// The worker that probes is killed, with all the others that were there: the
// probe counts as lost when its lease is over, and others go on.
func TestFaultProberKilled(t *testing.T) {
	t.Parallel()
	const jobs, timeout = 100, 2 * time.Second
	h := build(t, 2, latency(50*time.Millisecond),
		"rate: 50/s\nconcurrency: 10\ntimeout: 2s\nretry: {attempts: 3, base: 500ms, max: 2s}\nlaw: {opening: {first: 1s, longest: 2s}}")
	s := h.during(time.Hour, "hang")
	h.enqueue(0, jobs, "")
	h.awaitHealth(time.Minute, "open", "half_open")
	h.worker()
	probing := func() bool {
		if h.healthState() != "half_open" {
			return false
		}
		calls, _ := h.arrivals(span{h.shop.Now() - 700*time.Millisecond, h.shop.Now()})
		return calls == 0 && h.shop.Live().InFlight == 1 // it has been in flight for a while, alone
	}
	h.await(time.Minute, "a probe is in flight", probing)
	generation := h.status().Health.ChangedAt
	killed := h.shop.Now()
	for _, w := range h.workers[:2] {
		_ = w.cmd.Process.Kill()
	}
	h.await(soon, "the probe is given up", func() bool {
		hs := h.status().Health
		return hs.ChangedAt.After(generation)
	})
	took := h.shop.Now() - killed
	t.Logf("given up %s after the kill: %s", took, h.status().Health.Reason)
	if took > timeout+2500*time.Millisecond+3*time.Second { // of which 3 s are this machine's
		t.Errorf("the probe was given up only after %s", took)
	}
	_ = s
	h.shop.Reset() // it is well again
	h.awaitStates(2*time.Minute, map[queue.State]int64{queue.Succeeded: jobs})
}

// An outage of 30 s at 100/s, with jobs waiting all the time: open within a
// few seconds, hardly a call meanwhile, a slow start, and everything is done.
func TestFaultOutageAndRecovery(t *testing.T) {
	t.Parallel()
	const jobs, outage = 3000, 30 * time.Second
	h := build(t, 4, latency(50*time.Millisecond), "rate: 100/s\nconcurrency: 40\nretry: {attempts: 4, base: 1s, max: 10s}")
	h.enqueue(0, jobs, "")
	h.awaitSucceeded(soon, 300)
	s := h.during(outage, "outage")
	opened := h.awaitHealth(soon, "open")
	h.await(soon+outage, "the outage is over", func() bool { return h.shop.Now() > s.to })
	s.from = s.to
	for _, c := range h.shop.Calls() { // connections that are kept alive feel it later
		if c.End == fragile.WasDown {
			s.from = min(s.from, c.At)
		}
	}
	failed, _ := h.arrivals(s)
	closed := h.awaitHealth(time.Minute, "slow_start", "closed")
	h.awaitSucceeded(2*time.Minute, jobs)
	h.awaitStates(soon, map[queue.State]int64{queue.Succeeded: jobs})
	first, _ := h.arrivals(span{s.to, closed + time.Second})
	full := time.Duration(0)
	for at := closed; at < closed+time.Minute && full == 0; at += 250 * time.Millisecond {
		if n, _ := h.arrivals(span{at, at + time.Second}); n >= 88 {
			full = at + time.Second - closed
		}
	}
	t.Logf("open %s after it began, %d calls in it, closed %s after its end, %d calls until a second later, 90%% of the rate after %s",
		max(0, opened-s.from), failed, closed-s.to, first, full)
	if failed > 150 {
		t.Errorf("%d calls into an outage of %s", failed, outage)
	}
	if first > 60 {
		t.Errorf("%d calls until a second after closing: no slow start", first)
	}
	if r := h.shop.Report(); r.SucceededTwice > 0 {
		t.Errorf("%d jobs were done twice", r.SucceededTwice)
	}
	h.neverMore(100, 40)
}

// Redis is killed while the breaker is open, and comes back with what it kept:
// it is still open or probing, and ends as well as without.
func TestFaultRedisKilledWhileOpen(t *testing.T) {
	t.Parallel()
	const jobs = 400
	h := build(t, 2, latency(50*time.Millisecond), "rate: 50/s\nconcurrency: 10\nretry: {attempts: 3, base: 500ms, max: 2s}", durable...)
	h.enqueue(0, jobs, "")
	h.awaitSucceeded(soon, 50)
	s := h.during(20*time.Second, "error 500")
	h.awaitHealth(soon, "open")
	h.redis.Kill()
	time.Sleep(3 * time.Second)
	h.redis.Restart()
	h.await(soon, "redis answers", func() bool { _, err := h.client.Provider(t.Context(), provider); return err == nil })
	if state := h.healthState(); h.shop.Now() < s.to && state != "open" && state != "half_open" {
		t.Errorf("after the restart it is %s", state)
	}
	h.await(soon, "the outage is over", func() bool { return h.shop.Now() > s.to })
	during, _ := h.arrivals(span{s.from + 3*time.Second, s.to})
	t.Logf("%d calls in the rest of the outage", during)
	if during > 30 {
		t.Errorf("%d calls in the rest of the outage", during)
	}
	h.awaitStates(2*time.Minute, map[queue.State]int64{queue.Succeeded: jobs})
}
