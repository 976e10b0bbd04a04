package simulate

import (
	"time"

	"github.com/penstock-io/penstock/breaker"
)

// job is one job, from its arrival to its end.
type job struct {
	id       string
	due, end int64 // end: max_age after due
	// calls really made, attempts spent, failures seen, throttles and deferrals.
	calls, attempts, failures, throttles, deferrals int
	wake                                            int64 // when it may be taken again
}

// jobs is what waits, as the queue keeps it: those never called in the order
// in which they came, the others by the time when they are due again.
type jobs struct {
	fresh []*job
	later []*job // a heap by wake
	// made and final count jobs.
	made, final int
	// demand is over: no more will come.
	over bool
}

func (q *jobs) put(j *job) {
	q.later = append(q.later, j)
	h := q.later
	for i := len(h) - 1; i > 0 && h[i].wake < h[(i-1)/2].wake; i = (i - 1) / 2 {
		h[i], h[(i-1)/2] = h[(i-1)/2], h[i]
	}
}

// take returns the next job that may go: one that is due again before one that
// is new, since the budget, not the order, keeps retries in their place.
func (q *jobs) take(now int64) *job {
	if len(q.later) > 0 && q.later[0].wake <= now {
		h := q.later
		top, last := h[0], len(h)-1
		h[0] = h[last]
		h = h[:last]
		for i := 0; ; {
			c := 2*i + 1
			if c >= last {
				break
			}
			if c+1 < last && h[c+1].wake < h[c].wake {
				c++
			}
			if h[i].wake <= h[c].wake {
				break
			}
			h[i], h[c] = h[c], h[i]
			i = c
		}
		q.later = h
		return top
	}
	if len(q.fresh) > 0 {
		j := q.fresh[0]
		q.fresh = q.fresh[1:]
		return j
	}
	return nil
}

// ready reports whether anything may be taken.
func (q *jobs) ready(now int64) bool {
	return len(q.fresh) > 0 || len(q.later) > 0 && q.later[0].wake <= now
}

// waiting is how many jobs wait, now or for later.
func (q *jobs) waiting() int { return len(q.fresh) + len(q.later) }

// demand makes jobs, one entry of the scenario after the other.
func (s *sim) demand() {
	for i, d := range s.sc.Demand {
		end := s.sc.Duration
		if i+1 < len(s.sc.Demand) {
			end = min(end, s.sc.Demand[i+1].At)
		}
		s.at(d.At.Microseconds(), func() { s.arrivals(d, end.Microseconds(), i+1 == len(s.sc.Demand)) })
	}
}

func (s *sim) arrivals(d Demand, end int64, last bool) {
	n, per := 0, 0.0
	if r := d.Rate.PerSec(); r > 0 {
		per = 1e6 / r
	}
	next := float64(s.now)
	var arrive func()
	plan := func() {
		if d.Even {
			next += per
		} else {
			next += per * s.rng.ExpFloat64()
		}
		if per == 0 || next >= float64(end) || d.Jobs > 0 && n >= d.Jobs {
			s.queue.over = s.queue.over || last
			return
		}
		s.at(int64(next), arrive)
	}
	arrive = func() {
		n++
		s.queue.made++
		j := &job{id: "j" + itoa(s.queue.made), due: s.now, end: s.now + s.sc.Retry.MaxAge.Microseconds()}
		s.queue.fresh = append(s.queue.fresh, j)
		s.nudge()
		plan()
	}
	plan()
}

// ended decides what becomes of a job after a call: CONTROL.md's table.
func (s *sim) ended(j *job, r reply) {
	closed := s.control.Phase == "" || s.control.Phase == breaker.Closed{}.Name()
	delay := time.Duration(0)
	switch r.outcome {
	case breaker.OK:
		s.finish(j, "succeeded")
		if r.status >= 400 {
			s.res.Refused++
		}
		return
	case breaker.Throttled:
		delay = max(s.backoff(j.throttles), r.retryAfter)
		j.throttles++
	default:
		j.failures++
		if closed {
			j.attempts++
			if j.attempts >= s.sc.Retry.Attempts {
				s.finish(j, "dead")
				return
			}
		}
		delay = s.backoff(j.failures - 1)
		if !closed {
			open := micro(max(0, s.control.OpenUntil-s.clock()))
			delay = max(delay, open+time.Duration(s.rng.Float64()*float64(10*time.Second)))
		}
	}
	s.later(j, delay)
}

// backoff draws the delay before a retry: full jitter, from the scenario's seed.
func (s *sim) backoff(n int) time.Duration {
	return time.Duration(s.rng.Float64() * float64(s.sc.backoff().Ceiling(n)))
}

// later puts a job back, to be taken again after d.
func (s *sim) later(j *job, d time.Duration) {
	j.wake = s.now + max(1000, d.Microseconds())
	if j.wake >= j.end {
		s.at(j.end, func() { s.finish(j, "expired") })
		return
	}
	s.queue.put(j)
	s.at(j.wake, s.nudge)
}

// finish ends a job.
func (s *sim) finish(j *job, how string) {
	s.queue.final++
	r := s.res
	switch how {
	case "succeeded":
		r.Succeeded++
		r.waits = append(r.waits, s.now-j.due)
	case "dead":
		r.Dead++
	case "expired":
		r.Expired++
	}
	r.MostCalls = max(r.MostCalls, j.calls)
	r.MostAttempts = max(r.MostAttempts, j.attempts)
	if j.attempts > j.failures {
		r.OverSpent++
	}
	r.Attempts += j.attempts
	r.finals = append(r.finals, s.now)
}
