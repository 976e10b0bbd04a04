package breaker

import (
	"encoding/json"
	"testing"
	"time"
)

// BenchmarkTick is what a tick costs beside Redis: read the record, step, write it.
func BenchmarkTick(b *testing.B) {
	w := newWorld(Config{Rate: 1000, Concurrency: 50})
	for range 44 {
		w.saw(OK, 200, w.state.Generation)
		w.saw(Failed, 20, w.state.Generation)
		w.sample.Row = Row{}
		w.step()
	}
	doc, err := json.Marshal(w.state)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		var s State
		if err := json.Unmarshal(doc, &s); err != nil {
			b.Fatal(err)
		}
		if _, err := json.Marshal(Step(w.now.Add(250*time.Millisecond), s, w.sample, w.cfg)); err != nil {
			b.Fatal(err)
		}
	}
}
