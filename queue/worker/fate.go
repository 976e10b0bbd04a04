package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/penstock-io/penstock/breaker"
	"github.com/penstock-io/penstock/internal/provider"
	"github.com/penstock-io/penstock/queue"
	"github.com/penstock-io/penstock/queue/internal/layout"
	"github.com/penstock-io/penstock/shaper"
	"github.com/penstock-io/penstock/shaper/guard"
)

// Defer says that the job cannot be done now and is to come back after d, with
// no attempt spent: only max_age bounds it. The provider counts as well. A d
// below a millisecond means a millisecond. reason is kept and shown; it must
// hold no secret.
func Defer(d time.Duration, reason string) error {
	return &deferral{max(d, time.Millisecond), reason}
}

// Discard says that trying again would change nothing: the job is dead. The
// provider counts as well. reason is kept and shown; it must hold no secret.
func Discard(reason string) error { return &discard{reason} }

type deferral struct {
	d      time.Duration
	reason string
}

func (e *deferral) Error() string        { return fmt.Sprintf("deferred for %s: %s", e.d, e.reason) }
func (e *deferral) Report() guard.Report { return guard.Report{Outcome: breaker.OK} }

type discard struct{ reason string }

func (e *discard) Error() string        { return "discarded: " + e.reason }
func (e *discard) Report() guard.Report { return guard.Report{Outcome: breaker.OK} }

// httpError is an answer, or the lack of one, that is no success.
type httpError struct{ res provider.Result }

func (e *httpError) Error() string { return e.res.Reason }
func (e *httpError) Unwrap() error { return e.res.Err }
func (e *httpError) Report() guard.Report {
	return guard.Report{Outcome: e.res.Outcome, RetryAfter: e.res.RetryAfter, Credentials: e.res.Credentials}
}

// panicError is a handler's panic: a failed attempt.
type panicError struct{ v any }

func (e *panicError) Error() string { return fmt.Sprintf("the handler panicked: %v", e.v) }

// notBegun: the job's wait was ended at the moment its turn came.
type notBegun struct{}

func (notBegun) Error() string        { return "the call was not begun" }
func (notBegun) Report() guard.Report { return guard.Report{Outcome: breaker.Excluded} }

// verdict is what becomes of a job after its handler ran.
type verdict uint8

const (
	again verdict = iota + 1 // comes back later
	back                     // goes back to where it was, as if never taken
	final                    // never again
)

// fate is a verdict with its particulars.
type fate struct {
	verdict verdict
	state   layout.State // final: which
	called  bool         // a call was made
	spent   bool         // again: an attempt is spent
	held    bool         // the provider said not now (429 and the like)
	refused bool         // the provider refused who we are
	free    bool         // a failure that spends no attempt: a probe, or the breaker is not closed
	budget  bool         // no call: the retry budget has no token
	delay   time.Duration
	after   time.Duration // the wait that the provider asked for
	reason  string
	status  int
}

const (
	// runningDelay is when a job is tried again that seems to run elsewhere: the
	// other's permit lasts 10 s, or is renewed.
	runningDelay = 3 * time.Second
	// refusedDelay is when a job is tried again whose provider refused who we are.
	refusedDelay = 30 * time.Second
	// faultDelay is when a job is tried again that met a fault of the worker's
	// own: it must neither die of it nor spin.
	faultDelay = 10 * time.Second
)

// afterCall says what becomes of a job whose call returned err.
func afterCall(ctx context.Context, err error) fate {
	if err == nil {
		return fate{verdict: final, state: layout.Succeeded, called: true}
	}
	if d, ok := errors.AsType[*deferral](err); ok {
		return fate{verdict: again, called: true, delay: d.d, reason: d.reason}
	}
	if d, ok := errors.AsType[*discard](err); ok {
		return fate{verdict: final, state: layout.Dead, called: true, reason: d.reason}
	}
	if h, ok := errors.AsType[*httpError](err); ok {
		return afterHTTP(ctx, h.res)
	}
	f := fate{verdict: again, called: true, spent: true, reason: err.Error()}
	if r, ok := errors.AsType[guard.Reporter](err); ok {
		rep := r.Report()
		f.after, f.refused = rep.RetryAfter, rep.Credentials
		f.held = rep.Outcome == breaker.Throttled
		f.spent = !f.held && !f.refused && rep.Outcome != breaker.Excluded
	} else if errors.Is(context.Cause(ctx), errStopping) {
		f.spent = false // we cut it
	}
	return f
}

func afterHTTP(ctx context.Context, res provider.Result) fate {
	f := fate{called: true, reason: res.Reason, status: res.Status, after: res.RetryAfter}
	switch res.Fate {
	case provider.Succeeded:
		f.verdict, f.state = final, layout.Succeeded
	case provider.Dead:
		f.verdict, f.state = final, layout.Dead
	case provider.AgainFree:
		f.verdict, f.refused, f.held = again, res.Credentials, res.Outcome == breaker.Throttled
	default:
		f.verdict, f.spent = again, true
	}
	if f.verdict == again && errors.Is(context.Cause(ctx), errStopping) {
		f.spent = false
	}
	return f
}

// withoutCall says what becomes of a job for which no call was made. stranger
// is true for an error that an operator must know of.
func withoutCall(ctx context.Context, err error) (f fate, stranger bool) {
	if d, ok := errors.AsType[*shaper.DoneError](err); ok {
		return byRecord(d.Record), false
	}
	if d, ok := errors.AsType[*guard.Deferred](err); ok {
		return fate{verdict: again, delay: d.After, budget: true}, false
	}
	switch cause := context.Cause(ctx); {
	case errors.Is(err, guard.ErrExpired):
		return fate{verdict: final, state: layout.Expired}, false
	case errors.Is(err, shaper.ErrPoison):
		return fate{verdict: final, state: layout.Dead, reason: "poison: the workers that called it died, three times"}, false
	case errors.Is(err, shaper.ErrRunning):
		return fate{verdict: again, delay: runningDelay, reason: "running elsewhere"}, false
	case errors.Is(cause, errCancelled):
		return fate{verdict: final, state: layout.Canceled, reason: cancelled("")}, false
	case errors.Is(cause, errStopping), errors.Is(err, shaper.ErrClosed):
		return fate{verdict: back}, false
	}
	return fate{verdict: again, delay: faultDelay, reason: err.Error()}, true
}

// cancelled is the reason of a job that was cancelled on request, with what its
// last attempt came to.
func cancelled(last string) string {
	if last == "" {
		return queue.CancelReason
	}
	return queue.CancelReason + "; last: " + last
}

// byRecord ends a job as its record says: its call was made before.
func byRecord(record string) fate {
	t, err := layout.ParseTombstone(record)
	if err != nil {
		t = layout.Tombstone{State: layout.Succeeded, Reason: "its record is not readable; the call was made"}
	}
	return fate{verdict: final, state: t.State, reason: t.Reason, status: t.Status}
}
