package breaker

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// t0 is now of every dated case.
var t0 = time.Unix(1796040000, 0).UTC()

// world is a state, and a sample to be filled between its steps.
type world struct {
	now    time.Time
	state  State
	sample Sample
	cfg    Config
}

func newWorld(cfg Config) *world {
	return &world{now: t0, cfg: cfg, sample: Sample{Chance: 0.5}}
}

// saw counts n outcomes of calls of generation gen in the present bucket.
func (w *world) saw(o Outcome, n int, gen uint64) {
	at := w.now.Truncate(w.cfg.Normal().Tick)
	b := Bucket{At: at, Generation: gen}
	for range n {
		b.Add(o)
		b.Starts++
		if o == OK {
			b.Latencies.Add(50 * time.Millisecond)
		}
		w.sample.Row = w.sample.Row.Add(o, gen, w.state.Since)
	}
	w.sample.Buckets = append(w.sample.Buckets, b)
}

// step steps the law and goes on by one tick.
func (w *world) step() {
	w.state = Step(w.now, w.state, w.sample, w.cfg)
	w.now = w.now.Add(w.cfg.Normal().Tick)
}

// pass lets d go by without traffic.
func (w *world) pass(d time.Duration) {
	for end := w.now.Add(d); w.now.Before(end); {
		w.step()
	}
}

func (w *world) phase() string { return w.state.phase().Name() }

func (w *world) open() {
	w.saw(Failed, 15, w.state.Generation)
	w.step()
}

func (w *world) halfOpen() {
	w.open()
	w.pass(w.state.Phase.(Open).Until.Sub(w.now) + time.Second)
}

func (w *world) probe(o Outcome) {
	w.saw(o, 1, w.state.Generation)
	w.step()
}

// TestStateByEvent is the whole table of what each state does on each event.
// Upper case: a new generation begins.
func TestStateByEvent(t *testing.T) {
	states := map[string]func(w *world){
		"closed":      func(w *world) { w.saw(OK, 5, 0); w.step() },
		"slow start":  func(w *world) { w.halfOpen(); w.probe(OK); w.probe(OK); w.probe(OK) },
		"open":        func(w *world) { w.open() },
		"open, due":   func(w *world) { w.open(); w.now = w.state.Phase.(Open).Until },
		"half_open":   func(w *world) { w.halfOpen() },
		"half_open 2": func(w *world) { w.halfOpen(); w.probe(OK); w.probe(OK) },
	}
	gen := func(w *world) uint64 { return w.state.Generation }
	events := map[string]func(w *world){
		"nothing":          func(w *world) {},
		"ok":               func(w *world) { w.saw(OK, 1, gen(w)) },
		"failed":           func(w *world) { w.saw(Failed, 1, gen(w)) },
		"timeout":          func(w *world) { w.saw(Timeout, 1, gen(w)) },
		"throttled":        func(w *world) { w.saw(Throttled, 1, gen(w)) },
		"excluded":         func(w *world) { w.saw(Excluded, 20, gen(w)) },
		"15 failed":        func(w *world) { w.saw(Failed, 15, gen(w)) },
		"15 timeouts":      func(w *world) { w.saw(Timeout, 15, gen(w)) },
		"15 failed, an ok": func(w *world) { w.saw(Failed, 14, gen(w)); w.saw(OK, 20, gen(w)); w.saw(Failed, 14, gen(w)) },
		"15 throttled":     func(w *world) { w.saw(Throttled, 15, gen(w)) },
		"late failures":    func(w *world) { w.state.Generation++; w.state.Since++; w.saw(Failed, 30, gen(w)-1) },
		"late ok":          func(w *world) { w.state.Generation++; w.state.Since++; w.saw(OK, 30, gen(w)-1) },
		"held":             func(w *world) { w.sample.Held = Hold{Until: w.now.Add(30 * time.Second)} },
		"held, capped":     func(w *world) { w.sample.Held = Hold{Until: w.now.Add(900 * time.Second), Capped: true} },
		"probe lost":       func(w *world) { w.sample.Probe = Lease{Generation: gen(w), Until: w.now} },
		"probe runs":       func(w *world) { w.sample.Probe = Lease{Generation: gen(w), Until: w.now.Add(time.Millisecond)} },
		"old probe lost": func(w *world) {
			w.state.Generation++
			w.state.Since++
			w.sample.Probe = Lease{Generation: gen(w) - 1, Until: w.now}
		},
		"clock back": func(w *world) { w.now = w.now.Add(-time.Hour) },
	}
	const table = `
                 | closed    slow start  open  open, due  half_open  half_open 2
nothing          | closed    closed      open  HALF_OPEN  half_open  half_open
ok               | closed    closed      open  HALF_OPEN  half_open  CLOSED
failed           | closed    closed      open  HALF_OPEN  OPEN       OPEN
timeout          | closed    closed      open  HALF_OPEN  OPEN       OPEN
throttled        | CLOSED    closed      open  HALF_OPEN  OPEN       OPEN
excluded         | closed    closed      open  HALF_OPEN  half_open  half_open
15 failed        | OPEN      OPEN        open  HALF_OPEN  OPEN       OPEN
15 timeouts      | OPEN      OPEN        open  HALF_OPEN  OPEN       OPEN
15 failed, an ok | closed    closed      open  HALF_OPEN  OPEN       OPEN
15 throttled     | CLOSED    CLOSED      open  HALF_OPEN  OPEN       OPEN
late failures    | closed    closed      open  HALF_OPEN  half_open  half_open
late ok          | closed    closed      open  HALF_OPEN  half_open  half_open
held             | closed    closed      open  open       half_open  half_open
held, capped     | HALF_OPEN HALF_OPEN   open  open       half_open  half_open
probe lost       | closed    closed      open  HALF_OPEN  OPEN       OPEN
probe runs       | closed    closed      open  HALF_OPEN  half_open  half_open
old probe lost   | closed    closed      open  HALF_OPEN  half_open  half_open
clock back       | closed    closed      open  open       half_open  half_open
`
	columns := []string{"closed", "slow start", "open", "open, due", "half_open", "half_open 2"}
	rows := 0
	for _, line := range strings.Split(strings.TrimSpace(table), "\n")[1:] {
		name, cells, _ := strings.Cut(line, "|")
		event, want := strings.TrimSpace(name), strings.Fields(cells)
		if events[event] == nil || len(want) != len(columns) {
			t.Fatalf("row %q is not understood", line)
		}
		rows++
		for i, state := range columns {
			t.Run(state+"/"+event, func(t *testing.T) {
				w := newWorld(Config{Rate: 100, Concurrency: 20})
				states[state](w)
				if got, _, _ := strings.Cut(state, ","); got == "open" && w.phase() != "open" {
					t.Fatalf("the state is not reached: %s", w.phase())
				}
				events[event](w)
				before := w.state.Generation
				w.step()
				got := w.phase()
				if w.state.Generation > before {
					got = strings.ToUpper(got)
				}
				if got != want[i] {
					t.Errorf("%s after %s: got %s, want %s (%s)", state, event, got, want[i], w.state.Reason)
				}
				if w.state.Generation < w.state.Since {
					t.Errorf("generation %d is before %d, in which the phase began", w.state.Generation, w.state.Since)
				}
			})
		}
	}
	if rows != len(events) {
		t.Errorf("the table has %d rows for %d events", rows, len(events))
	}
}

// TestCases are the BRK cases that the law decides.
func TestCases(t *testing.T) {
	cases := map[string]func(t *testing.T, w *world){
		"BRK-04": func(t *testing.T, w *world) {
			w.halfOpen()
			w.probe(Failed)
			w.want(t, "open")
			gen := w.state.Generation
			for range 3 {
				w.saw(OK, 1, gen-1)
				w.step()
			}
			w.want(t, "open")
		},
		"BRK-05": func(t *testing.T, w *world) {
			started := w.state.Generation
			w.open()
			opened := w.state.Generation
			w.saw(OK, 1, started)
			w.step()
			w.want(t, "open")
			w.pass(10 * time.Second)
			w.want(t, "half_open")
			w.saw(Failed, 40, started)
			w.step()
			w.want(t, "half_open")
			if w.state.Generation != opened+1 || w.state.Openings != 1 {
				t.Errorf("a second opening: generation %d, openings %d", w.state.Generation, w.state.Openings)
			}
		},
		"BRK-06": func(t *testing.T, w *world) {
			w.cfg.Opening.Row, w.cfg.Opening.RowSlow = 8, 8
			for range 8 { // processes, each with one failing call, flushed one by one
				w.saw(Failed, 1, 0)
			}
			w.step()
			w.want(t, "open")
		},
		"BRK-08": func(t *testing.T, w *world) {
			w.open()
			w.state = State{} // FLUSHALL
			w.sample.Buckets, w.sample.Row = nil, Row{}
			w.saw(OK, 3, 0)
			w.step()
			w.want(t, "closed")
			w.open()
			w.want(t, "open")
		},
		"BRK-09": func(t *testing.T, w *world) {
			w.open()
			open, gen := w.state.Phase.(Open), w.state.Generation
			for i := range 32 {
				w.state = Step(w.now.Add(time.Duration(i)*time.Millisecond), w.state, w.sample, w.cfg)
			}
			if got := w.state.Phase; got != open {
				t.Errorf("opened anew: %+v, was %+v", got, open)
			}
			w.now = open.Until
			for i := range 32 {
				w.state = Step(w.now.Add(time.Duration(i)*time.Millisecond), w.state, w.sample, w.cfg)
			}
			if w.phase() != "half_open" || w.state.Generation != gen+1 {
				t.Errorf("half-open must come once: %s, generation %d, was %d", w.phase(), w.state.Generation, gen)
			}
		},
		"BRK-11": func(t *testing.T, w *world) {
			for range 600 {
				w.saw(OK, 98, w.state.Generation) // four in five of them a 404
				w.saw(Failed, 2, w.state.Generation)
				w.step()
				w.trim()
			}
			w.want(t, "closed")
			w.sample.Buckets = nil
			w.halfOpen()
			w.probe(OK)
			w.probe(OK)
			w.probe(OK)
			w.want(t, "closed")
		},
		"BRK-13": func(t *testing.T, w *world) {
			w.halfOpen()
			gen := w.state.Generation
			w.probe(Excluded)
			w.want(t, "half_open")
			if h := w.state.Phase.(HalfOpen); h.Good != 0 || w.state.Generation != gen {
				t.Errorf("a cancelled probe counted: %+v, generation %d", h, w.state.Generation)
			}
			w.probe(OK)
			w.probe(OK)
			w.probe(OK)
			w.want(t, "closed")
		},
		"BRK-14": func(t *testing.T, w *world) {
			for i := range 10 {
				w.want(t, "closed")
				w.saw(Failed, 1, 0)
				w.step()
				w.now = w.now.Add(time.Minute)
				if i < 9 {
					w.want(t, "closed")
				}
			}
			w.want(t, "open")
		},
		"BRK-15": func(t *testing.T, w *world) {
			w.cfg.Opening.Row, w.cfg.Opening.RowSlow = 20, 20
			w.cfg.Opening.Share = 0.95 // the row alone
			w.cfg.Opening.Calls, w.cfg.StretchCalls = 200, 200
			w.saw(Failed, 19, 0)
			w.saw(OK, 1, 0)
			w.saw(Failed, 19, 0)
			w.step()
			w.want(t, "closed")
			w.saw(Failed, 1, 0)
			w.step()
			w.want(t, "open")
			if w.state.Reason != "20 calls failed in a row" || w.state.Changed.IsZero() {
				t.Errorf("nobody can tell: reason %q at %v", w.state.Reason, w.state.Changed)
			}
		},
		"BRK-16": func(t *testing.T, w *world) {
			w.halfOpen()
			w.probe(OK)
			w.want(t, "half_open")
			w.probe(OK)
			w.want(t, "half_open")
			w.probe(OK)
			w.want(t, "closed")
		},
	}
	if len(cases) == 0 {
		t.Fatal("no cases")
	}
	for id, f := range cases {
		t.Run(id, func(t *testing.T) { f(t, newWorld(Config{Rate: 100, Concurrency: 20})) })
	}
}

func (w *world) want(t *testing.T, phase string) {
	t.Helper()
	if got := w.phase(); got != phase {
		t.Fatalf("got %s, want %s (%s)", got, phase, w.state.Reason)
	}
}

// trim forgets what is older than the longest window.
func (w *world) trim() {
	if n := len(w.sample.Buckets); n > 120 {
		w.sample.Buckets = w.sample.Buckets[n-120:]
	}
}

// TestProbesApart: answers that come together are one sign of life.
func TestProbesApart(t *testing.T) {
	w := newWorld(Config{Rate: 100})
	w.halfOpen()
	w.saw(OK, 5, w.state.Generation)
	w.step()
	if h := w.state.Phase.(HalfOpen); h.Good != 1 {
		t.Fatalf("five answers in one bucket count as %d", h.Good)
	}
	for range 3 { // no new answer, but looked at again
		w.state = Step(w.now, w.state, w.sample, w.cfg)
	}
	if h := w.state.Phase.(HalfOpen); h.Good != 1 {
		t.Fatalf("counted again: %d", h.Good)
	}
}

// TestOpenFor is the schedule of openings: it doubles, is jittered, is capped,
// and is forgotten after a minute of being closed.
func TestOpenFor(t *testing.T) {
	for _, test := range []struct {
		openings int
		chance   float64
		want     time.Duration
	}{
		{0, 0, 4 * time.Second}, {0, 0.5, 5 * time.Second}, {0, 1, 6 * time.Second},
		{1, 0.5, 10 * time.Second}, {2, 0.5, 20 * time.Second}, {3, 0.5, 30 * time.Second},
		{3, 0, 24 * time.Second}, {9, 1, 36 * time.Second}, {1 << 30, 0.5, 30 * time.Second},
	} {
		t.Run(fmt.Sprint(test.openings, " ", test.chance), func(t *testing.T) {
			w := newWorld(Config{Rate: 100})
			w.state.Openings, w.sample.Chance = test.openings, test.chance
			at := w.now
			w.open()
			if got := w.state.Phase.(Open).Until.Sub(at); got != test.want {
				t.Errorf("open for %v, want %v", got, test.want)
			}
			if w.state.Openings != test.openings+1 {
				t.Errorf("%d openings after %d", w.state.Openings, test.openings)
			}
		})
	}
	w := newWorld(Config{Rate: 100})
	w.state.Openings = 3
	w.halfOpen()
	for range 3 {
		w.probe(OK)
	}
	if w.state.Openings != 4 {
		t.Errorf("a closing makes %d of 4 openings before it held", w.state.Openings)
	}
	w.pass(6 * time.Second)
	if w.state.Openings != 3 {
		t.Errorf("a closing that held makes %d of 4 openings, want 3", w.state.Openings)
	}
	w.pass(61 * time.Second)
	if w.state.Openings != 0 {
		t.Errorf("%d openings after a minute closed", w.state.Openings)
	}
}

// TestOpenAsLongAsAsked: the rest of a Retry-After beats the schedule.
func TestOpenAsLongAsAsked(t *testing.T) {
	w := newWorld(Config{Rate: 100})
	until := w.now.Add(40 * time.Second)
	w.sample.Held = Hold{Until: until}
	w.open()
	if got := w.state.Phase.(Open).Until; got != until {
		t.Errorf("open until %v, want %v", got, until)
	}
	w.sample.Held.Until = until.Add(time.Minute)
	w.step()
	if got := w.state.Phase.(Open).Until; got != until.Add(time.Minute) {
		t.Errorf("a longer wait does not count: %v", got)
	}
	w.sample.Held = Hold{}
	w.pass(110 * time.Second)
	w.want(t, "half_open")
}
