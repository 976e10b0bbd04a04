package shaper

import (
	"context"
	"fmt"
	"time"
)

// Escalation blocks a client that is refused again and again: Strikes
// refusals within Within block it for Block, the next time for twice as long,
// up to Longest; each Quiet without a block takes one doubling back. The zero
// value never blocks.
//
// It is a pure function of the refusals and their times, so a log of them
// replays to the same blocks.
type Escalation struct {
	// Strikes before a block. Zero: never.
	Strikes int64
	// Within which they count. Zero: 1 min.
	Within time.Duration
	// Block is the first block's length. Zero: 1 min.
	Block time.Duration
	// Longest block. Zero: 1 h.
	Longest time.Duration
	// Quiet takes one doubling back. Zero: 10 min.
	Quiet time.Duration
}

// Normal returns e with its defaults filled in.
func (e Escalation) Normal() Escalation {
	for _, f := range []struct {
		d *time.Duration
		v time.Duration
	}{{&e.Within, time.Minute}, {&e.Block, time.Minute}, {&e.Longest, time.Hour}, {&e.Quiet, 10 * time.Minute}} {
		if *f.d == 0 {
			*f.d = f.v
		}
	}
	return e
}

// Validate refuses what means nothing; the error wraps ErrBadLimit.
func (e Escalation) Validate() error {
	if e == (Escalation{}) {
		return nil
	}
	n := e.Normal()
	for name, d := range map[string]time.Duration{"within": n.Within, "block": n.Block, "longest": n.Longest, "quiet": n.Quiet} {
		if d < time.Second || d > MaxPeriod {
			return fmt.Errorf("%w: escalation: %s must be from 1s to %s, not %s", ErrBadLimit, name, MaxPeriod, d)
		}
	}
	switch {
	case e.Strikes < 1 || e.Strikes > 1_000_000:
		return fmt.Errorf("%w: escalation: strikes must be from 1 to 1000000, not %d", ErrBadLimit, e.Strikes)
	case n.Block > n.Longest:
		return fmt.Errorf("%w: escalation: block %s is longer than the longest block %s", ErrBadLimit, n.Block, n.Longest)
	}
	return nil
}

// Offence is what is remembered of a client that was refused. Times are
// microseconds of the store's clock. The zero value is a clean client.
type Offence struct {
	// Strikes since Since.
	Strikes, Since int64
	// Level is how often the next block is doubled.
	Level int64
	// Until is the end of the last block; 0: none.
	Until int64
}

// Step returns what a refusal at now (µs) makes of o.
func (e Escalation) Step(o Offence, now int64) Offence {
	e = e.Normal()
	longest, quiet := e.Longest.Microseconds(), e.Quiet.Microseconds()
	o.Since = min(o.Since, now)
	if o.Until-now > longest {
		o.Until = now + longest
	}
	if now < o.Until {
		return o
	}
	if o.Level > 0 {
		calm := min(o.Level, (now-o.Until)/quiet)
		o.Level -= calm
		o.Until += calm * quiet
		if o.Level == 0 {
			o.Until = 0
		}
	}
	if now-o.Since >= e.Within.Microseconds() {
		o.Strikes, o.Since = 0, now
	}
	o.Strikes++
	if o.Strikes >= e.Strikes {
		wait := e.Block.Microseconds()
		for range o.Level {
			wait = min(longest, wait*2)
		}
		o = Offence{Since: o.Since, Level: min(o.Level+1, 62), Until: now + wait}
	}
	return o
}

// Blocked returns how long the client is blocked at now (µs); 0: it is not.
func (o Offence) Blocked(now int64) time.Duration { return micros(max(0, o.Until-now)) }

// Striker counts refusals. All stores of this package are Strikers.
type Striker interface {
	// Strike counts a refusal of key under a limit's name and returns what is
	// known of it then, and the store's time in microseconds.
	Strike(ctx context.Context, limit, key string, e Escalation) (Offence, int64, error)
}

// Strike implements Striker.
func (s *RedisLimitStore) Strike(ctx context.Context, limit, key string, e Escalation) (Offence, int64, error) {
	e = e.Normal()
	k := s.key(Ask{Limit: limit + ":strikes", Key: key})
	got, err := s.strike.Run(ctx, s.rdb, []string{k}, s.now(), e.Strikes, e.Within.Microseconds(), e.Block.Microseconds(),
		e.Longest.Microseconds(), e.Quiet.Microseconds()).Int64Slice()
	if err == nil && len(got) != 5 {
		err = fmt.Errorf("the script answered %d numbers", len(got))
	}
	if err != nil {
		return Offence{}, 0, fmt.Errorf("%w: %w", ErrStoreAway, err)
	}
	return Offence{Strikes: got[1], Since: got[2], Level: got[3], Until: got[4]}, got[0], nil
}

// offenceCell keeps an Offence beside the limits' cells.
type offenceCell struct {
	cell // none: it is no limit
	o    Offence
	last int64
}

func (c *offenceCell) end() int64 { return c.last }

// Strike implements Striker.
func (s *MemoryLimitStore) Strike(_ context.Context, limit, key string, e Escalation) (Offence, int64, error) {
	e = e.Normal()
	k := cellKey{limit + ":strikes", key}
	sh := &s.shards[s.shardOf(k)]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	now := s.now()
	if now >= sh.sweep {
		sh.sweepLocked(now)
	}
	c, ok := sh.cells[k].(*offenceCell)
	if !ok {
		sh.makeRoomLocked(s.most)
		c = &offenceCell{}
		sh.cells[k] = c
	}
	c.o = e.Step(c.o, now)
	c.last = max(c.o.Since+e.Within.Microseconds(), c.o.Until+c.o.Level*e.Quiet.Microseconds())
	return c.o, now, nil
}

// Strike implements Striker, in this process alone while the store is away.
func (s *FallbackLimitStore) Strike(ctx context.Context, limit, key string, e Escalation) (o Offence, now int64, err error) {
	far, ok := s.cfg.Store.(Striker)
	if ok {
		_, err = s.fuse.Execute(func() ([]Decision, error) {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.Timeout)
			defer cancel()
			var err error
			o, now, err = far.Strike(ctx, limit, key, e)
			return nil, err
		})
	}
	if !ok || err != nil {
		return s.cfg.Local.Strike(ctx, limit, key, e)
	}
	return o, now, nil
}

// Strike implements Striker.
func (s *BatchLimitStore) Strike(ctx context.Context, limit, key string, e Escalation) (Offence, int64, error) {
	if far, ok := s.store.(Striker); ok {
		return far.Strike(ctx, limit, key, e)
	}
	return Offence{}, 0, fmt.Errorf("%w: the store counts no strikes", ErrBadLimit)
}
