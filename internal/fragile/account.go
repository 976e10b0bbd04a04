package fragile

import (
	"hash/maphash"
	"math"
	"time"
)

const (
	// maxJobs bounds how many different keys are followed (about 50 bytes each).
	maxJobs = 2_000_000
	// maxSeconds bounds the series, a day.
	maxSeconds = 24 * 60 * 60
	// maxBy bounds how many values of CountBy are told apart.
	maxBy = 1000
	// maxRing bounds what a mostIn remembers.
	maxRing = 1 << 20
)

// Call is one call as the provider saw it.
type Call struct {
	// At is the arrival, counted from the provider's start or last reset.
	At time.Duration `json:"at_ns"`
	// Took is the time from arrival to the end of the answer.
	Took time.Duration `json:"took_ns"`
	// Key is the Idempotency-Key.
	Key string `json:"key,omitzero"`
	// Status is what was answered, 0 for none.
	Status int `json:"status"`
	// End says how it ended.
	End End `json:"end"`
}

// End says how a call ended, seen from the provider.
type End string

const (
	// Answered: with Status; 200 is a success.
	Answered End = "answered"
	// RefusedRate: 429, the limit was reached.
	RefusedRate End = "refused_rate"
	// RefusedInFlight: 429, too many in flight.
	RefusedInFlight End = "refused_in_flight"
	// WasCut: accepted, the connection was reset by the script.
	WasCut End = "cut"
	// WasLost: done, the answer was lost by the script.
	WasLost End = "lost"
	// WasDown: not accepted, an outage.
	WasDown End = "down"
	// Left: the caller went away (or the server was closed) before the answer.
	Left End = "left"
)

// Second is what arrived in one second of the provider's time.
type Second struct {
	Arrived   int `json:"arrived"`
	Accepted  int `json:"accepted"`
	Refused   int `json:"refused"`
	Succeeded int `json:"succeeded"`
}

// account is all that Report is made from. Everything is counted as it
// happens, in memory that does not grow with the number of calls but for the
// followed keys. Not safe for several goroutines; the Provider's lock guards it.
type account struct {
	calls, accepted int
	ends            map[End]int
	statuses        map[int]int
	inFlight, peak  int

	// Arrivals of the first and the last accepted call, and between them.
	first, last        time.Duration
	gaps               welford
	minGap             time.Duration
	arrivedIn, takenIn mostIn

	seed                  maphash.Seed
	jobs                  map[uint64]jobSeen
	attempts, maxAttempts int
	succeeded, twice      int
	withoutKey, keylessOK int
	notFollowed           int

	by map[string]int // calls by the value of CountBy

	seconds          []Second
	recent           recentRate
	log              []Call // a ring of logSize
	logNext, logSize int
}

type jobSeen struct{ attempts, successes uint32 }

func newAccount(window time.Duration, remember int) *account {
	return &account{
		ends: map[End]int{}, statuses: map[int]int{}, jobs: map[uint64]jobSeen{}, by: map[string]int{},
		arrivedIn: mostIn{window: window}, takenIn: mostIn{window: window},
		seed: maphash.MakeSeed(), logSize: remember,
	}
}

// arrive books an arrival; the answer to it comes by accept or end.
func (a *account) arrive(now time.Duration, key string) {
	a.calls++
	a.arrivedIn.add(now)
	a.recent.add(now)
	a.second(now, func(s *Second) { s.Arrived++ })
	if key == "" {
		a.withoutKey++
		return
	}
	h := maphash.String(a.seed, key)
	j, known := a.jobs[h]
	if !known && len(a.jobs) >= maxJobs {
		a.notFollowed++
		return
	}
	j.attempts++
	a.attempts++
	a.maxAttempts = max(a.maxAttempts, int(j.attempts))
	a.jobs[h] = j
}

// countBy counts a call under a value of CountBy; beyond maxBy of them under "".
func (a *account) countBy(value string) {
	if _, known := a.by[value]; !known && len(a.by) >= maxBy {
		value = ""
	}
	a.by[value]++
}

func (a *account) accept(now time.Duration) {
	if a.accepted == 0 {
		a.first = now
	} else {
		gap := now - a.last
		a.gaps.add(float64(gap))
		if a.accepted == 1 || gap < a.minGap {
			a.minGap = gap
		}
	}
	a.accepted++
	a.last = now
	a.inFlight++
	a.peak = max(a.peak, a.inFlight)
	a.takenIn.add(now)
	a.second(now, func(s *Second) { s.Accepted++ })
}

// end books how a call that arrived at c.At ended.
func (a *account) end(c Call, accepted bool) {
	a.ends[c.End]++
	if c.Status != 0 {
		a.statuses[c.Status]++
	}
	if accepted {
		a.inFlight--
	} else {
		a.second(c.At, func(s *Second) { s.Refused++ })
	}
	if c.End == WasLost || c.End == Answered && c.Status < 300 {
		a.success(c)
	}
	if a.logSize > 0 {
		if len(a.log) < a.logSize {
			a.log = append(a.log, c)
		} else {
			a.log[a.logNext] = c
			a.logNext = (a.logNext + 1) % a.logSize
		}
	}
}

func (a *account) success(c Call) {
	a.second(c.At, func(s *Second) { s.Succeeded++ })
	if c.Key == "" {
		a.keylessOK++
		return
	}
	h := maphash.String(a.seed, c.Key)
	j, known := a.jobs[h]
	if !known {
		return
	}
	j.successes++
	switch j.successes {
	case 1:
		a.succeeded++
	case 2:
		a.twice++
	}
	a.jobs[h] = j
}

func (a *account) second(at time.Duration, add func(*Second)) {
	i := int(at / time.Second)
	if i >= maxSeconds {
		return
	}
	for len(a.seconds) <= i {
		a.seconds = append(a.seconds, Second{})
	}
	add(&a.seconds[i])
}

// remembered returns the calls kept, in the order in which they ended.
func (a *account) remembered() []Call {
	return append(append([]Call(nil), a.log[a.logNext:]...), a.log[:a.logNext]...)
}

// welford keeps mean and variance of a series in one pass (B. P. Welford,
// Technometrics 4, 1962).
type welford struct {
	n        int
	mean, m2 float64
}

func (w *welford) add(x float64) {
	w.n++
	d := x - w.mean
	w.mean += d / float64(w.n)
	w.m2 += d * (x - w.mean)
}

// cv is the coefficient of variation, population standard deviation / mean;
// 0 for fewer than two values or a mean of 0.
func (w *welford) cv() float64 {
	if w.n < 2 || w.mean == 0 {
		return 0
	}
	return math.Sqrt(w.m2/float64(w.n)) / w.mean
}

// mostIn counts the most times in any half-open window (t-window, t], exactly,
// up to maxRing within one window.
type mostIn struct {
	window time.Duration
	times  []time.Duration // a ring: count times from head on
	head   int
	count  int
	most   int
}

func (m *mostIn) add(now time.Duration) {
	for m.count > 0 && now-m.times[m.head] >= m.window {
		m.drop()
	}
	if m.count == maxRing {
		m.drop()
	}
	if m.count == len(m.times) {
		grown := make([]time.Duration, max(16, 2*len(m.times)))
		n := copy(grown, m.times[m.head:])
		copy(grown[n:], m.times[:m.head])
		m.times, m.head = grown, 0
	}
	m.times[(m.head+m.count)%len(m.times)] = now
	m.count++
	m.most = max(m.most, m.count)
}

func (m *mostIn) drop() {
	m.head = (m.head + 1) % len(m.times)
	m.count--
}

// recentRate counts the last second in tenths.
type recentRate struct {
	tenth [11]struct {
		id    int64
		count int
	}
}

const tenthLen = 100 * time.Millisecond

func (r *recentRate) add(now time.Duration) {
	id := int64(now / tenthLen)
	t := &r.tenth[id%int64(len(r.tenth))]
	if t.id != id {
		t.id, t.count = id, 0
	}
	t.count++
}

// lastSecond returns the count of the ten full tenths before now.
func (r *recentRate) lastSecond(now time.Duration) int {
	id, sum := int64(now/tenthLen), 0
	for _, t := range r.tenth {
		if t.id < id && t.id >= id-10 {
			sum += t.count
		}
	}
	return sum
}
