package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/penstock-io/penstock/queue/internal/layout"
)

const (
	sweepBatch = 200   // entries of one script
	sweepSteps = 25    // scripts of one kind in one Sweep
	trimBatch  = 200   // jobs forgotten by one script
	trimSteps  = 1_000 // scripts of one Sweep and state: 200,000 jobs
)

// Sweeper keeps one provider's queue in order: it gives jobs that wait in no
// lane their place, takes ids out of lanes that nothing stands behind, forgets
// final jobs after their keep, and removes bodies without a job. Each Sweep
// does a bounded piece and the next goes on there. Workers run one every half
// a minute or so; several at once do no harm. Safe for several goroutines.
type Sweeper struct {
	c        *Client
	provider string
	k        layout.Keys

	mu     sync.Mutex
	rank   map[string]int64  // next rank to look at, by set
	lanes  map[string]uint64 // ZSCAN cursors
	bodies uint64            // SSCAN cursor
	// seen is since when an id has been without a lane. A worker that puts a
	// job back does it in two steps; what is adopted is older than grace.
	seen  map[string]time.Time
	grace time.Duration
}

// adoptGrace is how long a job must have been seen without a lane.
const adoptGrace = 10 * time.Second

// maxSeen bounds what a sweeper remembers between two Sweeps.
const maxSeen = 100_000

// Swept is what one Sweep did.
type Swept struct {
	Adopted   int // jobs that waited in no lane and have one now
	Stray     int // ids taken out of lanes, their jobs gone or elsewhere
	Forgotten int // final jobs whose keep was over
	Bodies    int // bodies removed, their jobs gone
}

// NewSweeper makes a sweeper; nothing is sent.
func (c *Client) NewSweeper(provider string) (*Sweeper, error) {
	if err := CheckName("provider", provider); err != nil {
		return nil, err
	}
	return &Sweeper{c: c, provider: provider, k: c.keys(provider),
		rank: make(map[string]int64), lanes: make(map[string]uint64),
		seen: make(map[string]time.Time), grace: adoptGrace}, nil
}

// Sweep does one piece. keep is the provider's; zero: what its spec says. It
// registers the queue with asynq as well, which forgets it after a loss of data.
func (s *Sweeper) Sweep(ctx context.Context, keep time.Duration) (Swept, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var done Swept
	if keep <= 0 {
		spec, err := s.c.Spec(ctx, s.provider)
		if err != nil && !errors.Is(err, ErrUnknownProvider) {
			return done, err
		}
		keep = spec.normal().Keep
	}
	if err := s.c.rdb.SAdd(ctx, asynqQueues, s.k.Queue).Err(); err != nil && !errors.Is(mapError(err), ErrFull) {
		return done, mapError(err)
	}
	for _, step := range []func(context.Context, *Swept) error{
		func(ctx context.Context, d *Swept) error { return s.trim(ctx, keep, d) },
		s.adopt, s.strays, s.orphanBodies,
	} {
		if err := step(ctx, &done); err != nil {
			return done, mapError(err)
		}
	}
	return done, nil
}

// trim forgets final jobs.
func (s *Sweeper) trim(ctx context.Context, keep time.Duration, done *Swept) error {
	for _, state := range layout.FinalStates() {
		keys := []string{s.k.Done(state), s.k.Asynq("completed"), s.k.Task(""), s.k.Tombstone(""), s.k.Body(""), s.k.Own(layout.Bodies)}
		for range trimSteps {
			n, err := s.c.scripts.trim.Run(ctx, s.c.rdb, keys, keep.Milliseconds(), trimBatch, string(state)).Int64Slice()
			if err != nil {
				return err
			}
			if len(n) != 2 {
				return fmt.Errorf("the trim script answered %d values", len(n))
			}
			done.Forgotten += int(n[1])
			if n[0] < trimBatch {
				break
			}
		}
	}
	return nil
}

// adopt finds what waits in no lane.
func (s *Sweeper) adopt(ctx context.Context, done *Swept) error {
	if len(s.seen) > maxSeen {
		clear(s.seen)
	}
	for _, set := range []string{"scheduled", "retry"} {
		keys := append(append([]string{s.k.Asynq(set)}, s.k.Lanes()...), s.k.Task(""))
		for range sweepSteps {
			v, err := s.c.scripts.sweep.Run(ctx, s.c.rdb, keys, layout.Far, s.rank[set], sweepBatch).Slice()
			if err != nil {
				return err
			}
			if len(v) == 0 || (len(v)-1)%3 != 0 {
				return fmt.Errorf("the sweep script answered %d values", len(v))
			}
			a := answer(v)
			for o := 1; o < len(a); o += 3 {
				n, err := s.adoptOne(ctx, set, a.text(o), a.text(o+1), a.text(o+2))
				if err != nil {
					return err
				}
				done.Adopted += n
			}
			s.rank[set] += a.int(0)
			if a.int(0) < sweepBatch {
				s.rank[set] = 0
				break
			}
		}
	}
	return nil
}

// adoptOne puts a job into the lane of its priority, at the time its score in
// asynq's set says, else at once.
func (s *Sweeper) adoptOne(ctx context.Context, set, id, raw, score string) (int, error) {
	if since, ok := s.seen[id]; !ok || time.Since(since) < s.grace {
		if !ok {
			s.seen[id] = time.Now()
		}
		return 0, nil
	}
	delete(s.seen, id)
	priority, due := PriorityDefault, int64(0)
	if msg, err := layout.ParseMessage([]byte(raw)); err == nil {
		if env, err := layout.Decode(msg.Headers); err == nil {
			priority, due = env.Priority, env.Due
		}
	}
	if n, err := strconv.ParseFloat(score, 64); err == nil && int64(n) > layout.Far {
		due = max(due, (int64(n)-layout.Far)*1000)
	}
	keys := []string{s.k.Asynq(set), s.k.Lane(priority), s.k.Task(id)}
	return s.c.scripts.adopt.Run(ctx, s.c.rdb, keys, id, due, set, s.k.Own(layout.Jobs)).Int()
}

// strays takes ids out of lanes whose task is gone or is waiting elsewhere.
func (s *Sweeper) strays(ctx context.Context, done *Swept) error {
	for _, lane := range s.k.Lanes() {
		for range sweepSteps {
			pairs, next, err := s.c.rdb.ZScan(ctx, lane, s.lanes[lane], "", sweepBatch).Result()
			if err != nil {
				return err
			}
			ids := make([]any, 0, len(pairs)/2)
			for i := 0; i+1 < len(pairs); i += 2 {
				ids = append(ids, pairs[i])
			}
			n, err := s.run(ctx, s.c.scripts.strays, []string{lane, s.k.Task("")}, ids)
			if err != nil {
				return err
			}
			done.Stray += n
			s.lanes[lane] = next
			if next == 0 {
				break
			}
		}
	}
	return nil
}

// orphanBodies removes bodies whose task is gone, e.g. deleted in asynqmon.
func (s *Sweeper) orphanBodies(ctx context.Context, done *Swept) error {
	for range sweepSteps {
		found, next, err := s.c.rdb.SScan(ctx, s.k.Own(layout.Bodies), s.bodies, "", sweepBatch).Result()
		if err != nil {
			return err
		}
		ids := make([]any, len(found))
		for i, id := range found {
			ids[i] = id
		}
		n, err := s.run(ctx, s.c.scripts.bodies, []string{s.k.Own(layout.Bodies), s.k.Task(""), s.k.Body("")}, ids)
		if err != nil {
			return err
		}
		done.Bodies += n
		s.bodies = next
		if next == 0 {
			return nil
		}
	}
	return nil
}

// run runs a script on ids, in lots.
func (s *Sweeper) run(ctx context.Context, script *layout.Script, keys []string, ids []any) (int, error) {
	sum := 0
	for lot := range slices.Chunk(ids, sweepBatch) {
		n, err := script.Run(ctx, s.c.rdb, keys, lot...).Int()
		if err != nil {
			return sum, err
		}
		sum += n
	}
	return sum, nil
}
