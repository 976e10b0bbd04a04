package simulate

import (
	"strconv"

	"github.com/penstock-io/penstock/breaker"
)

const (
	settleCompany = 20_000  // a settlement alone waits so long for company
	pollPlaces    = 100_000 // the net under the wake, jittered
	pollShut      = 2_000_000
	lease         = 10_000_000
	horizon       = 50_000
	maxArrivals   = 64
	maxSettles    = 200
	reclaimAfter  = 30_000_000
	// A process that is one of many asks not for every slot: together they ask
	// about spreadAsks times a slot, each at least once in spreadMost.
	spreadAsks = 6
	spreadMost = 1_000_000
)

func itoa(n int) string { return strconv.Itoa(n) }

// worker is one process: an inlet that takes jobs, a loop that talks to the
// gate, and the calls in flight. It mirrors queue/worker and shaper's loop.
type worker struct {
	sim  *sim
	name string
	dead bool

	waiting []*ask // who asks for a permit, in order
	settles []GateSettlement
	live    []*ask // with a permit
	number  int64
	touched int64 // when it last gave a sign of life
	permits int
	seen    int64
	busy    bool // a request is under way

	notBefore, settleAt, renewAt int64
	eager                        bool
	timer                        int64 // when it looks again; 0: not at all
	interval, conc, inFlight     int64 // of the last answer
	processes                    int64
	known                        bool
	window                       window
}

// ask is one job that was taken and waits for its permit, or has it.
type ask struct {
	job    *job
	permit string
	gen    uint64
	tat    int64
	first  bool
}

// parked is how many jobs this process may hold that were not called yet: a
// quarter of a second of the rate over the fleet, half of the calls in flight
// where no rate binds; half-open one.
func (w *worker) parked() int {
	s, n := w.sim, int64(len(w.sim.workers))
	if s.control.Phase == (breaker.HalfOpen{}).Name() {
		return 1
	}
	fleet := int64(0)
	switch g := s.gate; {
	case g.Interval > 0:
		fleet = 250_000 / g.Interval
	case g.Limits.Concurrency > 0:
		fleet = g.Limits.Concurrency / 2
	default:
		return maxArrivals
	}
	return int(max(2, (fleet+n-1)/n))
}

// inlet takes what the gate will soon have room for, never earlier.
func (w *worker) inlet() {
	s := w.sim
	if w.dead || s.shut() {
		return
	}
	took := false
	for room := w.parked() - len(w.waiting); room > 0 && s.queue.ready(s.now); room-- {
		j := s.queue.take(s.now)
		if s.now >= j.end {
			s.finish(j, "expired")
			continue
		}
		w.waiting = append(w.waiting, &ask{job: j, first: j.calls == 0})
		took = true
	}
	if took {
		w.look()
	}
}

// look decides whether a request goes to the gate now, or when to look again.
func (w *worker) look() {
	if w.busy || w.dead {
		return
	}
	now := w.sim.now
	if len(w.settles) > 0 && w.settleAt == 0 {
		w.settleAt = now
		if w.interval > 0 && !w.eager {
			w.settleAt = now + settleCompany
			if len(w.waiting) > 0 && w.notBefore-now < 2*settleCompany {
				w.settleAt = w.notBefore
			}
		}
	}
	asks := len(w.waiting) > 0 && now >= w.notBefore
	settle := len(w.settles) > 0 && (asks || now >= w.settleAt || len(w.settles) >= maxArrivals)
	renew := len(w.live) > 0 && now >= w.renewAt
	if asks || settle || renew {
		w.send(asks || settle && w.eager, renew)
		return
	}
	next := int64(0)
	soonest := func(when bool, t int64) {
		if when && (next == 0 || t < next) {
			next = t
		}
	}
	soonest(len(w.waiting) > 0, w.notBefore)
	soonest(len(w.settles) > 0, w.settleAt)
	soonest(len(w.live) > 0, w.renewAt)
	if next == 0 || w.timer > now && w.timer <= next {
		return
	}
	w.timer = next
	w.sim.at(next, func() {
		if w.timer == next {
			w.timer = 0
			w.look()
		}
	})
}

// batch is how many arrivals a request carries: what could be granted, and one more.
func (w *worker) batch(settles int) int {
	n := int64(maxArrivals)
	if w.known {
		if w.interval > 0 {
			n = min(n, horizon/w.interval+max(1, w.sim.gate.Limits.Burst))
		}
		if w.conc > 0 {
			n = min(n, w.conc-w.inFlight+int64(settles)+1)
		}
	}
	return min(max(1, int(n)), len(w.waiting))
}

// send makes a request; it reaches the gate half a round trip later.
func (w *worker) send(asks, renew bool) {
	w.number++
	n := min(len(w.settles), maxSettles)
	rq := &GateRequest{
		Proc: w.name, Number: w.number, Seen: w.seen, Lease: lease, Horizon: horizon,
		Limits: w.sim.limits, Settle: w.settles[:n:n],
	}
	if rq.Touch = w.sim.now-w.touched >= 1_000_000; rq.Touch {
		w.touched = w.sim.now
	}
	w.settles, w.settleAt = w.settles[n:], 0
	if renew {
		for _, a := range w.live {
			rq.Renew = append(rq.Renew, GateRenewal{a.permit, a.job.id})
		}
		w.renewAt = w.sim.now + lease/4
	}
	var asking []*ask
	if asks && len(w.waiting) > 0 {
		n := w.batch(len(rq.Settle))
		rq.Waiting = int64(len(w.waiting))
		asking, w.waiting = w.waiting[:n:n], w.waiting[n:]
		for _, a := range asking {
			w.permits++
			a.permit = w.name + "-" + itoa(w.permits) + ":" + a.job.id
			arr := GateArrival{Permit: a.permit, Job: a.job.id, Cost: 1}
			if !a.first && w.sim.sc.Budget == "on" {
				arr.Account = accountRetry
			}
			rq.Arrive = append(rq.Arrive, arr)
		}
	}
	w.busy = true
	s := w.sim
	s.after(s.half, func() {
		ans := s.gate.Request(s.clock(), rq)
		s.woken(ans.Wake)
		s.after(s.half, func() { w.answered(asking, ans) })
	})
}

// answered hands out an answer.
func (w *worker) answered(asking []*ask, ans *GateAnswer) {
	w.busy = false
	if w.dead {
		return
	}
	w.seen, w.known = max(w.seen, ans.Seq), true
	w.interval, w.conc, w.inFlight = ans.Interval, ans.Concurrency, ans.InFlight
	if ans.Processes > 0 {
		w.processes = ans.Processes
	}
	w.notBefore, w.eager = 0, false
	if ans.Rollback {
		w.renewAt = w.sim.now
	}
	var back []*ask
	for i, a := range asking {
		switch v := ans.Verdicts[i]; v.Kind {
		case 'g':
			w.granted(a, v, uint64(ans.Generation))
		case 'x':
			w.sim.refused(a.job, v)
		default:
			back = append(back, a)
			if len(back) == 1 {
				w.notBefore = w.sim.now + w.patience(v)
				w.eager = v.Reason == "concurrency" || v.Reason == "turn" || v.Reason == "probing"
			}
		}
	}
	w.waiting = append(back, w.waiting...)
	w.inlet()
	w.look()
}

// patience is how long to wait before asking again.
func (w *worker) patience(v GateVerdict) int64 {
	r := w.sim.rng
	switch v.Reason {
	case "rate", "turn":
		later := r.Int64N(w.processes/spreadAsks+1) * w.interval
		if later > spreadMost {
			later = r.Int64N(spreadMost)
		}
		return v.After + later
	case "probing":
		if v.After > 0 {
			return v.After + r.Int64N(10_000)
		}
		return pollPlaces/2 + r.Int64N(pollPlaces)
	case "concurrency":
		return pollPlaces/2 + r.Int64N(pollPlaces)
	}
	d := int64(pollShut/2) + r.Int64N(pollShut)
	if v.After > 0 {
		d = min(d, v.After+r.Int64N(10_000))
	}
	return d
}
