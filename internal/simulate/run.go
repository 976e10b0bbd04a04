package simulate

import (
	"fmt"

	"github.com/penstock-io/penstock/retrybudget"
)

// sim is one run.
type sim struct {
	*engine
	sc      Scenario
	half    int64 // half a round trip
	limits  GateLimits
	gate    *Gate
	control GateControl
	model   *model
	queue   jobs
	sensor  sensor
	workers []*worker
	res     *Result
}

// Run runs s and returns what came of it. The same scenario gives the same
// result. Its error wraps ErrScenario; a run itself cannot fail.
func Run(s Scenario) (*Result, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	s = s.Normal()
	s.Law = s.Law.Normal()
	r := newSim(s)
	r.run(s.Duration.Microseconds(), func() bool {
		return s.UntilDone && r.queue.over && r.queue.final == r.queue.made
	})
	r.res.end(r)
	return r.res, nil
}

func newSim(s Scenario) *sim {
	l := s.Limits.shaper()
	r := &sim{
		engine: newEngine(s.Seed), sc: s, half: s.Fleet.RoundTrip.Microseconds() / 2,
		limits: GateLimits{
			Version: 1, N: l.Rate.N, Per: l.Rate.Per.Microseconds(), Headroom: max(0, l.Headroom).Microseconds(),
			Burst: int64(l.Burst), Concurrency: int64(l.Concurrency), Interval: l.Interval().Microseconds(),
		},
		res: newResult(s),
	}
	r.gate = NewGate(r.limits, retrybudget.Budget{})
	r.model = newModel(r, s.Provider)
	r.model.schedule(s.Timeline)
	for i := range s.Fleet.Workers {
		w := &worker{sim: r, name: fmt.Sprintf("w%d", i+1)}
		r.workers = append(r.workers, w)
		r.after(r.rng.Int64N(s.Law.Tick.Microseconds()), func() { r.flush(w) })
	}
	r.demand()
	return r
}

// shut reports whether nobody may be called now, as the inlet's script sees it.
func (s *sim) shut() bool {
	g := s.gate
	return g.Paused || g.Held > s.clock() || g.Control.Phase == "open"
}

// nudge wakes one process that has room: what is published at enqueue reaches
// all, and the quickest takes the job.
func (s *sim) nudge() {
	if s.shut() {
		return
	}
	first := s.rng.IntN(len(s.workers))
	for i := range s.workers {
		w := s.workers[(first+i)%len(s.workers)]
		if !w.dead && len(w.waiting) < w.parked() {
			w.inlet()
			return
		}
	}
}

// woken hears what the gate published.
func (s *sim) woken(who string) {
	if who == "" {
		return
	}
	s.after(s.half, func() {
		for _, w := range s.workers {
			if who == "*" || who == w.name {
				w.notBefore = 0
				w.inlet()
				w.look()
			}
		}
	})
}

// refused hears that a job cannot go for its own sake.
func (s *sim) refused(j *job, v GateVerdict) {
	switch v.Reason {
	case "account":
		j.deferrals++
		s.res.Deferrals++
		after := micro(v.After)
		s.later(j, after+micro(s.rng.Int64N(max(1, min(after/4, micro(10_000_000)).Microseconds()))))
	case "running":
		s.later(j, micro(1_000_000))
	case "poison":
		s.finish(j, "dead")
	default:
		s.finish(j, "succeeded")
	}
}

// kill ends workers for good. Their jobs come back when another finds that
// they have no heartbeat.
func (s *sim) kill(n int) {
	for _, w := range s.workers {
		if n == 0 {
			return
		}
		if w.dead {
			continue
		}
		n--
		w.dead = true
		var lost []*job
		for _, a := range append(w.waiting, w.live...) {
			lost = append(lost, a.job)
		}
		s.after(reclaimAfter, func() {
			for _, j := range lost {
				s.later(j, 0)
			}
		})
	}
}
