package simulate

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/penstock-io/penstock/breaker"
)

// row is one row of CONTROL.md's acceptance table.
type row struct {
	name string
	// scenario is the name of a built-in one, or YAML.
	scenario string
	seeds    int // 0: five
	check    func(r *Result) []figure
}

// figure is one number that a row must reach.
type figure struct {
	name string
	got  float64
	op   string // "<=", ">=", "="
	want float64
}

func atMost(name string, got, want float64) figure  { return figure{name, got, "<=", want} }
func atLeast(name string, got, want float64) figure { return figure{name, got, ">=", want} }
func exactly(name string, got, want float64) figure { return figure{name, got, "=", want} }

func (f figure) ok() bool {
	switch f.op {
	case "<=":
		return f.got <= f.want
	case ">=":
		return f.got >= f.want
	}
	return f.got == f.want
}

// worse reports whether f is further from what is wanted than o.
func (f figure) worse(o figure) bool {
	switch f.op {
	case "<=":
		return f.got > o.got
	case ">=":
		return f.got < o.got
	}
	return !f.ok()
}

func (f figure) String() string { return fmt.Sprintf("%s %.4g (%s %.4g)", f.name, f.got, f.op, f.want) }

// TestAcceptance runs every row of the table that the simulator can answer,
// with several fixed seeds, and logs the worst of each figure.
func TestAcceptance(t *testing.T) {
	var rows []row
	for _, part := range []func() []row{outageRows, limitRows, errorRows, slowRows, otherRows} {
		rows = append(rows, part()...)
	}
	if len(rows) < 30 {
		t.Fatalf("only %d rows", len(rows))
	}
	for _, w := range rows {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			w.run(t)
		})
	}
}

func (w row) run(t *testing.T) {
	if w.seeds == 0 {
		w.seeds = 5
	}
	if testing.Short() {
		w.seeds = 1
	}
	worst := map[string]figure{}
	var order []string
	for seed := range w.seeds {
		sc, err := Named(w.scenario)
		if strings.Contains(w.scenario, "\n") {
			sc, err = Read(strings.NewReader(w.scenario))
		}
		if err != nil {
			t.Fatal(err)
		}
		sc.Seed = uint64(seed + 1)
		r, err := Run(sc)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range w.check(r) {
			old, ok := worst[f.name]
			if !ok {
				order = append(order, f.name)
			}
			if !ok || f.worse(old) {
				worst[f.name] = f
			}
			if !f.ok() {
				t.Errorf("seed %d: %v", sc.Seed, f)
			}
		}
	}
	if len(order) == 0 {
		t.Error("the row checks nothing")
	}
	for _, n := range order {
		t.Logf("%d seeds, worst: %v", w.seeds, worst[n])
	}
}

// since is how many seconds after from at is; very many where it never was.
func since(at time.Duration, ok bool, from time.Duration) float64 {
	if !ok {
		return 1e9
	}
	return (at - from).Seconds()
}

// lost is how many jobs did not succeed.
func lost(r *Result) float64 { return float64(r.Dead + r.Expired + r.Waiting + r.Refused) }

// opened counts how often a closed breaker opened: failed probes apart.
func opened(r *Result, from, to time.Duration) (n int) {
	for _, e := range r.Events {
		if e.To == "open" && e.From == "closed" && e.At >= from && e.At < to {
			n++
		}
	}
	return n
}

// rateOver is the highest rate in force, as a share of R_cfg.
func rateOver(r *Result) (most float64) {
	for _, p := range r.Points {
		most = max(most, p.Rate/r.Scenario.Law.Rate)
	}
	return most
}

// whole is longer than any scenario here.
const whole = 100 * time.Hour

func outageRows() []row {
	const from, up = 60 * time.Second, 180 * time.Second
	opens := func(r *Result) figure {
		first, ok := r.FirstEnd(breaker.Failed, from)
		open, ok2 := r.Enters("open", from)
		return atMost("opens s after the first failure", since(open, ok && ok2, first), 1)
	}
	outage := func(r *Result) []figure {
		good, ok := r.FirstEnd(breaker.OK, up)
		back, ok2 := r.Reaches(90, time.Second, good)
		closed, _ := r.Enters("closed", up)
		return []figure{
			opens(r),
			atMost("calls % of arrivals", float64(r.Calls(from, up))/120, 1),
			atMost("calls per job", float64(r.Counts.Starts)/float64(r.Jobs), 1.1),
			exactly("lost", lost(r), 0),
			atMost("90 % s after the first good probe", since(back, ok && ok2, good), 8),
			atMost("90 % s after the recovery", since(back, ok && ok2, up), 50),
			atMost("first second, of R_ref", float64(r.Calls(closed, closed+time.Second))/120, 0.25),
			atMost("peak, of R_cfg", float64(r.Peak(time.Second, 0, whole))/200, 1),
		}
	}
	return []row{
		{name: "outage and recovery", scenario: "outage", check: outage},
		{name: "outage and recovery, 1,000 workers", scenario: "thousand-workers", seeds: 1, check: outage},
		{name: "outage, no rate configured", scenario: `
duration: 20m
until_done: true
limits: {concurrency: 50}
demand: [{rate: 100/s}, {at: 300s}]
timeline: [{at: 60s, for: 120s, outage: true}]
`, check: func(r *Result) []figure {
			closed, _ := r.Enters("closed", up)
			return []figure{
				opens(r), atMost("calls % of arrivals", float64(r.Calls(from, up))/120, 1), exactly("lost", lost(r), 0),
				atMost("first second, of R_ref", float64(r.Calls(closed, closed+time.Second))/120, 0.25),
			}
		}},
		{name: "outage, then half the capacity", scenario: "outage-then-half", check: func(r *Result) []figure {
			first, ok := r.FirstEnd(breaker.Throttled, up)
			later := first + 5*time.Second
			return []figure{
				atLeast("refusals", float64(r.Counts.Throttled), 1),
				atMost("peak x", float64(r.Peak(time.Second, up, 500*time.Second))/50, 1.5),
				atMost("peak x 5 s after the first 429", since(micro(int64(r.Peak(time.Second, later, 500*time.Second))*1_000_000), ok, 0)/50, 1.1),
			}
		}},
		{name: "hang", scenario: "hang", check: func(r *Result) []figure {
			open, ok := r.Enters("open", from)
			probes := 0
			for _, c := range r.calls[r.index(from):r.index(2*from)] {
				if c.probe {
					probes++
				}
			}
			return []figure{
				atMost("opens after s", since(open, ok, from), 11),
				atMost("calls, of L + probes", float64(r.Calls(from, 2*from))/float64(50+probes), 1.1),
				exactly("lost", lost(r), 0),
			}
		}},
		{name: "10,000 jobs through an hour's outage", scenario: "hour", check: func(r *Result) []figure {
			open, _ := r.Enters("open", 0)
			before := 0
			for _, c := range r.calls {
				if c.outcome != breaker.OK && c.end <= (open+time.Millisecond).Microseconds() {
					before++
				}
			}
			return []figure{
				exactly("succeeded", float64(r.Succeeded), 10000),
				exactly("dead", float64(r.Dead), 0),
				exactly("attempts spent on probes", float64(r.Attempts-before), 0),
			}
		}},
	}
}

func limitRows() []row {
	var rows []row
	for _, kind := range []string{"bucket", "sliding", "fixed"} {
		rows = append(rows, halved(kind))
		for _, limit := range []int{5, 20, 100} {
			rows = append(rows, unknown(limit, kind, "rate: 200/s,"), unknown(limit, kind, ""))
		}
	}
	return append(rows, row{name: "demand under the limit", scenario: "within-limits", check: func(r *Result) []figure {
		off := float64(r.Succeeded)/float64(r.Jobs) - 1
		return []figure{
			exactly("429", float64(r.Counts.Throttled), 0),
			atMost("off the demand %", 100*max(off, -off), 2),
		}
	}})
}

func halved(kind string) row {
	const at, up = 60 * time.Second, 200 * time.Second
	return row{name: "limit halved and restored, " + kind, scenario: fmt.Sprintf(`
duration: 400s
limits: {rate: 100/s, concurrency: 50}
demand: [{rate: 120/s}]
provider: {limit: 100/s, kind: %s}
timeline: [{at: 60s, for: 140s, limit: 50/s}]
`, kind), check: func(r *Result) []figure {
		back, ok := r.Reaches(90, time.Second, up)
		const settled = at + 10*time.Second
		accepted := r.Calls(settled, up) - r.Of(breaker.Throttled, settled, up)
		return []figure{
			atMost("within 1.1x after s", (r.Falls(55, at, up) - at).Seconds(), 4),
			atLeast("used", float64(accepted)/(up-settled).Seconds()/50, 0.93),
			atMost("restored after s", since(back, ok, up), 30),
		}
	}}
}

// unknown is judged after the first 30 seconds: the first of them is what the
// configuration, not the law, lets through.
func unknown(limit int, kind, rate string) row {
	used, refused, peak := 0.93, 1.5, 1.15
	if limit <= 5 {
		used, refused, peak = 0.8, 3, 1.4
	}
	known := "no rate"
	if rate != "" {
		known = "rate 200/s"
	}
	return row{name: fmt.Sprintf("unknown limit %d per s, %s, %s", limit, kind, known), seeds: 3, scenario: fmt.Sprintf(`
duration: 330s
limits: {%s concurrency: 50}
demand: [{rate: %d/s}]
provider: {limit: %d/s, kind: %s}
`, rate, 2*limit, limit, kind), check: func(r *Result) []figure {
		const a, b = 30 * time.Second, 330 * time.Second
		calls, thr := r.Calls(a, b), r.Of(breaker.Throttled, a, b)
		return []figure{
			atLeast("used", float64(calls-thr)/300/float64(limit), used),
			atMost("429 %", 100*float64(thr)/float64(max(1, calls)), refused),
			atMost("peak x", float64(r.Peak(time.Second, a, b))/float64(limit), peak),
		}
	}}
}
