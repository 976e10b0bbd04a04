package metrics

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/penstock-io/penstock/shaper"
	"github.com/penstock-io/penstock/shaper/limithttp"
)

var _ limithttp.Observer = (*Metrics)(nil)

func TestLimits(t *testing.T) {
	m := New()
	m.WatchDoor([]string{"per-token", "quiet"})
	m.LimitDecided("per-token", limithttp.Allowed, shaper.FromStore)
	m.LimitDecided("per-token", limithttp.Allowed, shaper.FromBatch)
	m.LimitDecided("per-token", limithttp.Refused, shaper.FromStore)
	m.LimitDecided("per-token", limithttp.Allowed, shaper.FromOpen)
	m.LimitDecided("per-token", limithttp.Refused, shaper.FromClosed)
	m.LimitDecided("per-token", limithttp.WouldRefuse, shaper.FromLocal)
	m.LimitDecided("deny", limithttp.DeniedByList, shaper.FromStore)
	m.LimitTook(200 * time.Microsecond)
	lines := scrape(t, m)
	for name, want := range map[string]string{
		`penstock_limit_decisions_total{outcome="allowed",rule="per-token"}`:      "3",
		`penstock_limit_decisions_total{outcome="refused",rule="per-token"}`:      "2",
		`penstock_limit_decisions_total{outcome="would_refuse",rule="per-token"}`: "1",
		`penstock_limit_decisions_total{outcome="refused",rule="quiet"}`:          "0",
		`penstock_limit_decisions_total{outcome="denied",rule="deny"}`:            "1",
		`penstock_limit_store_away_total{by="open",rule="per-token"}`:             "1",
		`penstock_limit_store_away_total{by="closed",rule="per-token"}`:           "1",
		`penstock_limit_store_away_total{by="local",rule="per-token"}`:            "1",
		`penstock_limit_store_away_total{by="open",rule="quiet"}`:                 "0",
		`penstock_limit_store_away_total{by="open",rule="deny"}`:                  "",
		`penstock_limit_decision_duration_seconds_count`:                          "1",
		`penstock_limit_decision_duration_seconds_bucket{le="0.00025"}`:           "1",
	} {
		if got := lines[name]; got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	problems, err := testutil.GatherAndLint(m.registry)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

func TestLimitLabelsAreBounded(t *testing.T) {
	m := New()
	m.WatchDoor([]string{"a"})
	say := func(word string) { m.LimitDecided(word, limithttp.Outcome(word), shaper.Source(word)) }
	say("a word")
	before := len(scrape(t, m))
	for i := range 100 {
		say(fmt.Sprint(i))
	}
	if after := len(scrape(t, m)); after != before {
		t.Errorf("%d lines became %d", before, after)
	}
}
