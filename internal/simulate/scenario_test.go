package simulate

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestBuiltin: every scenario that comes along can be read and says what it shows.
func TestBuiltin(t *testing.T) {
	names := Builtin()
	if len(names) < 10 {
		t.Fatalf("only %d scenarios: %v", len(names), names)
	}
	for _, name := range names {
		s, err := Named(name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if s.Name != name || s.About == "" {
			t.Errorf("%s calls itself %q, about %q", name, s.Name, s.About)
		}
	}
	for _, name := range []string{"", "nonsense", "../doc", "scenarios/outage"} {
		if _, err := Named(name); !errors.Is(err, ErrScenario) || !strings.Contains(err.Error(), "outage, ") {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// TestFaultsOfScenarios: refused, each with its field.
func TestFaultsOfScenarios(t *testing.T) {
	const good = "duration: 10s\ndemand: [{rate: 1/s}]\n"
	for want, doc := range map[string]string{
		"duration must":              "demand: [{rate: 1/s}]",
		"demand is empty":            "duration: 10s",
		"demand[1].at":               "duration: 10s\ndemand: [{rate: 1/s}, {rate: 2/s}]",
		"jobs in all":                "duration: 24h\ndemand: [{rate: 10000/s}]",
		"line 2: bad limit":          "duration: 10s\ndemand: [{rate: 0/s}]",
		"unknown field \"colour\"":   good + "colour: red",
		"unknown field \"limit\"":    good + "limits: {limit: 5/s}",
		"fleet.workers":              good + "fleet: {workers: 1001}",
		"fleet.round_trip":           good + "fleet: {round_trip: 2s}",
		"timeout must":               good + "timeout: 2h",
		"adaptive must":              good + "adaptive: maybe",
		"budget must":                good + "budget: maybe",
		"retry.attempts":             good + "retry: {attempts: -1}",
		"retry.max_age":              good + "retry: {max_age: 1ms}",
		"retry: bad back-off":        good + "retry: {base: 1h}",
		"limits: bad limit":          good + "limits: {burst: -1}",
		"law: bad constants":         good + "law: {refusals: {beta_min: 2}}",
		"provider.kind":              good + "provider: {kind: leaky}",
		"provider.errors":            good + "provider: {errors: 1.5}",
		"provider.p50":               good + "provider: {p50: 10s, p99: 1s}",
		"provider.refusal":           good + "provider: {refusal: 429}",
		"timeline[0] at":             good + "timeline: [{at: -1s}]",
		"timeline[0] every":          good + "timeline: [{at: 1s, every: 5s, outage: true}]",
		"timeline[0] over":           good + "timeline: [{at: 1s, over: 5s}]",
		"timeline[0] clock and kill": good + "timeline: [{at: 1s, for: 5s, kill: 1}]",
		"timeline[1].errors":         good + "timeline: [{at: 1s}, {at: 1s, errors: 2}]",
	} {
		_, err := Read(strings.NewReader(doc))
		if !errors.Is(err, ErrScenario) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v", want, err)
		}
	}
	_, err := Read(strings.NewReader("duration: 0s\nadaptive: x\nbudget: y"))
	if got := strings.Count(err.Error(), ErrScenario.Error()); got < 4 {
		t.Errorf("only %d faults found: %v", got, err)
	}
}

// TestSameAgain: the same scenario and seed give the same run to the last
// call, another seed another one.
func TestSameAgain(t *testing.T) {
	run := func(seed uint64) *Result {
		s, err := Read(strings.NewReader(`
duration: 40s
fleet: {workers: 20}
limits: {rate: 50/s, concurrency: 10}
demand: [{rate: 60/s}]
provider: {limit: 40/s, errors: 0.05}
timeline: [{at: 10s, for: 5s, outage: true}, {at: 20s, kill: 3}, {at: 30s, clock: -1m}]
`))
		if err != nil {
			t.Fatal(err)
		}
		s.Seed = seed
		r, err := Run(s)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	all := cmp.AllowUnexported(Result{}, call{}, Change{})
	a, b, c := run(1), run(1), run(2)
	a.Scenario, b.Scenario, c.Scenario = Scenario{}, Scenario{}, Scenario{}
	if d := cmp.Diff(a, b, all); d != "" {
		t.Errorf("not the same again: %s", d)
	}
	if cmp.Equal(a, c, all) {
		t.Error("the seed changes nothing")
	}
	if a.Counts.Starts == 0 || a.Counts.Failed == 0 || a.Counts.Throttled == 0 {
		t.Errorf("nothing happened: %+v", a.Counts)
	}
}

// TestReport pins what a person sees.
func TestReport(t *testing.T) {
	s, err := Named("retry-after")
	if err != nil {
		t.Fatal(err)
	}
	r, err := Run(s)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := r.Report(&b, false); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"retry-after: A provider", "jobs", "succeeded", "429", "calls refused", "─ calls/s", "┼"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is missing in\n%s", want, b.String())
		}
	}
	if strings.Contains(b.String(), "\x1b[") {
		t.Error("colours where there is no terminal")
	}
	b.Reset()
	if err := r.Report(&b, true); err != nil || !strings.Contains(b.String(), "\x1b[") {
		t.Errorf("no colours: %v", err)
	}
	for format, head := range map[string]string{"svg": "<?xml", "png": "\x89PNG"} {
		b.Reset()
		if err := r.Plot(&b, format); err != nil || !strings.HasPrefix(b.String(), head) {
			t.Errorf("%s: %v, %.20q", format, err, b.String())
		}
	}
	if err := r.Plot(io.Discard, "gif"); err == nil {
		t.Error("a gif was plotted")
	}
	if err := r.PlotFile(t.TempDir() + "/plot.svg"); err != nil {
		t.Error(err)
	}
	if err := r.PlotFile("plot.bmp"); err == nil || !strings.Contains(err.Error(), ".svg or .png") {
		t.Errorf("plot.bmp: %v", err)
	}
}

// TestNothingToSee: a run without a call is reported, too.
func TestNothingToSee(t *testing.T) {
	s, err := Read(strings.NewReader("duration: 1s\ndemand: [{at: 500ms}]"))
	if err != nil {
		t.Fatal(err)
	}
	r, err := Run(s)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Report(io.Discard, false); err != nil {
		t.Error(err)
	}
	if err := r.Plot(io.Discard, "svg"); err != nil {
		t.Error(err)
	}
}
