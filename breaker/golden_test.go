package breaker

import (
	"encoding/json"
	"flag"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden vectors anew")

// vector is one step of a story: what was seen, and the record that follows.
// Any implementation of the law, in any language, must reproduce it.
type vector struct {
	At      int64   `json:"at"` // µs since the story began
	Bucket  *bucket `json:"bucket,omitempty"`
	Flight  int     `json:"in_flight,omitzero"`
	Held    int64   `json:"held,omitzero"` // until, µs since the story began
	Capped  bool    `json:"capped,omitzero"`
	Lease   int64   `json:"probe_until,omitzero"`
	Chance  float64 `json:"chance"`
	Record  State   `json:"record"`
	Control control `json:"control"`
}

type bucket struct {
	Generation uint64        `json:"gen"`
	Counts     [6]int        `json:"counts"` // starts, ok, throttled, failed, timeout, excluded
	Latency    time.Duration `json:"latency"`
}

type control struct {
	Phase    string  `json:"phase"`
	Rate     float64 `json:"rate"`
	InFlight int     `json:"in_flight"`
	Slow     bool    `json:"slow_start"`
}

// story is a history; say says what comes back in tick i, given the state.
type story struct {
	name  string
	cfg   Config
	ticks int
	say   func(i int, v *vector, s State)
}

func (b *bucket) of(ok, throttled, failed, timeout int, latency time.Duration) {
	b.Counts = [6]int{ok + throttled + failed + timeout, ok, throttled, failed, timeout, 0}
	b.Latency = latency
}

var stories = []story{
	{"refusals", Config{Rate: 200, Concurrency: 50}, 120, func(i int, v *vector, s State) {
		sent := int(max(2, s.rate(Config{Rate: 200}.Normal())) / 4)
		over := max(0, sent-25) // accepts 100 a second
		v.Bucket.of(sent-over, over, 0, 0, 50*time.Millisecond)
	}},
	{"errors", Config{Rate: 200, Concurrency: 50}, 120, func(i int, v *vector, s State) {
		bad := 0
		if i >= 40 && i < 90 {
			bad = 5
		}
		v.Bucket.of(20-bad, 0, bad, 0, 50*time.Millisecond)
	}},
	{"outage", Config{Rate: 100, Concurrency: 20}, 160, func(i int, v *vector, s State) {
		switch {
		case s.phase().Name() == "open":
			v.Bucket = nil
		case s.phase().Name() == "half_open" && i >= 70:
			v.Bucket.of(1, 0, 0, 0, 50*time.Millisecond)
		case s.phase().Name() == "half_open":
			v.Bucket.of(0, 0, 1, 0, 0)
		case i < 20 || i >= 70:
			v.Bucket.of(15, 0, 0, 0, 50*time.Millisecond)
		default:
			v.Bucket.of(0, 0, 9, 6, 0)
		}
	}},
	{"a probe is lost", Config{Rate: 100, Concurrency: 20}, 90, func(i int, v *vector, s State) {
		switch s.phase().Name() {
		case "closed":
			v.Bucket.of(0, 0, 12, 0, 0)
		case "half_open":
			v.Bucket, v.Lease = nil, int64(60*250_000)
		default:
			v.Bucket = nil
		}
	}},
	{"latency and a stall", Config{Rate: 200, Concurrency: 40}, 160, func(i int, v *vector, s State) {
		latency := 50 * time.Millisecond
		if i >= 40 && i < 80 {
			latency = 300 * time.Millisecond
		}
		v.Flight = 40
		if v.Bucket.of(20, 0, 0, 0, latency); i >= 120 {
			v.Bucket = nil
		}
	}},
	{"a capped wait", Config{Rate: 100}, 60, func(i int, v *vector, s State) {
		v.Bucket.of(10, 0, 0, 0, 50*time.Millisecond)
		if i >= 20 {
			v.Held, v.Capped = 40*250_000, true
		}
		if i >= 20 && i < 41 {
			v.Bucket = nil
		}
	}},
	{"no rate", Config{Concurrency: 30}, 80, func(i int, v *vector, s State) {
		v.Bucket.of(20, 0, 0, 0, 50*time.Millisecond)
		if i == 30 {
			v.Bucket.of(14, 6, 0, 0, 50*time.Millisecond)
		}
	}},
	{"one in ten seconds", Config{Rate: 0.1}, 80, func(i int, v *vector, s State) {
		v.At = int64(i) * 10_000_000
		switch {
		case i < 20:
			v.Bucket.of(1, 0, 0, 0, 50*time.Millisecond)
		case i < 30:
			v.Bucket.of(i%2, (i+1)%2, 0, 0, 50*time.Millisecond)
		default:
			v.Bucket.of(0, 0, 1, 0, 0)
		}
	}},
}

// TestGolden holds the law to what it decided when the vectors were written:
// a change of a constant or a formula shows, and is to be meant. Write them
// anew with -update.
func TestGolden(t *testing.T) {
	for _, st := range stories {
		t.Run(st.name, func(t *testing.T) {
			got := st.tell()
			file := filepath.Join("testdata", "golden", strings.ReplaceAll(st.name, " ", "-")+".json")
			if *update {
				write(t, file, got)
			}
			doc, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var want []vector
			if err := json.Unmarshal(doc, &want); err != nil {
				t.Fatal(err)
			}
			if len(want) != st.ticks {
				t.Fatalf("%d vectors, want %d", len(want), st.ticks)
			}
			// The last digits depend on the processor (fused multiply-add).
			near := cmp.Comparer(func(a, b float64) bool { return math.Abs(a-b) <= 1e-9*max(1, math.Abs(a)) })
			for i := range want {
				if d := cmp.Diff(want[i], got[i], near, cmp.AllowUnexported(State{})); d != "" {
					t.Fatalf("tick %d (-want +got):\n%s", i, d)
				}
			}
		})
	}
}

func (st story) tell() []vector {
	var out []vector
	var s State
	sample := Sample{}
	for i := range st.ticks {
		v := vector{At: int64(i) * 250_000, Chance: float64(i%10) / 10, Bucket: &bucket{Generation: s.Generation}}
		st.say(i, &v, s)
		now := t0.Add(time.Duration(v.At) * time.Microsecond)
		if v.Bucket != nil {
			sample.add(now, v.Bucket, s.Since)
		}
		sample.InFlight, sample.Chance, sample.Held, sample.Probe = v.Flight, v.Chance, Hold{}, Lease{}
		if v.Held > 0 {
			sample.Held = Hold{Until: t0.Add(time.Duration(v.Held) * time.Microsecond), Capped: v.Capped}
		}
		if v.Lease > 0 {
			sample.Probe = Lease{Generation: s.Generation, Until: t0.Add(time.Duration(v.Lease) * time.Microsecond)}
		}
		s = Step(now, s, sample, st.cfg)
		c := s.Control(st.cfg)
		v.Record, v.Control = s, control{c.Phase, c.Rate, c.InFlight, c.SlowStart}
		out = append(out, v)
	}
	return out
}

func (s *Sample) add(now time.Time, b *bucket, since uint64) {
	x := Bucket{At: now, Generation: b.Generation}
	c := b.Counts
	x.Counts = Counts{c[0], c[1], c[2], c[3], c[4], c[5]}
	for range x.OK {
		x.Latencies.Add(b.Latency)
	}
	s.Buckets = append(s.Buckets, x)
	for o, n := range map[Outcome]int{Failed: x.Failed, Timeout: x.Timeout} {
		for range n {
			s.Row = s.Row.Add(o, b.Generation, since)
		}
	}
	for range x.OK {
		s.Row = s.Row.Add(OK, b.Generation, since)
	}
}

func write(t *testing.T, file string, vs []vector) {
	t.Helper()
	doc := []byte("[\n")
	for i, v := range vs {
		line, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		if doc = append(doc, line...); i < len(vs)-1 {
			doc = append(doc, ',')
		}
		doc = append(doc, '\n')
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, append(doc, ']', '\n'), 0o644); err != nil {
		t.Fatal(err)
	}
}
