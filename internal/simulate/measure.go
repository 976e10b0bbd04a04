package simulate

import (
	"slices"
	"sort"
	"time"

	"github.com/penstock-io/penstock/breaker"
)

// Calls returns how many calls started in [from, to).
func (r *Result) Calls(from, to time.Duration) int {
	return r.index(to) - r.index(from)
}

// index returns how many calls started before t.
func (r *Result) index(t time.Duration) int {
	us := t.Microseconds()
	return sort.Search(len(r.calls), func(i int) bool { return r.calls[i].start >= us })
}

// Of returns how many of the calls that started in [from, to) ended so.
func (r *Result) Of(o breaker.Outcome, from, to time.Duration) (n int) {
	for _, c := range r.calls[r.index(from):r.index(to)] {
		if c.outcome == o {
			n++
		}
	}
	return n
}

// PerSecond returns the mean rate of calls that started in [from, to).
func (r *Result) PerSecond(from, to time.Duration) float64 {
	return float64(r.Calls(from, to)) / (to - from).Seconds()
}

// Peak returns the most calls that started in any window of w within [from, to).
func (r *Result) Peak(w, from, to time.Duration) (most int) {
	calls := r.calls[r.index(from):r.index(to)]
	first := 0
	for i, c := range calls {
		for c.start-calls[first].start >= w.Microseconds() {
			first++
		}
		most = max(most, i-first+1)
	}
	return most
}

// Reaches returns when, from from on, a window of w first holds calls at the
// given rate: the end of that window.
func (r *Result) Reaches(rate float64, w, from time.Duration) (time.Duration, bool) {
	calls := r.calls[r.index(from):]
	want := int(rate*w.Seconds() + 0.999)
	for i := want - 1; i < len(calls) && want > 0; i++ {
		if calls[i].start-calls[i-want+1].start <= w.Microseconds() {
			return micro(calls[i].start), true
		}
	}
	return 0, false
}

// Falls returns when, from from on, every later window of one second within
// [from, to) holds at most most calls.
func (r *Result) Falls(most int, from, to time.Duration) time.Duration {
	calls := r.calls[r.index(from):r.index(to)]
	last, first := from, 0
	for i, c := range calls {
		for c.start-calls[first].start >= 1_000_000 {
			first++
		}
		if i-first+1 > most {
			last = micro(c.start)
		}
	}
	return last
}

// FirstEnd returns when the first call that started from from on and ended so
// came back; false where there is none.
func (r *Result) FirstEnd(o breaker.Outcome, from time.Duration) (time.Duration, bool) {
	first := int64(-1)
	for _, c := range r.calls[r.index(from):] {
		if c.outcome == o && (first < 0 || c.end < first) {
			first = c.end
		}
	}
	return micro(first), first >= 0
}

// LatencyP returns the quantile q of the latency of successes that started in
// [from, to).
func (r *Result) LatencyP(q float64, from, to time.Duration) time.Duration {
	var all []int64
	for _, c := range r.calls[r.index(from):r.index(to)] {
		if c.outcome == breaker.OK {
			all = append(all, c.end-c.start)
		}
	}
	return quantile(all, q)
}

// quantile returns the quantile q of all, 0 where there is none.
func quantile(all []int64, q float64) time.Duration {
	if len(all) == 0 {
		return 0
	}
	all = slices.Clone(all)
	slices.Sort(all)
	return micro(all[min(len(all)-1, int(q*float64(len(all))))])
}

// ok returns how many of the calls that started in [from, to) succeeded.
func (r *Result) ok(from, to time.Duration) int { return r.Of(breaker.OK, from, to) }

// Openings returns how often the breaker opened in [from, to), failed probes
// included.
func (r *Result) Openings(from, to time.Duration) (n int) {
	for _, e := range r.Events {
		if e.To == "open" && e.From != "open" && e.At >= from && e.At < to {
			n++
		}
	}
	return n
}

// Enters returns when the breaker first entered a phase from from on.
func (r *Result) Enters(phase string, from time.Duration) (time.Duration, bool) {
	for _, e := range r.Events {
		if e.To == phase && e.From != phase && e.At >= from {
			return e.At, true
		}
	}
	return 0, false
}

// Final returns when the given share of the final jobs was final; 0 where none is.
func (r *Result) Final(share float64) time.Duration {
	if len(r.finals) == 0 {
		return 0
	}
	return micro(r.finals[max(0, min(len(r.finals)-1, int(share*float64(len(r.finals)))-1))])
}

// Gap returns the longest time without a start within [from, to).
func (r *Result) Gap(from, to time.Duration) time.Duration {
	last, most := from.Microseconds(), int64(0)
	for _, c := range r.calls[r.index(from):r.index(to)] {
		most, last = max(most, c.start-last), c.start
	}
	return micro(max(most, to.Microseconds()-last))
}
