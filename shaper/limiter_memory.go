package shaper

import (
	"context"
	"hash/maphash"
	"slices"
	"sync"
	"time"
)

// DefaultMaxKeys is how many clients a MemoryLimitStore counts when
// MemoryLimits.MaxKeys is 0.
const DefaultMaxKeys = 1_000_000

const (
	// sweepEvery is how often what says nothing more is forgotten, in µs.
	sweepEvery = 10_000_000
	// keepLonger is how long it is kept beyond, as the scripts do.
	keepLonger = 2_000_000
)

// shards of a MemoryLimitStore, each with a lock of its own.
const shards = 32

// MemoryLimits of a MemoryLimitStore.
type MemoryLimits struct {
	// MaxKeys is how many counts of clients are kept, about; beyond it some
	// client is forgotten for each new one, and begins anew. Zero: 1,000,000.
	MaxKeys int
}

// MemoryLimitStore counts in this process only, on its monotonic clock: for a
// single instance, for tests, and as the local share while Redis is away. It
// starts no goroutine and needs no Close.
type MemoryLimitStore struct {
	seed   maphash.Seed
	most   int // of each shard
	shards [shards]shard
	base   time.Time
	// now is the time in microseconds.
	now func() int64
}

type shard struct {
	mu    sync.Mutex
	cells map[cellKey]cell
	sweep int64 // when next
}

type cellKey struct{ limit, client string }

// cell is what one limit remembers of one client. Its methods do what the Lua
// function of the same algorithm does, in the same numbers.
type cell interface {
	// at brings the cell to now and returns the units that could be taken.
	at(now int64, p *lim) (avail int64)
	// wait is the time until c units could be taken; -1: never.
	wait(p *lim, c int64) int64
	take(p *lim, c int64)
	left(p *lim) int64
	reset(p *lim) int64
	// end is when the cell says nothing more.
	end() int64
}

// lim is an Ask in a cell's numbers.
type lim struct {
	n, per, burst, lease int64
	back, backAt         int64
	place                string
	now                  int64
}

// NewMemoryLimitStore returns an empty store.
func NewMemoryLimitStore(cfg MemoryLimits) *MemoryLimitStore {
	if cfg.MaxKeys <= 0 {
		cfg.MaxKeys = DefaultMaxKeys
	}
	s := &MemoryLimitStore{seed: maphash.MakeSeed(), most: max(1, cfg.MaxKeys/shards), base: time.Now()}
	start := s.base.UnixMicro()
	s.now = func() int64 { return start + time.Since(s.base).Microseconds() }
	for i := range s.shards {
		s.shards[i].cells = map[cellKey]cell{}
	}
	return s
}

// newCell returns an empty cell.
func newCell(a Algorithm) cell {
	switch a {
	case FixedWindow:
		return &fixedCell{}
	case SlidingLog:
		return &logCell{}
	case SlidingCounter:
		return &counterCell{}
	case TokenBucket:
		return &tokenCell{fresh: true}
	case LeakyBucket:
		return &leakyCell{}
	case GCRA:
		return &gcraCell{}
	}
	return &placesCell{}
}

// limOf makes a cell's numbers of an Ask.
func limOf(a Ask, now int64) lim {
	return lim{
		n: a.Policy.Quota(), per: a.Policy.Rate.Per.Microseconds(), burst: a.Policy.Burst,
		lease: a.Policy.Lease.Microseconds(), back: a.back, backAt: a.backAt, place: a.Place, now: now,
	}
}

// Decide implements LimitStore. It never fails but for a bad Ask.
func (s *MemoryLimitStore) Decide(_ context.Context, asks []Ask) ([]Decision, error) {
	asks, err := normalAsks(asks)
	if err != nil || len(asks) == 0 {
		return nil, err
	}
	keys := make([]cellKey, len(asks))
	var at []int
	for i, a := range asks {
		keys[i] = cellKey{a.Limit, a.Key}
		at = append(at, s.shardOf(keys[i]))
	}
	for _, i := range lockOrder(at) {
		s.shards[i].mu.Lock()
		defer s.shards[i].mu.Unlock()
	}
	now := s.now()
	cells, lims, ok := make([]cell, len(asks)), make([]lim, len(asks)), make([]bool, len(asks))
	all := true
	for i, a := range asks {
		cells[i], lims[i] = s.cellLocked(at[i], keys[i], a.Policy.Algorithm, now), limOf(a, now)
		ok[i] = cells[i].at(now, &lims[i]) >= a.atLeast
		all = all && (ok[i] || a.Shadow)
	}
	out := make([]Decision, len(asks))
	for i, a := range asks {
		c, p := cells[i], &lims[i]
		var taken, wait int64
		if !ok[i] {
			wait = c.wait(p, a.atLeast)
		}
		if all && ok[i] {
			taken = min(a.Cost, c.at(now, p))
			c.take(p, taken)
		}
		left, reset := c.left(p), c.reset(p)
		if left <= 0 && a.Policy.Algorithm != Concurrency {
			reset = c.wait(p, 1)
		}
		out[i] = decision(a, now, ok[i], taken, left, wait, reset)
	}
	return out, nil
}

// lockOrder returns each shard once, in the order in which they are locked.
func lockOrder(at []int) []int {
	o := slices.Clone(at)
	slices.Sort(o)
	return slices.Compact(o)
}

func (s *MemoryLimitStore) shardOf(k cellKey) int {
	return int(maphash.Comparable(s.seed, k) % shards)
}

// cellLocked returns the client's cell, a new one where there is none.
func (s *MemoryLimitStore) cellLocked(i int, k cellKey, a Algorithm, now int64) cell {
	sh := &s.shards[i]
	if now >= sh.sweep {
		sh.sweepLocked(now)
	}
	c, ok := sh.cells[k]
	if ok && sameKind(c, a) {
		return c
	}
	if !ok {
		sh.makeRoomLocked(s.most)
	}
	c = newCell(a)
	sh.cells[k] = c
	return c
}

// sameKind reports whether a cell is one of the algorithm's.
func sameKind(c cell, a Algorithm) bool {
	switch c.(type) {
	case *fixedCell:
		return a == FixedWindow
	case *logCell:
		return a == SlidingLog
	case *counterCell:
		return a == SlidingCounter
	case *tokenCell:
		return a == TokenBucket
	case *leakyCell:
		return a == LeakyBucket
	case *gcraCell:
		return a == GCRA
	case *placesCell:
		return a == Concurrency
	}
	return false
}

// makeRoomLocked forgets some client where there are too many.
func (s *shard) makeRoomLocked(most int) {
	if len(s.cells) < most {
		return
	}
	for old := range s.cells { // whichever comes first
		delete(s.cells, old)
		return
	}
}

func (s *shard) sweepLocked(now int64) {
	s.sweep = now + sweepEvery
	for k, c := range s.cells {
		if c.end()+keepLonger <= now {
			delete(s.cells, k)
		}
	}
}

// Renew implements LimitStore.
func (s *MemoryLimitStore) Renew(_ context.Context, a Ask) error {
	return s.places(a, func(c *placesCell, p *lim, cost int64) { c.hold(p, cost) })
}

// Release implements LimitStore.
func (s *MemoryLimitStore) Release(_ context.Context, a Ask) error {
	return s.places(a, func(c *placesCell, p *lim, _ int64) { c.drop(p.place) })
}

func (s *MemoryLimitStore) places(a Ask, f func(*placesCell, *lim, int64)) error {
	if a.Policy.Algorithm != Concurrency {
		return nil
	}
	as, err := normalAsks([]Ask{a})
	if err != nil {
		return err
	}
	a = as[0]
	k := cellKey{a.Limit, a.Key}
	i := s.shardOf(k)
	s.shards[i].mu.Lock()
	defer s.shards[i].mu.Unlock()
	now := s.now()
	p := limOf(a, now)
	if c, ok := s.cellLocked(i, k, Concurrency, now).(*placesCell); ok {
		f(c, &p, a.Cost)
	}
	return nil
}

// Len is how many counts of clients are kept.
func (s *MemoryLimitStore) Len() int {
	n := 0
	for i := range s.shards {
		s.shards[i].mu.Lock()
		n += len(s.shards[i].cells)
		s.shards[i].mu.Unlock()
	}
	return n
}
