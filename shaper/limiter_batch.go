package shaper

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// maxBatched is how many clients a BatchLimitStore remembers; beyond it every
// question goes to the store.
const maxBatched = 100_000

// BatchLimitStore takes units ahead for limits with Ask.SyncEvery, so that
// most questions cost no round trip. What one process takes ahead for one
// client is at most what the rate gives in SyncEvery,
//
//	b = max(cost, N·SyncEvery/Per),
//
// it grows only with the client's demand, is used within SyncEvery, and what
// is not used is given back with the next question. So, over I processes:
//
//   - no window of Per holds more than the algorithm's own bound + I·b;
//   - a client is refused at most I·b units early in a period.
//
// A refusal is remembered for at most SyncEvery. Safe for several goroutines;
// it starts none. Sliding logs and concurrency are exact or nothing, and
// refuse SyncEvery.
type BatchLimitStore struct {
	store LimitStore
	now   func() time.Time

	mu     sync.Mutex
	leases map[cellKey]*lease
	sweep  time.Time
}

// lease is what a process has taken ahead for one client.
type lease struct {
	mu    sync.Mutex
	left  int64     // units not used yet
	at    int64     // store's time when they were taken
	since time.Time // the same, by our clock
	until time.Time // to be used before
	size  int64     // of the batch
	seen  Decision  // the store's last answer
	// denied: what was refused, and until when nobody needs to ask again.
	denied      int64
	deniedUntil time.Time
	retry       time.Time
}

// NewBatchLimitStore returns a store in front of another.
func NewBatchLimitStore(store LimitStore) *BatchLimitStore {
	return &BatchLimitStore{store: store, now: time.Now, leases: map[cellKey]*lease{}}
}

// CheckSync refuses a SyncEvery that has no error bound for p; the error
// wraps ErrBadLimit. Zero is fine.
func CheckSync(p Policy, every time.Duration) error {
	switch {
	case every == 0:
		return nil
	case every < time.Millisecond:
		return fmt.Errorf("%w: sync_every must be at least 1ms, not %s", ErrBadLimit, every)
	case p.Algorithm == SlidingLog || p.Algorithm == Concurrency:
		return fmt.Errorf("%w: %s is exact or nothing; leave sync_every out, or use %s", ErrBadLimit, p.Algorithm, SlidingCounter)
	case every > p.Rate.Per/2:
		return fmt.Errorf("%w: sync_every must be at most half of the rate's period %s, not %s: the error would be as large as the limit", ErrBadLimit, p.Rate.Per, every)
	}
	return nil
}

// ahead is the most that is taken at once.
func (a Ask) ahead() int64 {
	return max(a.Cost, int64(float64(a.Policy.Rate.N)*a.SyncEvery.Seconds()/a.Policy.Rate.Per.Seconds()))
}

// patience is how long a refusal is remembered: until the cost could be
// granted, or a little longer, so that a batch gathers, but never so long that
// a bucket would overflow meanwhile.
func (a Ask) patience(wait time.Duration) time.Duration {
	if wait == Never || wait >= a.SyncEvery {
		return a.SyncEvery
	}
	gather := a.SyncEvery / 4
	if p := a.Policy; p.bucket() {
		gather = min(gather, time.Duration(float64(p.Rate.Per)*float64(p.Burst)/float64(2*p.Rate.N)))
	}
	return max(wait, gather)
}

// Decide implements LimitStore.
func (s *BatchLimitStore) Decide(ctx context.Context, asks []Ask) ([]Decision, error) {
	asks, err := normalAsks(asks)
	if err != nil {
		return nil, err
	}
	now := s.now()
	ls := make([]*lease, len(asks))
	batched := false
	for i, a := range asks {
		if err := CheckSync(a.Policy, a.SyncEvery); err != nil {
			return nil, fmt.Errorf("limit %q: %w", a.Limit, err)
		}
		if a.SyncEvery > 0 {
			ls[i] = s.lease(cellKey{a.Limit, a.Key}, now)
			batched = batched || ls[i] != nil
		}
	}
	if !batched {
		return s.store.Decide(ctx, asks)
	}
	defer lockLeases(asks, ls)()
	return decideBatched(ctx, s.store, asks, ls, now)
}

// lease returns the client's lease; nil where there are too many.
func (s *BatchLimitStore) lease(k cellKey, now time.Time) *lease {
	s.mu.Lock()
	defer s.mu.Unlock()
	l, ok := s.leases[k]
	if !ok {
		if now.After(s.sweep) {
			s.sweepLocked(now)
		}
		if len(s.leases) >= maxBatched {
			return nil
		}
		l = &lease{}
		s.leases[k] = l
	}
	return l
}

// sweepLocked forgets leases that say nothing more. Units that were not used
// stay taken until the algorithm forgets them.
func (s *BatchLimitStore) sweepLocked(now time.Time) {
	s.sweep = now.Add(10 * time.Second)
	for k, l := range s.leases {
		if l.mu.TryLock() {
			if now.After(l.until.Add(10*time.Second)) && now.After(l.deniedUntil) {
				delete(s.leases, k)
			}
			l.mu.Unlock()
		}
	}
}

// lockLeases locks all leases in one order, and returns what unlocks them.
func lockLeases(asks []Ask, ls []*lease) (unlock func()) {
	var order []int
	for i, l := range ls {
		if l != nil {
			order = append(order, i)
		}
	}
	slices.SortFunc(order, func(a, b int) int {
		if c := strings.Compare(asks[a].Limit, asks[b].Limit); c != 0 {
			return c
		}
		return strings.Compare(asks[a].Key, asks[b].Key)
	})
	for _, i := range order {
		ls[i].mu.Lock()
	}
	return func() {
		for _, i := range order {
			ls[i].mu.Unlock()
		}
	}
}

// decideBatched answers from the leases where it can, and asks the store for
// the rest in one question.
func decideBatched(ctx context.Context, store LimitStore, asks []Ask, ls []*lease, now time.Time) ([]Decision, error) {
	out := make([]Decision, len(asks))
	all := true
	for i, a := range asks {
		if l := ls[i]; l != nil && l.refuses(a, now) {
			out[i] = l.refusal(a, now)
			all = all && a.Shadow
		}
	}
	var rest []Ask
	var at []int
	for i, a := range asks {
		l := ls[i]
		switch {
		case out[i].Source != "":
		case l != nil && l.left >= a.Cost && now.Before(l.until):
			out[i] = l.grant(a, now)
		case !all: // refused already: the others need not be asked
			out[i] = Decision{Allowed: true, Limit: a.Policy.Quota(), Remaining: a.Policy.Quota()}
		default:
			if l != nil {
				a = l.refill(a, now)
			}
			rest, at = append(rest, a), append(at, i)
		}
	}
	if len(rest) > 0 {
		ds, err := store.Decide(ctx, rest)
		if err != nil {
			for _, i := range at { // whether units were given back is not known
				if ls[i] != nil {
					ls[i].left = 0
				}
			}
			return nil, err
		}
		for k, d := range ds {
			i := at[k]
			all = all && (d.Allowed || asks[i].Shadow)
			if ls[i] != nil {
				d = ls[i].filled(asks[i], rest[k].Cost, d, now)
			}
			out[i] = d
		}
	}
	for i, a := range asks {
		if out[i].Source == FromBatch && out[i].Allowed && all {
			ls[i].left -= a.Cost
			out[i].Taken = a.Cost
			out[i].Remaining -= a.Cost
		}
	}
	return out, nil
}

// refuses reports that the store refused no more than this a moment ago.
func (l *lease) refuses(a Ask, now time.Time) bool {
	return l.denied > 0 && a.Cost >= l.denied && a.Cost > l.left && now.Before(l.deniedUntil)
}

func (l *lease) refusal(a Ask, now time.Time) Decision {
	d := l.seen
	d.Allowed, d.Taken, d.Source = false, 0, FromBatch
	if d.RetryAfter != Never {
		d.RetryAfter = max(time.Microsecond, l.retry.Sub(now))
	}
	d.Reset = max(0, d.Reset-now.Sub(l.since))
	return d
}

// grant answers from what was taken ahead; it is used up once all agree.
func (l *lease) grant(a Ask, now time.Time) Decision {
	return Decision{Allowed: true, Limit: a.Policy.Quota(), Remaining: l.seen.Remaining + l.left,
		Reset: max(0, l.seen.Reset-now.Sub(l.since)), Source: FromBatch}
}

// refill makes the question for the next batch: as much as was needed lately,
// doubled while batches run out before their time; what is left goes back.
func (l *lease) refill(a Ask, now time.Time) Ask {
	want := l.size - l.left
	if now.Before(l.until) {
		want = 2 * l.size
	}
	a.back, a.backAt = l.left, l.at
	a.atLeast = a.Cost
	a.Cost = max(a.Cost, min(a.ahead(), want))
	return a
}

// filled takes note of the store's answer to refill, which wanted so much.
func (l *lease) filled(a Ask, want int64, d Decision, now time.Time) Decision {
	l.left, l.at, l.since = d.Taken, d.at, now
	if d.Taken > 0 {
		l.size = d.Taken
	}
	l.until = now.Add(a.SyncEvery)
	l.seen, l.denied = d, 0
	switch {
	case !d.Allowed:
		l.denied, l.deniedUntil = a.Cost, now.Add(a.patience(d.RetryAfter))
		if d.RetryAfter != Never {
			d.RetryAfter = max(d.RetryAfter, l.deniedUntil.Sub(now))
		}
		l.retry, l.seen = now.Add(d.RetryAfter), d
	case d.Taken > 0 && d.Taken < want: // the last there was
		l.denied, l.deniedUntil = 1, now.Add(a.patience(0))
		l.retry = l.deniedUntil
	}
	if d.Taken > 0 {
		l.left -= a.Cost
		d.Taken = a.Cost
		d.Remaining += l.left
	}
	return d
}

// Renew implements LimitStore.
func (s *BatchLimitStore) Renew(ctx context.Context, a Ask) error { return s.store.Renew(ctx, a) }

// Release implements LimitStore.
func (s *BatchLimitStore) Release(ctx context.Context, a Ask) error { return s.store.Release(ctx, a) }
