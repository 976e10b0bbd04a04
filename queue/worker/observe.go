package worker

import (
	"cmp"
	"time"
)

func (w *Worker) observeStart(k *task) {
	o := w.cfg.Observer
	if o == nil {
		return
	}
	e := k.env
	delayed := e.Due > e.Accepted || e.Attempts+e.Deferrals > 0
	due := cmp.Or(laneDue(k.hand.origin), e.Due, e.Accepted, w.clock.ms())
	o.Started(w.cfg.Provider, max(0, time.Duration(w.clock.ms()-due)*time.Millisecond), delayed)
}

func (w *Worker) observeEnd(k *task, f fate) {
	o := w.cfg.Observer
	if o == nil {
		return
	}
	switch f.verdict {
	case final:
		o.Settled(w.cfg.Provider, string(f.state), w.tombstone(k, f).Attempts)
	case again:
		reason := ReasonOther
		switch {
		case f.held:
			reason = ReasonThrottled
		case f.refused:
			reason = ReasonRefused
		case f.budget:
			reason = ReasonBudget
		case f.spent, f.free:
			reason = ReasonFailed
		case f.called:
			reason = ReasonHandler
		}
		o.Deferred(w.cfg.Provider, reason, f.spent)
	}
}

// laneDue is the due time (ms) in an origin; 0 where the job came from pending.
func laneDue(origin string) int64 {
	if len(origin) < 5 || origin[1] != ':' {
		return 0
	}
	var n int64
	for _, c := range origin[4:] {
		if c < '0' || c > '9' {
			return 0
		}
		n = n*10 + int64(c-'0')
	}
	return n
}
