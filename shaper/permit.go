package shaper

import (
	"context"
	"sync"
	"time"
)

// Permit is the right to make one call: a slot in time and a place among the
// calls in flight. Its lease is renewed until it is settled or released.
// Methods are safe for several goroutines.
type Permit struct {
	gate       *Gate
	id         string
	job        string
	cost       int
	pays       bool // the account was charged
	slot       time.Time
	tat        int64 // the gate's theoretical arrival time after this grant; 0 without a rate
	generation uint64
	probe      bool
	once       sync.Once

	mu     sync.Mutex
	lost   bool
	cancel context.CancelCauseFunc
}

// Settlement is what a call's end tells the gate.
type Settlement struct {
	// OK: the provider answered well. Excluded: the call says nothing of it.
	OK, Excluded bool
	// Hold shuts the gate for the whole fleet, for at least so long.
	Hold time.Duration
	// Capped says that Hold is shorter than what was asked: afterwards one call
	// at a time goes, until one succeeds.
	Capped bool
	// Refused says that our credentials were refused. Five different jobs in a
	// row, with no OK between, hold the gate; a probe each 60 s tries again.
	Refused bool
	// Earns credits the account: a first attempt that succeeded.
	Earns bool
	// Record is written in the same script. Nil: none.
	Record *Record
}

type settlement struct {
	Settlement
	permit *Permit
	called bool
	stored chan struct{}
}

// Context returns a child of parent for the call. It is cancelled, with the
// cause ErrLost, when the lease is gone and its place was given to another.
// The caller must call cancel in the end.
func (p *Permit) Context(parent context.Context) (ctx context.Context, cancel context.CancelCauseFunc) {
	ctx, cancel = context.WithCancelCause(parent)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cancel = cancel
	if p.lost {
		cancel(ErrLost)
	}
	return ctx, cancel
}

func (p *Permit) markLost() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lost = true
	if p.cancel != nil {
		p.cancel(ErrLost)
	}
}

// Slot is the moment the call was allowed to start, on the monotonic clock.
func (p *Permit) Slot() time.Time { return p.slot }

// Generation is the one of health's decisions that the call starts in: results
// of calls from an older one change nothing.
func (p *Permit) Generation() uint64 { return p.generation }

// Probe reports whether the call is a probe: the only one in flight over the
// whole fleet, because nobody knows whether the provider is well.
func (p *Permit) Probe() bool { return p.probe }

// awaitSlot sleeps until the slot. It returns false where the slot was missed
// by too much.
func (p *Permit) awaitSlot(ctx context.Context) (onTime bool, err error) {
	if d := time.Until(p.slot); d > 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
			return false, context.Cause(ctx)
		case <-p.gate.quit:
			return false, ErrClosed
		}
	} else if err := context.Cause(ctx); err != nil {
		return false, err
	}
	return p.tat == 0 || time.Since(p.slot) <= p.gate.tolerance(), nil
}

// tolerance is how late a slot may be used: two fifths of the headroom, which
// leaves the rest of it to the way to the provider, and never less than what a
// scheduler's hiccup costs.
func (g *Gate) tolerance() time.Duration {
	return max(5*time.Millisecond, g.Limits().Headroom*2/5)
}

// Settle gives the permit back after the call. Only the first Settle or
// Release counts. It does not wait; see SettleWait.
func (p *Permit) Settle(s Settlement) { p.end(s, true) }

// SettleWait is Settle, and returns when the settlement (and its record) is
// stored. When ctx ends it waits for grace more and then returns
// context.Cause(ctx): the settlement will still be stored as soon as Redis
// answers, as long as the process lives.
func (p *Permit) SettleWait(ctx context.Context, s Settlement, grace time.Duration) error {
	stored := p.end(s, true)
	if stored == nil {
		return nil
	}
	select {
	case <-stored:
		return nil
	case <-ctx.Done():
	}
	t := time.NewTimer(grace)
	defer t.Stop()
	select {
	case <-stored:
		return nil
	case <-t.C:
		return context.Cause(ctx)
	}
}

// Release gives the permit back unused. Its slot returns to the line where it
// was the newest; else it is forfeited: two calls must never get one slot.
func (p *Permit) Release() {
	p.end(Settlement{Excluded: true, Earns: p.pays}, false) // what was paid goes back
}

func (p *Permit) end(s Settlement, called bool) (stored <-chan struct{}) {
	p.once.Do(func() {
		st := &settlement{Settlement: s, permit: p, called: called, stored: make(chan struct{})}
		stored = st.stored
		g := p.gate
		g.mu.Lock()
		delete(g.live, p.id)
		g.settles = append(g.settles, st)
		g.startLocked()
		g.mu.Unlock()
	})
	return stored
}
