package health

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/penstock-io/penstock/breaker"
)

// window is what one process saw since its last flush. The zero value is empty.
type window struct {
	gens []generation // oldest first; few
}

// generation is what was seen of calls that started in one.
type generation struct {
	id     uint64
	counts breaker.Counts
	lat    breaker.Latencies
	// good: a success came; bad: failures since the last one.
	good bool
	bad  int
}

func (w *window) of(id uint64) *generation {
	i := len(w.gens)
	for i > 0 && w.gens[i-1].id >= id {
		if i--; w.gens[i].id == id {
			return &w.gens[i]
		}
	}
	w.gens = append(w.gens, generation{})
	copy(w.gens[i+1:], w.gens[i:])
	w.gens[i] = generation{id: id}
	return &w.gens[i]
}

func (w *window) started(id uint64) { w.of(id).counts.Starts++ }

func (w *window) ended(id uint64, o breaker.Outcome, took time.Duration) {
	g := w.of(id)
	g.counts.Add(o)
	switch o {
	case breaker.OK:
		g.lat.Add(took)
		g.good, g.bad = true, 0
	case breaker.Failed, breaker.Timeout:
		g.bad++
	}
}

// append adds what sense.lua calls windows and rows, and their numbers.
func (w *window) append(args []any) []any {
	rows := []any{}
	for _, g := range w.gens {
		if g.good || g.bad > 0 {
			rows = append(rows, g.id, g.good, g.bad)
		}
	}
	args = append(args, len(w.gens), len(rows)/3)
	for _, g := range w.gens {
		args = append(args, g.id, encode(g.counts, &g.lat))
	}
	return append(args, rows...)
}

// encode writes counts as the buckets keep them.
func encode(c breaker.Counts, l *breaker.Latencies) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d %d %d %d %d %d|", c.Starts, c.OK, c.Throttled, c.Failed, c.Timeout, c.Excluded)
	sep := ""
	for i, n := range l {
		if n > 0 {
			fmt.Fprintf(&b, "%s%d:%d", sep, i, n)
			sep = ","
		}
	}
	return b.String()
}

// decode reads what encode or the script wrote; what it cannot read counts as
// nothing.
func decode(text string, b *breaker.Bucket) {
	head, tail, _ := strings.Cut(text, "|")
	for i, f := range strings.Fields(head) {
		into := []*int{&b.Starts, &b.OK, &b.Throttled, &b.Failed, &b.Timeout, &b.Excluded}
		if n, err := strconv.Atoi(f); err == nil && n >= 0 && i < len(into) {
			*into[i] = n
		}
	}
	for f := range strings.SplitSeq(tail, ",") {
		at, count, _ := strings.Cut(f, ":")
		i, err1 := strconv.Atoi(at)
		n, err2 := strconv.Atoi(count)
		if err1 == nil && err2 == nil && i >= 0 && i < breaker.LatencyBuckets && n >= 0 {
			b.Latencies[i] = n
		}
	}
}
