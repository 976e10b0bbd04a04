package fragile

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const wholeFile = `
name: sms
limit: 100/s
kind: bucket
burst: 5
in_flight: 40
servers: 3
latency: 20ms±10ms normal
retry_after: date
seed: 9
remember: 10
timeline:
  - 10s..40s error 503 30% x9 retry-after==30
  - 40s.. limit 50/s
  - 1m..2m hang
`

func TestParse(t *testing.T) {
	got, err := Parse([]byte(wholeFile))
	if err != nil {
		t.Fatal(err)
	}
	want := Config{Name: "sms", Limit: Rate{100, time.Second}, Kind: Bucket, Burst: 5, InFlight: 40, Servers: 3,
		Latency: Latency{20 * ms, 10 * ms, Normal}, RetryAfter: ReplyDate, Seed: 9, Remember: 10,
		Timeline: []Trouble{
			{From: 10 * time.Second, To: 40 * time.Second, What: Fail, Status: 503, Share: 0.3, Times: 9, RetryAfter: "=30"},
			{From: 40 * time.Second, What: Limit, Rate: Rate{50, time.Second}},
			{From: time.Minute, To: 2 * time.Minute, What: Hang},
		}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if empty, err := Parse(nil); err != nil || !cmp.Equal(empty, Config{}) {
		t.Errorf("an empty file: %+v, %v", empty, err)
	}
}

// Each refusal names the field, or shows the line, and says what to write.
func TestRefused(t *testing.T) {
	for doc, parts := range map[string][]string{
		"limit: 0/s":                              {"0/s", "100/s"},
		"limit: -1/s":                             {"-1/s", "100/s"},
		"limit: 10/0s":                            {"period", "100/s"},
		"limit: 1e300/s":                          {"whole number", "100/s"},
		"limit: .nan":                             {"100/s"},
		"limit: 100":                              {"no period", "100/s"},
		"kind: strict":                            {"strict", "sliding, bucket, fixed"},
		"limit: 10/s\nburst: 5":                   {"burst", "kind: bucket"},
		"kind: bucket\nlimit: 10/s\nburst: -1":    {"burst", "from 1"},
		"kind: bucket\nlimit: 60000/s":            {"burst", "set it"},
		"in_flight: -1":                           {"in_flight", "from 0"},
		"servers: -1":                             {"servers", "from 0"},
		"latency: fast":                           {"fast", "20ms±10ms"},
		"latency: 10ms±20ms":                      {"jitter", "20ms±10ms"},
		"latency: 10ms round":                     {"shape", "uniform"},
		"retry_after: maybe":                      {"maybe", "seconds", "=VALUE"},
		"limits: 10/s":                            {"limits", "1 |"},
		"timeline: [\"10s error\"]":               {"FROM..TO", "10s..40s"},
		"timeline: [\"10s..5s hang\"]":            {"ends before it begins"},
		"timeline: [\"0s..0s hang\"]":             {"ends before it begins"},
		"timeline: [\"0s..5s explode\"]":          {"explode", "outage"},
		"timeline: [\"0s..5s error\"]":            {"needs a value"},
		"timeline: [\"0s..5s error 200\"]":        {"400 to 599"},
		"timeline: [\"0s..5s error 500 0%\"]":     {"share"},
		"timeline: [\"0s..5s error 500 NaN%\"]":   {"share"},
		"timeline: [\"0s..5s error 500 x0\"]":     {"at least 1"},
		"timeline: [\"0s..5s limit 5/s 10%\"]":    {"every call"},
		"timeline: [\"0s..5s slow -5ms\"]":        {"added latency"},
		"timeline: [\"0s..5s hang often\"]":       {"often"},
		"timeline: [\"0s..5s in-flight many\"]":   {"many"},
		"timeline: [\"0s.. hang retry-after=3\"]": {"retry_after"},
	} {
		t.Run(doc, func(t *testing.T) {
			_, err := Parse([]byte(doc))
			if err == nil {
				t.Fatal("accepted")
			}
			for _, part := range parts {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("lacks %q:\n%v", part, err)
				}
			}
		})
	}
	for _, c := range []Config{
		{Timeline: []Trouble{{What: "nothing"}}}, {Timeline: []Trouble{{}}}, {Limit: Rate{N: 1}}, {Limit: Rate{Per: time.Second}},
		{Kind: 9}, {Latency: Latency{Shape: 9}}, {RetryAfter: "=a\r\nb"}, {Timeline: []Trouble{{What: Hang, Share: 2}}},
	} {
		if _, err := New(c); err == nil {
			t.Errorf("%+v accepted", c)
		}
	}
}

func TestValidateTellsAll(t *testing.T) {
	err := Config{InFlight: -1, Servers: -1, Kind: 7}.Validate()
	for _, part := range []string{"in_flight", "servers", "kind"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("lacks %s: %v", part, err)
		}
	}
}

func TestTroubleRoundTrip(t *testing.T) {
	lines := []string{
		"10s..40s error 503 30% x9 retry-after==30", "0s.. error 500", "1s..2s hang 12.5%", "1s.. cut x1", "1s.. lose",
		"5s..6s slow 200ms 50%", "1m0s..2m0s limit 50/s", "1s.. limit none", "1s.. in-flight 0", "1s.. servers 4", "1s..2s outage",
	}
	for _, line := range lines {
		tr, err := ParseTrouble(line)
		if err != nil {
			t.Errorf("%s: %v", line, err)
		} else if tr.String() != line {
			t.Errorf("%q became %q", line, tr)
		}
	}
}

func TestTextRoundTrip(t *testing.T) {
	for _, s := range []string{"100/s", "12/m", "10/h", "3/d", "5/10s", "none"} {
		if r, err := ParseRate(s); err != nil || r.String() != s {
			t.Errorf("rate %s: %s, %v", s, r, err)
		}
	}
	for _, s := range []string{"20ms", "20ms±10ms", "20ms±10ms normal", "1s±1s exponential", "0s"} {
		if l, err := ParseLatency(s); err != nil || l.String() != s {
			t.Errorf("latency %s: %s, %v", s, l, err)
		}
	}
	if l, err := ParseLatency("20ms+-10ms"); err != nil || l.Jitter != 10*ms {
		t.Errorf("+-: %s, %v", l, err)
	}
}

func TestLoadNamesTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "day.yaml")
	if err := os.WriteFile(path, []byte("limit: 5/s\nhello: 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(path); err == nil || !strings.Contains(err.Error(), "day.yaml") || !strings.Contains(err.Error(), "hello") {
		t.Errorf("%v", err)
	}
	if _, err := Load(path + "x"); err == nil {
		t.Error("a missing file loads")
	}
}
