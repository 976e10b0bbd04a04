package breaker

import (
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func equal(a, b State) string {
	return cmp.Diff(a, b, cmp.AllowUnexported(State{}))
}

// TestRecord pins the record: other releases read it.
func TestRecord(t *testing.T) {
	s := State{
		Phase: HalfOpen{At: t0, Good: 1, Last: t0.Add(time.Second)}, Generation: 7, Since: 6, Ticked: t0.Add(2 * time.Second),
		Openings: 2, Factor: 0.5, Trouble: Trouble{Rate: 125, Ratio: 0.25, Rested: time.Second}, InFlight: 12.5,
		Ceiling: Ceiling{Rate: 51, Peak: 60, Beta: 0.85, Age: 1500 * time.Millisecond, CutAt: t0.Add(-time.Minute), Generation: 5},
		Latency: Baseline{P50: 55 * time.Millisecond, Lows: [10]time.Duration{50 * time.Millisecond}, Minute: 29934000},
		Reason:  "time to probe", Changed: t0,
	}
	const want = `{"v":1,"reads":1,"phase":"half_open","at":1796040000000000,"good":1,"last":1796040001000000,` +
		`"gen":7,"since":6,"ticked":1796040002000000,"openings":2,` +
		`"ceiling":{"rate":51,"peak":60,"beta":0.85,"age":1500000,"cut_at":1796039940000000,"gen":5},` +
		`"factor":0.5,"trouble":{"rate":125,"ratio":0.25,"rested":1000000},"in_flight":12.5,` +
		`"latency":{"p50":55000,"lows":[50000,0,0,0,0,0,0,0,0,0],"minute":29934000},` +
		`"reason":"time to probe","changed":1796040000000000}`
	got, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, string(got)); d != "" {
		t.Errorf("the record changed; older releases read it (-want +got):\n%s", d)
	}
	var back State
	if err := json.Unmarshal(got, &back); err != nil {
		t.Fatal(err)
	}
	if d := equal(s, back); d != "" {
		t.Errorf("not read back:\n%s", d)
	}
}

// TestRecordMembers: what is left over for a newer release is what no field takes.
func TestRecordMembers(t *testing.T) {
	var names []string
	for f := range reflect.TypeFor[record]().Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		names = append(names, name)
	}
	slices.Sort(names)
	known := recordMembers
	slices.Sort(known[:])
	if d := cmp.Diff(names, known[:]); d != "" {
		t.Error(d)
	}
}

// TestRecordOfANewerRelease: members that it added are handed on by a step of ours.
func TestRecordOfANewerRelease(t *testing.T) {
	var s State
	const doc = `{"v":2,"reads":1,"phase":"closed","gen":3,"since":2,"weather":{"rain":[1,2]},"factor":0.75}`
	if err := json.Unmarshal([]byte(doc), &s); err != nil {
		t.Fatal(err)
	}
	got, err := json.Marshal(Step(t0, s, Sample{}, Config{Rate: 10}))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(got), `"weather":{"rain":[1,2]}`) || !strings.Contains(string(got), `"gen":3`) {
		t.Errorf("lost what the newer release wrote: %s", got)
	}
	for doc, want := range map[string]error{
		`{"v":9,"reads":2,"phase":"closed"}`:    ErrNewer,
		`{"v":1,"reads":1,"phase":"ajar"}`:      ErrRecord,
		`{"v":1,"reads":1}`:                     ErrRecord,
		`[1]`:                                   ErrRecord,
		`{"v":1,"phase":"open","until":"soon"}`: ErrRecord,
		`{"v":1,"phase":"closed","gen":-1}`:     ErrRecord,
	} {
		if err := json.Unmarshal([]byte(doc), &s); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", doc, err, want)
		}
	}
}

// TestDamagedRecord: whatever numbers stand in it, R stays where it may be.
func TestDamagedRecord(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		num := func(name string) float64 { return rapid.Float64Range(-1e12, 1e12).Draw(t, name) }
		doc, err := json.Marshal(map[string]any{
			"v": 1, "reads": 1, "phase": rapid.SampledFrom([]string{"closed", "open", "half_open"}).Draw(t, "phase"),
			"gen": rapid.Uint64().Draw(t, "gen"), "since": rapid.Uint64().Draw(t, "since"), "ramp": num("ramp"),
			"factor": num("factor"), "in_flight": num("in_flight"), "openings": rapid.Int().Draw(t, "openings"),
			"ceiling": map[string]any{"rate": num("c"), "peak": num("w"), "beta": num("beta")},
			"trouble": map[string]any{"rate": num("ref"), "ratio": num("ratio")},
		})
		if err != nil {
			t.Fatal(err)
		}
		var s State
		if err := json.Unmarshal(doc, &s); err != nil {
			t.Fatal(err)
		}
		cfg := Config{Rate: 100, Concurrency: 20}
		for i := range 3 {
			s = Step(t0.Add(time.Duration(i)*250*time.Millisecond), s, Sample{Chance: 0.5}, cfg)
			checkControl(t, s, cfg)
		}
	})
}
