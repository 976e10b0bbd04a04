package queue

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/penstock-io/penstock/internal/redistest"
	"github.com/penstock-io/penstock/queue/internal/layout"
)

// TestEnqueueLeavesWhatAsynqLeaves: asynq's own inspector reads our tasks.
func TestEnqueueLeavesWhatAsynqLeaves(t *testing.T) {
	both(t, func(t *testing.T, f *fixture) {
		body := `{"id": 9007199254740993, "amount": 1e400, "big": 123456789012345678901234567890}` // QUE-17
		r := f.put(Job{ID: "a", Method: "PUT", Path: "/m?x=1", Headers: map[string]string{"x-trace": "1"}, Body: []byte(body)})
		if diff := cmp.Diff(Receipt{Provider: "sms", ID: "a", State: Waiting}, r); diff != "" {
			t.Error(diff)
		}
		f.put(Job{ID: "low", Priority: PriorityLow})
		f.put(Job{ID: "later", Delay: time.Minute})

		insp := asynq.NewInspectorFromRedisClient(f.rdb)
		queues, err := insp.Queues()
		f.must(err)
		if !slices.Equal(queues, []string{"sms"}) {
			t.Errorf("queues %v", queues)
		}
		info, err := insp.GetTaskInfo("sms", "a")
		f.must(err)
		if info.State != asynq.TaskStatePending || string(info.Payload) != body || info.Type != layout.TaskHTTP {
			t.Errorf("asynq sees %+v", info)
		}
		env, err := layout.Decode(info.Headers)
		f.must(err)
		if env.Method != "PUT" || env.Path != "/m?x=1" || env.Headers["X-Trace"] != "1" {
			t.Errorf("envelope %+v", env)
		}
		if info.MaxRetry != layout.AsynqMaxRetry || info.Timeout != taskTimeout {
			t.Errorf("MaxRetry %d, Timeout %s", info.MaxRetry, info.Timeout)
		}
		stats, err := insp.GetQueueInfo("sms")
		if f.env.Virtual { // miniredis has no MEMORY USAGE of every type
			if err == nil && (stats.Pending != 1 || stats.Scheduled != 2) {
				t.Errorf("asynq counts %+v", stats)
			}
		} else if f.must(err); stats != nil && (stats.Pending != 1 || stats.Scheduled != 2) {
			t.Errorf("asynq counts %+v", stats)
		}
		far, err := insp.ListScheduledTasks("sms")
		f.must(err)
		for _, task := range far {
			if task.NextProcessAt.Unix() < layout.Far {
				t.Errorf("asynq would run %s itself at %s", task.ID, task.NextProcessAt)
			}
		}
	})
}

// TestLanes: what waits in a lane, and when it is due, by Redis's clock.
func TestLanes(t *testing.T) {
	both(t, func(t *testing.T, f *fixture) {
		ctx := t.Context()
		now, err := f.rdb.Time(ctx).Result()
		f.must(err)
		for _, row := range []struct {
			job   Job
			lane  Priority
			state State
			after time.Duration
		}{
			{Job{ID: "plain"}, "", Waiting, 0},
			{Job{ID: "high", Priority: PriorityHigh}, PriorityHigh, Waiting, 0},
			{Job{ID: "low", Priority: PriorityLow}, PriorityLow, Waiting, 0},
			{Job{ID: "RET-15", Delay: 500 * time.Millisecond}, PriorityDefault, Delayed, 500 * time.Millisecond},
			{Job{ID: "tiny", Delay: time.Nanosecond}, PriorityDefault, Delayed, time.Millisecond},
			{Job{ID: "late high", Priority: PriorityHigh, Delay: time.Hour}, PriorityHigh, Delayed, time.Hour},
			{Job{ID: "due", Due: now.Add(90 * time.Minute)}, PriorityDefault, Delayed, 90 * time.Minute},
			{Job{ID: "past", Due: now.Add(-time.Hour)}, "", Waiting, 0},
		} {
			if r := f.put(row.job); r.State != row.state {
				t.Errorf("%s: state %s, want %s", row.job.ID, r.State, row.state)
			}
			if s := f.state(row.job.ID); s != row.state && row.job.ID != "tiny" {
				t.Errorf("%s: Get says %s, want %s", row.job.ID, s, row.state)
			}
			for _, p := range []Priority{PriorityHigh, PriorityDefault, PriorityLow} {
				score, err := f.rdb.ZScore(ctx, f.k.Lane(p), row.job.ID).Result()
				if in := err == nil; in != (p == row.lane) {
					t.Errorf("%s: in lane %s: %v", row.job.ID, p, in)
				} else if in {
					off := time.UnixMilli(int64(score)).Sub(now.Add(row.after))
					if off < -20*time.Millisecond || off > 2*time.Second {
						t.Errorf("%s: due %s off", row.job.ID, off)
					}
				}
			}
		}
		want := Counts{Waiting: 4, Delayed: 4, Retrying: 0, Running: 0, Succeeded: 0, Dead: 0, Expired: 0, Cancelled: 0}
		got, err := f.Counts(ctx, "sms")
		f.must(err)
		if diff := cmp.Diff(want, got); diff != "" && f.env.Virtual { // on a slow machine the short ones are due
			t.Error(diff)
		}
		if f.env.Virtual {
			time.Sleep(2 * time.Second)
			if s := f.state("RET-15"); s != Waiting {
				t.Errorf("after its delay it is %s", s)
			}
			got, err = f.Counts(ctx, "sms")
			f.must(err)
			if got[Waiting] != 6 || got[Delayed] != 2 {
				t.Errorf("after the short delays: %v", got)
			}
		}
	})
}

// TestEnqueueTwice: one id, one job. Cases QUE-04, QUE-06, QUE-07, QUE-33.
func TestEnqueueTwice(t *testing.T) {
	both(t, func(t *testing.T, f *fixture) {
		ctx := t.Context()
		same := Job{Provider: "sms", ID: "order-1", Path: "/m", Body: []byte("x")}
		other := same
		other.Body = []byte("y")

		check := func(when string, want State) {
			t.Helper()
			r, err := f.Enqueue(ctx, same)
			if err != nil || !r.Known || r.State != want || r.ID != same.ID {
				t.Errorf("%s, same content: %+v, %v", when, r, err)
			}
			_, err = f.Enqueue(ctx, other)
			ce, ok := errors.AsType[*ConflictError](err)
			if !ok || !errors.Is(err, ErrConflict) || ce.State != want || ce.ID != same.ID {
				t.Fatalf("%s, other content: %v", when, err)
			}
			if want.Final() != !ce.Until.IsZero() {
				t.Errorf("%s: until %v", when, ce.Until)
			}
			for _, part := range []string{"sms/order-1", string(want)} {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%s: %q does not say %q", when, err, part)
				}
			}
		}
		f.put(same)
		check("waiting", Waiting)
		if n := f.rdb.LLen(ctx, f.k.Asynq("pending")).Val(); n != 1 {
			t.Errorf("%d entries in the line", n)
		}
		f.take()
		check("QUE-33 active", Running)
		f.settle("order-1", Succeeded, time.Second)
		check("QUE-07 succeeded", Succeeded)
		if n := f.rdb.LLen(ctx, f.k.Asynq("pending")).Val(); n != 0 {
			t.Errorf("QUE-07: a second copy is waiting")
		}
		time.Sleep(1100 * time.Millisecond)
		if r := f.put(other); r.Known { // after keep, the id is free
			t.Errorf("after keep: %+v", r)
		}
		f.take()
		f.settle("order-1", Dead, time.Hour)
		same, other = other, same
		check("QUE-04 dead", Dead)
	})
}

// TestOwnIDs: ids are made once, so that a repeated script is a success.
func TestOwnIDs(t *testing.T) {
	both(t, func(t *testing.T, f *fixture) {
		ctx := t.Context()
		r := f.put(Job{})
		id, err := uuid.Parse(r.ID)
		if err != nil || id.Version() != 7 || r.Known {
			t.Fatalf("%+v, %v", r, err)
		}
		// The answer of the first try was lost: go-redis sends it again.
		p, err := f.prepare(ctx, Job{Provider: "sms", Body: []byte("b")})
		f.must(err)
		for _, when := range []string{"first", "again"} {
			reply, err := p.script.Run(ctx, f.rdb, p.keys, p.args...).Result()
			f.must(err)
			r, err := f.Client.settle(ctx, p, reply)
			if err != nil || r.Known || r.State != Waiting {
				t.Errorf("%s: %+v, %v", when, r, err)
			}
		}
		if n := f.rdb.LLen(ctx, f.k.Asynq("pending")).Val(); n != 2 {
			t.Errorf("%d in the line, want 2", n)
		}
		f.take()
		f.take()
		f.settle(p.job.ID, Succeeded, time.Hour)
		reply, err := p.script.Run(ctx, f.rdb, p.keys, p.args...).Result()
		f.must(err)
		if r, err := f.Client.settle(ctx, p, reply); err != nil || r.Known || r.State != Succeeded {
			t.Errorf("after the end: %+v, %v", r, err)
		}
	})
}

// TestStranger: another asynq program's task with the id is a conflict, not ours.
func TestStranger(t *testing.T) {
	both(t, func(t *testing.T, f *fixture) {
		plain := asynq.NewClientFromRedisClient(f.rdb)
		_, err := plain.Enqueue(asynq.NewTask("mail", []byte("p")), asynq.Queue("sms"), asynq.TaskID("x"))
		f.must(err)
		if _, err := f.Enqueue(t.Context(), Job{Provider: "sms", ID: "x"}); !errors.Is(err, ErrConflict) {
			t.Errorf("got %v", err)
		}
		if i := f.info("x"); i.State != Waiting || i.Type != "mail" {
			t.Errorf("%+v", i)
		}
		// And ours is seen by theirs.
		f.put(Job{ID: "y"})
		if _, err := plain.Enqueue(asynq.NewTask("mail", nil), asynq.Queue("sms"), asynq.TaskID("y")); !errors.Is(err, asynq.ErrTaskIDConflict) {
			t.Errorf("got %v", err)
		}
	})
}

// TestBodies: a large body has a key of its own, and comes back whole.
func TestBodies(t *testing.T) {
	both(t, func(t *testing.T, f *fixture) {
		ctx := t.Context()
		for _, row := range []struct {
			id   string
			size int
			own  bool
		}{{"small", InlineBody, false}, {"large", InlineBody + 1, true}, {"QUE-16 limit", DefaultMaxBody, true}} {
			body := strings.Repeat("é\x00", row.size/3+1)[:row.size]
			f.put(Job{ID: row.id, Body: []byte(body)})
			f.put(Job{ID: row.id + " later", Body: []byte(body), Delay: time.Hour})
			for _, id := range []string{row.id, row.id + " later"} {
				got, err := f.rdb.Get(ctx, f.k.Body(id)).Result()
				if own := err == nil; own != row.own || own && got != body {
					t.Errorf("%s: own key %v, %d bytes", id, own, len(got))
				}
				if i := f.info(id); i.BodySize != row.size {
					t.Errorf("%s: size %d, want %d", id, i.BodySize, row.size)
				}
			}
		}
		_, err := f.Enqueue(ctx, Job{Provider: "sms", Body: make([]byte, DefaultMaxBody+1)})
		if !errors.Is(err, ErrTooLarge) || !strings.Contains(err.Error(), "max_body") {
			t.Errorf("QUE-16 limit + 1: %v", err)
		}
	})
}

// TestWakes: inlets hear of a job; behind a long line nobody is woken.
func TestWakes(t *testing.T) {
	both(t, func(t *testing.T, f *fixture) {
		ctx := t.Context()
		ps := f.env.Client().Subscribe(ctx, f.k.Own(layout.Jobs))
		defer ps.Close()
		_, err := ps.Receive(ctx)
		f.must(err)
		f.put(Job{ID: "a"})
		f.put(Job{ID: "b", Priority: PriorityHigh})
		f.put(Job{ID: "c", Delay: time.Hour})
		for _, want := range []string{"a", "b", "c"} {
			m, err := ps.ReceiveMessage(ctx)
			if err != nil || m.Payload != want {
				t.Errorf("heard %v, %v; want %s", m, err, want)
			}
		}
		for range 40 {
			f.put(Job{})
		}
		f.put(Job{ID: "last", Priority: PriorityHigh})
		heard := 0
		for {
			m, err := ps.ReceiveMessage(ctx)
			f.must(err)
			if m.Payload == "last" {
				break
			}
			heard++
		}
		if heard > 20 {
			t.Errorf("woken %d times for 40 jobs in a line", heard)
		}
	})
}

// TestDeletedInAsynqmon is case QUE-05, and what running and deleting there
// leaves behind: an id in a lane, which must not disturb the next job of that id.
func TestDeletedInAsynqmon(t *testing.T) {
	both(t, func(t *testing.T, f *fixture) {
		ctx := t.Context()
		insp := asynq.NewInspectorFromRedisClient(f.rdb)
		f.put(Job{ID: "QUE-05", Delay: time.Minute, Priority: PriorityHigh, Body: make([]byte, InlineBody+1)})
		f.must(insp.DeleteTask("sms", "QUE-05"))
		if _, err := f.Get(ctx, "sms", "QUE-05"); !errors.Is(err, ErrNotFound) {
			t.Errorf("Get after delete: %v", err)
		}
		if r := f.put(Job{ID: "QUE-05", Delay: time.Hour}); r.Known || r.State != Delayed {
			t.Errorf("again: %+v", r)
		}
		if n := f.rdb.ZCard(ctx, f.k.Lane(PriorityHigh)).Val(); n != 0 {
			t.Error("the old place in the high lane is still there: it would run an hour early")
		}
		f.must(insp.RunTask("sms", "QUE-05"))
		if s := f.state("QUE-05"); s != Waiting {
			t.Errorf("after run: %s", s)
		}
		sw, err := f.NewSweeper("sms")
		f.must(err)
		done, err := sw.Sweep(ctx, 0)
		f.must(err)
		if done.Stray != 1 {
			t.Errorf("swept %+v: the id in the lane is a stray now", done)
		}
		if id := f.take(); id != "QUE-05" {
			t.Errorf("took %s", id)
		}
	})
}

// TestScriptsGone is case QUE-25.
func TestScriptsGone(t *testing.T) {
	both(t, func(t *testing.T, f *fixture) {
		f.put(Job{})
		f.must(f.rdb.ScriptFlush(t.Context()).Err())
		f.put(Job{})
		f.put(Job{Delay: time.Hour})
		f.must(f.rdb.ScriptFlush(t.Context()).Err())
		f.put(Job{Delay: time.Hour})
		if n, err := f.Counts(t.Context(), "sms"); err != nil || n[Waiting] != 2 || n[Delayed] != 2 {
			t.Errorf("%v, %v", n, err)
		}
	})
}

// TestNamespaces: two installations on one Redis do not see each other.
func TestNamespaces(t *testing.T) {
	both(t, func(t *testing.T, f *fixture) {
		ctx := t.Context()
		shop, err := NewClient(Config{Redis: f.rdb, Namespace: "shop"})
		f.must(err)
		if _, err := shop.Enqueue(ctx, Job{Provider: "sms"}); !errors.Is(err, ErrUnknownProvider) {
			t.Errorf("the other namespace's provider is known: %v", err)
		}
		f.must(shop.Publish(ctx, "mail", Spec{}))
		f.put(Job{ID: "a"})
		if _, err := shop.Enqueue(ctx, Job{Provider: "mail", ID: "a"}); err != nil {
			t.Error(err)
		}
		names, err := shop.Providers(ctx)
		if err != nil || !slices.Equal(names, []string{"mail"}) {
			t.Errorf("%v, %v", names, err)
		}
		if n := f.rdb.LLen(ctx, "asynq:{shop.mail}:pending").Val(); n != 1 {
			t.Error("not in the queue shop.mail")
		}
		// shop.mail without a namespace would be the same queue.
		if err := f.Publish(ctx, "shop.mail", Spec{}); err == nil {
			t.Error("two providers share a queue")
		}
		if _, err := f.Enqueue(ctx, Job{Provider: "shop.mail"}); err == nil {
			t.Error("a job went into another namespace's queue")
		}
	})
}

// TestOneRoundTrip: what a warm client sends for a job is one command.
func TestOneRoundTrip(t *testing.T) {
	redistest.Real(t, func(t *testing.T, rdb redis.UniversalClient, env *redistest.Env) {
		f := newFixture(t, rdb, env)
		f.put(Job{})
		var sent counter
		rdb.AddHook(&sent)
		f.put(Job{ID: "one"})
		if n := sent.n.Load(); n != 1 {
			t.Errorf("%d commands for one job", n)
		}
	})
}
