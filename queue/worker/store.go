package worker

import (
	"maps"
	"math/rand/v2"
	"time"

	"github.com/penstock-io/penstock/queue/internal/layout"
)

// store puts what becomes of a job into Redis and lets go of it.
func (w *Worker) store(k *task, f fate) {
	defer w.hands.settled(k.hand)
	o := w.order(k, f)
	answer := w.settler.put(o)
	if answer == answerOK && o.kind == 'r' {
		w.expect(time.Now().Add(o.in + time.Millisecond))
	}
	if answer == answerCancelled {
		f = fate{verdict: final, state: layout.Canceled, called: f.called, spent: f.spent, reason: cancelled(f.reason), status: f.status}
		k.record = false
		answer = w.settler.put(w.order(k, f))
	}
	if answer == answerOK {
		w.observeEnd(k, f)
	}
}

// order is how a fate is written down.
func (w *Worker) order(k *task, f fate) *order {
	o := &order{h: k.hand}
	switch {
	case f.verdict == back:
		o.kind = 'b'
	case f.verdict == again:
		w.orderAgain(o, k, f)
	case f.state == layout.Succeeded:
		o.kind, o.body, o.patient = 'd', k.env.BodyKey, true
	default:
		w.orderKept(o, k, f)
	}
	if f.verdict == final && !layout.IsTask(k.typ) {
		o.lock = lockOf(k.hand.raw) // a stranger's; we set none
	}
	return o
}

// orderKept keeps a job that did not succeed where people can see it, and
// replay it.
func (w *Worker) orderKept(o *order, k *task, f fate) {
	now := w.clock.ms()
	t := w.tombstone(k, f)
	o.kind, o.failed, o.keep = 'c', f.state == layout.Dead, k.env.KeepOr(w.cfg.Keep)
	keepS := int64((o.keep + time.Second - 1) / time.Second)
	o.until = now/1000 + keepS
	o.result = t.Encode()
	if !k.record {
		o.tomb = &t
	}
	o.msg = k.hand.raw
	if msg, err := rewrite(k.hand.raw, change{headers: k.after(f), retried: f.spent}); err == nil {
		o.msg = msg
	}
	o.msg += string(layout.CompletedSuffix(now/1000, keepS, f.reason))
}

func (w *Worker) orderAgain(o *order, k *task, f fate) {
	o.kind, o.failed, o.lane = 'r', f.spent, laneLetter(k.env.Priority)
	o.in = w.delay(k, f)
	msg, err := rewrite(k.hand.raw, change{headers: k.after(f), errMsg: f.reason, atS: w.clock.ms() / 1000, retried: f.spent})
	if err != nil { // it was read before: cannot happen
		w.log.Error("a job's counts cannot be written", "id", k.hand.id, "error", err)
		msg = k.hand.raw
	}
	o.msg = msg
}

// afterOpen spreads jobs that came back from a provider that opened.
const afterOpen = 10 * time.Second

// delay is when the job comes back: never later than it expires.
func (w *Worker) delay(k *task, f fate) time.Duration {
	d := f.delay
	switch {
	case f.refused:
		d = refusedDelay + rand.N(refusedDelay/10)
	case f.held:
		d = w.backoff.Next(k.env.Streak, f.after)
	case f.spent:
		d = w.backoff.Next(k.env.Attempts, f.after)
	case d == 0:
		d = w.backoff.Next(0, f.after)
	}
	if open := w.cfg.Guard.Health().OpenUntil; !open.IsZero() && f.called && !f.refused {
		d = max(d, time.Until(open)+rand.N(afterOpen)) // not all at once when it closes
	}
	left := time.Duration(k.expires-w.clock.ms()) * time.Millisecond
	return max(0, min(d, left))
}

// after are the task's headers with the counts as they are after f.
func (k *task) after(f fate) map[string]string {
	h := maps.Clone(k.headers)
	if !layout.IsTask(k.typ) || h == nil {
		if own, err := k.env.Encode(); err == nil {
			if h == nil {
				h = make(map[string]string, len(own))
			}
			maps.Copy(h, own)
		}
	}
	p := k.env.Progress
	if f.called {
		p.Status = f.status
	}
	if f.spent {
		p.Attempts++
		p.Streak, p.Refused = 0, 0
	} else if f.verdict == again {
		p.Deferrals++
	}
	if f.held {
		p.Throttles++
		p.Streak++
	}
	if f.refused {
		p.Refused++
	}
	if f.reason != "" {
		p.LastError = f.reason
	}
	p.Store(h)
	return h
}
