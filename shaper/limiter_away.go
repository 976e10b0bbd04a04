package shaper

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sony/gobreaker/v2"
)

// AwayMode is what happens to a limit while its store is away.
type AwayMode string

const (
	// FailOpen lets everything through. The empty mode means this.
	FailOpen AwayMode = "fail_open"
	// FailClosed refuses everything.
	FailClosed AwayMode = "fail_closed"
	// LocalShare lets this process alone decide, with a share of the limit.
	LocalShare AwayMode = "local_share"
)

// Away is what a FallbackLimitStore does for one limit. The zero value fails open.
type Away struct {
	Mode AwayMode
	// Share of the limit that this process may give out by itself, above 0 and
	// at most 1: one over the number of processes keeps the fleet within the
	// limit. At least one unit. LocalShare only, and required there.
	Share float64
}

// Validate refuses what means nothing; the error wraps ErrBadLimit.
func (a Away) Validate() error {
	switch a.Mode {
	case "", FailOpen, FailClosed:
		if a.Share != 0 {
			return fmt.Errorf("%w: share means nothing for %s; use it with %s", ErrBadLimit, a.Mode, LocalShare)
		}
		return nil
	case LocalShare:
		if !(a.Share > 0 && a.Share <= 1) { // NaN, too
			return fmt.Errorf("%w: share must be above 0 and at most 1, not %v", ErrBadLimit, a.Share)
		}
		return nil
	}
	return fmt.Errorf("%w: %q is unknown; use %s, %s or %s", ErrBadLimit, a.Mode, FailOpen, FailClosed, LocalShare)
}

// share scales a policy down to what one process may give out.
func (p Policy) share(s float64) Policy {
	p = p.Normal()
	part := func(n int64) int64 { return max(1, int64(float64(n)*s)) }
	if p.Algorithm == Concurrency {
		p.Places = part(p.Places)
		return p
	}
	p.Rate.N = part(p.Rate.N)
	if p.bucket() {
		p.Burst = part(p.Burst)
	}
	return p
}

// DefaultLimitTimeout is how long a FallbackLimitStore waits for its store
// when FallbackLimits.Timeout is 0.
const DefaultLimitTimeout = 100 * time.Millisecond

const (
	// askStoreAgain is how long a store that was away is left alone; then one
	// question tries it.
	askStoreAgain = 500 * time.Millisecond
	// closedWait is what a client is told while a limit is closed.
	closedWait = time.Second
)

// FallbackLimits of a FallbackLimitStore.
type FallbackLimits struct {
	// Store that is asked. Required.
	Store LimitStore
	// Local decides where a limit's Away says LocalShare. Nil: a new one.
	Local *MemoryLimitStore
	// Timeout for one question. Zero: 100 ms.
	Timeout time.Duration
	// OnAway is called for each limit that was decided without the store, with
	// who decided and why. It must not block. Nil: nobody.
	OnAway func(limit string, by Source, why error)
}

// FallbackLimitStore asks a store, and decides by each limit's Away when the
// store does not answer in time. It never returns an error but for a bad Ask.
// It starts no goroutine that outlives a question.
type FallbackLimitStore struct {
	cfg  FallbackLimits
	fuse *gobreaker.CircuitBreaker[[]Decision]
}

// NewFallbackLimitStore returns a store that always answers.
func NewFallbackLimitStore(cfg FallbackLimits) *FallbackLimitStore {
	if cfg.Local == nil {
		cfg.Local = NewMemoryLimitStore(MemoryLimits{})
	}
	if cfg.Timeout <= 0 {
		cfg.Timeout = DefaultLimitTimeout
	}
	if cfg.OnAway == nil {
		cfg.OnAway = func(string, Source, error) {}
	}
	return &FallbackLimitStore{cfg: cfg, fuse: gobreaker.NewCircuitBreaker[[]Decision](gobreaker.Settings{
		Name: "limits", MaxRequests: 1, Timeout: askStoreAgain,
		ReadyToTrip:  func(c gobreaker.Counts) bool { return c.ConsecutiveFailures > 0 },
		IsSuccessful: func(err error) bool { return err == nil || errors.Is(err, ErrBadLimit) },
	})}
}

// Decide implements LimitStore.
func (s *FallbackLimitStore) Decide(ctx context.Context, asks []Ask) ([]Decision, error) {
	ds, err := s.fuse.Execute(func() ([]Decision, error) { return s.inTime(ctx, asks) })
	if err == nil || errors.Is(err, ErrBadLimit) {
		return ds, err
	}
	if !errors.Is(err, ErrStoreAway) {
		err = fmt.Errorf("%w: %w", ErrStoreAway, err)
	}
	return s.alone(ctx, asks, err)
}

// inTime asks the store and gives up at the timeout even where its client
// does not: go-redis looks at deadlines only with ContextTimeoutEnabled.
func (s *FallbackLimitStore) inTime(ctx context.Context, asks []Ask) ([]Decision, error) {
	type answer struct {
		ds  []Decision
		err error
	}
	// A client that goes away must not look like a store that does.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.Timeout)
	defer cancel()
	done := make(chan answer, 1)
	go func() {
		ds, err := s.cfg.Store.Decide(ctx, asks)
		done <- answer{ds, err}
	}()
	select {
	case a := <-done:
		return a.ds, a.err
	case <-ctx.Done():
		return nil, fmt.Errorf("%w within %s", ErrStoreAway, s.cfg.Timeout)
	}
}

// alone decides without the store.
func (s *FallbackLimitStore) alone(ctx context.Context, asks []Ask, why error) ([]Decision, error) {
	out := make([]Decision, len(asks))
	var local []Ask
	var at []int
	closed := false
	for i, a := range asks {
		out[i] = Decision{Allowed: true, Limit: a.Policy.Quota(), Remaining: a.Policy.Quota(), Source: FromOpen}
		switch a.Away.Mode {
		case FailClosed:
			out[i] = Decision{Limit: a.Policy.Quota(), RetryAfter: closedWait, Source: FromClosed}
			closed = closed || !a.Shadow
		case LocalShare:
			out[i].Source = FromLocal
			a.Policy = a.Policy.share(a.Away.Share)
			local, at = append(local, a), append(at, i)
		}
	}
	if !closed {
		ds, err := s.cfg.Local.Decide(ctx, local)
		if err != nil {
			return nil, err
		}
		for k, d := range ds {
			d.Source = FromLocal
			out[at[k]] = d
		}
	}
	for i, a := range asks {
		s.cfg.OnAway(a.Limit, out[i].Source, why)
	}
	return out, nil
}

// Renew implements LimitStore. A store that is away is no error: the lease
// may run out.
func (s *FallbackLimitStore) Renew(ctx context.Context, a Ask) error {
	return s.place(ctx, a, s.cfg.Store.Renew, nil)
}

// Release implements LimitStore. A store that is away is no error: the lease
// runs out.
func (s *FallbackLimitStore) Release(ctx context.Context, a Ask) error {
	return s.place(ctx, a, s.cfg.Store.Release, s.cfg.Local.Release)
}

func (s *FallbackLimitStore) place(ctx context.Context, a Ask, far, near func(context.Context, Ask) error) error {
	if a.Policy.Algorithm != Concurrency {
		return nil
	}
	if near != nil {
		if err := near(ctx, a); err != nil {
			return err
		}
	}
	_, err := s.fuse.Execute(func() ([]Decision, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.Timeout)
		defer cancel()
		return nil, far(ctx, a)
	})
	if errors.Is(err, ErrBadLimit) {
		return err
	}
	return nil
}
