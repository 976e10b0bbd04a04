package simulate

import "slices"

const (
	turnGiveUp  = 20_000     // not come back so long after its due time: it waits no more
	turnRecent  = 2_000_000  // what it was served lately still counts
	turnKnown   = 15_000_000 // counts as a process that uses the gate
	turnForget  = 60_000_000
	turnUnasked = 100_000
)

// gateTurns is who waits, and how much each was served: nobody takes while it
// is more than a quantum ahead of the least served who waits.
type gateTurns struct {
	others, processes   int64
	least, nextDue      int64
	leastProc           string
	served              int64
	quantum, horizon    int64
	mineKnown, anyLeast bool
	looked              bool // else nothing is shared, and there are no turns
}

// lookAtTurns reads the turns of all processes and forgets the old ones.
func (t *gateTick) lookAtTurns() gateTurns {
	u := gateTurns{processes: 1}
	most := int64(0)
	sharing := t.interval > 0 || t.conc > 0
	u.looked = t.rq.Touch || sharing && len(t.rq.Arrive) > 0 || t.conc > 0 && t.freed > 0
	if u.looked {
		old := func(o *GateTurn) bool { return t.now-o.Seen > turnForget && o.Proc != t.rq.Proc }
		forget := false
		for i := range t.Turns {
			switch o := &t.Turns[i]; {
			case o.Proc == t.rq.Proc:
				u.served, u.mineKnown = o.Served, t.now-o.Seen < turnRecent
			case old(o):
				forget = true
			default:
				u.see(o, t.now)
				if t.now-o.Seen < turnRecent {
					most = max(most, o.Served)
				}
			}
		}
		if forget {
			t.Turns = slices.DeleteFunc(t.Turns, func(o GateTurn) bool { return old(&o) })
		}
	}
	slots := int64(64)
	if t.conc > 0 {
		slots = t.conc / 4
	}
	u.horizon = t.rq.Horizon
	if t.interval > 0 {
		// Permits that wait for their slot hold places: no more than a quarter of them.
		if t.conc > 0 {
			u.horizon = min(u.horizon, t.interval*max(1, slots))
		}
		slots = u.horizon / t.interval
	}
	u.quantum = max(1, slots/(u.others+1))
	if !u.mineKnown && most > 0 {
		u.served = max(u.served, most-u.quantum)
	}
	return u
}

// see counts one other process.
func (u *gateTurns) see(o *GateTurn, now int64) {
	if now-o.Seen < turnKnown {
		u.processes++
	}
	if o.Due <= 0 || now > o.Due+turnGiveUp {
		return
	}
	u.others++
	if !u.anyLeast || o.Served < u.least {
		u.least, u.leastProc = o.Served, o.Proc
	}
	if !u.anyLeast || o.Due < u.nextDue {
		u.nextDue = o.Due
	}
	u.anyLeast = true
}

// comeBack is when to ask again after the others had their turn; yet before
// the slot, should they not come.
func (u *gateTurns) comeBack(t *gateTick, slot int64) int64 {
	if t.interval <= 0 {
		return 5000
	}
	mine := min(slot-2000, slot+u.quantum*t.interval-u.horizon/2)
	return max(1000, u.nextDue+turnGiveUp-t.now, mine-t.now)
}

// writeTurn keeps what this process was served and when it comes back.
func (t *gateTick) writeTurn() {
	sharing := t.interval > 0 || t.conc > 0
	if (!sharing || len(t.rq.Arrive) == 0) && !t.rq.Touch {
		return
	}
	due := int64(0)
	if t.rq.Waiting > t.granted && t.ans.Shut == "" {
		switch {
		case t.stop == "":
			due = t.now + 5000
		case t.stopIn > 0:
			due = t.now + t.stopIn
		default:
			due = t.now + turnUnasked
		}
	}
	turn := GateTurn{t.rq.Proc, t.turns.served, due, t.now}
	for i := range t.Turns {
		if t.Turns[i].Proc == turn.Proc {
			t.Turns[i] = turn
			return
		}
	}
	t.Turns = append(t.Turns, turn)
}

// wake says who is to be woken: all when caution ends, the least served one
// where a place came free for it.
func (t *gateTick) wake() string {
	u := &t.turns
	switch {
	case t.wakeAll:
		return "*"
	case u.others == 0 || t.ans.Shut != "":
		return ""
	case t.probed && t.granted == 0 && t.Control.Phase == "half_open":
		return u.leastProc
	case t.conc > 0 && t.inFlight < t.conc &&
		(t.freed > 0 && t.inFlight+t.freed >= t.conc || t.stop == "turn" && t.interval == 0):
		return u.leastProc
	}
	return ""
}
