package shaper

import (
	"context"
	"fmt"
	"time"
)

// Ask is one question to a LimitStore.
type Ask struct {
	// Limit names the limit among all that the store holds: two limits with
	// one name would count together.
	Limit string
	// Policy is the limit itself. It may change while clients are counted: what
	// they have used stays used.
	Policy Policy
	// Key is the client. It is stored as a hash.
	Key string
	// Cost in units. Zero: 1.
	Cost int64
	// Place names the place that a Concurrency policy gives, so that asking
	// twice does not take two. The caller makes it, unlike any other. Required
	// there.
	Place string
	// Shadow asks are decided and counted like the others, but do not stop them.
	Shadow bool
	// SyncEvery, on a BatchLimitStore, lets a process take units ahead for that
	// long. Zero: every question goes to the store.
	SyncEvery time.Duration
	// Away is what a FallbackLimitStore does for this limit without its store.
	Away Away

	// atLeast units are enough, up to Cost are taken. Zero: Cost.
	atLeast int64
	// back are units taken at backAt (store's time, µs) that were not used.
	back, backAt int64
}

// Decision is the answer to an Ask.
type Decision struct {
	// Allowed says that this limit had room. Units were taken only if every
	// Ask beside it that is not Shadow was allowed, too.
	Allowed bool
	// Taken units.
	Taken int64
	// Limit is the policy's quota.
	Limit int64
	// Remaining units that could be taken now.
	Remaining int64
	// RetryAfter is how long until the refused cost could be granted, if nobody
	// takes anything meanwhile; 0 where it was allowed, Never where it is more
	// than could ever be granted.
	RetryAfter time.Duration
	// Reset is how long no more than Remaining can be counted on: until the
	// window ends, until all logged units have left it, or, for buckets, the
	// time in which the rate gives that many again. Where nothing remains it is
	// the time until one unit does. 0 for Concurrency.
	Reset time.Duration
	// Source says who decided.
	Source Source

	// at is the store's time of the decision in microseconds.
	at int64
}

// Never as Decision.RetryAfter: the cost is above what could ever be granted.
const Never time.Duration = -1

// Source is who made a decision.
type Source string

// The sources. All but the first two mean that the store was away.
const (
	FromStore  Source = "store"
	FromBatch  Source = "batch"  // units taken ahead
	FromLocal  Source = "local"  // this process's share
	FromOpen   Source = "open"   // let through
	FromClosed Source = "closed" // refused
)

// LimitStore counts what clients use. Implementations are safe for several
// goroutines.
type LimitStore interface {
	// Decide answers all asks in one atomic step: units are taken from all of
	// them or, where one that is not Shadow has no room, from none. The answers
	// have the asks' order. An error says that the store could not be asked.
	Decide(ctx context.Context, asks []Ask) ([]Decision, error)
	// Renew holds the places of a granted Concurrency ask for another lease.
	Renew(ctx context.Context, a Ask) error
	// Release gives them back. It is harmless twice, and for other algorithms.
	Release(ctx context.Context, a Ask) error
}

// Limiter is one limit on a store.
type Limiter struct {
	store LimitStore
	ask   Ask
}

// NewLimiter returns the limit of that name and policy on a store; its error
// wraps ErrBadLimit.
func NewLimiter(store LimitStore, name string, p Policy) (*Limiter, error) {
	if name == "" {
		return nil, fmt.Errorf("%w: a limit needs a name", ErrBadLimit)
	}
	if err := p.Validate(); err != nil {
		return nil, err
	}
	return &Limiter{store: store, ask: Ask{Limit: name, Policy: p}}, nil
}

// Take takes cost units of key's quota, or none. place is needed by
// Concurrency only; give it back with Release.
func (l *Limiter) Take(ctx context.Context, key string, cost int64, place string) (Decision, error) {
	a := l.ask
	a.Key, a.Cost, a.Place = key, cost, place
	ds, err := l.store.Decide(ctx, []Ask{a})
	if err != nil {
		return Decision{}, err
	}
	return ds[0], nil
}

// Release gives a place back.
func (l *Limiter) Release(ctx context.Context, key string, cost int64, place string) error {
	a := l.ask
	a.Key, a.Cost, a.Place = key, cost, place
	return l.store.Release(ctx, a)
}

// normalAsks fills in defaults and refuses what no store can answer.
func normalAsks(in []Ask) ([]Ask, error) {
	out := make([]Ask, len(in))
	for i, a := range in {
		if a.Cost == 0 {
			a.Cost = 1
		}
		if a.atLeast == 0 {
			a.atLeast = a.Cost
		}
		a.Policy = a.Policy.Normal()
		switch err := a.Policy.Validate(); {
		case err != nil:
			return nil, fmt.Errorf("limit %q: %w", a.Limit, err)
		case a.Cost < 0 || a.Cost > MaxPolicyN:
			return nil, fmt.Errorf("%w: limit %q: cost must be from 1 to %d, not %d", ErrBadLimit, a.Limit, MaxPolicyN, a.Cost)
		case a.Place == "" && a.Policy.Algorithm == Concurrency:
			return nil, fmt.Errorf("%w: limit %q: a place needs a name", ErrBadLimit, a.Limit)
		}
		for _, b := range out[:i] {
			if a.Limit == b.Limit && a.Key == b.Key {
				return nil, fmt.Errorf("%w: limit %q is asked twice for one client", ErrBadLimit, a.Limit)
			}
		}
		out[i] = a
	}
	return out, nil
}

// decision makes a Decision of a store's numbers: times in microseconds, -1
// for never.
func decision(a Ask, now int64, ok bool, taken, left, wait, reset int64) Decision {
	d := Decision{
		Allowed: ok, Taken: taken, Limit: a.Policy.Quota(), Remaining: max(0, left),
		Reset: micros(reset), Source: FromStore, at: now,
	}
	if !ok {
		d.RetryAfter = micros(wait)
		if wait < 0 {
			d.RetryAfter = Never
		}
	}
	return d
}
