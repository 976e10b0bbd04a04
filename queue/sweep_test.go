package queue

import (
	"slices"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/penstock-io/penstock/queue/internal/layout"
)

func (f *fixture) sweeper() *Sweeper {
	f.t.Helper()
	s, err := f.NewSweeper("sms")
	f.must(err)
	s.grace = 0
	return s
}

func (f *fixture) sweep(s *Sweeper, keep time.Duration) Swept {
	f.t.Helper()
	done, err := s.Sweep(f.t.Context(), keep)
	f.must(err)
	return done
}

// TestAdopt: a job that stands in asynq's set and in no lane would never be
// called. The sweep gives it the lane of its priority and its due time.
func TestAdopt(t *testing.T) {
	both(t, func(t *testing.T, f *fixture) {
		ctx := t.Context()
		f.put(Job{ID: "delayed", Delay: time.Hour})
		f.put(Job{ID: "high", Priority: PriorityHigh})
		f.put(Job{ID: "retry"})
		f.retry(f.take(), PriorityDefault, 30*time.Minute)
		f.put(Job{ID: "gone", Priority: PriorityLow})
		due := f.rdb.ZScore(ctx, f.k.Lane(PriorityDefault), "delayed").Val()
		for _, l := range f.k.Lanes() {
			f.rdb.Del(ctx, l)
		}
		f.rdb.Del(ctx, f.k.Task("gone"))
		// What another program schedules at a real time is asynq's own matter.
		other := asynq.NewClientFromRedisClient(f.rdb)
		_, err := other.Enqueue(asynq.NewTask("mail", nil), asynq.Queue("sms"), asynq.ProcessIn(time.Hour))
		f.must(err)

		s := f.sweeper()
		if done := f.sweep(s, 0); done.Adopted != 0 {
			t.Errorf("%d adopted at first sight: a worker may be between two steps", done.Adopted)
		}
		if done := f.sweep(s, 0); done.Adopted != 4 { // and one taken out, its task gone
			t.Errorf("adopted %d, want 4", done.Adopted)
		}
		if got := f.rdb.ZScore(ctx, f.k.Lane(PriorityDefault), "delayed").Val(); got < due || got > due+1000 {
			t.Errorf("due at %.0f, was %.0f", got, due)
		}
		if n := f.rdb.ZCard(ctx, f.k.Lane(PriorityHigh)).Val(); n != 1 {
			t.Errorf("%d in the high lane", n)
		}
		retry := time.UnixMilli(int64(f.rdb.ZScore(ctx, f.k.Lane(PriorityDefault), "retry").Val()))
		if d := time.Until(retry); d < 28*time.Minute || d > 31*time.Minute {
			t.Errorf("the retry is due in %s, early or late", d)
		}
		if n := f.rdb.ZCard(ctx, f.k.Asynq("scheduled")).Val(); n != 3 {
			t.Errorf("%d scheduled", n)
		}
		if done := f.sweep(s, 0); done != (Swept{}) {
			t.Errorf("a third sweep did %+v", done)
		}
	})
}

// TestAdoptMany goes on where the sweep before stopped.
func TestAdoptMany(t *testing.T) {
	both(t, func(t *testing.T, f *fixture) {
		n := sweepBatch*sweepSteps + 50
		if f.env.Virtual {
			n = sweepBatch + 50
		}
		jobs := slices.Repeat([]Job{{Provider: "sms", Priority: PriorityLow}}, n)
		for _, err := range f.EnqueueAll(t.Context(), slices.Values(jobs)) {
			f.must(err)
		}
		f.rdb.Del(t.Context(), f.k.Lane(PriorityLow))
		s := f.sweeper()
		adopted := 0
		for range 4 {
			adopted += f.sweep(s, 0).Adopted
		}
		if adopted != n {
			t.Errorf("adopted %d of %d", adopted, n)
		}
	})
}

// TestTrim is case QUE-26: 20,000 forgotten jobs go in lots; those whose keep
// still runs, and ids that are in use again, stay.
func TestTrim(t *testing.T) {
	both(t, func(t *testing.T, f *fixture) {
		ctx := t.Context()
		n := 20_000
		if f.env.Virtual {
			n = 2_000
		}
		f.put(Job{ID: "dead", Body: make([]byte, InlineBody+1)})
		f.take()
		f.settle("dead", Dead, time.Second)
		f.put(Job{ID: "reused"})
		f.take()
		f.settle("reused", Succeeded, time.Second)
		time.Sleep(1200 * time.Millisecond)
		f.put(Job{ID: "reused"})
		f.put(Job{ID: "fresh"})
		f.take()
		f.take()
		f.settle("fresh", Dead, time.Hour)
		f.stones(n, Succeeded, time.Second, 2*time.Second)

		done := f.sweep(f.sweeper(), time.Second)
		if done.Forgotten != n+2 {
			t.Errorf("QUE-26: forgot %d, want %d", done.Forgotten, n+2)
		}
		if k := f.rdb.Exists(ctx, f.k.Task("dead"), f.k.Body("dead"), f.k.Own(layout.Bodies)).Val(); k != 0 {
			t.Errorf("%d keys of the dead job are left", k)
		}
		if n := f.rdb.ZCard(ctx, f.k.Asynq("completed")).Val(); n != 1 {
			t.Errorf("asynq has %d completed", n)
		}
		if s := f.state("reused"); s != Running {
			t.Errorf("reused is %s", s)
		}
		if s := f.state("fresh"); s != Dead {
			t.Errorf("fresh is %s", s)
		}
	})
}

// TestNothingIsLostToTheArchive: 12,000 dead jobs, all kept. asynq's archive
// holds 10,000 and drops the rest without a word.
func TestNothingIsLostToTheArchive(t *testing.T) {
	both(t, func(t *testing.T, f *fixture) {
		n := 12_000
		if f.env.Virtual {
			n = 300
		}
		for lot := range slices.Chunk(make([]Job, n), 1000) {
			for i := range lot {
				lot[i].Provider = "sms"
			}
			for r, err := range f.EnqueueAll(t.Context(), slices.Values(lot)) {
				f.must(err)
				_ = r
			}
			f.settleAll(Dead)
		}
		f.sweep(f.sweeper(), time.Hour)
		c, err := f.Counts(t.Context(), "sms")
		f.must(err)
		if c[Dead] != int64(n) || f.rdb.ZCard(t.Context(), f.k.Asynq("completed")).Val() != int64(n) {
			t.Errorf("%d of %d dead jobs are left", c[Dead], n)
		}
	})
}

// settleAll makes every waiting job final, in a pipeline.
func (f *fixture) settleAll(s State) {
	f.t.Helper()
	ctx := f.t.Context()
	ids := f.rdb.LRange(ctx, f.k.Asynq("pending"), 0, -1).Val()
	f.rdb.Del(ctx, f.k.Asynq("pending"))
	now := time.Now()
	_, err := f.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, id := range ids {
			p.HSet(ctx, f.k.Task(id), "state", "completed")
			p.ZAdd(ctx, f.k.Asynq("completed"), redis.Z{Score: float64(now.Add(time.Hour).Unix()), Member: id})
			p.Set(ctx, f.k.Tombstone(id), layout.Tombstone{State: s, At: now.UnixMilli()}.Encode(), time.Hour)
			p.ZAdd(ctx, f.k.Done(s), redis.Z{Score: float64(now.UnixMilli()), Member: id})
		}
		return nil
	})
	f.must(err)
}

// TestOrphanBodies: a body whose task was deleted in asynqmon goes too.
func TestOrphanBodies(t *testing.T) {
	both(t, func(t *testing.T, f *fixture) {
		f.put(Job{ID: "a", Body: make([]byte, InlineBody+1)})
		f.put(Job{ID: "b", Body: make([]byte, InlineBody+1)})
		f.must(asynq.NewInspectorFromRedisClient(f.rdb).DeleteTask("sms", "a"))
		if done := f.sweep(f.sweeper(), 0); done.Bodies != 1 {
			t.Errorf("removed %d bodies", done.Bodies)
		}
		if n := f.rdb.Exists(t.Context(), f.k.Body("a"), f.k.Body("b")).Val(); n != 1 {
			t.Errorf("%d bodies are left", n)
		}
	})
}

// TestComesBack is case QUE-27: after a loss of everything, publishing and
// sweeping make the queue known again; nothing is wrong for ever.
func TestComesBack(t *testing.T) {
	both(t, func(t *testing.T, f *fixture) {
		ctx := t.Context()
		f.put(Job{})
		f.env.Flush(ctx)
		f.must(f.Publish(ctx, "sms", Spec{}))
		f.put(Job{})
		f.sweep(f.sweeper(), 0)
		queues, err := asynq.NewInspectorFromRedisClient(f.rdb).Queues()
		if err != nil || !slices.Equal(queues, []string{"sms"}) {
			t.Errorf("QUE-27: asynq knows %v, %v", queues, err)
		}
	})
}
