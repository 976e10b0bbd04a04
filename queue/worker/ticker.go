package worker

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/penstock-io/penstock/queue"
	"github.com/penstock-io/penstock/queue/internal/layout"
)

//go:embed tick.lua
var tickLua string

const (
	tickEvery    = 5 * time.Second
	deadAfter    = 30 * time.Second // a process without a heartbeat
	leaseGrace   = 65 * time.Second // past the end of an ownerless lease
	reclaimBatch = 200              // jobs in one request
	reclaimTurns = 100              // requests in one tick
	othersEvery  = 12               // ticks: another provider, maybe without any worker
)

// ticker is a worker's slow pulse: its sign of life, the provider's
// registrations (they come back after a flush), the recovery of lost jobs, and
// cancellations whose signal was lost.
type ticker struct {
	w      *Worker
	script *layout.Script
	lost   map[string]bool // owned by us in Redis, not in hand, at the last tick
	count  int
	failed bool
}

func newTicker(w *Worker) *ticker { return &ticker{w: w, script: layout.NewScript(tickLua)} }

func (t *ticker) run(stop <-chan struct{}) {
	for {
		timer := time.NewTimer(tickEvery - time.Duration(rand.Int64N(int64(tickEvery/10))))
		select {
		case <-stop:
			timer.Stop()
			return
		case <-timer.C:
		}
		ctx, cancel := context.WithTimeout(context.Background(), tickEvery)
		err := t.tick(ctx)
		cancel()
		if err != nil && !t.failed {
			t.w.log.Error("the tick failed; lost jobs are not recovered until redis answers", "error", err)
		}
		t.failed = err != nil
	}
}

func (t *ticker) tick(ctx context.Context) error {
	w := t.w
	owned, lost, err := t.reclaim(ctx, w.keys, w.cfg.Provider, w.process)
	if err != nil {
		return err
	}
	if lost || t.count%othersEvery == 0 {
		// A full Redis refuses registrations, which are then there already.
		if err := w.queue.Publish(ctx, w.cfg.Provider, w.spec()); err != nil && !errors.Is(err, queue.ErrFull) {
			return err
		}
	}
	if err := t.reconcile(ctx, owned); err != nil {
		return err
	}
	if err := t.cancellations(ctx); err != nil {
		return err
	}
	if t.count++; t.count%othersEvery == 0 {
		return t.another(ctx)
	}
	return nil
}

// reclaim beats (process "": it does not) and recovers jobs. It returns how
// many jobs Redis says are the process's own, and whether Redis has forgotten
// that anyone ever ticked.
func (t *ticker) reclaim(ctx context.Context, k layout.Keys, provider, process string) (owned int64, lost bool, err error) {
	causes := []string{"process_died", "lease_expired", "no_lease", "no_lane"}
	for range reclaimTurns {
		res, err := runTick(ctx, t.script, t.w.cfg.Redis, k, process)
		if err != nil {
			return 0, false, err
		}
		for i, cause := range causes {
			if n := int(res[3+i]); n > 0 {
				t.w.log.Warn("jobs recovered", "of", provider, "cause", cause, "jobs", n)
				if o := t.w.cfg.Observer; o != nil {
					o.Reclaimed(provider, cause, n)
				}
			}
		}
		owned, lost = res[1], lost || res[8] == 1
		if res[2] == 0 {
			break
		}
	}
	return owned, lost, nil
}

// runTick runs tick.lua once.
func runTick(ctx context.Context, s *layout.Script, rdb redis.Scripter, k layout.Keys, process string) ([]int64, error) {
	a := k.Asynq
	keys := append([]string{a("active"), a("lease"), a("pending"), a("scheduled"), a("retry")}, k.Lanes()...)
	keys = append(keys, k.Own(layout.Procs), k.Own("ticked"))
	raw, err := s.Run(ctx, rdb, keys, process, a("t:"), k.Prefix, deadAfter.Milliseconds(), int64(leaseGrace/time.Second),
		reclaimBatch, k.Own(layout.Jobs), (tickEvery - time.Second).Milliseconds(), layout.Far).Slice()
	if err != nil {
		return nil, err
	}
	if len(raw) != 9 {
		return nil, fmt.Errorf("tick.lua answered %d values", len(raw))
	}
	out := make([]int64, len(raw))
	for i, v := range raw {
		switch v := v.(type) {
		case int64:
			out[i] = v
		case string:
			if _, err := fmt.Sscan(v, &out[i]); err != nil {
				return nil, fmt.Errorf("tick.lua answered %q: %w", v, err)
			}
		}
	}
	return out, nil
}

// reconcile gives back the jobs that Redis counts as ours and that we do not
// have, at two ticks in a row: the answer with them was lost.
func (t *ticker) reconcile(ctx context.Context, owned int64) error {
	all, _ := t.w.hands.counts()
	if owned <= int64(all) {
		t.lost = nil
		return nil
	}
	entries, err := t.w.cfg.Redis.HGetAll(ctx, t.w.keys.Owner(t.w.process)).Result()
	if err != nil {
		return err
	}
	have := t.w.hands.ids()
	again := map[string]bool{}
	n := 0
	for id, origin := range entries {
		switch {
		case have[id]:
		case t.lost[id]:
			raw, _ := t.w.cfg.Redis.HGet(ctx, t.w.keys.Task(id), "msg").Result()
			t.w.giveUp(&hand{id: id, origin: origin, raw: raw}, false)
			n++
		default:
			again[id] = true
		}
	}
	t.lost = again
	if n > 0 {
		t.w.log.Warn("jobs given back that were taken and whose answer was lost", "jobs", n)
		if o := t.w.cfg.Observer; o != nil {
			o.Reclaimed(t.w.cfg.Provider, "not_in_hand", n)
		}
	}
	return nil
}

// cancellations finds those whose signal was lost.
func (t *ticker) cancellations(ctx context.Context) error {
	ids := t.w.hands.waitingIDs()
	if len(ids) == 0 {
		return nil
	}
	asked, err := t.w.cfg.Redis.ZRange(ctx, t.w.keys.Own(layout.Cancel), 0, 9999).Result()
	if err != nil {
		return err
	}
	for _, id := range asked {
		t.w.hands.ask(id)
	}
	return nil
}

// another recovers the jobs of some other provider: one that was removed has
// no worker of its own.
func (t *ticker) another(ctx context.Context) error {
	name, err := t.w.cfg.Redis.SRandMember(ctx, layout.Providers(t.w.cfg.Namespace)).Result()
	if err != nil || name == t.w.cfg.Provider {
		return err
	}
	_, _, err = t.reclaim(ctx, layout.For(t.w.cfg.Namespace, name), name, "")
	return err
}

// forget takes the process off the record when it has given back everything.
func (t *ticker) forget() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if n, err := t.w.cfg.Redis.Exists(ctx, t.w.keys.Owner(t.w.process)).Result(); err == nil && n == 0 {
		_ = t.w.cfg.Redis.ZRem(ctx, t.w.keys.Own(layout.Procs), t.w.process).Err() // it would go in 30 s by itself
	}
}

// Reclaim recovers once what dead workers of a provider left behind, as every
// running worker does for its own provider: for one that has been removed and
// has no worker any more. It returns how many jobs were given back.
func Reclaim(ctx context.Context, rdb redis.UniversalClient, namespace, provider string) (int, error) {
	s, total := layout.NewScript(tickLua), 0
	for range reclaimTurns {
		res, err := runTick(ctx, s, rdb, layout.For(namespace, provider), "")
		if err != nil {
			return total, fmt.Errorf("reclaim %s: %w", provider, err)
		}
		total += int(res[3] + res[4] + res[5] + res[6])
		if res[2] == 0 {
			break
		}
	}
	return total, nil
}
