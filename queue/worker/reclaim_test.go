package worker

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/penstock-io/penstock/internal/redistest"
	"github.com/penstock-io/penstock/queue"
	"github.com/penstock-io/penstock/queue/internal/layout"
	"github.com/penstock-io/penstock/shaper"
)

// ticks runs tick.lua as another process until it is done, and sums up what it
// gave back, by cause.
func (r *rig) ticks(process string) map[string]int {
	r.t.Helper()
	got := map[string]int{}
	s := layout.NewScript(tickLua)
	for range 1000 {
		res, err := runTick(context.Background(), s, r.rdb, r.k, process)
		if err != nil {
			r.t.Fatal(err)
		}
		for i, cause := range []string{"process_died", "lease_expired", "no_lease", "no_lane", "forgotten"} {
			if res[3+i] > 0 {
				got[cause] += int(res[3+i])
			}
		}
		if res[2] == 0 {
			return got
		}
	}
	r.t.Fatal("tick.lua never ends")
	return nil
}

// age makes a process's last heartbeat d older, and the last tick 5 s.
func (r *rig) age(process string, d time.Duration) {
	r.t.Helper()
	ctx := context.Background()
	if err := r.rdb.ZIncrBy(ctx, r.k.Own(layout.Procs), -float64(d.Milliseconds()), process).Err(); err != nil {
		r.t.Fatal(err)
	}
	r.aged()
}

func (r *rig) aged() {
	r.rdb.HIncrBy(context.Background(), r.k.Own("ticked"), "at", -5000)
}

// TestDeadProcess, RET-03: the jobs of a process without a heartbeat for 30 s
// go back to the head of where they came from, uncharged; those of a live one
// stay. asynq: 62 to 141 s, and a retry.
func TestDeadProcess(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient, env *redistest.Env) {
		r := newRig(t, rdb, env)
		ctx := t.Context()
		r.enqueue(queue.Job{ID: "pending"})
		r.enqueue(queue.Job{ID: "high", Priority: queue.PriorityHigh})
		r.enqueue(queue.Job{ID: "delayed", Delay: time.Millisecond})
		time.Sleep(3 * time.Millisecond)
		if got := r.take(r.bare("dead", 10, shaper.Limits{}), 10); len(got) != 3 {
			t.Fatalf("took %v", got)
		}
		r.enqueue(queue.Job{ID: "live"})
		r.take(r.bare("alive", 10, shaper.Limits{}), 10)
		r.enqueue(queue.Job{ID: "behind"})
		r.ticks("me")
		r.age("dead", 29*time.Second)
		if got := r.ticks("me"); len(got) != 0 {
			t.Errorf("gave back %v after 29 s", got)
		}
		r.age("dead", 2*time.Second)
		if got := r.ticks("me"); got["process_died"] != 3 || got["forgotten"] != 1 {
			t.Errorf("gave back %v", got)
		}
		if line := rdb.LRange(ctx, r.k.Asynq("pending"), 0, -1).Val(); !slices.Equal(line, []string{"behind", "pending"}) {
			t.Errorf("the line is %v; the head is at the right", line)
		}
		for id, state := range map[string]string{"pending": "pending", "high": "scheduled", "delayed": "scheduled", "live": "active"} {
			if s := rdb.HGet(ctx, r.k.Task(id), "state").Val(); s != state {
				t.Errorf("%s is %q, not %q", id, s, state)
			}
		}
		if rdb.ZCard(ctx, r.k.Lane(layout.High)).Val() != 1 || rdb.ZCard(ctx, r.k.Lane(layout.Default)).Val() != 1 {
			t.Error("a lane did not get its job back")
		}
		got := r.take(r.bare("next", 10, shaper.Limits{}), 10)
		slices.Sort(got)
		if !slices.Equal(got, []string{"behind", "delayed", "high", "pending"}) {
			t.Errorf("took %v", got)
		}
		if n := r.size(r.k.Owner("dead")); n != 0 {
			t.Errorf("the dead process still owns %d", n)
		}
	})
}

// TestJumpKillsNobody: when TIME jumps, or everyone was away for a while,
// every process lives on for another 30 s. Take "jumped" out of tick.lua and
// the whole fleet's jobs are given away while they run.
func TestJumpKillsNobody(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient, env *redistest.Env) {
		for name, by := range map[string]time.Duration{"forward": time.Hour, "back": -time.Hour} {
			env.Flush(t.Context())
			r := newRig(t, rdb, env)
			r.enqueue(queue.Job{ID: "a"})
			r.take(r.bare("alive", 10, shaper.Limits{}), 10)
			r.ticks("me")
			// What TIME's jump looks like: all that was written lies by in the past.
			r.age("alive", by)
			rdb.HIncrBy(t.Context(), r.k.Own("ticked"), "at", -by.Milliseconds())
			if got := r.ticks("me"); len(got) != 0 {
				t.Errorf("%s: gave back %v", name, got)
			}
			r.age("alive", 31*time.Second)
			if got := r.ticks("me"); got["process_died"] != 1 {
				t.Errorf("%s: then gave back %v", name, got)
			}
		}
	})
}

// TestOrphans, QUE-01: active without a lease, and leases long past of nobody:
// both are found; what a live process owns is left alone, and its lost lease
// comes back.
func TestOrphans(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient, env *redistest.Env) {
		r := newRig(t, rdb, env)
		ctx := t.Context()
		for _, id := range []string{"nolease", "expired", "owned", "ownedold", "fresh"} {
			r.enqueue(queue.Job{ID: id})
		}
		// Three taken by plain asynq, which writes down no owner.
		plain := r.bare("plain", 10, shaper.Limits{})
		r.take(plain, 2)
		owned := r.bare("alive", 10, shaper.Limits{})
		r.take(owned, 2)
		r.take(plain, 1)
		rdb.Del(ctx, r.k.Owner("plain"))
		rdb.ZRem(ctx, r.k.Own(layout.Procs), "plain")
		rdb.ZRem(ctx, r.k.Asynq("lease"), "nolease", "owned")
		for _, id := range []string{"expired", "ownedold"} {
			rdb.ZAdd(ctx, r.k.Asynq("lease"), redis.Z{Score: float64(time.Now().Add(-66 * time.Second).Unix()), Member: id})
		}
		if got := r.ticks("me"); got["no_lease"] != 1 || got["lease_expired"] != 1 || len(got) != 2 {
			t.Errorf("gave back %v", got)
		}
		line := rdb.LRange(ctx, r.k.Asynq("pending"), 0, -1).Val()
		slices.Sort(line)
		if !slices.Equal(line, []string{"expired", "nolease"}) {
			t.Errorf("the line is %v", line)
		}
		if rdb.ZScore(ctx, r.k.Asynq("lease"), "owned").Err() != nil {
			t.Error("a live process's lease did not come back")
		}
	})
}

// TestLaneless: a job parked in asynq's sets and in no lane is found, with the
// due time that its score tells.
func TestLaneless(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient, env *redistest.Env) {
		r := newRig(t, rdb, env)
		ctx := t.Context()
		for i := range 300 {
			r.enqueue(queue.Job{ID: fmt.Sprintf("h%03d", i), Priority: queue.PriorityHigh})
		}
		r.enqueue(queue.Job{ID: "later", Delay: time.Hour})
		rdb.ZRem(ctx, r.k.Lane(layout.High), "h007", "h299")
		rdb.Del(ctx, r.k.Lane(layout.Default))
		for range 3 {
			r.aged()
			r.ticks("me")
		}
		for id, due := range map[string]time.Duration{"h007": 0, "h299": 0, "later": time.Hour} {
			at := rdb.ZScore(ctx, r.k.Lane(layout.Default), id).Val()
			if d := time.Until(time.UnixMilli(int64(at))) - due; d < -10*time.Second || d > 5*time.Second {
				t.Errorf("%s is due %s off", id, d)
			}
		}
		if n := rdb.ZCard(ctx, r.k.Lane(layout.Default)).Val(); n != 3 {
			t.Errorf("%d found", n)
		}
	})
}

// TestReclaimInBatches, QUE-26 and QUE-28: 20,000 jobs of one dead process,
// and 20,000 dead processes, are no matter. (One in ten is still active: asynq's
// active list is searched from end to end for each.)
func TestReclaimInBatches(t *testing.T) {
	redistest.Real(t, func(t *testing.T, rdb redis.UniversalClient, env *redistest.Env) {
		const many = 20_000
		r := newRig(t, rdb, env)
		ctx := t.Context()
		pipe := rdb.Pipeline()
		for i := range many {
			id := fmt.Sprint("j", i)
			if i%10 == 0 {
				pipe.HSet(ctx, r.k.Task(id), "msg", "m", "state", "active")
				pipe.LPush(ctx, r.k.Asynq("active"), id)
				pipe.ZAdd(ctx, r.k.Asynq("lease"), redis.Z{Score: 1, Member: id})
			}
			pipe.HSet(ctx, r.k.Owner("dead"), id, "p")
			pipe.ZAdd(ctx, r.k.Own(layout.Procs), redis.Z{Score: 1, Member: fmt.Sprint("gone", i)})
		}
		pipe.ZAdd(ctx, r.k.Own(layout.Procs), redis.Z{Score: 1, Member: "dead"})
		if _, err := pipe.Exec(ctx); err != nil {
			t.Fatal(err)
		}
		got := r.ticks("me")
		if got["process_died"]+got["lease_expired"] != many/10 || got["forgotten"] != many+1 {
			t.Errorf("gave back %v", got)
		}
		if n := rdb.LLen(ctx, r.k.Asynq("pending")).Val(); n != many/10 {
			t.Errorf("%d pending", n)
		}
		if n := r.size(r.k.Asynq("active")) + r.size(r.k.Asynq("lease")) + r.size(r.k.Owner("dead")); n != 0 {
			t.Errorf("%d left", n)
		}
		if n := rdb.ZCard(ctx, r.k.Own(layout.Procs)).Val(); n != 1 {
			t.Errorf("%d processes remembered", n)
		}
	})
}

// TestLostAnswer: jobs taken for this worker whose answer never arrived are
// given back after two ticks. Take reconcile out and they stay for ever: their
// owner lives.
func TestLostAnswer(t *testing.T) {
	redistest.Virtual(t, func(t *testing.T, rdb redis.UniversalClient, env *redistest.Env) {
		r := newRig(t, rdb, env)
		w := r.worker(shaper.Limits{}, func(context.Context, *Job) error { return nil })
		r.enqueue(queue.Job{ID: "lost"})
		r.take(r.bare(w.process, 10, shaper.Limits{}), 5)
		r.start(w)
		if s := r.stone("lost"); s.State != queue.Succeeded {
			t.Errorf("%+v", s)
		}
	})
}

// TestRecoveredWhileRunning: a worker that was thought dead comes back, and
// what it says of a job that someone else has now changes nothing.
func TestRecoveredWhileRunning(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient, env *redistest.Env) {
		r := newRig(t, rdb, env)
		r.enqueue(queue.Job{ID: "a"})
		r.take(r.bare("slow", 10, shaper.Limits{}), 5)
		r.ticks("me")
		r.age("slow", 31*time.Second)
		r.ticks("me")
		r.take(r.bare("next", 10, shaper.Limits{}), 5)
		s := newSettler(rdb, r.k, "slow", 10, newHands(), testLog(t))
		for _, kind := range []byte("drb") {
			answers, err := s.try([]*order{{kind: kind, h: &hand{id: "a", origin: "p"}, lane: "d"}})
			if err != nil || !slices.Equal(answers, []string{answerGone}) {
				t.Errorf("%c: %v, %v", kind, answers, err)
			}
		}
		if n := rdb.LLen(t.Context(), r.k.Asynq("active")).Val(); n != 1 {
			t.Errorf("%d active", n)
		}
		if st := rdb.HGet(t.Context(), r.k.Task("a"), "state").Val(); st != "active" {
			t.Errorf("it is %q", st)
		}
	})
}

// TestReclaimOfRemovedProvider: jobs of a provider without any worker come
// back through Reclaim.
func TestReclaimOfRemovedProvider(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient, env *redistest.Env) {
		r := newRig(t, rdb, env)
		r.enqueue(queue.Job{ID: "a"})
		r.take(r.bare("dead", 10, shaper.Limits{}), 5)
		r.ticks("")
		r.age("dead", time.Minute)
		n, err := Reclaim(t.Context(), rdb, "", provider1)
		if err != nil || n != 1 {
			t.Errorf("gave back %d: %v", n, err)
		}
	})
}

// TestRegisteredAgain: after a flush the provider's spec and asynq's queue are
// back within a tick. asynq's clients register once in their life.
func TestRegisteredAgain(t *testing.T) {
	redistest.Virtual(t, func(t *testing.T, rdb redis.UniversalClient, env *redistest.Env) {
		r := newRig(t, rdb, env)
		r.start(r.worker(shaper.Limits{}, func(context.Context, *Job) error { return nil }))
		time.Sleep(time.Second)
		env.Flush(t.Context())
		time.Sleep(6 * time.Second)
		if !rdb.SIsMember(t.Context(), "asynq:queues", provider1).Val() {
			t.Error("asynq does not know the queue")
		}
		if ps, err := r.q.Providers(t.Context()); err != nil || !slices.Equal(ps, []string{provider1}) {
			t.Errorf("%v, %v", ps, err)
		}
		r.stone(r.enqueue(queue.Job{ID: "after"}))
	})
}

// TestLongCall, RET-16: a call longer than every lease is made once.
func TestLongCall(t *testing.T) {
	redistest.Virtual(t, func(t *testing.T, rdb redis.UniversalClient, env *redistest.Env) {
		r := newRig(t, rdb, env)
		var got calls
		slow := func(_ context.Context, j *Job) error {
			got.add(j.ID)
			time.Sleep(29 * time.Second)
			return nil
		}
		for range 2 {
			r.start(r.worker(shaper.Limits{}, slow))
		}
		r.enqueue(queue.Job{ID: "long"})
		if s := r.stoneWithin("long", time.Minute); s.State != queue.Succeeded {
			t.Errorf("%+v", s)
		}
		time.Sleep(3 * time.Minute)
		if n := len(got.all()); n != 1 {
			t.Errorf("called %d times", n)
		}
	})
}
