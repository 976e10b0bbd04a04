package breaker

import (
	"math"
	"testing"
	"time"
)

// TestFactor is f on a ratio of failures that stays.
func TestFactor(t *testing.T) {
	for _, test := range []struct {
		bad, of int
		want    float64
	}{
		{0, 100, 1}, {2, 100, 1}, {5, 100, 1}, {10, 100, 0.90}, {20, 100, 0.71}, {30, 100, 0.54}, {45, 100, 0.34},
	} {
		w := newWorld(Config{Rate: 1000})
		for range 60 {
			w.saw(OK, test.of, 0)
			w.step()
		}
		for range 80 {
			w.saw(OK, test.of-test.bad, w.state.Generation)
			w.saw(Failed, test.bad, w.state.Generation)
			w.sample.Row = Row{}
			w.step()
		}
		if got := w.state.factor(); math.Abs(got-test.want) > 0.025 {
			t.Errorf("%d of %d: f = %.3f, want %.2f", test.bad, test.of, got, test.want)
		}
		w.want(t, "closed")
		if ref := w.state.Trouble.Rate; test.want < 1 && math.Abs(ref-480) > 1 {
			t.Errorf("%d of %d: R_ref = %.1f, want 480: 1.2 times the rate measured", test.bad, test.of, ref)
		}
	}
}

// TestFactorRecovers: at most 0.02 a tick, then the trouble is over, and a
// minute later forgotten.
func TestFactorRecovers(t *testing.T) {
	w := newWorld(Config{Rate: 1000})
	w.state.Factor, w.state.Trouble = 0.5, Trouble{Rate: 400, Ratio: 0.3}
	w.state.Ticked = w.now.Add(-250 * time.Millisecond)
	if got := w.state.Control(w.cfg).Rate; got != 200 {
		t.Fatalf("R = %v, want f·R_ref = 200", got)
	}
	for i := range 25 {
		w.step()
		if want := min(1, 0.5+0.02*float64(i+1)); math.Abs(w.state.factor()-want) > 1e-9 {
			t.Fatalf("tick %d: f = %v, want %v", i, w.state.factor(), want)
		}
	}
	if r := w.state.Control(w.cfg).Rate; r != 0 || w.state.Reason != "the failures are over" {
		t.Errorf("R = %v (%s), want no limit of our own", r, w.state.Reason)
	}
	w.pass(time.Minute)
	if w.state.Trouble != (Trouble{}) {
		t.Errorf("not forgotten: %+v", w.state.Trouble)
	}
}

// TestCut is β and where a cut lands.
func TestCut(t *testing.T) {
	for _, test := range []struct {
		name            string
		ok, throttled   int
		beta, want      float64
		cuts            bool
		rate, had, ramp float64
	}{
		{name: "one of four says nothing", ok: 3, throttled: 1, rate: 100},
		{name: "one of five", ok: 4, throttled: 1, rate: 100, cuts: true, beta: 0.76, want: 76},
		{name: "two of two", throttled: 2, rate: 100, cuts: true, beta: 0.5, want: 50},
		{name: "two of a hundred", ok: 98, throttled: 2, rate: 100, cuts: true, beta: 0.85, want: 85},
		{name: "a third", ok: 40, throttled: 20, rate: 100, cuts: true, beta: 0.95 * 2 / 3, want: 95. * 2 / 3},
		{name: "from C", ok: 98, throttled: 2, rate: 100, had: 60, cuts: true, beta: 0.85, want: 51},
		{name: "from the slow start", ok: 98, throttled: 2, rate: 100, ramp: 20, cuts: true, beta: 0.85, want: 17},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(Config{Rate: test.rate})
			w.state.Ceiling.Rate = test.had
			w.state.Phase = Closed{Ramp: Ramp{test.ramp}}
			w.saw(OK, test.ok, 0)
			w.saw(Throttled, test.throttled, 0)
			w.step()
			c := w.state.Ceiling
			if cuts := !c.CutAt.IsZero(); cuts != test.cuts {
				t.Fatalf("cut: %v, want %v", cuts, test.cuts)
			}
			if !test.cuts {
				return
			}
			if math.Abs(c.Beta-test.beta) > 1e-9 || math.Abs(c.Rate-test.want) > 1e-9 {
				t.Errorf("β = %v, C = %v, want %v and %v", c.Beta, c.Rate, test.beta, test.want)
			}
			if got := w.state.Control(w.cfg); got.Rate != c.Rate || got.Generation != 1 || got.Since != 0 || got.SlowStart {
				t.Errorf("control %+v", got)
			}
			// The same refusals, and those of calls that did not know: no second cut.
			w.saw(Throttled, 50, 0)
			w.pass(5 * time.Second)
			if w.state.Ceiling.Generation != c.Generation {
				t.Errorf("cut twice for what came before the cut: %+v", w.state.Ceiling)
			}
		})
	}
}

// TestCutPause: however many refusals, at most one cut in the pause.
func TestCutPause(t *testing.T) {
	w := newWorld(Config{Rate: 1000})
	cuts := 0
	for range 40 {
		before := w.state.Ceiling.Generation
		w.saw(Throttled, 10, w.state.Generation)
		w.step()
		if w.state.Ceiling.Generation != before {
			cuts++
		}
	}
	if cuts != 10 {
		t.Errorf("%d cuts in 10 s, want one a second", cuts)
	}
	if c := w.state.Ceiling.Rate; c < 0.02*1000 {
		t.Errorf("C = %v is under the floor", c)
	}
}

// TestGrowth follows the cubic: β·W at the cut, W after K_β, R_cfg in the end;
// never falling.
func TestGrowth(t *testing.T) {
	w := newWorld(Config{Rate: 200})
	w.state.Ceiling = Ceiling{Rate: 50, Peak: 100, Beta: 0.5, CutAt: w.now, Generation: 1}
	w.state.Generation, w.state.Ticked = 1, w.now
	w.saw(OK, 45, 1)
	last, atPeak, gone := 50.0, time.Duration(0), time.Duration(0)
	for w.now.Sub(t0) < 60*time.Second && gone == 0 {
		w.now = w.now.Add(250 * time.Millisecond)
		w.saw(OK, 45, 1) // uses what there is
		w.state = Step(w.now, w.state, w.sample, w.cfg)
		w.trim()
		c := w.state.ceiling()
		if c < last {
			t.Fatalf("C falls from %v to %v", last, c)
		}
		last = c
		if c >= 100 && atPeak == 0 {
			atPeak = w.now.Sub(t0)
		}
		if math.IsInf(c, 1) {
			gone = w.now.Sub(t0)
		}
	}
	if atPeak != 10*time.Second {
		t.Errorf("C is W again after %v, want K = 10s", atPeak)
	}
	// W + 0.5·W·x³ = 2W at x = 2^⅓, so 22.6 s.
	if gone != 22750*time.Millisecond {
		t.Errorf("C is gone after %v, want 22.75s", gone)
	}
}

// TestGrowthStandsStill: while f sheds, while held, while half of C is unused.
func TestGrowthStandsStill(t *testing.T) {
	for name, prepare := range map[string]func(w *world){
		"f":    func(w *world) { w.state.Factor, w.state.Trouble.Rate = 0.5, 100 },
		"held": func(w *world) { w.sample.Held.Until = w.now.Add(time.Hour) },
		"idle": func(w *world) { w.sample.Buckets = nil },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(Config{Rate: 200})
			w.state.Ceiling = Ceiling{Rate: 50, Peak: 100, Beta: 0.5, CutAt: w.now}
			w.saw(OK, 500, 0)
			w.now = w.now.Add(250 * time.Millisecond)
			prepare(w)
			w.state.Ticked = w.now.Add(-250 * time.Millisecond)
			w.state = Step(w.now, w.state, w.sample, w.cfg)
			if w.state.Ceiling.Age != 0 {
				t.Errorf("the clock of the growth runs: %v", w.state.Ceiling.Age)
			}
		})
	}
}

// TestSlowStart: a tenth, doubling each second, gone at the top; a cut ends it.
func TestSlowStart(t *testing.T) {
	w := newWorld(Config{Rate: 200})
	for range 48 {
		w.saw(OK, 20, 0) // 80/s
		w.step()
	}
	w.saw(Failed, 15, 0)
	w.step()
	w.want(t, "open")
	ref := w.state.Trouble.Rate
	if math.Abs(ref-96) > 3 {
		t.Fatalf("R_ref = %v, want 1.2 times 80", ref)
	}
	w.pass(6 * time.Second)
	for range 3 {
		w.probe(OK)
	}
	w.want(t, "closed")
	c := w.state.Control(w.cfg)
	if math.Abs(c.Rate-0.1*ref) > 1e-9 || !c.SlowStart {
		t.Fatalf("slow start begins at %v, want a tenth of %v", c.Rate, ref)
	}
	for i := range 4 {
		w.pass(time.Second)
		if want := 0.1 * ref * math.Exp2(float64(i+1)); math.Abs(w.state.Control(w.cfg).Rate-want) > 1e-6 {
			t.Fatalf("after %d s R = %v, want %v", i+1, w.state.Control(w.cfg).Rate, want)
		}
	}
	w.pass(time.Second)
	if c := w.state.Control(w.cfg); c.Rate != 0 || c.SlowStart {
		t.Errorf("not over: %+v", c)
	}
}

// TestInFlight: L falls by the gradient to its floor, and grows by the root.
func TestInFlight(t *testing.T) {
	w := newWorld(Config{Rate: 1000, Concurrency: 50})
	feed := func(d time.Duration, ticks int) {
		for range ticks {
			b := Bucket{At: w.now.Truncate(250 * time.Millisecond), Generation: w.state.Generation}
			for range 20 {
				b.Add(OK)
				b.Starts++
				b.Latencies.Add(d)
			}
			w.sample.Buckets = append(w.sample.Buckets, b)
			w.sample.InFlight = 50
			w.step()
			w.trim()
		}
	}
	feed(50*time.Millisecond, 40)
	if w.state.InFlight != 0 {
		t.Fatalf("L = %v on a steady latency", w.state.InFlight)
	}
	feed(500*time.Millisecond, 80)
	if w.state.InFlight != 10 {
		t.Fatalf("L = %v on a tenfold latency, want the floor of 10", w.state.InFlight)
	}
	if c := w.state.Control(w.cfg); c.InFlight != 10 || c.Rate != 0 {
		t.Errorf("latency moves more than L: %+v", c)
	}
	feed(50*time.Millisecond, 60)
	if w.state.InFlight != 0 {
		t.Errorf("L = %v 15 s after the latency is back", w.state.InFlight)
	}
}

// TestStall: places that fill and give nothing back are congestion before any
// deadline is over.
func TestStall(t *testing.T) {
	w := newWorld(Config{Rate: 1000, Concurrency: 50})
	w.state.Latency.P50 = 50 * time.Millisecond
	b := Bucket{At: w.now}
	b.Starts = 50
	w.sample.Buckets, w.sample.InFlight = []Bucket{b}, 50
	w.pass(2 * time.Second)
	if w.state.InFlight != 0 {
		t.Fatalf("L = %v before the stall", w.state.InFlight)
	}
	w.pass(8 * time.Second)
	if w.state.InFlight > 11 {
		t.Errorf("L = %v after 8 s of a stall", w.state.InFlight)
	}
	fresh := newWorld(Config{Rate: 1000, Concurrency: 50})
	fresh.sample = w.sample
	fresh.pass(10 * time.Second)
	if fresh.state.InFlight != 0 {
		t.Errorf("L = %v, though nobody knows how long a call takes", fresh.state.InFlight)
	}
}

// TestSlowProvider: windows stretch to the last ten calls.
func TestSlowProvider(t *testing.T) {
	w := newWorld(Config{Rate: 0.5})
	for i := range 8 {
		if i == 4 || i == 7 {
			w.saw(Throttled, 1, 0)
		} else {
			w.saw(OK, 1, 0)
		}
		w.pass(2 * time.Second)
	}
	if w.state.Ceiling.CutAt.IsZero() {
		t.Errorf("two refusals of eight calls, 6 s apart, cut nothing")
	}
	if r := w.state.Control(w.cfg).Rate; r <= 0 || r > 0.5 {
		t.Errorf("R = %v", r)
	}
}

// TestNoRate: a ceiling begins with the first cut, from the measured rate.
func TestNoRate(t *testing.T) {
	w := newWorld(Config{})
	for range 40 {
		w.saw(OK, 20, 0)
		w.step()
	}
	if c := w.state.Control(w.cfg); c.Rate != 0 {
		t.Fatalf("R = %v without a reason", c.Rate)
	}
	w.saw(Throttled, 10, 0)
	w.saw(OK, 10, 0)
	w.step()
	// 1.1 × 80/s, times β = 0.95·(1−q), q = ½ since the first refusal
	if c := w.state.Control(w.cfg); math.Abs(c.Rate-1.1*80*0.5) > 3 {
		t.Errorf("R = %v, want about 44", c.Rate)
	}
}

// TestHold is what a stated wait means (RA-01, RA-13, RA-14, RA-23, BCK-05).
func TestHold(t *testing.T) {
	for _, test := range []struct {
		name   string
		wait   time.Duration
		chance float64
		want   time.Duration
		capped bool
	}{
		{"none", 0, 0.5, 0, false},
		{"negative", -5 * time.Second, 0.5, 0, false},
		{"a second concerns the job alone", time.Second, 0.5, 0, false},
		{"RA-10", 2 * time.Second, 0, 2 * time.Second, false},
		{"RA-01", 120 * time.Second, 0, 120 * time.Second, false},
		{"BCK-05 upwards only", 60 * time.Second, 1, 63 * time.Second, false},
		{"RA-23", 86400 * time.Second, 0, 900 * time.Second, true},
		{"RA-23 with jitter", 86400 * time.Second, 1, 945 * time.Second, true},
		{"RA-13", math.MaxInt64, 0, 900 * time.Second, true},
		{"900 s are not capped", 900 * time.Second, 0, 900 * time.Second, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := HoldFor(t0, test.wait, Config{}, test.chance)
			if test.want == 0 {
				if h != (Hold{}) {
					t.Errorf("got %+v, want none", h)
				}
				return
			}
			if got := h.Until.Sub(t0); got != test.want || h.Capped != test.capped {
				t.Errorf("held for %v, capped %v, want %v, %v", got, h.Capped, test.want, test.capped)
			}
		})
	}
	long, short := Hold{Until: t0.Add(time.Hour)}, Hold{Until: t0.Add(time.Minute)}
	if long.Extend(short) != long || short.Extend(long) != long {
		t.Error("a hold was shortened")
	}
}

// TestCappedHoldProbes: after a wait that was cut short it goes on half-open.
func TestCappedHoldProbes(t *testing.T) {
	w := newWorld(Config{Rate: 100})
	w.saw(OK, 20, 0)
	w.step()
	w.sample.Held = HoldFor(w.now, 24*time.Hour, w.cfg, 0)
	w.step()
	w.want(t, "half_open")
	w.pass(time.Minute)
	w.want(t, "half_open")
	w.now = w.sample.Held.Until
	for range 3 {
		w.probe(OK)
	}
	w.want(t, "closed")
	if !w.state.Control(w.cfg).SlowStart {
		t.Error("full rate at once after a capped wait")
	}
}

// TestTroubleWidens: what the traffic was when the trouble began does not bind
// for ever, but only while more calls do not mean more failures.
func TestTroubleWidens(t *testing.T) {
	for _, test := range []struct {
		bad   int
		grows bool
	}{{10, true}, {16, false}} {
		w := newWorld(Config{Rate: 1000})
		w.state.Factor, w.state.Trouble = 0.9, Trouble{Rate: 20, Ratio: 0.12}
		for range 120 {
			w.saw(OK, 100-test.bad, w.state.Generation)
			w.saw(Failed, test.bad, w.state.Generation)
			w.sample.Row = Row{}
			w.step()
			w.trim()
		}
		if got := w.state.Trouble.Rate; (got > 30) != test.grows {
			t.Errorf("%d %%: R_ref = %v", test.bad, got)
		}
	}
}

// TestClockBack: every time of the state moves with a clock that was set back.
func TestClockBack(t *testing.T) {
	w := newWorld(Config{Rate: 100})
	w.open()
	left := w.state.Phase.(Open).Until.Sub(w.now)
	w.now = w.now.Add(-time.Hour)
	w.step()
	if got := w.state.Phase.(Open).Until.Sub(w.now); got < left-time.Second || got > left+time.Second {
		t.Errorf("open for another %v, it was %v before the clock went back", got, left)
	}
	w.pass(left + time.Second)
	w.want(t, "half_open")
}
