package simulate

import (
	"cmp"
	"slices"
	"strings"
)

const (
	gateGap       = 5_000_000  // without any request for so long, leases start anew
	gateHold      = 60_000_000 // credentials are tried again after this
	gateExpire    = 250_000    // between two looks at the leases
	gateExpireLot = 100
	gateRefusals  = 5
	gatePoison    = 3
	gateAfterBad  = 1_000_000 // after a probe that failed
)

// gateTick is one request under way.
type gateTick struct {
	*Gate
	now            int64
	rq             *GateRequest
	interval       int64
	burst, conc    int64 // in force
	learning       bool
	freed, granted int64
	probed         bool // the probe came back
	wakeAll        bool
	inFlight       int64
	stop           string
	stopIn         int64
	turns          gateTurns
	ans            *GateAnswer
}

// Request does what the script does: settle, renew, expire, decide, commit.
func (g *Gate) Request(now int64, rq *GateRequest) *GateAnswer {
	if r, ok := g.Replies[rq.Proc]; ok && r.number == rq.Number {
		again := *r.answer
		again.Now, again.Wake = now, ""
		return &again
	}
	t := &gateTick{Gate: g, now: now, rq: rq, ans: &GateAnswer{Now: now}}
	t.clock()
	if g.Limits.Version == 0 {
		g.Limits = rq.Limits
	}
	t.rollback()
	t.inForce()
	for i := range rq.Settle {
		t.take(&rq.Settle[i])
	}
	t.renew()
	t.expireDue()
	t.shut()
	if t.conc > 0 && (len(rq.Arrive) > 0 || t.freed > 0) {
		t.inFlight = int64(len(g.Permits))
	}
	t.turns = t.lookAtTurns()
	for i := range rq.Arrive {
		t.ans.Verdicts = append(t.ans.Verdicts, t.decide(&rq.Arrive[i]))
	}
	t.finish()
	return t.ans
}

// clock moves what lies in the future with a clock that was set back, and
// begins leases anew after a jump or a long silence.
func (t *gateTick) clock() {
	switch g := t.Gate; {
	case g.Last > 0 && t.now < g.Last:
		by := g.Last - t.now
		g.Tat -= by
		for id := range g.Permits {
			g.Permits[id] -= by
		}
		for _, p := range []*int64{&g.Held, &g.Learn, &g.Quiet, &g.ProbeUntil, &g.ProbeNext, &g.FirstRefused} {
			if *p > 0 {
				*p -= by
			}
		}
		g.ExpireAt = 0
		for i := range g.Turns {
			g.Turns[i].Due -= by
			g.Turns[i].Seen -= by
		}
	case g.Last > 0 && t.now-g.Last > gateGap:
		for id := range g.Permits {
			g.Permits[id] = t.now + t.rq.Lease
		}
	}
}

// rollback notices that the store knows less than the process has seen.
func (t *gateTick) rollback() {
	if t.Seq < t.rq.Seen {
		t.ans.Rollback = true
		t.Seq = t.rq.Seen
		if t.Learn <= t.now {
			t.Learn, t.Quiet = t.now+t.rq.Lease, 0
			if t.Limits.Concurrency > 0 {
				t.Quiet = t.now + t.rq.Lease*3/10
			}
			t.Tat = max(t.Tat, t.now+t.rq.Horizon)
		}
	}
	t.Seq++
	t.learning = t.Learn > t.now
}

// inForce finds the interval, burst and concurrency that count now. A debt
// keeps its number of calls, not its time.
func (t *gateTick) inForce() {
	iv := t.Limits.Interval
	t.burst, t.conc = t.Limits.Burst, t.Limits.Concurrency
	if t.learning {
		iv, t.burst = iv*2, 1
	}
	switch c := t.Control; c.Phase {
	case "open":
		iv = t.Gate.Interval
	case "half_open":
		t.burst = 1
	default:
		if c.Interval > iv {
			iv, t.burst = c.Interval, 1
		}
	}
	if l := t.Control.InFlight; l > 0 && (t.conc == 0 || l < t.conc) {
		t.conc = l
	}
	if old := t.Gate.Interval; iv != old {
		if old > 0 && t.Tat > t.now {
			t.Tat = t.now + int64(float64(t.Tat-t.now)/float64(old)*float64(iv))
		}
		t.Gate.Interval = iv
	}
	t.interval = iv
}

// renew keeps leases by id: a permit that is gone comes back while learning or
// while there is room.
func (t *gateTick) renew() {
	for _, r := range t.rq.Renew {
		if _, ok := t.Permits[r.Permit]; ok {
			t.Permits[r.Permit] = t.now + t.rq.Lease
			continue
		}
		other := ""
		if r.Job != "" {
			other = t.Running[r.Job]
		}
		_, otherLives := t.Permits[other]
		free := other == "" || other == r.Permit || !otherLives
		if free && (t.learning || t.Limits.Concurrency == 0 || int64(len(t.Permits)) < t.Limits.Concurrency) {
			t.Permits[r.Permit] = t.now + t.rq.Lease
			if r.Job != "" {
				t.Running[r.Job] = r.Permit
			}
			t.takeBackCrash(r.Permit, r.Job)
		} else {
			t.ans.Lost = append(t.ans.Lost, r.Permit)
		}
	}
}

// takeBackCrash undoes the expiry of a permit that was alive after all.
func (t *gateTick) takeBackCrash(id, job string) bool {
	if _, ok := t.Expired[id]; !ok {
		return false
	}
	delete(t.Expired, id)
	if job != "" {
		if t.Crash[job]--; t.Crash[job] <= 0 {
			delete(t.Crash, job)
		}
	}
	return true
}

// expire ends a permit whose holder is dead.
func (t *gateTick) expire(id string) {
	if _, ok := t.Permits[id]; !ok {
		return
	}
	delete(t.Permits, id)
	t.Expired[id] = t.now
	if _, job, _ := strings.Cut(id, ":"); job != "" {
		if t.Running[job] == id {
			delete(t.Running, job)
		}
		t.Crash[job]++
	}
	if t.Probe == id {
		if t.Control.Phase == "half_open" && t.ProbeSince == t.Control.Since {
			t.ProbeUntil = t.now // a lost probe: the law counts it as failed
			return
		}
		t.Probe = ""
		if t.now+gateHold > t.Held {
			t.Held = t.now + gateHold
		}
	}
}

// expireDue looks for leases that ran out, at most four times a second.
func (t *gateTick) expireDue() {
	if t.now < t.ExpireAt {
		return
	}
	var dead []string
	for id, end := range t.Permits {
		if end <= t.now {
			dead = append(dead, id)
		}
	}
	slices.SortFunc(dead, func(a, b string) int {
		return cmp.Or(cmp.Compare(t.Permits[a], t.Permits[b]), cmp.Compare(a, b))
	})
	dead = dead[:min(len(dead), gateExpireLot)]
	for _, id := range dead {
		t.expire(id)
		t.freed++
	}
	for id, when := range t.Expired {
		if when <= t.now-86_400_000_000 {
			delete(t.Expired, id)
		}
	}
	t.ExpireAt = t.now + gateExpire
	if len(dead) == gateExpireLot {
		t.ExpireAt = t.now
	}
}

// shut finds out whether anybody may go at all.
func (t *gateTick) shut() {
	switch a := t.ans; {
	case t.Paused:
		a.Shut = "paused"
	case t.Held > t.now:
		a.Shut, a.ShutUntil = cmp.Or(t.Reason, "held"), t.Held
	case t.Control.Phase == "open":
		a.Shut, a.ShutUntil = "open", t.Control.OpenUntil
	case t.Quiet > t.now:
		a.Shut, a.ShutUntil = "learning", t.Quiet
	}
}

// finish writes down what changed and says whom to wake.
func (t *gateTick) finish() {
	g, a := t.Gate, t.ans
	g.Last = t.now
	t.writeTurn()
	a.Wake = t.wake()
	a.Seq, a.Interval, a.Concurrency, a.InFlight = g.Seq, t.interval, t.conc, t.inFlight
	a.Limits, a.Generation, a.Phase = g.Limits, g.Control.Generation, g.Control.Phase
	a.Probing = g.Control.Phase == "half_open" || g.Cautious != ""
	if t.turns.looked {
		a.Processes = t.turns.processes
	}
	if t.granted > 0 || len(t.rq.Settle) > 0 {
		kept := *a
		g.Replies[t.rq.Proc] = gateReply{t.rq.Number, &kept}
	}
}
