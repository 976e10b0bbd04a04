package breaker

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
}

// checkControl holds what must be true of every state.
func checkControl(t fataler, s State, cfg Config) {
	t.Helper()
	n, c := cfg.Normal(), s.Control(cfg)
	for name, v := range map[string]float64{
		"R": c.Rate, "C": s.Ceiling.Rate, "W": s.Ceiling.Peak, "β": s.Ceiling.Beta, "f": s.Factor, "R_ref": s.Trouble.Rate, "L": s.InFlight,
	} {
		if math.IsNaN(v) || math.IsInf(v, 0) || v < 0 {
			t.Fatalf("%s = %v", name, v)
		}
	}
	switch {
	case cfg.Rate > 0 && c.Rate > cfg.Rate:
		t.Fatalf("R = %v over R_cfg = %v", c.Rate, cfg.Rate)
	case c.Rate != 0 && c.Rate < n.floor():
		t.Fatalf("R = %v under R_min = %v", c.Rate, n.floor())
	case s.Factor < 0 || s.Factor > 1:
		t.Fatalf("f = %v", s.Factor)
	case c.InFlight < 0 || cfg.Concurrency > 0 && c.InFlight >= cfg.Concurrency:
		t.Fatalf("L = %d of %d", c.InFlight, cfg.Concurrency)
	case s.Generation < s.Since || s.Ceiling.Generation > s.Generation:
		t.Fatalf("generation %d, since %d, cut %d", s.Generation, s.Since, s.Ceiling.Generation)
	case (c.Phase == "open") != !c.OpenUntil.IsZero():
		t.Fatalf("%s until %v", c.Phase, c.OpenUntil)
	}
}

// TestAnyHistory: whatever comes back, in whatever order and by whatever
// clock, R is within its bounds, generations never fall, the same arguments
// give the same state, and a record loses nothing.
func TestAnyHistory(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := Config{
			Rate:        rapid.SampledFrom([]float64{0, 10. / 3600, 0.5, 5, 100, 20000}).Draw(t, "rate"),
			Concurrency: rapid.SampledFrom([]int{0, 1, 2, 20, 1000}).Draw(t, "concurrency"),
		}
		var s State
		sample := Sample{}
		now := t0
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.SampledFrom([]int64{250, 250, 250, 251, 1000, 60_000, 3_600_000, -10_000, -3_600_000, 0}).Draw(t, "dt")) * time.Millisecond)
			for range rapid.IntRange(0, 3).Draw(t, "buckets") {
				b := Bucket{At: now.Truncate(250 * time.Millisecond), Generation: s.Generation - min(s.Generation, uint64(rapid.IntRange(0, 2).Draw(t, "behind")))}
				for _, o := range Outcomes() {
					for range rapid.IntRange(0, 12).Draw(t, o.String()) {
						b.Add(o)
						b.Starts++
						sample.Row = sample.Row.Add(o, b.Generation, s.Since)
						if o == OK {
							b.Latencies.Add(time.Duration(rapid.Int64Range(0, int64(time.Minute)).Draw(t, "latency")))
						}
					}
				}
				sample.Buckets = append(sample.Buckets, b)
			}
			sample.InFlight = rapid.IntRange(0, 2000).Draw(t, "in flight")
			sample.Chance = rapid.Float64Range(0, 0.999).Draw(t, "chance")
			sample.Held = Hold{Until: now.Add(time.Duration(rapid.Int64Range(-int64(time.Minute), int64(time.Minute)).Draw(t, "held"))), Capped: rapid.Bool().Draw(t, "capped")}
			sample.Probe = Lease{Generation: s.Generation, Until: now.Add(time.Duration(rapid.Int64Range(-int64(time.Second), int64(time.Minute)).Draw(t, "lease")))}
			next := Step(now, s, sample, cfg)
			checkControl(t, next, cfg)
			if d := equal(next, Step(now, s, sample, cfg)); d != "" {
				t.Fatalf("not the same again: %s", d)
			}
			if next.Generation < s.Generation || next.Since < s.Since {
				t.Fatalf("a generation fell: %d to %d", s.Generation, next.Generation)
			}
			if next.phase() != s.phase() && next.phase().Name() != s.phase().Name() && next.Since == s.Since {
				t.Fatalf("%s to %s without a generation", s.phase().Name(), next.phase().Name())
			}
			s = reread(t, next)
		}
	})
}

// reread writes and reads s, and holds the two to be one.
func reread(t *rapid.T, s State) State {
	doc, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	var back State
	if err := json.Unmarshal(doc, &back); err != nil {
		t.Fatal(err)
	}
	again, err := json.Marshal(back)
	if err != nil || string(again) != string(doc) {
		t.Fatalf("%v: %s\n%s", err, doc, again)
	}
	return back
}

// TestMoreTroubleNeverFaster: with more calls failed or refused of the same
// number, R is not higher.
func TestMoreTroubleNeverFaster(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 400).Draw(t, "calls")
		outcome := rapid.SampledFrom([]Outcome{Failed, Timeout, Throttled}).Draw(t, "outcome")
		a := rapid.IntRange(0, n).Draw(t, "fewer")
		b := rapid.IntRange(a, n).Draw(t, "more")
		rate := func(bad int) float64 {
			w := newWorld(Config{Rate: 1000})
			for range 40 {
				w.saw(OK, n, 0)
				w.step()
			}
			w.saw(outcome, bad, 0)
			w.saw(OK, n-bad, 0)
			w.sample.Row = Row{}
			w.step()
			if w.phase() != "closed" {
				return 0
			}
			if r := w.state.Control(w.cfg).Rate; r > 0 {
				return r
			}
			return 1000
		}
		if ra, rb := rate(a), rate(b); rb > ra+1e-9 {
			t.Fatalf("%d of %d %v give R = %v, %d give %v", a, n, outcome, ra, b, rb)
		}
	})
}

// TestOrderOfBuckets: the fleet's processes flush in any order.
func TestOrderOfBuckets(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var buckets []Bucket
		for i := range 12 {
			b := Bucket{At: t0.Add(time.Duration(i) * 250 * time.Millisecond)}
			b.OK, b.Throttled, b.Failed = rapid.IntRange(0, 9).Draw(t, "ok"), rapid.IntRange(0, 3).Draw(t, "throttled"), rapid.IntRange(0, 3).Draw(t, "failed")
			b.Starts = b.Returned()
			buckets = append(buckets, b)
		}
		now, cfg := t0.Add(3*time.Second), Config{Rate: 100}
		want := Step(now, State{}, Sample{Buckets: buckets}, cfg)
		got := Step(now, State{}, Sample{Buckets: rapid.Permutation(buckets).Draw(t, "order")}, cfg)
		if d := equal(want, got); d != "" {
			t.Fatal(d)
		}
	})
}

func TestWilson(t *testing.T) {
	for _, test := range []struct {
		hits, n int
		z, want float64
	}{
		{0, 0, 1.96, 0}, {0, 10, 1.96, 0}, {5, 10, 1.96, 0.2366}, {10, 10, 1.96, 0.7225}, {9, 10, 1.96, 0.5958},
		{8, 10, 1.96, 0.4902}, {10, 10, 3, 0.5263}, {9, 10, 3, 0.4303}, {60, 600, 1.96, 0.0784}, {3, 2, 1.96, 0.3424},
	} {
		if got := WilsonLower(test.hits, test.n, test.z); math.Abs(got-test.want) > 1e-4 {
			t.Errorf("%d of %d, z %v: %.4f, want %.4f", test.hits, test.n, test.z, got, test.want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 1_000_000).Draw(t, "n")
		k := rapid.IntRange(0, n).Draw(t, "k")
		z := rapid.Float64Range(0.1, 6).Draw(t, "z")
		p := WilsonLower(k, n, z)
		if p < 0 || p > float64(k)/float64(n) || math.IsNaN(p) {
			t.Fatalf("%d of %d: %v", k, n, p)
		}
		if k < n && WilsonLower(k+1, n, z) < p {
			t.Fatalf("falls from %d to %d of %d", k, k+1, n)
		}
	})
}

func TestLatencies(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := time.Duration(rapid.Int64().Draw(t, "latency"))
		i := LatencyBucket(d)
		lo, hi := Latencies{}.bounds(i)
		if i < 0 || i >= LatencyBuckets || max(0, d) < lo || i < LatencyBuckets-1 && d >= hi {
			t.Fatalf("%v in bucket %d of %v to %v", d, i, lo, hi)
		}
		var l Latencies
		n := rapid.IntRange(1, 50).Draw(t, "n")
		for range n {
			l.Add(d)
		}
		if q := l.Quantile(rapid.Float64Range(0, 1).Draw(t, "q")); q < lo || q > hi || l.N() != n {
			t.Fatalf("a quantile of %v of %d times %v", q, l.N(), d)
		}
	})
	var l Latencies
	for ms := range 1000 {
		l.Add(time.Duration(ms+1) * time.Millisecond)
	}
	for q, want := range map[float64]time.Duration{0.5: 500 * time.Millisecond, 0.99: 990 * time.Millisecond} {
		if got := l.Quantile(q); math.Abs(float64(got-want)) > 0.05*float64(want) {
			t.Errorf("quantile %v of 1 to 1000 ms: %v", q, got)
		}
	}
	if (&Latencies{}).Quantile(0.5) != 0 {
		t.Error("a quantile of nothing")
	}
}
