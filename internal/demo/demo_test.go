package demo

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/penstock-io/penstock/examples/jobs"
	"github.com/penstock-io/penstock/internal/api"
	"github.com/penstock-io/penstock/internal/fragile"
)

// The file holds thousands of jobs of the two providers, all of the contract's
// form, none twice.
func TestJobsFile(t *testing.T) {
	known := map[string]int{}
	ids := map[string]bool{}
	n := 0
	for line := range bytes.Lines(jobs.NDJSON) {
		n++
		j, err := api.DecodeJob(line)
		if err != nil {
			t.Fatalf("line %d: %v", n, err)
		}
		if ids[j.Provider+"/"+j.ID] {
			t.Errorf("line %d: %s/%s is there twice", n, j.Provider, j.ID)
		}
		ids[j.Provider+"/"+j.ID] = true
		known[j.Provider]++
	}
	if n < 3000 {
		t.Errorf("%d jobs", n)
	}
	for _, p := range providers() {
		if known[p.name] == 0 {
			t.Errorf("no job for %s", p.name)
		}
		delete(known, p.name)
	}
	if len(known) > 0 {
		t.Errorf("jobs for nobody: %v", known)
	}
}

// More jobs than the file has come with other ids.
func TestTheJobs(t *testing.T) {
	ids := map[string]bool{}
	counts := map[string]int{"payments": 700, "sms": 3}
	for j := range theJobs(counts) {
		ids[j.Provider+"/"+j.ID] = true
	}
	if len(ids) != 703 || !ids["payments/pay-0001-3"] || !ids["sms/sms-0003"] || ids["sms/sms-0004"] {
		t.Errorf("%d ids", len(ids))
	}
	for range theJobs(map[string]int{}) {
		t.Error("a job of none")
	}
}

func TestBroken(t *testing.T) {
	seen := func(calls, refused, twice, done int) Verdict {
		return Verdict{Shaped: []Seen{{Report: fragile.Report{Name: "sms", Calls: calls, Refused: refused, SucceededTwice: twice, JobsSucceeded: done}, Jobs: 1000}}}
	}
	for _, tt := range []struct {
		v    Verdict
		want int
	}{
		{seen(1000, 0, 0, 1000), 0},
		{seen(300, 2, 0, 298), 0}, // the machine's
		{seen(300, 3, 0, 297), 1},
		{seen(9000, 9, 0, 8991), 0},
		{seen(9000, 10, 0, 8990), 1},
		{seen(1000, 0, 1, 1000), 1},
		{seen(0, 0, 0, 0), 1},
	} {
		if got := tt.v.Broken(); len(got) != tt.want {
			t.Errorf("%+v: %v", tt.v, got)
		}
	}
}

func TestPlainLinesAndTerminal(t *testing.T) {
	lines := []line{{Live: fragile.Live{Name: "sms", Rate: 118, Limit: 120, InFlight: 4, Refused: 1, Used: 0.975}, waiting: 40, jobs: 88}}
	var plain, term bytes.Buffer
	v := view{out: &plain}
	v.show(2e9, lines)
	if want := "  2.0s  sms 118 of 120/s, in flight 4, waiting 40, refused 1, used 98 %\n"; plain.String() != want {
		t.Errorf("got  %q\nwant %q", plain.String(), want)
	}
	v = view{out: &term, terminal: true}
	v.show(2e9, lines)
	v.show(3e9, lines)
	if got := term.String(); strings.Count(got, "\x1b[2A") != 1 || !strings.Contains(got, "██████████░░░░░░░░░░") {
		t.Errorf("%q", got)
	}
}

func TestDurationIsBounded(t *testing.T) {
	for _, o := range []Options{{Duration: 1}, {Duration: 2 * MaxDuration}} {
		if _, err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), "duration") {
			t.Errorf("%v", err)
		}
	}
}

// The whole of it, as short as it may be: a verdict for both phases, and
// nothing left running. How even it was depends on the machine.
func TestRun(t *testing.T) {
	defer goleak.VerifyNone(t)
	var out bytes.Buffer
	v, err := Run(t.Context(), Options{Duration: MinDuration, Out: &out})
	if err != nil {
		t.Fatal(err)
	}
	if err := v.WriteText(&out); err != nil {
		t.Fatal(err)
	}
	t.Log(out.String())
	if len(v.Shaped) != 2 || len(v.Unshaped) != 2 {
		t.Fatalf("%+v", v)
	}
	for i, s := range v.Shaped {
		if s.Report.JobsSucceeded < s.Jobs/2 || s.Report.SucceededTwice != 0 || s.Report.AttemptsMean > 1.1 {
			t.Errorf("shaped: %+v", s)
		}
		if u := v.Unshaped[i]; u.Report.RefusedShare() < 10*s.Report.RefusedShare() || u.Report.Refused == 0 {
			t.Errorf("unshaped was refused %d of %d calls", u.Report.Refused, u.Report.Calls)
		}
	}
}

// With --break the verdict says so.
func TestBreak(t *testing.T) {
	defer goleak.VerifyNone(t)
	var out bytes.Buffer
	v, err := Run(t.Context(), Options{Duration: MinDuration, Out: &out, Break: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := v.WriteText(&out); err != nil {
		t.Fatal(err)
	}
	if len(v.Broken()) == 0 || !strings.Contains(out.String(), "BROKEN: sms refused") || !strings.Contains(out.String(), "asked for") {
		t.Errorf("%v\n%s", v.Broken(), out.String())
	}
}

// Ended early, it stops at once and tells what it saw.
func TestEndedEarly(t *testing.T) {
	defer goleak.VerifyNone(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancelAt := writerFunc(func(b []byte) (int, error) {
		if strings.Contains(string(b), "sms") {
			cancel()
		}
		return len(b), nil
	})
	v, err := Run(ctx, Options{Out: cancelAt, Terminal: true})
	if err != nil && ctx.Err() == nil {
		t.Error(err)
	}
	if len(v.Shaped) != 2 || v.Unshaped != nil {
		t.Errorf("%+v", v)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }
