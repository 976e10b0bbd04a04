package simulate

import (
	"math/rand/v2"
	"time"
)

// epoch is when every simulation begins, in microseconds of the store's clock:
// far enough from 0 that a clock may be set back.
const epoch int64 = 1_796_040_000_000_000

// engine runs events in virtual time, in microseconds since the beginning.
// Events at the same time run in the order in which they were made, so a run
// is determined by its scenario and seed.
type engine struct {
	now    int64
	seq    uint64
	events []event // a binary heap by (at, seq)
	rng    *rand.Rand
	// skew is how far the store's clock was set, against the true time.
	skew int64
}

type event struct {
	at  int64
	seq uint64
	do  func()
}

func (e event) before(o event) bool { return e.at < o.at || e.at == o.at && e.seq < o.seq }

func newEngine(seed uint64) *engine {
	return &engine{rng: rand.New(rand.NewPCG(seed, 0x9e3779b97f4a7c15))}
}

// at runs do at t, or now where t is over.
func (e *engine) at(t int64, do func()) {
	e.seq++
	e.events = append(e.events, event{max(t, e.now), e.seq, do})
	h := e.events
	for i := len(h) - 1; i > 0; {
		up := (i - 1) / 2
		if !h[i].before(h[up]) {
			return
		}
		h[i], h[up] = h[up], h[i]
		i = up
	}
}

// after runs do in d microseconds.
func (e *engine) after(d int64, do func()) { e.at(e.now+d, do) }

// next takes the earliest event.
func (e *engine) next() event {
	h := e.events
	top, last := h[0], len(h)-1
	h[0] = h[last]
	h[last] = event{}
	h = h[:last]
	for i := 0; ; {
		down := 2*i + 1
		if down >= last {
			break
		}
		if down+1 < last && h[down+1].before(h[down]) {
			down++
		}
		if !h[down].before(h[i]) {
			break
		}
		h[i], h[down] = h[down], h[i]
		i = down
	}
	e.events = h
	return top
}

// run runs events until the given time, or until there are none or stop says so.
func (e *engine) run(until int64, stop func() bool) {
	for len(e.events) > 0 && e.events[0].at <= until {
		if stop() {
			return
		}
		ev := e.next()
		e.now = ev.at
		ev.do()
	}
	e.now = max(e.now, until)
}

// clock is the store's: what Redis TIME would say, in microseconds.
func (e *engine) clock() int64 { return epoch + e.now + e.skew }

// clockTime is the store's clock as a time.
func (e *engine) clockTime() time.Time { return time.UnixMicro(e.clock()).UTC() }

// micro returns n microseconds as a Duration.
func micro(n int64) time.Duration { return time.Duration(n) * time.Microsecond }
