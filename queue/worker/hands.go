package worker

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// Causes with which a job's context is cancelled.
var (
	errStopping  = errors.New("the worker is stopping")
	errCancelled = errors.New("the job was cancelled")
)

// stage a job in hand is at.
type step uint8

const (
	stepTaken    step = iota // by the inlet; no handler yet
	stepWaiting              // a handler has it; no call yet
	stepCalling              // the call is under way
	stepSettling             // what becomes of it is decided, not yet stored
)

// hand is one job that this worker has taken and not yet settled.
type hand struct {
	id     string
	origin string // see take.lua
	raw    string // the task's message as taken
	seq    uint64 // the order in which it was taken

	// Below: under hands.mu.
	step    step
	idle    bool // past its max_age when it was taken: no slot is meant for it
	dropped bool // asynq gave it up before its handler began
	cancel  context.CancelCauseFunc
	asked   bool          // cancellation was asked for
	over    chan struct{} // closed when it is settled
}

// hands are all jobs in hand. Safe for several goroutines.
type hands struct {
	mu     sync.Mutex
	all    map[string]*hand
	seq    uint64
	parked int // taken and not yet called
	called int // calls under way
	begun  pace

	// freed gets an element when something became free: a slot, or a place
	// among the parked.
	freed chan struct{}
	// stopping ends the wait of every job, also of those still to begin.
	stopping bool
	// calm is closed and made anew whenever no call is under way.
	calm chan struct{}
}

func newHands() *hands {
	return &hands{all: map[string]*hand{}, freed: make(chan struct{}, 1), calm: closedChan()}
}

func closedChan() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

func (hs *hands) signalLocked() {
	select {
	case hs.freed <- struct{}{}:
	default:
	}
}

// signal makes the inlet look again.
func (hs *hands) signal() {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	hs.signalLocked()
}

// counts are the jobs in hand, and how many of them wait for their call.
func (hs *hands) counts() (all, parked int) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	return len(hs.all), hs.parked
}

// uncalled counts the jobs in hand whose call has not begun.
func (hs *hands) uncalled() int {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	n := 0
	for _, h := range hs.all {
		if h.step == stepTaken || h.step == stepWaiting {
			n++
		}
	}
	return n
}

// add registers a job that was taken. A job in hand already keeps its entry
// (it was taken twice: reclaimed while we still had it) and is not added.
func (hs *hands) add(id, origin, raw string, expired bool) bool {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if hs.all[id] != nil {
		return false
	}
	hs.seq++
	h := &hand{id: id, origin: origin, raw: raw, seq: hs.seq, idle: expired, over: make(chan struct{})}
	hs.all[id] = h
	if !expired {
		hs.parked++
	}
	return true
}

// begin gives a job to its handler with a context that only we cancel. Nil
// when the job is not in hand, or given up, or has a handler.
func (hs *hands) begin(ctx context.Context, id string) (*hand, context.Context) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	h := hs.all[id]
	if h == nil || h.dropped || h.step != stepTaken {
		return nil, nil
	}
	ctx, h.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	h.step = stepWaiting
	switch {
	case h.asked:
		h.cancel(errCancelled)
	case hs.stopping:
		h.cancel(errStopping)
	}
	return h, ctx
}

// calling notes that the job's call begins. False when its wait was ended
// meanwhile: then the call must not be made.
func (hs *hands) calling(h *hand) bool {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if h.step != stepWaiting || h.asked || hs.stopping {
		return false
	}
	if !h.idle {
		hs.parked--
	}
	h.step = stepCalling
	if hs.called == 0 {
		hs.calm = make(chan struct{})
	}
	hs.called++
	hs.begun.add(time.Now())
	hs.signalLocked()
	return true
}

// recent is how many calls began in the last paceOver or so.
func (hs *hands) recent() int {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	return hs.begun.count(time.Now())
}

// paceOver is how far back a pace counts.
const paceOver = 50 * time.Millisecond

// pace counts events in two halves of paceOver, the older of which fades as a
// whole. The zero value has seen none.
type pace struct {
	since     time.Time // of the newer half
	last, now int
}

func (p *pace) turn(t time.Time) {
	switch age := t.Sub(p.since); {
	case age >= paceOver:
		p.since, p.last, p.now = t, 0, 0
	case age >= paceOver/2:
		p.since, p.last, p.now = t, p.now, 0
	}
}

func (p *pace) add(t time.Time)       { p.turn(t); p.now++ }
func (p *pace) count(t time.Time) int { p.turn(t); return p.last + p.now }

// returned notes that the call has ended.
func (hs *hands) returned(h *hand) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if h.step == stepCalling {
		h.step = stepSettling
		hs.calledOneLessLocked()
	}
}

func (hs *hands) calledOneLessLocked() {
	if hs.called--; hs.called == 0 {
		close(hs.calm)
	}
}

// settled forgets a job: what became of it is stored, or it is someone else's.
func (hs *hands) settled(h *hand) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if hs.all[h.id] != h {
		return
	}
	delete(hs.all, h.id)
	switch h.step {
	case stepTaken, stepWaiting:
		if !h.idle {
			hs.parked--
		}
	case stepCalling:
		hs.calledOneLessLocked()
	}
	if h.cancel != nil {
		h.cancel(nil)
	}
	close(h.over)
	hs.signalLocked()
}

// drop gives up a job whose handler has not begun. It returns the job when it
// is now the caller's to settle, and otherwise a channel that is closed when
// its handler has settled it (nil: not in hand).
func (hs *hands) drop(id string) (*hand, <-chan struct{}) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	h := hs.all[id]
	switch {
	case h == nil:
		return nil, nil
	case h.step == stepTaken && !h.dropped:
		h.dropped = true
		return h, nil
	}
	return nil, h.over
}

// ask asks for the cancellation of a job: its wait ends, its call goes on, and
// no other attempt follows. False when it is not in hand.
func (hs *hands) ask(id string) bool {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	h := hs.all[id]
	if h == nil {
		return false
	}
	h.asked = true
	if h.step == stepWaiting && h.cancel != nil {
		h.cancel(errCancelled)
	}
	return true
}

// wasAsked reports whether the job's cancellation was asked for.
func (hs *hands) wasAsked(h *hand) bool {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	return h.asked
}

// endWaits ends the wait of every job that is not called yet; no other call begins.
func (hs *hands) endWaits() {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	hs.stopping = true
	for _, h := range hs.all {
		if h.step == stepWaiting && h.cancel != nil {
			h.cancel(errStopping)
		}
	}
}

// cutCalls cancels every call under way.
func (hs *hands) cutCalls() int {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	n := 0
	for _, h := range hs.all {
		if h.step == stepCalling && h.cancel != nil {
			h.cancel(errStopping)
			n++
		}
	}
	return n
}

// endAll cancels every job's context, also of those whose record is not stored.
func (hs *hands) endAll() {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	for _, h := range hs.all {
		if h.cancel != nil {
			h.cancel(errStopping)
		}
	}
}

// noCalls returns a channel that is closed while no call is under way.
func (hs *hands) noCalls() <-chan struct{} {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	return hs.calm
}

// ids of all jobs in hand.
func (hs *hands) ids() map[string]bool {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	m := make(map[string]bool, len(hs.all))
	for id := range hs.all {
		m[id] = true
	}
	return m
}

// waitingIDs are the jobs whose cancellation would still do something.
func (hs *hands) waitingIDs() []string {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	var ids []string
	for id, h := range hs.all {
		if !h.asked && h.step != stepSettling {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}
