package simulate

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/penstock-io/penstock/breaker"
)

// figure is one number that a row of the acceptance table must reach.
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

func (f figure) String() string { return fmt.Sprintf("%s %.4g (%s %.4g)", f.name, f.got, f.op, f.want) }

// row is one row of CONTROL.md's acceptance table.
type row struct {
	name  string
	yaml  string
	check func(r *Result) []figure
}

const acceptSeeds = 5

func bool01(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func since(at time.Duration, ok bool, from time.Duration) float64 {
	if !ok {
		return 1e9
	}
	return (at - from).Seconds()
}

func lost(r *Result) float64 { return float64(r.Dead + r.Expired + r.Waiting + r.Refused) }

const outageYAML = `
duration: 20m
until_done: true
limits: {rate: 200/s, concurrency: 50}
demand: [{rate: 100/s}, {at: 300s}]
`

var rows = []row{
	{"outage", outageYAML + `
timeline: [{at: 60s, for: 120s, outage: true}]
`, func(r *Result) []figure {
		from, to := 60*time.Second, 180*time.Second
		first, ok1 := r.FirstEnd(breaker.Failed, from)
		open, ok2 := r.Enters("open", from)
		return []figure{
			atMost("opens after s", since(open, ok1 && ok2, first), 1),
			atMost("calls % of arrivals", float64(r.Calls(from, to))/120, 1),
			atMost("calls per job", float64(r.Counts.Starts)/float64(r.Jobs), 1.1),
			exactly("lost", lost(r), 0),
		}
	}},
	{"recovery", outageYAML + `
timeline: [{at: 60s, for: 120s, outage: true}]
`, func(r *Result) []figure {
		up := 180 * time.Second
		good, ok := r.FirstEnd(breaker.OK, up)
		back, ok2 := r.Reaches(90, time.Second, good)
		closed, _ := r.Enters("closed", up)
		return []figure{
			atMost("90 % after the first good probe s", since(back, ok && ok2, good), 8),
			atMost("90 % after the recovery s", since(back, ok && ok2, up), 50),
			atMost("peak", float64(r.Peak(time.Second, 0, r.Took)), 200),
			atMost("first second", float64(r.Calls(closed, closed+time.Second)), 31),
		}
	}},
	{"outage, then half", outageYAML + `
provider: {limit: 100/s}
timeline: [{at: 60s, for: 120s, outage: true}, {at: 180s, limit: 50/s}]
`, func(r *Result) []figure {
		up := 180 * time.Second
		first, _ := r.FirstEnd(breaker.Throttled, up)
		return []figure{
			atMost("peak", float64(r.Peak(time.Second, up, 500*time.Second))/50, 1.5),
			atMost("peak later", float64(r.Peak(time.Second, first+5*time.Second, 500*time.Second))/50, 1.1),
		}
	}},
	{"hang", outageYAML + `
timeline: [{at: 60s, for: 60s, hang: true}]
`, func(r *Result) []figure {
		from, to := 60*time.Second, 120*time.Second
		open, ok := r.Enters("open", from)
		probes := 0
		for _, c := range r.calls[r.index(from):r.index(to)] {
			if c.probe {
				probes++
			}
		}
		return []figure{
			atMost("opens after s", since(open, ok, from), 11),
			atMost("calls over L + probes + 10 %", float64(r.Calls(from, to))-float64(50+probes)*1.1, 0),
			exactly("lost", lost(r), 0),
		}
	}},
	{"capacity a tenth", `
duration: 300s
limits: {rate: 200/s, concurrency: 60}
demand: [{rate: 100/s}]
provider: {servers: 30, p50: 100ms, p99: 130ms}
timeline: [{at: 60s, servers: 3}]
`, func(r *Result) []figure {
		a, b := 90*time.Second, 300*time.Second
		base := r.LatencyP(0.5, 30*time.Second, 60*time.Second)
		return []figure{
			atLeast("used", r.PerSecond(a, b)/30, 0.9),
			atMost("p50 x", float64(r.LatencyP(0.5, a, b))/float64(base), 5),
			exactly("timeouts", float64(r.Counts.Timeout), 0),
		}
	}},
}

func halved(kind string) row {
	return row{"limit halved and restored, " + kind, fmt.Sprintf(`
duration: 400s
limits: {rate: 100/s, concurrency: 50}
demand: [{rate: 120/s}]
provider: {limit: 100/s, kind: %s}
timeline: [{at: 60s, for: 140s, limit: 50/s}]
`, kind), func(r *Result) []figure {
		at, up := 60*time.Second, 200*time.Second
		back, ok := r.Reaches(90, time.Second, up)
		return []figure{
			atMost("within 1.1x after s", (r.Falls(55, at, up) - at).Seconds(), 4),
			atLeast("used", (r.PerSecond(at+10*time.Second, up)-float64(r.Of(breaker.Throttled, at+10*time.Second, up))/(up-at-10*time.Second).Seconds())/50, 0.93),
			atMost("restored after s", since(back, ok, up), 30),
		}
	}}
}

func unknown(limit int, kind, rate string) row {
	used, refused, peak := 0.93, 1.5, 1.15
	if limit <= 5 {
		used, refused, peak = 0.8, 3, 1.4
	}
	return row{fmt.Sprintf("unknown limit %d/s, %s, rate %q", limit, kind, rate), fmt.Sprintf(`
duration: 330s
limits: {%s concurrency: 50}
demand: [{rate: %d/s}]
provider: {limit: %d/s, kind: %s}
`, rate, 2*limit, limit, kind), func(r *Result) []figure {
		a, b := 30*time.Second, 330*time.Second
		thr := r.Of(breaker.Throttled, a, b)
		return []figure{
			atLeast("used", float64(r.Calls(a, b)-thr)/300/float64(limit), used),
			atMost("429 %", 100*float64(thr)/float64(r.Calls(a, b)), refused),
			atMost("peak x", float64(r.Peak(time.Second, a, b))/float64(limit), peak),
		}
	}}
}

func TestAcceptance(t *testing.T) {
	all := rows
	for _, kind := range []string{"bucket", "sliding", "fixed"} {
		all = append(all, halved(kind))
		for _, limit := range []int{5, 20, 100} {
			all = append(all, unknown(limit, kind, "rate: 200/s,"))
			all = append(all, unknown(limit, kind, ""))
		}
	}
	all = append(all, moreRows()...)
	for _, row := range all {
		t.Run(row.name, func(t *testing.T) { row.run(t) })
	}
}

func (w row) run(t *testing.T) {
	worst := map[string]figure{}
	var order []string
	start := time.Now()
	for seed := range uint64(acceptSeeds) {
		sc, err := Read(strings.NewReader(w.yaml))
		if err != nil {
			t.Fatal(err)
		}
		sc.Seed = seed + 1
		r, err := Run(sc)
		if err != nil {
			t.Fatal(err)
		}
		bad := false
		for _, f := range w.check(r) {
			old, ok := worst[f.name]
			if !ok {
				order = append(order, f.name)
			}
			if !ok || f.op == "<=" && f.got > old.got || f.op == ">=" && f.got < old.got || f.op == "=" && f.got != f.want {
				worst[f.name] = f
			}
			if !f.ok() {
				bad = true
				t.Errorf("seed %d: %v", sc.Seed, f)
			}
		}
		if bad && os.Getenv("SIM_EVENTS") != "" {
			for _, e := range r.Events {
				t.Log(e)
			}
		}
	}
	for _, n := range order {
		t.Log(worst[n])
	}
	t.Log(time.Since(start))
}
