package guard

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/penstock-io/penstock/breaker"
)

const (
	fuseRow  = 15 // failures in a row
	fuseTime = 500 * time.Millisecond
	fusePoll = 50 * time.Millisecond
)

// fuse is this process's own breaker. It covers the time between two ticks of
// the fleet's, and the time without Redis; it only ever denies here, briefly,
// and nobody hears of it: the caller waits. A nil fuse lets everything through.
type fuse struct {
	cb *gobreaker.TwoStepCircuitBreaker[struct{}]
	// solo is held by the one call that tries whether it is over.
	solo chan struct{}
}

var (
	errFuseFailed   = errors.New("failed")
	errFuseExcluded = errors.New("excluded")
)

func newFuse(name string) *fuse {
	return &fuse{solo: make(chan struct{}, 1), cb: gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		Name: name, Timeout: fuseTime,
		ReadyToTrip: func(c gobreaker.Counts) bool { return c.ConsecutiveFailures >= fuseRow },
		IsExcluded:  func(err error) bool { return errors.Is(err, errFuseExcluded) },
	})}
}

// pass waits until a call may be tried, and reports whether it is the one that
// tries: then leave must be called when it is over. denied is told of a wait.
func (f *fuse) pass(ctx context.Context, denied func()) (leave func(), err error) {
	if f == nil {
		return func() {}, nil
	}
	for told := false; ; told = true {
		switch f.cb.State() {
		case gobreaker.StateClosed:
			return func() {}, nil
		case gobreaker.StateHalfOpen:
			select {
			case f.solo <- struct{}{}:
				return func() { <-f.solo }, nil
			default:
			}
		}
		if !told {
			denied()
		}
		t := time.NewTimer(fusePoll/2 + rand.N(fusePoll))
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return nil, context.Cause(ctx)
		}
	}
}

// begin asks for one call whose turn has come. It returns what must hear the
// call's outcome, or false: it blew meanwhile.
func (f *fuse) begin() (end func(breaker.Outcome), ok bool) {
	if f == nil {
		return func(breaker.Outcome) {}, true
	}
	done, err := f.cb.Allow()
	if err != nil {
		return nil, false
	}
	return func(o breaker.Outcome) {
		switch o {
		case breaker.OK:
			done(nil)
		case breaker.Failed, breaker.Timeout:
			done(errFuseFailed)
		default:
			done(errFuseExcluded)
		}
	}, true
}
