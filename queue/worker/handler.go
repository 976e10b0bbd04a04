package worker

import (
	"context"
	"errors"
	"runtime/debug"
	"sync"
	"time"

	"github.com/hibiken/asynq"

	"github.com/penstock-io/penstock/internal/provider"
	"github.com/penstock-io/penstock/queue/internal/layout"
	"github.com/penstock-io/penstock/shaper"
	"github.com/penstock-io/penstock/shaper/guard"
)

// handle is asynq's handler. It stores what becomes of the job before it
// returns, so asynq has nothing left to do, whatever its context said meanwhile.
func (w *Worker) handle(ctx context.Context, t *asynq.Task) error {
	id, _ := asynq.GetTaskID(ctx)
	h, own := w.hands.begin(ctx, id)
	if h == nil {
		return nil // given up before it began; the wrapped client settled it
	}
	k, f := w.attempt(own, h, t)
	w.store(k, f)
	return nil
}

// attempt runs one attempt of a job, if its turn comes.
func (w *Worker) attempt(ctx context.Context, h *hand, t *asynq.Task) (*task, fate) {
	k, err := w.open(ctx, h, t)
	switch {
	case err != nil:
		w.log.Error("a job cannot be read; it is dead", "id", h.id, "error", err)
		return k, fate{verdict: final, state: layout.Dead, reason: err.Error()}
	case k.expires <= w.clock.ms():
		// Before any slot is asked for: a line of expired jobs costs the live
		// ones behind it nothing.
		return k, k.expired()
	case w.cfg.Handler == nil && k.typ != layout.TaskHTTP:
		if w.complain.ok(time.Now()) {
			w.log.Error("a job is for a Go handler and this worker has none; it waits for one that has", "id", h.id, "type", k.env.Type)
		}
		return k, fate{verdict: again, delay: faultDelay, reason: "no handler for type " + k.env.Type}
	}
	body, err := w.body(ctx, k)
	switch {
	case errors.Is(err, errNoBody):
		return k, fate{verdict: final, state: layout.Dead, reason: err.Error()}
	case err != nil:
		return k, fate{verdict: again, delay: time.Second, reason: "redis did not answer"}
	}
	err = w.guarded(ctx, k, body)
	if k.fate != nil {
		return k, *k.fate
	}
	f, strange := withoutCall(ctx, err)
	if strange && w.complain.ok(time.Now()) {
		w.log.Error("the guard refuses a job; it comes back later", "id", h.id, "error", err)
	}
	if f.state == layout.Expired {
		f = k.expired()
	}
	return k, f
}

// guarded waits for one of the worker's own places, then for the guard, and
// makes the call. The place is free again as soon as the call has returned.
func (w *Worker) guarded(ctx context.Context, k *task, body []byte) error {
	select {
	case w.places <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	leave := sync.OnceFunc(func() { <-w.places })
	defer leave()
	return w.guard(ctx, w.request(ctx, k), func(ctx context.Context) error {
		defer leave()
		return w.call(ctx, k, body)
	})
}

// expired is the end of a job that is past its max_age, with what held it up.
func (k *task) expired() fate {
	f := fate{verdict: final, state: layout.Expired, reason: "max_age passed", status: k.env.Status}
	switch {
	case k.env.Streak > 0:
		f.reason = "throttled until max_age"
	case k.env.LastError != "":
		f.reason += "; last: " + k.env.LastError
	}
	return f
}

// request is what the guard is asked for.
func (w *Worker) request(ctx context.Context, k *task) guard.Request {
	return guard.Request{
		Job: k.hand.id, Key: k.env.Key, Cost: k.env.Cost, Retry: k.env.Attempts+k.env.Throttles > 0,
		Expires: w.clock.at(k.expires),
		Record: func(err error, rep guard.Report) *shaper.Record {
			f := w.judge(ctx, k, err, rep.Free)
			k.fate = &f
			if f.verdict != final {
				return nil
			}
			k.record = true
			return &shaper.Record{
				Name: layout.TombstoneName(k.hand.id), Value: w.tombstone(k, f).Encode(), TTL: k.env.KeepOr(w.cfg.Keep),
				Index: layout.DoneName(f.state), Member: k.hand.id,
			}
		},
	}
}

// call makes the call, whose turn has come.
func (w *Worker) call(ctx context.Context, k *task, body []byte) (err error) {
	if !w.hands.calling(k.hand) {
		return notBegun{}
	}
	defer w.hands.returned(k.hand)
	w.observeStart(k)
	defer func() {
		if v := recover(); v != nil {
			w.log.Error("a handler panicked; the attempt is spent", "id", k.hand.id, "panic", v, "stack", string(debug.Stack()))
			err = &panicError{v}
		}
	}()
	if w.cfg.Handler != nil {
		return w.cfg.Handler(ctx, w.job(k, body))
	}
	idem := k.env.IdempotencyKey
	if idem == "" {
		idem = k.hand.id
	}
	res := w.http.Call(ctx, provider.Call{
		Method: k.env.Method, Path: k.env.Path, Headers: k.env.Headers, Body: body, IdempotencyKey: idem,
	})
	if res.Fate == provider.Succeeded {
		k.env.Status = res.Status
		return nil
	}
	return &httpError{res}
}

// judge says what becomes of the job whose call returned err: what one answer
// says, and what the job's own history adds. free: it was a probe, or the
// breaker is not closed; then a failure is nobody's but the provider's.
func (w *Worker) judge(ctx context.Context, k *task, err error, free bool) fate {
	if _, ok := errors.AsType[notBegun](err); ok {
		f, _ := withoutCall(ctx, err)
		if f.verdict == again {
			f = fate{verdict: back}
		}
		return f
	}
	f := afterCall(ctx, err)
	if free && f.verdict == again && f.spent {
		f.spent, f.free = false, true
	}
	if f.verdict == final {
		f.spent = true
		if f.state == layout.Succeeded {
			f.status = k.env.Status
		}
		return f
	}
	stopping := !f.spent && !f.free && !f.held && !f.refused && errors.Is(context.Cause(ctx), errStopping)
	switch {
	case w.hands.wasAsked(k.hand):
		f.verdict, f.state, f.reason = final, layout.Canceled, cancelled(f.reason)
	case f.spent && k.env.Attempts+1 >= k.allowed:
		f.verdict, f.state = final, layout.Dead
	case f.refused && k.env.Refused > 0 && !w.refusedIsHeld(ctx):
		f.verdict, f.state, f.spent = final, layout.Dead, true
	case stopping:
		f.verdict = back
	}
	return f
}

// refusedIsHeld reports whether the provider is held for refused credentials,
// or is being probed after that: then it is not this job's fault.
func (w *Worker) refusedIsHeld(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	s, err := w.cfg.Guard.Gate().Status(ctx)
	return err != nil || s.HeldReason == "credentials" || s.Cautious == "credentials"
}

// tombstone is what is kept of a final job.
func (w *Worker) tombstone(k *task, f fate) layout.Tombstone {
	n := k.env.Attempts
	if f.called && f.spent {
		n++
	}
	return layout.Tombstone{
		State: f.state, Hash: k.env.Hash, Attempts: n, At: w.clock.ms(), Reason: layout.Short(f.reason), Status: f.status,
		Deferrals: k.env.Deferrals, Throttles: k.env.Throttles,
	}
}
