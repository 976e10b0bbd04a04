package worker

import (
	"context"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/penstock-io/penstock/internal/redistest"
	"github.com/penstock-io/penstock/queue"
	"github.com/penstock-io/penstock/shaper"
)

// A job's own keep reaches its tombstone, whatever becomes of it; others have
// the provider's.
func TestKeepOfItsOwn(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient, env *redistest.Env) {
		r := newRig(t, rdb, env)
		const own = 4 * time.Hour
		stop := r.start(r.worker(shaper.Limits{}, func(_ context.Context, j *Job) error {
			if j.ID == "dead" {
				return Discard("refused")
			}
			return nil
		}, func(c *Config) { c.Keep = time.Hour }))
		want := map[string]time.Duration{"dead": own, "good": own, "other": time.Hour}
		for id, keep := range want {
			j := queue.Job{ID: id, Keep: keep}
			if id == "other" {
				j.Keep = 0
			}
			r.enqueue(j)
		}
		for id, keep := range want {
			r.stone(id)
			left := rdb.PTTL(t.Context(), r.k.Tombstone(id)).Val()
			if left > keep || left < keep-10*time.Minute {
				t.Errorf("%s is kept for %s, want %s", id, left, keep)
			}
		}
		stop()
		task, err := asynq.NewInspectorFromRedisClient(rdb).GetTaskInfo(provider1, "dead")
		if err != nil || task.Retention != own {
			t.Errorf("asynq keeps it for %s (%v), want %s", task.Retention, err, own)
		}
	})
}
