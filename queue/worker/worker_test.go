package worker

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/penstock-io/penstock/internal/redistest"
	"github.com/penstock-io/penstock/queue"
	"github.com/penstock-io/penstock/shaper"
)

// TestEndToEnd: enqueue, take, call, settle, in order, each once, and nothing left behind.
func TestEndToEnd(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient, env *redistest.Env) {
		r := newRig(t, rdb, env)
		var want []string
		for i := range 30 {
			want = append(want, r.enqueue(queue.Job{ID: fmt.Sprintf("j%02d", i), Body: []byte{byte(i)}}))
		}
		var got calls
		stop := r.start(r.worker(shaper.Limits{Concurrency: 1}, func(_ context.Context, j *Job) error {
			got.add(j.ID)
			return nil
		}))
		for _, id := range want {
			if s := r.stone(id); s.State != queue.Succeeded || s.Attempts != 1 {
				t.Errorf("%s: %+v", id, s)
			}
		}
		late := r.enqueue(queue.Job{ID: "late", Delay: 30 * time.Millisecond})
		r.stone(late)
		stop()
		want, called := append(want, late), got.all()
		slices.Sort(want)
		slices.Sort(called)
		if d := cmp.Diff(want, called); d != "" {
			t.Errorf("calls (-want +got):\n%s", d)
		}
		r.clean()
	})
}
