package simulate

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/penstock-io/penstock/breaker"
)

// window is what one process saw since its last flush.
type window struct {
	counts  []genCount
	results []result // in the order in which they came, for the row
}

type genCount struct {
	gen uint64
	breaker.Counts
	lat breaker.Latencies
}

type result struct {
	gen     uint64
	outcome breaker.Outcome
}

func (w *window) of(gen uint64) *genCount {
	for i := range w.counts {
		if w.counts[i].gen == gen {
			return &w.counts[i]
		}
	}
	w.counts = append(w.counts, genCount{gen: gen})
	return &w.counts[len(w.counts)-1]
}

func (w *window) start(gen uint64) { w.of(gen).Starts++ }

func (w *window) add(gen uint64, r reply) {
	c := w.of(gen)
	c.Add(r.outcome)
	if r.outcome == breaker.OK {
		c.lat.Add(micro(r.after))
	}
	w.results = append(w.results, result{gen, r.outcome})
}

// sensor is what internal/health keeps in Redis: shared buckets, the row, the
// law's state.
type sensor struct {
	buckets []breaker.Bucket // oldest first
	row     breaker.Row
	state   breaker.State
	ticked  int64
	traffic int64 // when anything was last seen
}

// flush puts a process's window into the shared buckets, and steps the law
// where a tick is due.
func (s *sim) flush(w *worker) {
	if w.dead {
		return
	}
	if len(w.window.counts) > 0 {
		s.sensor.traffic = s.clock()
		at := s.clockTime().Truncate(s.sc.Law.Tick)
		for _, c := range w.window.counts {
			s.sensor.merge(at, c)
		}
		for _, r := range w.window.results {
			s.sensor.row = s.sensor.row.Add(r.outcome, r.gen, s.sensor.state.Since)
		}
		w.window.counts, w.window.results = w.window.counts[:0], w.window.results[:0]
	}
	if s.sc.Adaptive == "on" {
		s.tick()
	}
	s.after(s.sc.Law.Tick.Microseconds(), func() { s.flush(w) })
}

func (n *sensor) merge(at time.Time, c genCount) {
	i, found := slices.BinarySearchFunc(n.buckets, c.gen, func(b breaker.Bucket, gen uint64) int {
		return cmp.Or(b.At.Compare(at), cmp.Compare(b.Generation, gen))
	})
	if !found {
		n.buckets = slices.Insert(n.buckets, i, breaker.Bucket{At: at, Generation: c.gen})
	}
	n.buckets[i].Merge(c.Counts)
	n.buckets[i].Latencies.Merge(&c.lat)
}

// trim forgets what the law does not look at.
func (n *sensor) trim(now time.Time, law breaker.Config) {
	n.buckets = slices.DeleteFunc(n.buckets, func(b breaker.Bucket) bool { return b.At.After(now) })
	reach := max(law.Window, law.Refusals.Window, law.Refusals.RateLong, law.Refusals.Settle) + 2*law.Tick
	starts, returned := 0, 0
	for i := len(n.buckets) - 1; i >= 0; i-- {
		age := now.Sub(n.buckets[i].At)
		if age > law.StretchMax+law.Tick || age > reach && starts >= law.StretchCalls && returned >= law.StretchCalls {
			n.buckets = slices.Delete(n.buckets, 0, i+1)
			return
		}
		starts += n.buckets[i].Starts
		returned += n.buckets[i].Returned()
	}
}

// tick steps the law where it is due, and publishes the control record.
func (s *sim) tick() {
	n := &s.sensor
	now := s.clock()
	busy := now-n.traffic < s.sc.Law.Window.Microseconds() || s.queue.waiting() > 0 || !n.state.AtRest()
	if !busy || now >= n.ticked && now-n.ticked < s.sc.Law.Tick.Microseconds() {
		return
	}
	n.ticked = now
	n.trim(s.clockTime(), s.sc.Law)
	g := s.gate
	sample := breaker.Sample{
		Buckets: n.buckets, Row: n.row, InFlight: len(g.Permits), Chance: s.rng.Float64(),
	}
	if g.Held > 0 {
		sample.Held = breaker.Hold{Until: time.UnixMicro(g.Held).UTC(), Capped: g.Cautious == "retry_after"}
	}
	if g.Probe != "" && g.ProbeUntil > 0 {
		sample.Probe = breaker.Lease{Generation: uint64(g.ProbeSince), Until: time.UnixMicro(g.ProbeUntil).UTC()}
	}
	was := n.state
	n.state = breaker.Step(s.clockTime(), n.state, sample, s.sc.Law)
	s.publish(was)
}

// publish makes the law's decision the gate's.
func (s *sim) publish(was breaker.State) {
	c := s.sensor.state.Control(s.sc.Law)
	g := GateControl{
		Phase: c.Phase, Generation: int64(c.Generation), Since: int64(c.Since), InFlight: int64(c.InFlight),
		ProbeLease: c.ProbeLease.Microseconds(), ProbeApart: c.ProbeApart.Microseconds(), SlowStart: c.SlowStart,
	}
	if c.Rate > 0 {
		g.Interval = int64(math.Ceil(1e6 / c.Rate))
	}
	if !c.OpenUntil.IsZero() {
		g.OpenUntil = c.OpenUntil.UnixMicro()
	}
	s.control, s.gate.Control = g, g
	s.res.sample(s)
	if s.sensor.state.Changed != was.Changed || s.sensor.state.Reason != was.Reason {
		s.res.note(s, was)
	}
	if s.sensor.state.Since != was.Since {
		s.after(s.half, func() { s.woken("*") })
	}
}
