package fragile

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"
)

// run is one rehearsal, from start or reset on: the script's state, the
// limiters and the account. The Provider's lock guards it.
type run struct {
	cfg      Config
	zero     time.Time
	rnd      *rand.Rand
	troubles []Trouble
	struck   []int // how many calls each trouble struck
	limiter  limiter
	turns    []time.Duration // when the limit changes, ascending, still to come
	free     []time.Duration // when each server is free
	acc      *account
}

func newRun(cfg Config, zero time.Time) *run {
	r := &run{
		cfg: cfg, zero: zero,
		rnd:      rand.New(rand.NewPCG(cfg.Seed, 0x70656e73746f636b)),
		troubles: slices.Clone(cfg.Timeline), struck: make([]int, len(cfg.Timeline)),
		acc: newAccount(cfg.window(), cfg.Remember),
	}
	history := cfg.Limit.N
	for _, t := range r.troubles {
		history = max(history, t.Rate.N)
	}
	r.limiter = newLimiter(cfg.Kind, cfg.Limit, cfg.Burst, history)
	r.turns = r.boundaries()
	return r
}

// boundaries lists the times at which the rate limit may change, ascending.
func (r *run) boundaries() []time.Duration {
	var list []time.Duration
	for _, t := range r.troubles {
		if t.What == Limit || t.What == Outage {
			list = append(list, t.From)
			if t.To != 0 {
				list = append(list, t.To)
			}
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// inject adds a trouble whose times count from now.
func (r *run) inject(now time.Duration, t Trouble) {
	r.advance(now)
	t.From += now
	if t.To != 0 {
		t.To += now
	}
	r.troubles = append(r.troubles, t)
	r.struck = append(r.struck, 0)
	// Boundaries already behind would be applied again: only those to come,
	// and the new one's, which may be now.
	r.turns = slices.DeleteFunc(r.boundaries(), func(b time.Duration) bool { return b < now })
}

// advance applies the changes of the limit up to now, each at its own time.
func (r *run) advance(now time.Duration) {
	for len(r.turns) > 0 && r.turns[0] <= now {
		r.limiter.change(r.turns[0], r.rateAt(r.turns[0]))
		r.turns = r.turns[1:]
	}
}

func (r *run) rateAt(at time.Duration) Rate {
	rate := r.cfg.Limit
	for _, t := range r.troubles {
		if t.What == Limit && t.holds(at) {
			rate = t.Rate
		}
	}
	return rate
}

// number is the value in force of in-flight or servers.
func (r *run) number(what What, base int, now time.Duration) int {
	for _, t := range r.troubles {
		if t.What == what && t.holds(now) {
			base = t.N
		}
	}
	return base
}

func (r *run) down(at time.Duration) bool {
	return slices.ContainsFunc(r.troubles, func(t Trouble) bool { return t.What == Outage && t.holds(at) })
}

// allowed is how many calls the limit has room for from one time to another,
// both ends included: 1 + the integral of the rate, an outage counting as
// none. 0 where there was no limit at some time between.
func (r *run) allowed(from, to time.Duration) float64 {
	sum, at := 1.0, from
	step := func(until time.Duration) bool {
		if until <= at {
			return true
		}
		rate := r.rateAt(at)
		if !r.down(at) {
			if rate.IsZero() {
				return false
			}
			sum += rate.PerSecond() * (until - at).Seconds()
		}
		at = until
		return true
	}
	for _, b := range r.boundaries() {
		if b < to && !step(b) {
			return 0
		}
	}
	if !step(to) || from == to && r.rateAt(from).IsZero() {
		return 0
	}
	return sum
}

// ticket is what the run decided about one call.
type ticket struct {
	run      *run
	call     Call // At, Key; Status and End as they will be if nothing intervenes
	accepted bool
	hang     bool
	delay    time.Duration
	reply    string // Retry-After, "" for none
}

// arrive decides about the call that arrives now.
func (r *run) arrive(now time.Duration, key string) ticket {
	r.advance(now)
	r.acc.arrive(now, key)
	t := ticket{run: r, call: Call{At: now, Key: key}}
	if r.down(now) {
		t.call.End = WasDown
		return t
	}
	if most := r.number(InFlight, r.cfg.InFlight, now); most > 0 && r.acc.inFlight >= most {
		return r.refuse(t, RefusedInFlight, time.Second)
	}
	if wait, ok := r.limiter.admit(now); !ok {
		return r.refuse(t, RefusedRate, wait)
	}
	r.acc.accept(now)
	t.accepted = true
	t.call.Status, t.call.End = 200, Answered
	t.delay = r.cfg.Latency.draw(r.rnd)
	r.strike(now, &t)
	t.delay = r.serve(now, t.delay)
	return t
}

func (r *run) refuse(t ticket, end End, wait time.Duration) ticket {
	t.call.Status, t.call.End = 429, end
	t.reply = r.cfg.RetryAfter.value(time.Now(), wait)
	return t
}

// strike lets the troubles of the script have the call. Slow adds up; of the
// others the first that strikes wins.
func (r *run) strike(now time.Duration, t *ticket) {
	decided := false
	for i, tr := range r.troubles {
		if !tr.strikes() || !tr.holds(now) || tr.Times > 0 && r.struck[i] >= tr.Times || decided && tr.What != Slow {
			continue
		}
		if tr.Share > 0 && tr.Share < 1 && r.rnd.Float64() >= tr.Share {
			continue
		}
		r.struck[i]++
		decided = decided || tr.What != Slow
		switch tr.What {
		case Slow:
			t.delay += tr.Extra
		case Hang:
			t.hang = true
		case Cut:
			t.call.Status, t.call.End = 0, WasCut
		case Lose:
			t.call.Status, t.call.End = 0, WasLost
		case Fail:
			t.call.Status = cmp.Or(tr.Status, 500)
			form := tr.RetryAfter
			if form == "" && t.call.Status == 429 {
				form = cmp.Or(r.cfg.RetryAfter, ReplySeconds)
			}
			if form != "" {
				t.reply = form.value(time.Now(), time.Second)
			}
		}
	}
}

// serve returns when a call that needs so much work will be done: at once
// where there are servers enough, else when its turn on the first free one ends.
func (r *run) serve(now, work time.Duration) time.Duration {
	n := r.number(Servers, r.cfg.Servers, now)
	if n == 0 {
		return work
	}
	for len(r.free) > n {
		// Fewer servers: those free the latest stay, so no work is forgotten.
		least := slices.Index(r.free, slices.Min(r.free))
		r.free = slices.Delete(r.free, least, least+1)
	}
	for len(r.free) < n {
		r.free = append(r.free, 0)
	}
	first := slices.Index(r.free, slices.Min(r.free))
	r.free[first] = max(now, r.free[first]) + work
	return r.free[first] - now
}
