package fragile

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// played is one call of a hand-made series.
type played struct {
	at, took time.Duration
	key      string
}

// play runs a series, ascending by arrival, through a run without HTTP; a call
// ends before a later one arrives if its time has come. One that the caller
// leaves has took = 0 and a hang.
func play(t *testing.T, cfg Config, series []played) *run {
	t.Helper()
	if err := cfg.Validate(); err != nil {
		t.Fatal(err)
	}
	cfg = cfg.normal()
	r := newRun(cfg, time.Now())
	var open []ticket
	settle := func(now time.Duration) {
		rest := open[:0]
		for _, k := range open {
			if k.call.At+k.call.Took <= now {
				r.acc.end(k.call, k.accepted)
			} else {
				rest = append(rest, k)
			}
		}
		open = rest
	}
	for _, c := range series {
		settle(c.at)
		k := r.arrive(c.at, c.key)
		k.call.Took = k.delay
		if k.accepted && c.took > 0 {
			k.call.Took = c.took
		}
		open = append(open, k)
	}
	settle(math.MaxInt64)
	return r
}

func TestReportByHand(t *testing.T) {
	cfg := Config{Name: "sms", Limit: Rate{2, time.Second}, InFlight: 2, Timeline: []Trouble{
		{From: 2 * time.Second, To: 3 * time.Second, What: Fail, Status: 503},
		{From: 3 * time.Second, To: 4 * time.Second, What: Lose},
		{From: 5 * time.Second, To: 7 * time.Second, What: Outage},
	}}
	r := play(t, cfg, []played{
		{0, 100 * ms, "a"},
		{500 * ms, 700 * ms, "b"},
		{600 * ms, 0, "c"},              // third in the window: refused
		{1000 * ms, 300 * ms, "c"},      // b is still there: two in flight
		{1100 * ms, 0, "d"},             // third in flight: refused
		{2000 * ms, 10 * ms, "d"},       // 503
		{3000 * ms, 10 * ms, "d"},       // done, answer lost
		{4000 * ms, 10 * ms, "d"},       // succeeds a second time
		{5000 * ms, 0, "e"},             // outage
		{8000 * ms, 10 * ms, "e"},       // at last
		{8000 * ms, 10 * ms, ""},        // without a key
		{8000*ms + 500*ms, 10 * ms, ""}, // third in the window: refused
	})
	want := Report{
		Name: "sms", Limit: "sliding 2/s, 2 in flight",
		Calls: 12, Accepted: 8, Refused: 3, RefusedRate: 2, RefusedInFlight: 1,
		ByStatus: map[int]int{200: 6, 429: 3, 503: 1}, Lost: 1, Down: 1,
		First: 0, Last: 8 * time.Second, Span: 8 * time.Second,
		Allowed: 1 + 2*6, Used: 8. / 13,
		Window: time.Second, MostAccepted: 2, MostArrived: 4, // 500, 600, 1000, 1100
		PeakInFlight: 2,
		// gaps 500, 500, 1000, 1000, 1000, 4000, 0 ms: mean 8000/7, squares 19.5e6
		Evenness: math.Sqrt(19.5e6/7-math.Pow(8000./7, 2)) / (8000. / 7),
		MeanGap:  8 * time.Second / 7, MinGap: 0,
		Jobs: 5, JobsSucceeded: 5, SucceededTwice: 1,
		AttemptsMean: 10. / 5, AttemptsMax: 4, WithoutKey: 2,
	}
	near := cmp.Comparer(func(a, b float64) bool { return math.Abs(a-b) < 1e-9 })
	if diff := cmp.Diff(want, r.report(), near); diff != "" {
		t.Errorf("report differs (-want +got):\n%s", diff)
	}
	wantSeconds := []Second{{3, 2, 1, 2}, {2, 1, 1, 1}, {1, 1, 0, 0}, {1, 1, 0, 1}, {1, 1, 0, 1}, {1, 0, 1, 0}, {}, {}, {3, 2, 1, 2}}
	if diff := cmp.Diff(wantSeconds, r.acc.seconds); diff != "" {
		t.Errorf("seconds differ (-want +got):\n%s", diff)
	}
	var b strings.Builder
	if err := r.report().WriteText(&b); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"61.5 % of 13 allowed", "2 by the rate, 1 in flight", "200: 6, 429: 3, 503: 1", "2.000 mean, 4 most"} {
		if !strings.Contains(b.String(), part) {
			t.Errorf("the text lacks %q:\n%s", part, b.String())
		}
	}
}

// The published meaning of Evenness and Used, on series whose figures are known.
func TestEvennessAndUsed(t *testing.T) {
	even := func(n int, gap time.Duration) (s []played) {
		for i := range n {
			s = append(s, played{at: time.Duration(i) * gap})
		}
		return s
	}
	var pairs []played
	for i := range 100 {
		pairs = append(pairs, played{at: time.Duration(i) * 20 * ms}, played{at: time.Duration(i) * 20 * ms})
	}
	tests := []struct {
		name           string
		series         []played
		evenness, used float64
	}{
		{"a clock at the limit", even(101, 10*ms), 0, 1},
		{"a clock at half of it", even(51, 20*ms), 0, 51. / 101},
		{"a clock with the headroom of 25 ms", even(3000, 10250*time.Microsecond), 0, 3000 / (1 + 29.99*102.5)},
		{"always two at once", pairs, math.Sqrt(99.*400/199-math.Pow(99*20./199, 2)) / (99 * 20. / 199), 200. / 199},
		{"one call", even(1, 0), 0, 1},
		{"two calls", even(2, 10*ms), 0, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			rep := play(t, Config{Limit: Rate{100, time.Second}, Kind: Fixed}, tt.series).report()
			if rep.Refused != 0 {
				t.Fatalf("%d refused", rep.Refused)
			}
			if math.Abs(rep.Evenness-tt.evenness) > 1e-9 || math.Abs(rep.Used-tt.used) > 1e-9 {
				t.Errorf("evenness %v, used %v; want %v, %v", rep.Evenness, rep.Used, tt.evenness, tt.used)
			}
		})
	}
}

// Allowed follows the limits of the script.
func TestAllowed(t *testing.T) {
	s := time.Second
	script := []Trouble{
		{From: 10 * s, To: 20 * s, What: Limit, Rate: Rate{50, s}},
		{From: 15 * s, To: 25 * s, What: Limit, Rate: Rate{10, s}},
		{From: 30 * s, To: 31 * s, What: Outage},
		{From: 40 * s, What: Limit},
	}
	for _, tt := range []struct {
		from, to time.Duration
		want     float64
	}{
		{0, 10 * s, 1001},
		{0, 0, 1},
		{10 * s, 25 * s, 1 + 250 + 100},
		{24 * s, 32 * s, 1 + 10 + 500 + 100},
		{30 * s, 31 * s, 1},
		{0, 41 * s, 0}, // no limit at the end: no share
		{41 * s, 41 * s, 0},
	} {
		r := newRun(Config{Limit: Rate{100, s}, Timeline: script}, time.Now())
		if got := r.allowed(tt.from, tt.to); math.Abs(got-tt.want) > 1e-9 {
			t.Errorf("allowed(%s, %s) = %v, want %v", tt.from, tt.to, got, tt.want)
		}
	}
}

func TestRememberIsARing(t *testing.T) {
	r := play(t, Config{Remember: 3}, []played{{0, ms, "a"}, {10 * ms, ms, "b"}, {20 * ms, ms, "c"}, {30 * ms, ms, "d"}, {40 * ms, ms, "e"}})
	var keys []string
	for _, c := range r.acc.remembered() {
		keys = append(keys, c.Key)
	}
	if diff := cmp.Diff([]string{"c", "d", "e"}, keys); diff != "" {
		t.Error(diff)
	}
}
