package shaper

import (
	"context"
	"math/rand/v2"
	"time"
)

const (
	settleCompany = 20 * time.Millisecond  // a settlement alone waits so long for company
	pollPlaces    = 100 * time.Millisecond // the net under the publish, jittered
	pollShut      = 2 * time.Second        // the same while nobody may go
	maxArrivals   = 64                     // in one request
	maxSettles    = 200                    // in one request
	spreadAsks    = 6                      // waiting processes together ask about so often a slot,
	spreadMost    = time.Second            // and each at least so often
	askEvery      = 2 * time.Millisecond   // under load, where nothing is limited
	askAtOnce     = 16                     // so many need not wait for more
	idleAfter     = 10 * time.Second       // an idle loop ends after this
	requestTime   = 5 * time.Second        // for one request to Redis
)

// startLocked starts the loop where it does not run, and wakes it.
func (g *Gate) startLocked() {
	select {
	case g.kick <- struct{}{}:
	default:
	}
	if g.running {
		return
	}
	g.running = true
	g.stopped = make(chan struct{})
	if g.unlisten == nil {
		g.unlisten = g.cfg.Waker.Messages(g.prefix+"wake", g.woken)
	}
	go g.loop(g.stopped)
}

// woken hears that places or slots may be free for this process.
func (g *Gate) woken(payload string) {
	if payload != "*" && payload != g.proc {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.notBefore = time.Time{}
	select {
	case g.kick <- struct{}{}:
	default:
	}
}

// loop is the gate's one goroutine. It ends when there was nothing to do for
// a while, or at Close.
func (g *Gate) loop(stopped chan struct{}) {
	defer close(stopped)
	timer := time.NewTimer(0)
	defer timer.Stop()
	idleSince := time.Now()
	for {
		g.mu.Lock()
		req, next := g.nextLocked(time.Now())
		if g.abandoned || (req == nil && next.IsZero()) {
			if g.abandoned || g.closed || time.Since(idleSince) >= idleAfter {
				unlisten := g.unlisten
				g.running, g.unlisten = false, nil
				g.mu.Unlock()
				if unlisten != nil {
					unlisten()
				}
				return
			}
			next = idleSince.Add(idleAfter)
		} else {
			idleSince = time.Now()
		}
		g.mu.Unlock()
		if req != nil {
			g.exchange(req)
			continue
		}
		timer.Reset(time.Until(next))
		select {
		case <-g.kick:
		case <-timer.C:
		}
	}
}

// nextLocked returns the request to send now, or when to look again; the zero
// time where there is nothing to wait for.
func (g *Gate) nextLocked(now time.Time) (*request, time.Time) {
	if g.pending != nil {
		if now.Before(g.retryAt) {
			return nil, g.retryAt
		}
		return g.pending, time.Time{}
	}
	if now.Before(g.retryAt) {
		return nil, g.retryAt
	}
	if g.closed {
		g.waiting = nil
	}
	if len(g.settles) > 0 && g.settleAt.IsZero() {
		g.settleAt = now
		if g.seen.interval > 0 && !g.eager && !g.closed {
			g.settleAt = now.Add(settleCompany)
			if len(g.waiting) > 0 && g.notBefore.Sub(now) < 2*settleCompany {
				g.settleAt = g.notBefore // company is on its way
			}
		} else if g.unlimited() && !g.closed {
			g.settleAt = now.Add(settleCompany / 4)
		}
	}
	// With no limit nobody waits for a slot, only for company: under load a
	// request goes each askEvery, or when it is worth one by itself.
	notBefore := g.notBefore
	if paced := g.asked.Add(askEvery); g.unlimited() && len(g.waiting) < askAtOnce && notBefore.Before(paced) {
		notBefore = paced
	}
	ask := len(g.waiting) > 0 && !now.Before(notBefore)
	settle := len(g.settles) > 0 && (ask || !now.Before(g.settleAt) || len(g.settles) >= maxArrivals)
	renew := len(g.live) > 0 && !now.Before(g.renewAt) && !g.closed
	if ask || settle || renew {
		return g.requestLocked(now, ask || (settle && g.eager), renew), time.Time{}
	}
	var next time.Time
	soonest := func(t time.Time) {
		if next.IsZero() || t.Before(next) {
			next = t
		}
	}
	if len(g.waiting) > 0 {
		soonest(notBefore)
	}
	if len(g.settles) > 0 {
		soonest(g.settleAt)
	}
	if len(g.live) > 0 && !g.closed {
		soonest(g.renewAt)
	}
	return nil, next
}

// unlimited reports whether the limits in force limit nothing.
func (g *Gate) unlimited() bool {
	return g.seen.known && g.seen.interval == 0 && g.seen.concurrency == 0
}

// batchLocked is how many arrivals a request carries: what could be granted,
// and one more.
func (g *Gate) batchLocked(settles int) int {
	n := maxArrivals
	if v := g.seen; v.known {
		if v.interval > 0 {
			n = min(n, int(g.cfg.Horizon/v.interval)+max(1, v.limits.Burst))
		}
		if v.concurrency > 0 {
			n = min(n, v.concurrency-v.inFlight+settles+1)
		}
	}
	return min(max(1, n), len(g.waiting))
}

// exchange sends req and hands out its answer. A request without an answer
// stays pending and is repeated unchanged: the script knows repetitions.
func (g *Gate) exchange(req *request) {
	ctx, cancel := context.WithTimeout(context.Background(), requestTime)
	defer cancel()
	err := g.open(ctx)
	start := time.Now()
	var ans *answer
	if err == nil {
		ans, err = g.send(ctx, req)
	}
	arrived := time.Now()
	if o := g.cfg.Observer; o != nil {
		o.GateRequest(g.cfg.Name, len(req.arrivals), len(req.settles), arrived.Sub(start), err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if err != nil {
		g.pending = req
		g.failures++
		back := min(100*time.Millisecond<<min(g.failures, 5), 2*time.Second)
		g.retryAt = arrived.Add(back/2 + rand.N(back/2))
		if g.failures == 1 {
			g.cfg.Logger.Warn("gate: redis does not answer; no new call starts", "provider", g.cfg.Name, "err", err)
		}
		if g.closed && len(req.settles) == 0 {
			g.pending = nil
		}
		return
	}
	if g.failures > 0 {
		g.cfg.Logger.Info("gate: redis answers again", "provider", g.cfg.Name, "failed_requests", g.failures)
	}
	g.pending, g.failures, g.retryAt = nil, 0, time.Time{}
	g.takeLocked(req, ans, arrived)
}

// takeLocked applies an answer: who goes when, who waits until when.
func (g *Gate) takeLocked(req *request, ans *answer, arrived time.Time) {
	if ans.processes == 0 { // not counted this time
		ans.processes = g.seen.processes
	}
	g.seen = ans.view
	g.seq = max(g.seq, ans.seq)
	for _, s := range req.settles {
		close(s.stored)
	}
	if len(req.renewals) > 0 {
		g.renewAt = arrived.Add(g.cfg.Lease / 4)
	}
	if ans.rollback {
		g.renewAt = arrived
		g.cfg.Logger.Warn("gate: redis lost recent writes; half the rate for one lease", "provider", g.cfg.Name)
	}
	for _, id := range ans.lost {
		if p := g.live[id]; p != nil {
			p.markLost()
		}
	}
	var back []*waiter
	g.notBefore, g.eager = time.Time{}, false
	for i, w := range req.arrivals {
		v := ans.verdicts[i]
		switch {
		case v.permit:
			g.grantLocked(w, v, arrived)
		case v.err != nil:
			g.denied(v.reason)
			w.result <- grant{err: v.err}
		case !w.gone:
			if w.reason != v.reason {
				w.reason = v.reason
				g.denied(v.reason)
			}
			back = append(back, w)
			if len(back) == 1 {
				g.notBefore = arrived.Add(g.patienceLocked(v))
				g.eager = v.reason == "concurrency" || v.reason == "turn" || v.reason == "probing"
			}
		}
	}
	g.waiting = append(back, g.waiting...)
}

func (g *Gate) grantLocked(w *waiter, v verdict, arrived time.Time) {
	p := &Permit{
		gate: g, id: w.id, job: w.Job, cost: w.Cost, pays: w.Pays,
		slot: arrived.Add(v.after), tat: v.tat, generation: g.seen.generation, probe: g.seen.probing,
	}
	if len(g.live) == 0 {
		g.renewAt = arrived.Add(g.cfg.Lease / 4)
	}
	g.live[w.id] = p
	if w.gone {
		go p.Release() // takes the lock that is held here
		return
	}
	w.result <- grant{permit: p}
}

// patienceLocked is how long to wait before asking again: as told, or a jittered
// poll as the net under the publish.
func (g *Gate) patienceLocked(v verdict) time.Duration {
	switch v.reason {
	case "rate", "turn":
		// One of many asks not for every slot: a thousand waiting processes
		// would make 28,000 requests a second for 100 calls (simulated).
		later := time.Duration(rand.N(g.seen.processes/spreadAsks+1)) * g.seen.interval
		if later > spreadMost {
			later = rand.N(spreadMost)
		}
		return v.after + later
	case "probing":
		if v.after > 0 {
			return v.after + rand.N(10*time.Millisecond)
		}
		fallthrough
	case "concurrency":
		return pollPlaces/2 + rand.N(pollPlaces)
	}
	d := pollShut/2 + rand.N(pollShut)
	if v.after > 0 {
		d = min(d, v.after+rand.N(10*time.Millisecond))
	}
	return d
}
