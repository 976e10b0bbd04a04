package suggest

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const ms = time.Millisecond

// usual is a provider at half of its limit that refused nothing.
func usual(change func(*Seen)) Seen {
	s := Seen{
		Span: 10 * time.Minute, Starts: 24000, OK: 24000, RateP50: 40, RateP95: 48, RateP99: 50,
		LatencyP50: 20 * ms, LatencyP95: 50 * ms, LatencyP99: 80 * ms,
		RateText: "100/s", Rate: 100, Period: time.Second, Headroom: 25 * ms,
	}
	if change != nil {
		change(&s)
	}
	return s
}

func TestFor(t *testing.T) {
	for _, c := range []struct {
		name string
		seen Seen
		// want is "setting value" for each line; why must stand in the line's sentence.
		want []string
		why  map[string]string
	}{
		{name: "far below its limit", seen: usual(nil),
			want: []string{"rate 60/s", "concurrency 4", "headroom 25ms", "timeout 1s"},
			why:  map[string]string{"rate": "p99 of demand is 50/s and nothing was refused", "concurrency": "keeps 2.4 calls in flight (Little's law)", "timeout": "not under 1s"}},
		{name: "without a limit", seen: usual(func(s *Seen) { s.Rate, s.RateText, s.Headroom, s.Period = 0, "", 0, 0 }),
			want: []string{"rate 60/s", "concurrency 4", "timeout 1s"}},
		{name: "at its limit", seen: usual(func(s *Seen) { s.RateP50, s.RateP95, s.RateP99, s.Waiting = 97.5, 97.6, 97.6, 1200 }),
			want: []string{"rate 100/s", "concurrency 8", "headroom 25ms", "timeout 1s"},
			why:  map[string]string{"rate": "(1200 jobs wait)"}},
		{name: "a little below its limit", seen: usual(func(s *Seen) { s.RateP99 = 85 }),
			want: []string{"rate 100/s", "concurrency 4", "headroom 25ms", "timeout 1s"},
			why:  map[string]string{"rate": "a fifth or less"}},
		{name: "a limit by the minute is kept as it is written", seen: usual(func(s *Seen) {
			s.Rate, s.RateText, s.Period = 100, "6000/m", time.Minute
			s.RateP99 = 97
		}), want: []string{"rate 6000/m", "concurrency 4", "headroom 25ms", "timeout 1s"}},
		{name: "refused", seen: usual(func(s *Seen) { s.OK, s.Throttled, s.Accepted = 22000, 2000, 42 }),
			want: []string{"rate 39/s", "concurrency 3", "headroom 25ms", "timeout 1s"},
			why:  map[string]string{"rate": "refused 8.3 % of calls, and accepted 42/s", "concurrency": "the rate above (39.9/s)", "headroom": "too many to be jitter"}},
		{name: "refused, and no rate for it", seen: usual(func(s *Seen) { s.OK, s.Throttled = 12000, 12000 }),
			want: []string{"rate 22/s", "concurrency 2", "headroom 25ms", "timeout 1s"}},
		{name: "a few refused", seen: usual(func(s *Seen) { s.OK, s.Throttled, s.Accepted = 23990, 10, 41 }),
			want: []string{"rate 60/s", "concurrency 4", "headroom 50ms", "timeout 1s"},
			why:  map[string]string{"headroom": "closer than they started; twice the headroom costs 2.5 %"}},
		{name: "held below its limits", seen: usual(func(s *Seen) { s.Cut, s.Failed, s.RateP99 = true, 4000, 12 }),
			want: []string{"rate 100/s", "concurrency 4", "headroom 25ms", "timeout 1s"},
			why:  map[string]string{"rate": "health holds"}},
		{name: "slow", seen: usual(func(s *Seen) {
			s.LatencyP50, s.LatencyP95, s.LatencyP99, s.Timeout = 2*time.Second, 4*time.Second, 6*time.Second, 3
		}), want: []string{"rate 60/s", "concurrency 288", "headroom 25ms", "timeout 20s"},
			why: map[string]string{"timeout": "3 calls timed out, whose latency is not known"}},
		{name: "one call in five seconds", seen: usual(func(s *Seen) {
			s.Starts, s.OK, s.RateP50, s.RateP95, s.RateP99 = 120, 120, 0.2, 0.2, 0.4
		}), want: []string{"rate 28/m", "concurrency 1", "headroom 25ms", "timeout 1s"}},
		{name: "a thousand a second", seen: usual(func(s *Seen) { s.Rate, s.RateText, s.RateP95, s.RateP99 = 5000, "5000/s", 1111, 1234 }),
			want: []string{"rate 1480/s", "concurrency 84", "headroom 25ms", "timeout 1s"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := For(c.seen)
			var lines []string
			for _, l := range got.Lines {
				lines = append(lines, l.Setting+" "+l.Value)
				if !strings.Contains(l.Why, c.why[l.Setting]) {
					t.Errorf("%s: %q does not say %q", l.Setting, l.Why, c.why[l.Setting])
				}
				if strings.Contains(l.Why, "NaN") || l.Why == "" {
					t.Errorf("%s: %q", l.Setting, l.Why)
				}
			}
			if d := cmp.Diff(c.want, lines); d != "" || !got.Enough {
				t.Errorf("enough %v; (-want +got)\n%s", got.Enough, d)
			}
		})
	}
}

func TestNotEnough(t *testing.T) {
	for _, c := range []struct {
		name, missing string
		seen          Seen
	}{
		{"nothing", "no call was seen", Seen{}},
		{"few", "99 calls came back in 10m0s; it takes 100 over 30s", usual(func(s *Seen) { s.OK = 99 })},
		{"short", "24000 calls came back in 29s", usual(func(s *Seen) { s.Span = 29 * time.Second })},
		{"everything refused", "refused all 24000 calls", usual(func(s *Seen) { s.OK, s.Throttled = 0, 24000 })},
		{"one", "1 call came back", usual(func(s *Seen) { s.OK = 1 })},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := For(c.seen)
			if got.Enough || len(got.Lines) > 0 || !strings.Contains(got.Missing, c.missing) {
				t.Errorf("%+v; want it to miss %q", got, c.missing)
			}
		})
	}
}
