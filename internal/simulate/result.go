package simulate

import (
	"time"

	"github.com/penstock-io/penstock/breaker"
)

// Result is what came of a simulation.
type Result struct {
	Scenario Scenario
	// Jobs that came, and what became of them by the end.
	Jobs, Succeeded, Dead, Expired, Waiting int
	// Refused are jobs that ended with a status of the 400s.
	Refused int
	// Attempts spent by all final jobs; MostAttempts and MostCalls by one.
	Attempts, MostAttempts, MostCalls int
	// OverSpent are jobs with more attempts than failures.
	OverSpent int
	// Deferrals for want of a token.
	Deferrals int
	// Counts of calls by what came back.
	Counts breaker.Counts
	// Permits still held in the gate at the end.
	Permits int
	// Cuts of the ceiling.
	Cuts int
	// Changes of the breaker's state, cuts, and what is shed.
	Events []Event
	// Points, one for each tick of the law or each second.
	Points []Point
	// Took is how long the jobs took: the end of the last one that became final.
	Took time.Duration

	calls  []call
	finals []int64 // when each final job ended, in order
	waits  []int64 // of jobs that succeeded, from due to done
}

// call is one call as the provider saw it.
type call struct {
	start, end int64
	outcome    breaker.Outcome
	// first attempt of its job; probe of a half-open breaker; contended: first
	// attempts were waiting when it started.
	first, probe, contended bool
}

// Event is a change worth a line.
type Event struct {
	At       time.Duration
	From, To string
	Reason   string
}

// Point is the state at a moment.
type Point struct {
	At time.Duration
	// Phase of the breaker.
	Phase string
	// Rate in force, in calls a second; 0 while nobody goes, or none limits.
	Rate, Ceiling, Factor float64
	// InFlight now, and the limit on it in force (0: none).
	InFlight, Concurrency int
	// Waiting jobs.
	Waiting int
}

func newResult(s Scenario) *Result { return &Result{Scenario: s} }

// called keeps a call that starts now.
func (s *sim) called(a *ask, r reply) int {
	s.res.Counts.Starts++
	s.res.Counts.Add(r.outcome)
	s.res.calls = append(s.res.calls, call{
		start: s.now, end: s.now + r.after, outcome: r.outcome, first: a.first,
		probe: s.gate.Control.Phase == "half_open", contended: len(s.queue.fresh) > 0,
	})
	return len(s.res.calls) - 1
}

// sample keeps the state as it is now.
func (r *Result) sample(s *sim) {
	st := s.sensor.state
	c := st.Control(s.sc.Law)
	p := Point{
		At: micro(s.now), Phase: c.Phase, Ceiling: st.Ceiling.Rate, Factor: st.Factor,
		InFlight: len(s.gate.Permits), Concurrency: c.InFlight, Waiting: s.queue.waiting(),
	}
	switch {
	case c.Phase != breaker.Closed{}.Name():
	case c.Rate > 0:
		p.Rate = c.Rate
	default:
		p.Rate = s.sc.Law.Rate
	}
	r.Points = append(r.Points, p)
}

// note keeps a change.
func (r *Result) note(s *sim, was breaker.State) {
	st := s.sensor.state
	if st.Ceiling.CutAt != was.Ceiling.CutAt {
		r.Cuts++
	}
	from, to := was.Control(s.sc.Law).Phase, st.Control(s.sc.Law).Phase
	r.Events = append(r.Events, Event{At: micro(s.now), From: from, To: to, Reason: st.Reason})
}

// end sums up.
func (r *Result) end(s *sim) {
	r.Jobs = s.queue.made
	r.Waiting = s.queue.made - s.queue.final
	r.Took = r.Final(1)
	r.Permits = len(s.gate.Permits)
}
