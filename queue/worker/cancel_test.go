package worker

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/penstock-io/penstock/internal/redistest"
	"github.com/penstock-io/penstock/queue"
	"github.com/penstock-io/penstock/queue/internal/layout"
	"github.com/penstock-io/penstock/shaper"
)

// TestCancel: a job that is taken and waits ends at once and without a call; a
// call under way is not cut, and no attempt follows it.
func TestCancel(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient, env *redistest.Env) {
		r := newRig(t, rdb, env)
		ctx := context.Background()
		var got calls
		begun, end := make(chan string, 5), make(chan struct{})
		stop := r.start(r.worker(shaper.Limits{Concurrency: 1}, func(ctx context.Context, j *Job) error {
			got.add(j.ID)
			begun <- j.ID
			select {
			case <-end:
			case <-ctx.Done():
				t.Error("the call was cut")
			}
			return context.DeadlineExceeded // it would be tried again
		}))
		r.enqueue(queue.Job{ID: "called"})
		<-begun
		r.enqueue(queue.Job{ID: "waits"})
		env.Eventually(5*time.Second, "waits is taken", func() bool {
			return rdb.HGet(ctx, r.k.Task("waits"), "state").Val() == "active"
		})
		for _, id := range []string{"waits", "called"} {
			if _, err := r.q.Cancel(ctx, provider1, id); err != nil {
				t.Fatal(err)
			}
		}
		if s := r.stone("waits"); s.State != queue.Cancelled || s.Attempts != 0 || s.Reason != queue.CancelReason {
			t.Errorf("%+v", s)
		}
		close(end)
		if s := r.stone("called"); s.State != queue.Cancelled || s.Attempts != 1 || !strings.HasPrefix(s.Reason, queue.CancelReason+"; last: ") {
			t.Errorf("%+v", s)
		}
		stop()
		if ids := got.all(); len(ids) != 1 {
			t.Errorf("called %v", ids)
		}
		r.clean()
		if n := r.size(r.k.Asynq("completed")); n != 2 {
			t.Errorf("%d are kept", n)
		}
	})
}

// TestCancelWhoseSignalWasLost: what is only written down is found by the
// tick, and by the script that would put the job back.
func TestCancelWhoseSignalWasLost(t *testing.T) {
	redistest.Virtual(t, func(t *testing.T, rdb redis.UniversalClient, env *redistest.Env) {
		r := newRig(t, rdb, env)
		ctx := context.Background()
		begun := make(chan string, 5)
		stop := r.start(r.worker(shaper.Limits{Concurrency: 1}, func(ctx context.Context, j *Job) error {
			begun <- j.ID
			time.Sleep(8 * time.Second)
			return Defer(time.Millisecond, "again")
		}))
		r.enqueue(queue.Job{ID: "called"})
		<-begun
		r.enqueue(queue.Job{ID: "waits"})
		time.Sleep(100 * time.Millisecond)
		start := time.Now()
		for _, id := range []string{"called", "waits"} {
			rdb.ZAdd(ctx, r.k.Own(layout.Cancel), redis.Z{Score: 1, Member: id})
		}
		if s := r.stone("waits"); s.State != queue.Cancelled || time.Since(start) > 6*time.Second {
			t.Errorf("%+v after %s", s, time.Since(start))
		}
		if s := r.stone("called"); s.State != queue.Cancelled {
			t.Errorf("%+v", s)
		}
		stop()
		r.clean()
	})
}

// TestPutBackSeesCancellation is settle.lua's part of it by itself: a job that
// would come back and whose cancellation was asked for does not.
func TestPutBackSeesCancellation(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient, env *redistest.Env) {
		r := newRig(t, rdb, env)
		for _, kind := range []byte("rb") {
			id := string(kind)
			r.enqueue(queue.Job{ID: id})
			in := r.bare("p", 10, shaper.Limits{})
			r.take(in, 5)
			rdb.ZAdd(t.Context(), r.k.Own(layout.Cancel), redis.Z{Score: 1, Member: id})
			s := newSettler(rdb, r.k, "p", 10, newHands(), testLog(t))
			answers, err := s.try([]*order{{kind: kind, h: in.hands.all[id], lane: "d"}})
			if err != nil || len(answers) != 1 || answers[0] != answerCancelled {
				t.Errorf("%c: %v, %v", kind, answers, err)
			}
		}
	})
}

// TestCancelButton: asynq's own cancel, e.g. in asynqmon, does the same. With
// plain asynq the job goes to retry while its handler runs on.
func TestCancelButton(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient, env *redistest.Env) {
		r := newRig(t, rdb, env)
		var got calls
		begun, end := make(chan string, 5), make(chan struct{})
		stop := r.start(r.worker(shaper.Limits{Concurrency: 1}, func(_ context.Context, j *Job) error {
			got.add(j.ID)
			begun <- j.ID
			<-end
			return nil
		}))
		r.enqueue(queue.Job{ID: "called"})
		<-begun
		r.enqueue(queue.Job{ID: "waits"})
		insp := asynq.NewInspectorFromRedisClient(rdb)
		env.Eventually(10*time.Second, "the job ends by the button", func() bool {
			_ = insp.CancelProcessing("waits") // published; asynq listens once its handler is up
			return rdb.Exists(context.Background(), r.k.Tombstone("waits")).Val() == 1
		})
		if s := r.stone("waits"); s.State != queue.Cancelled {
			t.Errorf("%+v", s)
		}
		if err := insp.CancelProcessing("called"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(50 * time.Millisecond)
		close(end)
		if s := r.stone("called"); s.State != queue.Succeeded {
			t.Errorf("%+v", s)
		}
		stop()
		if len(got.all()) != 1 {
			t.Errorf("called %v", got.all())
		}
		r.clean()
	})
}

// TestCancelOutlivesTheWorker: the cancellation of a job is asked for while a
// worker has it, and the worker dies. Whoever takes the job over does not call
// it. Take the ! out of take.lua and it is called once more.
func TestCancelOutlivesTheWorker(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient, env *redistest.Env) {
		r := newRig(t, rdb, env)
		for _, id := range []string{"cancelled", "other"} {
			r.enqueue(queue.Job{ID: id, Attempts: 1})
		}
		dead := r.bare("dead", 10, shaper.Limits{})
		r.take(dead, 5)
		if c, err := r.q.Cancel(t.Context(), provider1, "cancelled"); err != nil || !c.Asked {
			t.Fatalf("%+v %v", c, err)
		}
		// What the tick does with a dead process's jobs.
		rdb.ZAdd(t.Context(), r.k.Own(layout.Procs), redis.Z{Score: 1, Member: "dead"})
		if n, err := Reclaim(t.Context(), rdb, "", provider1); err != nil || n != 2 {
			t.Fatalf("%d given back, %v", n, err)
		}
		var got calls
		stop := r.start(r.worker(shaper.Limits{}, func(_ context.Context, j *Job) error { got.add(j.ID); return nil }))
		if s := r.stone("cancelled"); s.State != queue.Cancelled || s.Attempts != 0 {
			t.Errorf("%+v", s)
		}
		if s := r.stone("other"); s.State != queue.Succeeded {
			t.Errorf("%+v", s)
		}
		stop()
		if ids := got.all(); len(ids) != 1 || ids[0] != "other" {
			t.Errorf("called %v", ids)
		}
		r.clean()
	})
}
