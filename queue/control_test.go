package queue

import (
	"errors"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/penstock-io/penstock/queue/internal/layout"
)

// TestCancel: at once where nobody has the job, asked for where someone has.
func TestCancel(t *testing.T) {
	both(t, func(t *testing.T, f *fixture) {
		ctx := t.Context()
		ps := f.env.Client().Subscribe(ctx, f.k.Own(layout.Cancelled))
		defer ps.Close()
		_, err := ps.Receive(ctx)
		f.must(err)

		f.put(Job{ID: "retrying"})
		f.retry(f.take(), PriorityDefault, time.Minute)
		f.put(Job{ID: "running"})
		f.take()
		f.put(Job{ID: "waiting", Body: []byte("b")})
		f.put(Job{ID: "high", Priority: PriorityHigh})
		f.put(Job{ID: "delayed", Delay: time.Hour})

		for _, id := range []string{"retrying", "waiting", "high", "delayed"} {
			got, err := f.Cancel(ctx, "sms", id)
			if err != nil || got.State != Cancelled || got.Asked {
				t.Errorf("%s: %+v, %v", id, got, err)
			}
			i := f.info(id)
			if i.State != Cancelled || i.Reason != CancelReason || i.KeptUntil.IsZero() {
				t.Errorf("%s: %+v", id, i)
			}
			if got, err := f.Cancel(ctx, "sms", id); err != nil || got.State != Cancelled {
				t.Errorf("%s again: %+v, %v", id, got, err)
			}
		}
		counts, err := f.Counts(ctx, "sms")
		f.must(err)
		if counts[Cancelled] != 4 || counts[Waiting]+counts[Delayed]+counts[Retrying] != 0 || counts[Running] != 1 {
			t.Errorf("%v", counts)
		}
		for _, l := range f.k.Lanes() {
			if n := f.rdb.ZCard(ctx, l).Val(); n != 0 {
				t.Errorf("%d left in %s", n, l)
			}
		}
		insp := asynq.NewInspectorFromRedisClient(f.rdb)
		info, err := insp.GetTaskInfo("sms", "waiting")
		f.must(err)
		if info.State != asynq.TaskStateCompleted || info.CompletedAt.IsZero() || info.Retention != DefaultKeep || string(info.Payload) != "b" {
			t.Errorf("asynq sees %+v", info)
		}

		got, err := f.Cancel(ctx, "sms", "running")
		if err != nil || got.State != Running || !got.Asked {
			t.Errorf("running: %+v, %v", got, err)
		}
		if m, err := ps.ReceiveMessage(ctx); err != nil || m.Payload != "running" {
			t.Errorf("the worker heard %v, %v", m, err)
		}
		if i := f.info("running"); !i.CancelAsked {
			t.Error("CancelAsked is not told")
		}

		f.settle("running", Succeeded, time.Hour)
		if _, err := f.Cancel(ctx, "sms", "running"); !errors.Is(err, ErrState) {
			t.Errorf("succeeded: %v", err)
		}
		if _, err := f.Cancel(ctx, "sms", "none"); !errors.Is(err, ErrNotFound) {
			t.Errorf("none: %v", err)
		}
		// A cancelled id is remembered: the same job is not made again.
		if r := f.put(Job{ID: "delayed", Delay: time.Hour}); !r.Known || r.State != Cancelled {
			t.Errorf("again: %+v", r)
		}
	})
}

// TestReplay: a dead job runs again as one that never ran.
func TestReplay(t *testing.T) {
	both(t, func(t *testing.T, f *fixture) {
		ctx := t.Context()
		for _, row := range []struct {
			job   Job
			state State
		}{
			{Job{ID: "dead", Body: []byte("b"), MaxAge: time.Minute, Path: "/p"}, Dead},
			{Job{ID: "expired"}, Expired},
			{Job{ID: "cancelled", Priority: PriorityLow}, Cancelled},
		} {
			id := row.job.ID
			f.put(row.job)
			if row.state == Cancelled {
				_, err := f.Cancel(ctx, "sms", id)
				f.must(err)
			} else {
				f.takeID(id)
				f.settle(id, row.state, time.Hour)
			}
			f.must(f.rdb.HSet(ctx, f.k.Own("crash"), id, 3).Err())
			r, err := f.Replay(ctx, "sms", id)
			if err != nil || r.State != Waiting || r.ID != id {
				t.Errorf("%s: %+v, %v", id, r, err)
			}
			i := f.info(id)
			if i.State != Waiting || i.Attempts != 0 || i.Reason != "" || i.Status != 0 || i.LastError != "" || !i.KeptUntil.IsZero() {
				t.Errorf("%s: %+v", id, i)
			}
			if row.job.MaxAge > 0 && (i.Expires.Sub(i.Due) != row.job.MaxAge || i.Path != row.job.Path) {
				t.Errorf("%s: due %s, expires %s, path %s", id, i.Due, i.Expires, i.Path)
			}
			if f.rdb.HExists(ctx, f.k.Own("crash"), id).Val() {
				t.Errorf("%s: its crashes are still counted", id)
			}
			if n := f.rdb.Exists(ctx, f.k.Tombstone(id)).Val(); n != 0 {
				t.Errorf("%s: the gate would refuse it, its tombstone stands", id)
			}
			if _, err := f.Replay(ctx, "sms", id); !errors.Is(err, ErrState) {
				t.Errorf("%s twice: %v", id, err)
			}
		}
		c, err := f.Counts(ctx, "sms")
		f.must(err)
		if c[Waiting] != 3 || c[Dead]+c[Expired]+c[Cancelled] != 0 {
			t.Errorf("%v", c)
		}
		insp := asynq.NewInspectorFromRedisClient(f.rdb)
		info, err := insp.GetTaskInfo("sms", "dead")
		f.must(err)
		if info.State != asynq.TaskStatePending || info.Retention != 0 || !info.CompletedAt.IsZero() || info.LastErr != "" || string(info.Payload) != "b" {
			t.Errorf("asynq sees %+v", info)
		}

		f.put(Job{ID: "done"})
		f.takeID("done")
		f.settle("done", Succeeded, time.Hour)
		if _, err := f.Replay(ctx, "sms", "done"); !errors.Is(err, ErrState) {
			t.Errorf("succeeded: %v", err)
		}
	})
}

// TestPause: as asynqmon's, and twice is no error.
func TestPause(t *testing.T) {
	both(t, func(t *testing.T, f *fixture) {
		ctx := t.Context()
		f.put(Job{})
		insp := asynq.NewInspectorFromRedisClient(f.rdb)
		for range 2 {
			f.must(f.PauseQueue(ctx, "sms"))
		}
		if err := insp.PauseQueue("sms"); err == nil {
			t.Error("asynq does not see the pause")
		}
		f.must(insp.UnpauseQueue("sms"))
		f.must(insp.PauseQueue("sms"))
		for range 2 {
			f.must(f.ResumeQueue(ctx, "sms"))
		}
		if err := insp.UnpauseQueue("sms"); err == nil {
			t.Error("asynq still sees a pause")
		}
	})
}
