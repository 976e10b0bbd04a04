package metrics

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"

	"github.com/penstock-io/penstock/breaker"
	"github.com/penstock-io/penstock/queue/worker"
	"github.com/penstock-io/penstock/shaper/guard"
)

var (
	_ guard.Observer  = (*Metrics)(nil)
	_ worker.Observer = (*Metrics)(nil)
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// everything tells m one of each.
func everything(m *Metrics, provider string) {
	for _, o := range breaker.Outcomes() {
		m.Attempt(provider, o, 20*time.Millisecond)
	}
	m.Waited(provider, time.Millisecond)
	m.Denied(provider, "rate")
	m.GateRequest(provider, 3, 2, time.Millisecond, nil)
	m.GateRequest(provider, 1, 0, time.Second, errors.New("no answer"))
	m.Started(provider, time.Second, false)
	m.Started(provider, time.Hour, true)
	m.Deferred(provider, "throttled", false)
	m.Deferred(provider, "failed", true)
	for i, state := range finalStates {
		m.Settled(provider, state, i+1)
	}
	m.Reclaimed(provider, "process_died", 7)
	m.Changed(provider, guard.Change{From: "closed", To: "open"})
	m.Changed(provider, guard.Change{From: "closed", To: "shedding", Shadow: true})
}

func fixed(s Snapshot, err error) func(context.Context) (Snapshot, error) {
	return func(context.Context) (Snapshot, error) { return s, err }
}

// scrape returns the lines of Penstock's own metrics, without comments.
func scrape(t *testing.T, m *Metrics) map[string]string {
	t.Helper()
	answer := httptest.NewRecorder()
	m.Handler().ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
	if answer.Code != 200 {
		t.Fatalf("%d: %s", answer.Code, answer.Body)
	}
	body, _ := io.ReadAll(answer.Body)
	lines := map[string]string{}
	for line := range strings.Lines(string(body)) {
		if strings.HasPrefix(line, "penstock_") {
			i := strings.LastIndexByte(line, ' ')
			lines[line[:i]] = strings.TrimSpace(line[i+1:])
		}
	}
	return lines
}

func TestScrape(t *testing.T) {
	m := New()
	m.Watch("sms", fixed(Snapshot{RateAllowed: 100, RateUsed: 98.5, Concurrency: 20, InFlight: 3, Held: true, Health: "shedding", Factor: 0.5, Ceiling: 42,
		Jobs: map[string]int64{"waiting": 5, "delayed": 2, "of the day": 1}}, nil))
	everything(m, "sms")
	lines := scrape(t, m)
	for name, want := range map[string]string{
		`penstock_attempts_total{outcome="ok",provider="sms"}`:                          "1",
		`penstock_attempts_total{outcome="throttled",provider="sms"}`:                   "1",
		`penstock_attempts_total{outcome="timeout",provider="sms"}`:                     "1",
		`penstock_call_duration_seconds_bucket{outcome="ok",provider="sms",le="0.025"}`: "1",
		`penstock_call_duration_seconds_bucket{outcome="ok",provider="sms",le="0.01"}`:  "0",
		`penstock_permit_wait_seconds_count{provider="sms"}`:                            "1",
		`penstock_job_wait_seconds_sum{delayed="false",provider="sms"}`:                 "1",
		`penstock_job_wait_seconds_sum{delayed="true",provider="sms"}`:                  "3600",
		`penstock_gate_request_duration_seconds_count{provider="sms"}`:                  "2",
		`penstock_gate_request_errors_total{provider="sms"}`:                            "1",
		`penstock_gate_request_arrivals_sum{provider="sms"}`:                            "4",
		`penstock_gate_request_settlements_sum{provider="sms"}`:                         "2",
		`penstock_gate_denials_total{provider="sms",reason="rate"}`:                     "1",
		`penstock_deferrals_total{provider="sms",reason="throttled"}`:                   "1",
		`penstock_deferrals_total{provider="sms",reason="failed"}`:                      "",
		`penstock_retries_total{provider="sms"}`:                                        "1",
		`penstock_job_attempts_sum{provider="sms"}`:                                     "10",
		`penstock_jobs_finished_total{provider="sms",state="dead"}`:                     "1",
		`penstock_jobs_reclaimed_total{cause="process_died",provider="sms"}`:            "7",
		`penstock_rate_allowed{provider="sms"}`:                                         "100",
		`penstock_rate_used{provider="sms"}`:                                            "98.5",
		`penstock_concurrency_allowed{provider="sms"}`:                                  "20",
		`penstock_calls_in_flight{provider="sms"}`:                                      "3",
		`penstock_held{provider="sms"}`:                                                 "1",
		`penstock_health{provider="sms",state="shedding"}`:                              "1",
		`penstock_health{provider="sms",state="open"}`:                                  "0",
		`penstock_health_factor{provider="sms"}`:                                        "0.5",
		`penstock_health_ceiling{provider="sms"}`:                                       "42",
		`penstock_health_changes_total{provider="sms",shadow="false",state="open"}`:     "1",
		`penstock_health_changes_total{provider="sms",shadow="true",state="shedding"}`:  "1",
		`penstock_paused{provider="sms"}`:                                               "0",
		`penstock_jobs{provider="sms",state="waiting"}`:                                 "5",
		`penstock_jobs{provider="sms",state="running"}`:                                 "0",
		`penstock_jobs{provider="sms",state="of the day"}`:                              "",
		`penstock_snapshot_errors_total{provider="sms"}`:                                "0",
	} {
		if lines[name] != want {
			t.Errorf("%s is %q, want %q", name, lines[name], want)
		}
	}
}

// TestNames holds the names to Prometheus's conventions.
func TestNames(t *testing.T) {
	m := New()
	m.Watch("sms", fixed(Snapshot{RateAllowed: 1, Concurrency: 1}, nil))
	everything(m, "sms")
	problems, err := testutil.GatherAndLint(m.registry)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	families, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	ours := 0
	for _, f := range families {
		if strings.HasPrefix(f.GetName(), "penstock_") {
			ours++
		} else if !strings.HasPrefix(f.GetName(), "go_") && !strings.HasPrefix(f.GetName(), "process_") {
			t.Errorf("%s has no prefix of ours", f.GetName())
		}
	}
	if ours < 20 {
		t.Errorf("only %d families of ours", ours)
	}
}

// TestLabelsAreBounded: whatever others choose never makes a series.
func TestLabelsAreBounded(t *testing.T) {
	m := New()
	m.Watch("sms", fixed(Snapshot{}, nil))
	everything(m, "sms")
	for _, word := range []func(string){
		func(s string) { m.Denied("sms", s) },
		func(s string) { m.Deferred("sms", s, false) },
		func(s string) { m.Settled("sms", s, 1) },
		func(s string) { m.Reclaimed("sms", s, 1) },
		func(s string) { m.Changed("sms", guard.Change{To: s}) },
		func(s string) { m.Attempt("sms", breaker.Outcome(len(s)), time.Second) },
	} {
		word("tenant-0 is blocked")
	}
	before := len(scrape(t, m))
	for i := range 1000 {
		text := fmt.Sprintf("tenant-%d\xff\n\"", i)
		m.Denied("sms", text)
		m.Deferred("sms", text, false)
		m.Settled("sms", text, i)
		m.Reclaimed("sms", text, 1)
		m.Changed("sms", guard.Change{To: text})
		m.Attempt("sms", breaker.Outcome(100+i%100), time.Second)
	}
	lines := scrape(t, m)
	if len(lines) != before {
		t.Errorf("%d lines became %d", before, len(lines))
	}
	if got := lines[`penstock_deferrals_total{provider="sms",reason="other"}`]; got != "1001" {
		t.Errorf("other deferrals: %q", got)
	}
	label := regexp.MustCompile(`(\w+)="`)
	names := map[string]bool{}
	for line := range lines {
		for _, found := range label.FindAllStringSubmatch(line, -1) {
			names[found[1]] = true
		}
	}
	if diff := cmp.Diff([]string{"cause", "delayed", "le", "outcome", "provider", "reason", "shadow", "state"}, slices.Sorted(maps.Keys(names))); diff != "" {
		t.Error(diff)
	}
}

func TestWatch(t *testing.T) {
	m := New()
	if lines := scrape(t, m); len(lines) != 0 {
		t.Errorf("nobody is watched, yet: %v", lines)
	}
	stopSMS := m.Watch("sms", fixed(Snapshot{InFlight: 1}, nil))
	m.Watch("mail", fixed(Snapshot{InFlight: 2}, errors.New("redis does not answer")))
	scrape(t, m)
	lines := scrape(t, m)
	for name, want := range map[string]string{
		`penstock_calls_in_flight{provider="sms"}`:              "1",
		`penstock_calls_in_flight{provider="mail"}`:             "",
		`penstock_rate_allowed{provider="sms"}`:                 "",
		`penstock_concurrency_allowed{provider="sms"}`:          "",
		`penstock_attempts_total{outcome="ok",provider="mail"}`: "0",
	} {
		if lines[name] != want {
			t.Errorf("%s is %q, want %q", name, lines[name], want)
		}
	}
	if got := lines[`penstock_snapshot_errors_total{provider="mail"}`]; got != "1" && got != "2" {
		t.Errorf("errors: %q", got)
	}

	stopAgain := m.Watch("sms", fixed(Snapshot{InFlight: 7}, nil))
	stopSMS() // no longer the one that is watched: nothing happens
	if got := scrape(t, m)[`penstock_calls_in_flight{provider="sms"}`]; got != "7" {
		t.Errorf("after watching again: %q", got)
	}
	everything(m, "sms")
	stopAgain()
	for line := range scrape(t, m) {
		if strings.Contains(line, `provider="sms"`) {
			t.Errorf("left behind: %s", line)
		}
	}
}

// TestManyAtOnce is for the race detector: events, scrapes and changes of what
// is watched at the same time.
func TestManyAtOnce(t *testing.T) {
	m := New()
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			for j := range 50 {
				stop := m.Watch(fmt.Sprintf("p%d", (i+j)%40), fixed(Snapshot{}, nil))
				everything(m, "sms")
				scrape(t, m)
				stop()
			}
		})
	}
	all.Wait()
}
