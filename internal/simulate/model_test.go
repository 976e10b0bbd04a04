package simulate

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/penstock-io/penstock/breaker"
	"github.com/penstock-io/penstock/retrybudget"
)

// TestLimiters: what each kind of limit promises, on any arrivals.
func TestLimiters(t *testing.T) {
	for _, kind := range []string{"bucket", "sliding", "fixed"} {
		t.Run(kind, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				p := Provider{Kind: kind}
				p.Limit.N = rapid.Int64Range(1, 20).Draw(t, "n")
				p.Limit.Per = rapid.SampledFrom([]time.Duration{time.Second, time.Minute}).Draw(t, "per")
				p.Burst = rapid.IntRange(1, 10).Draw(t, "burst")
				p.normal()
				l, now := newLimiter(p, 0), int64(0)
				per := p.Limit.Per.Microseconds()
				var admitted []int64
				for range 200 {
					now += rapid.Int64Range(0, per/10).Draw(t, "dt")
					if l.admit(now) {
						admitted = append(admitted, now)
					}
				}
				for i, from := range admitted {
					n := 0
					for _, at := range admitted[i:] {
						if at < from+per {
							n++
						}
					}
					most := map[string]int{"sliding": int(p.Limit.N), "fixed": 2 * int(p.Limit.N), "bucket": int(p.Limit.N) + p.Burst}[kind]
					if n > most {
						t.Fatalf("%d admitted in a period, at most %d", n, most)
					}
				}
				if len(admitted) == 0 {
					t.Fatal("nothing was admitted")
				}
			})
		})
	}
	if newLimiter(Provider{}, 0) != nil {
		t.Error("a limit out of nothing")
	}
}

// TestServers: c servers do c·t/work calls, and a call waits for those before.
func TestServers(t *testing.T) {
	s := &sim{engine: newEngine(1), sc: Scenario{Timeout: time.Hour}}
	m := newModel(s, Provider{Servers: 2, P50: 100 * time.Millisecond, P99: 100 * time.Millisecond, Queue: 4})
	var after []string
	for range 6 {
		r := m.call()
		after = append(after, fmt.Sprint(r.outcome, " ", micro(r.after).Round(time.Millisecond)))
	}
	want := []string{"ok 100ms", "ok 100ms", "ok 200ms", "ok 200ms", "ok 300ms", "ok 300ms"}
	if !slices.Equal(after, want) {
		t.Errorf("got %v, want %v", after, want)
	}
	if r := m.call(); r.outcome != breaker.Failed || r.status != 503 {
		t.Errorf("a line of four takes another: %+v", r)
	}
}

// TestTimeoutOfACall: the caller goes, whatever the provider does.
func TestTimeoutOfACall(t *testing.T) {
	s := &sim{engine: newEngine(1), sc: Scenario{Timeout: time.Second}}
	for _, p := range []Provider{{Hang: true}, {P50: time.Minute}} {
		if r := newModel(s, p).call(); r.outcome != breaker.Timeout || r.after != 1_000_000 {
			t.Errorf("%+v: %+v", p, r)
		}
	}
}

// TestEngine: in order of time, and of their making at the same time.
func TestEngine(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := newEngine(1)
		type mark struct{ at, n int64 }
		var got []mark
		for n := range rapid.IntRange(0, 60).Draw(t, "events") {
			at := rapid.Int64Range(0, 20).Draw(t, "at")
			e.at(at, func() {
				if e.now != at {
					t.Fatalf("event of %d runs at %d", at, e.now)
				}
				got = append(got, mark{at, int64(n)})
			})
		}
		e.run(20, func() bool { return false })
		if !slices.IsSortedFunc(got, func(a, b mark) int {
			if a.at != b.at {
				return int(a.at - b.at)
			}
			return int(a.n - b.n)
		}) || len(e.events) != 0 {
			t.Fatalf("out of order: %v", got)
		}
	})
}

// gateOf is a gate with one interval and concurrency.
func gateOf(interval, concurrency int64) (*Gate, GateLimits) {
	l := GateLimits{Version: 1, N: 1, Per: interval, Burst: 1, Concurrency: concurrency, Interval: interval}
	return NewGate(l, retrybudget.Budget{}), l
}

// TestGateSpaces: whatever the processes do, no window holds more calls than
// the interval allows, and no more are in flight than may be. Health only ever makes it
// slower.
func TestGateSpaces(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		interval, conc := rapid.Int64Range(100, 200_000).Draw(t, "interval"), rapid.Int64Range(1, 8).Draw(t, "concurrency")
		g, l := gateOf(interval, conc)
		now, number := epoch, map[string]int64{}
		var slots []int64
		var held []GateArrival
		for range rapid.IntRange(1, 80).Draw(t, "requests") {
			now += rapid.Int64Range(0, 100_000).Draw(t, "dt")
			g.Control = GateControl{
				Phase:    rapid.SampledFrom([]string{"closed", "closed", "half_open", "open"}).Draw(t, "phase"),
				Interval: rapid.SampledFrom([]int64{0, interval / 2, interval * 3}).Draw(t, "R"), InFlight: rapid.Int64Range(0, 10).Draw(t, "L"),
				Since: rapid.Int64Range(1, 3).Draw(t, "since"), ProbeLease: 12_000_000, ProbeApart: 250_000,
			}
			proc := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "proc")
			number[proc]++
			rq := &GateRequest{Proc: proc, Number: number[proc], Lease: 10_000_000, Horizon: 50_000, Limits: l, Waiting: 5}
			for range rapid.IntRange(0, len(held)).Draw(t, "settled") {
				rq.Settle = append(rq.Settle, GateSettlement{Permit: held[0].Permit, Called: true, Outcome: "failed"})
				held = held[1:]
			}
			for i := range rapid.IntRange(0, 5).Draw(t, "arrivals") {
				rq.Arrive = append(rq.Arrive, GateArrival{Permit: fmt.Sprint(proc, number[proc], "-", i, ":"), Cost: 1})
			}
			a := g.Request(now, rq)
			granted := 0
			for i, v := range a.Verdicts {
				if v.Kind == 'g' {
					granted++
					slots, held = append(slots, now+v.After), append(held, rq.Arrive[i])
				}
			}
			half := g.Control.Phase == "half_open"
			switch {
			case g.Control.Phase == "open" && granted > 0:
				t.Fatal("somebody goes while it is open")
			case half && granted > 1:
				t.Fatalf("%d probes at once", granted)
			case int64(len(g.Permits)) > conc:
				t.Fatalf("%d permits of %d", len(g.Permits), conc)
			}
		}
		slices.Sort(slots)
		// A change of the rate keeps the number of calls owed, not their times,
		// and slots that were given stay where they are: what lies within the
		// horizon may come closer together, and no more than that.
		for i := range slots {
			for j := i + 1; j < len(slots); j++ {
				if n, w := int64(j-i+1), slots[j]-slots[i]; n > (w+horizon)/interval+2 {
					t.Fatalf("%d calls in %d µs, the interval is %d", n, w, interval)
				}
			}
		}
	})
}

// TestGateProbes: half-open one probe for all, on its own lease; the next only
// after it is back, and apart from it; one that was lost stops all until the
// law has spoken.
func TestGateProbes(t *testing.T) {
	g, l := gateOf(10_000, 20)
	g.Control = GateControl{Phase: "half_open", Generation: 3, Since: 3, ProbeLease: 12_000_000, ProbeApart: 250_000}
	now, n := epoch, int64(0)
	ask := func(proc string, settle ...GateSettlement) GateVerdict {
		n++
		return g.Request(now, &GateRequest{Proc: proc, Number: n, Lease: 10_000_000, Horizon: 50_000, Limits: l, Waiting: 1, Settle: settle,
			Arrive: []GateArrival{{Permit: fmt.Sprint(proc, n, ":"), Cost: 1}}}).Verdicts[0]
	}
	if v := ask("a"); v.Kind != 'g' {
		t.Fatalf("no probe: %+v", v)
	}
	first := g.Probe
	for _, proc := range []string{"a", "b", "c"} {
		if v := ask(proc); v.Reason != "probing" {
			t.Fatalf("a second probe for %s: %+v", proc, v)
		}
	}
	now += 100_000
	if v := ask("b", GateSettlement{Permit: first, Called: true, Outcome: "ok"}); v.Reason != "probing" || v.After != 150_000 {
		t.Fatalf("the next probe after 100 ms: %+v", v)
	}
	now += 150_000
	if v := ask("c"); v.Kind != 'g' {
		t.Fatalf("no second probe: %+v", v)
	}
	for range 6 { // its process is dead, the others ask on
		now += 2_000_000
		ask("b")
	}
	if v := ask("a"); v.Reason != "probing" || g.ProbeUntil > now {
		t.Fatalf("a lost probe: %+v, lease until %d at %d", v, g.ProbeUntil, now)
	}
	g.Control.Since++ // open and half-open again
	if v := ask("a"); v.Kind != 'g' {
		t.Fatalf("no probe in a new phase: %+v", v)
	}
}

// TestGateBudget: a retry needs a token only while a first attempt waits, or
// the provider recovers.
func TestGateBudget(t *testing.T) {
	for _, test := range []struct {
		name    string
		prepare func(g *Gate)
		want    byte
	}{
		{"idle", func(*Gate) {}, 'g'},
		{"a first attempt was refused", func(g *Gate) { g.FirstRefused = epoch - 500_000 }, 'x'},
		{"long ago", func(g *Gate) { g.FirstRefused = epoch - 1_500_000 }, 'g'},
		{"slow start", func(g *Gate) { g.Control.SlowStart = true }, 'x'},
		{"a probe", func(g *Gate) { g.Control.Phase = "half_open" }, 'g'},
	} {
		t.Run(test.name, func(t *testing.T) {
			g, l := gateOf(1000, 0)
			g.Accounts[accountRetry] = retrybudget.Balance{At: epoch, Window: epoch, Line: epoch}
			test.prepare(g)
			a := g.Request(epoch, &GateRequest{Proc: "a", Number: 1, Lease: 10_000_000, Horizon: 50_000, Limits: l,
				Arrive: []GateArrival{{Permit: "a1:", Cost: 1, Account: accountRetry}}})
			v := a.Verdicts[0]
			if v.Kind != test.want {
				t.Fatalf("got %c %s, want %c", v.Kind, v.Reason, test.want)
			}
			if v.Kind == 'x' && (v.Reason != "account" || v.After != 10_000_000 || len(g.Permits) > 0 || g.Tat != 0) {
				t.Errorf("%+v; something was taken: %d permits, tat %d", v, len(g.Permits), g.Tat)
			}
		})
	}
}

// TestThrottledForEver is case RET-05, and RET-01 and RET-07 beside it: a
// refused job spends no attempt however often it is refused, ends by its age,
// and is not asked for in a hot loop.
func TestThrottledForEver(t *testing.T) {
	s, err := Read(strings.NewReader(`
duration: 48h
until_done: true
fleet: {workers: 2}
limits: {rate: 10/s, concurrency: 5}
demand: [{rate: 1/s, jobs: 5}, {at: 1m}]
provider: {limit: 1/d, kind: sliding}
retry: {attempts: 2, max_age: 24h}
timeline: [{at: 0s, limit: 1/d}]
law: {tick: 5s, slow_start: {double: 5s}, probing: {apart: 5s, lease_margin: 5s}, window: 10s, latency: {window: 5s, stall: 5s}, refusals: {window: 5s, pause: 5s, settle: 5s, rate_short: 5s, rate_long: 5s}, opening: {first: 5s}}
`))
	if err != nil {
		t.Fatal(err)
	}
	r, err := Run(s)
	if err != nil {
		t.Fatal(err)
	}
	if r.Succeeded != 1 || r.Expired != 4 || r.Dead != 0 || r.MostAttempts != 0 {
		t.Errorf("succeeded %d, expired %d, dead %d, attempts %d; want 1, 4, 0 and 0", r.Succeeded, r.Expired, r.Dead, r.MostAttempts)
	}
	// Full jitter up to 10 min: a call in five minutes and job.
	if most := 24 * 60 / 5 * 2; r.MostCalls > most || r.MostCalls < 50 {
		t.Errorf("a job was called %d times in a day", r.MostCalls)
	}
	if off := r.Took - 24*time.Hour; math.Abs(off.Seconds()) > 60 {
		t.Errorf("the last job ended after %v", r.Took)
	}
}
