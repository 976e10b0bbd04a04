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
	"github.com/penstock-io/penstock/shaper"
)

// TestStopKeepsTheOrder: many jobs are parked when the worker stops, more than
// one request carries, and all go back to the head of the line just as they
// were taken. Take gatheringLocked out of settle.go and they go back in the
// order in which their handlers happened to run.
func TestStopKeepsTheOrder(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient, env *redistest.Env) {
		r := newRig(t, rdb, env)
		const jobs, places = 600, 150
		want := make([]string, jobs)
		for i := range want {
			want[i] = r.enqueue(queue.Job{ID: fmt.Sprintf("j%03d", i)})
		}
		var got calls
		end := make(chan struct{})
		w := r.worker(shaper.Limits{Rate: shaper.Rate{N: 1000, Per: time.Second}}, func(_ context.Context, j *Job) error {
			got.add(j.ID)
			<-end
			return nil
		}, func(c *Config) { c.Concurrency = places })
		stop := r.start(w)
		env.Eventually(20*time.Second, "more jobs are parked than one request carries", func() bool {
			_, parked := w.hands.counts()
			return len(got.all()) == places && parked > settleBatch
		})
		stopped := make(chan struct{})
		go func() { stop(); close(stopped) }()
		env.Eventually(20*time.Second, "only the calls are in hand", func() bool {
			all, _ := w.hands.counts()
			return all == places
		})
		close(end)
		<-stopped
		called := got.all()
		want = slices.DeleteFunc(want, func(id string) bool { return slices.Contains(called, id) })
		line := rdb.LRange(t.Context(), r.k.Asynq("pending"), 0, -1).Val()
		slices.Reverse(line) // the head is at the right
		if !slices.Equal(line, want) {
			t.Errorf("the line is %v, want %v", line, want)
		}
	})
}
