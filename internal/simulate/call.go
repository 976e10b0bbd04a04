package simulate

import "github.com/penstock-io/penstock/breaker"

// granted makes the call at its slot.
func (w *worker) granted(a *ask, v GateVerdict, gen uint64) {
	a.gen, a.tat = gen, v.Tat
	if len(w.live) == 0 {
		w.renewAt = w.sim.now + lease/4
	}
	w.live = append(w.live, a)
	hiccup := w.sim.rng.Int64N(500)
	w.sim.after(max(0, v.After)+hiccup, func() { w.start(a) })
}

func (w *worker) start(a *ask) {
	if w.dead {
		return
	}
	s, j := w.sim, a.job
	j.calls++
	w.window.start(a.gen)
	r := s.model.call()
	c := s.called(a, r)
	s.after(r.after, func() {
		if !w.dead {
			w.returned(a, r, c)
		}
	})
}

// returned hears a call's end: sensor, settlement, fate.
func (w *worker) returned(a *ask, r reply, call int) {
	s := w.sim
	s.res.calls[call].end = s.now
	w.window.add(a.gen, r)
	for i, l := range w.live {
		if l == a {
			w.live = append(w.live[:i], w.live[i+1:]...)
			break
		}
	}
	st := GateSettlement{Permit: a.permit, Job: a.job.id, Called: true, Outcome: "failed", Cost: 1}
	switch {
	case r.outcome == breaker.OK:
		st.Outcome = "ok"
		if a.first {
			st.Account, st.Credit = accountRetry, s.gate.Budget.Earn
		}
	case r.retryAfter > 0 && s.sc.Adaptive == "on":
		h := breaker.HoldFor(s.clockTime(), r.retryAfter, s.sc.Law, s.rng.Float64())
		if !h.Until.IsZero() {
			st.Hold, st.Capped = h.Until.UnixMicro()-s.clock(), h.Capped
		}
	}
	w.settles = append(w.settles, st)
	s.ended(a.job, r)
	w.inlet()
	w.look()
}
