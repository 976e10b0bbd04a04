package simulate

import "github.com/penstock-io/penstock/retrybudget"

// decide answers one arrival: what is wrong with this job alone, then all the
// limits together, then its account; only what is granted is committed.
func (t *gateTick) decide(a *GateArrival) GateVerdict {
	runs := a.Job != "" && t.runs(a)
	rec, done := t.Records[a.Record]
	switch {
	case done && a.Record != "":
		return GateVerdict{Kind: 'x', Reason: "done", Record: rec}
	case runs:
		return GateVerdict{Kind: 'x', Reason: "running"}
	case a.Job != "" && t.Crash[a.Job] >= gatePoison:
		return GateVerdict{Kind: 'x', Reason: "poison"}
	}
	slot := t.now
	if t.stop == "" {
		slot = t.slot()
	}
	if t.stop == "" && a.Account != "" {
		if v := t.charge(a); !v.Go {
			return GateVerdict{Kind: 'x', Reason: "account", After: v.After.Microseconds()}
		}
	}
	if t.stop != "" {
		if a.Account == "" && (t.stop == "rate" || t.stop == "concurrency" || t.stop == "turn") {
			t.FirstRefused = t.now
		}
		return GateVerdict{Kind: 'n', After: t.stopIn, Reason: t.stop}
	}
	return t.grant(a, slot)
}

// runs reports whether the job holds another live permit; a dead one is ended.
func (t *gateTick) runs(a *GateArrival) bool {
	other := t.Running[a.Job]
	if other == "" || other == a.Permit {
		return false
	}
	end, lives := t.Permits[other]
	if lives && end <= t.now {
		t.expire(other)
		t.inFlight--
		lives = false
	}
	return lives
}

// slot returns the next slot, or sets why there is none now.
func (t *gateTick) slot() int64 {
	half := t.Control.Phase == "half_open"
	probing := t.Probe != "" && (t.Cautious != "" || half && t.ProbeSince == t.Control.Since)
	slot := t.now
	if t.interval > 0 {
		slot = max(t.now, t.Tat-(t.burst-1)*t.interval)
	}
	switch {
	case t.ans.Shut != "":
		t.stop, t.stopIn = t.ans.Shut, max(0, t.ans.ShutUntil-t.now)
	case probing:
		t.stop, t.stopIn = "probing", 0
	case half && t.ProbeNext > t.now:
		t.stop, t.stopIn = "probing", t.ProbeNext-t.now
	case t.conc > 0 && t.inFlight >= t.conc:
		t.stop, t.stopIn = "concurrency", 0
	case slot-t.now > t.turns.horizon:
		t.stop, t.stopIn = "rate", max(1, slot-t.now-t.turns.horizon/2)
	case t.turns.others > 0 && t.turns.served-t.turns.least >= t.turns.quantum:
		t.stop, t.stopIn = "turn", t.turns.comeBack(t, slot)
	}
	return slot
}

// charge asks the account of a retry.
func (t *gateTick) charge(a *GateArrival) retrybudget.Verdict {
	ago := int64(-1)
	if t.FirstRefused > 0 {
		ago = max(0, t.now-t.FirstRefused)
	}
	half := t.Control.Phase == "half_open"
	needed := t.Budget.Needed(retrybudget.Situation{
		Probe: half || t.Cautious != "", Recovering: half || t.Control.SlowStart, FirstRefused: micro(ago),
	})
	b, v := t.Budget.Ask(t.Accounts[a.Account], t.now, needed)
	t.Accounts[a.Account] = b
	return v
}

// grant commits one arrival.
func (t *gateTick) grant(a *GateArrival, slot int64) GateVerdict {
	after := int64(0)
	if t.interval > 0 {
		t.Tat = max(slot, t.Tat) + a.Cost*t.interval
		after = t.Tat
	}
	t.Permits[a.Permit] = t.now + t.rq.Lease + (slot - t.now)
	if a.Job != "" {
		t.Running[a.Job] = a.Permit
	}
	t.inFlight++
	t.granted++
	t.turns.served += a.Cost
	if half := t.Control.Phase == "half_open"; half || t.Cautious != "" {
		t.Probe = a.Permit
		if half {
			t.ProbeSince = t.Control.Since
			t.ProbeUntil = slot + t.Control.ProbeLease
			t.ProbeNext = slot + t.Control.ProbeApart
		}
	}
	return GateVerdict{Kind: 'g', After: slot - t.now, Tat: after}
}
