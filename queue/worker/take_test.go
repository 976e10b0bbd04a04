package worker

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/penstock-io/penstock/internal/redistest"
	"github.com/penstock-io/penstock/queue"
	"github.com/penstock-io/penstock/queue/internal/layout"
	"github.com/penstock-io/penstock/shaper"
)

// bare is an inlet without a worker around it.
func (r *rig) bare(process string, slots int, limits shaper.Limits) *inlet {
	never := make(chan struct{})
	in := newInlet(r.rdb, r.k, process, slots, func() shaper.Limits { return limits }, newHands(), &clock{}, testLog(r.t), never, never)
	return in
}

// take asks once for up to k jobs and returns their ids in order.
func (r *rig) take(in *inlet, k int) []string {
	r.t.Helper()
	in.request(k, 200)
	if in.failures > 0 {
		r.t.Fatal("the request failed")
	}
	return in.leftover()
}

// TestTakeLeavesWhatAsynqLeaves: after a take, asynq's inspector sees what it
// would after asynq's own dequeue. Take a line out of take.lua and it fails.
func TestTakeLeavesWhatAsynqLeaves(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient, env *redistest.Env) {
		r := newRig(t, rdb, env)
		ctx := t.Context()
		r.enqueue(queue.Job{ID: "mine"})
		r.enqueue(queue.Job{ID: "lane", Priority: queue.PriorityHigh})
		if _, err := asynq.NewClientFromRedisClient(rdb).Enqueue(asynq.NewTask("t", nil), asynq.Queue("plain"), asynq.TaskID("x")); err != nil {
			t.Fatal(err)
		}
		// asynq's own dequeue on another queue, by its script's text.
		plain := layout.For("", "plain")
		if err := rdb.Do(ctx, "RPOPLPUSH", plain.Asynq("pending"), plain.Asynq("active")).Err(); err != nil {
			t.Fatal(err)
		}
		rdb.HSet(ctx, plain.Task("x"), "state", "active")
		rdb.HDel(ctx, plain.Task("x"), "pending_since")

		if got := r.take(r.bare("p1", 10, shaper.Limits{}), 5); !slices.Equal(got, []string{"lane", "mine"}) {
			t.Fatalf("took %v", got)
		}
		want := rdb.HKeys(ctx, plain.Task("x")).Val()
		slices.Sort(want)
		for _, id := range []string{"mine", "lane"} {
			got := slices.DeleteFunc(rdb.HKeys(ctx, r.k.Task(id)).Val(), func(f string) bool { return strings.HasPrefix(f, "penstock_") })
			slices.Sort(got)
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("%s: fields (-asynq +ours):\n%s", id, d)
			}
			if s := rdb.HGet(ctx, r.k.Task(id), "state").Val(); s != "active" {
				t.Errorf("%s is %q", id, s)
			}
			lease := time.Unix(int64(rdb.ZScore(ctx, r.k.Asynq("lease"), id).Val()), 0)
			if d := time.Until(lease); d < 25*time.Second || d > 31*time.Second {
				t.Errorf("%s: lease of %s", id, d)
			}
		}
		in, err := asynq.NewInspectorFromRedisClient(rdb).GetQueueInfo(provider1)
		if err != nil || in.Active != 2 || in.Pending+in.Scheduled+in.Retry != 0 {
			t.Errorf("%+v, %v", in, err)
		}
		if n := rdb.ZCard(ctx, r.k.Lane(layout.High)).Val(); n != 0 {
			t.Errorf("the lane keeps %d", n)
		}
		if got := rdb.HGetAll(ctx, r.k.Owner("p1")).Val(); got["mine"] != "p" || !strings.HasPrefix(got["lane"], "s:h:") {
			t.Errorf("owner: %v", got)
		}
	})
}

// TestShares: high, default and low get 8 : 4 : 1 of what is taken, whatever
// the size of a request, and an empty lane's turn goes to the others. Change
// the wheel and it fails.
func TestShares(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient, env *redistest.Env) {
		r := newRig(t, rdb, env)
		for i := range 60 {
			for _, p := range []queue.Priority{queue.PriorityHigh, queue.PriorityDefault, queue.PriorityLow} {
				r.enqueue(queue.Job{ID: fmt.Sprintf("%s%02d", p, i), Priority: p})
			}
		}
		in := r.bare("p1", 1000, shaper.Limits{})
		var got []string
		for _, k := range []int{1, 2, 3, 7, 13, 26} { // 52 = 4 turns of the wheel
			got = append(got, r.take(in, k)...)
		}
		count := func(p queue.Priority) (n int) {
			for _, id := range got {
				if strings.HasPrefix(id, string(p)) {
					n++
				}
			}
			return n
		}
		if h, d, l := count("high"), count("default"), count("low"); h != 32 || d != 16 || l != 4 {
			t.Errorf("8:4:1 of 52 is 32:16:4, not %d:%d:%d", h, d, l)
		}
		for _, p := range []string{"high", "default", "low"} {
			own := slices.DeleteFunc(slices.Clone(got), func(id string) bool { return !strings.HasPrefix(id, p) })
			if !slices.IsSorted(own) {
				t.Errorf("%s out of order: %v", p, own)
			}
		}
		rest := r.take(in, 100)
		rest = append(rest, r.take(in, 100)...)
		if len(got)+len(rest) != 180 {
			t.Errorf("%d of 180 taken", len(got)+len(rest))
		}
	})
}

// TestLanesKeepDueTimes: nothing is taken before its due time, to the
// millisecond, and the answer says when the next is due. asynq's forwarder
// works in whole seconds.
func TestLanesKeepDueTimes(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient, env *redistest.Env) {
		r := newRig(t, rdb, env)
		in := r.bare("p1", 10, shaper.Limits{})
		start := time.Now()
		r.enqueue(queue.Job{ID: "later", Delay: 250 * time.Millisecond})
		if got := r.take(in, 5); len(got) != 0 {
			t.Fatalf("took %v too early", got)
		}
		due := in.nextDue.Sub(start)
		if due < 240*time.Millisecond || due > 700*time.Millisecond {
			t.Errorf("next due in %s", due)
		}
		time.Sleep(time.Until(in.nextDue) + 2*time.Millisecond)
		if got := r.take(in, 5); !slices.Equal(got, []string{"later"}) {
			t.Errorf("took %v", got)
		}
	})
}

// TestRetriesTakeTurns: due retries and delayed jobs of the default lane
// neither wait behind all first tries nor before them (WANTED 19).
func TestRetriesTakeTurns(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient, env *redistest.Env) {
		r := newRig(t, rdb, env)
		for i := range 4 {
			r.enqueue(queue.Job{ID: fmt.Sprintf("d%d", i), Delay: time.Millisecond})
			r.enqueue(queue.Job{ID: fmt.Sprintf("p%d", i)})
		}
		time.Sleep(5 * time.Millisecond)
		got := r.take(r.bare("p1", 10, shaper.Limits{}), 8)
		if want := []string{"d0", "p0", "d1", "p1", "d2", "p2", "d3", "p3"}; !slices.Equal(got, want) {
			t.Errorf("took %v, not %v", got, want)
		}
	})
}

// TestShut: held, paused by us, paused in asynq: nothing is taken, and the
// answer says until when. A resume opens.
func TestShut(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient, env *redistest.Env) {
		r := newRig(t, rdb, env)
		ctx := t.Context()
		r.enqueue(queue.Job{ID: "a"})
		in := r.bare("p1", 10, shaper.Limits{})
		until := time.Now().Add(90 * time.Second)
		for key, value := range map[string]any{
			r.k.Own(layout.Paused): "1", r.k.Asynq("paused"): "1", r.k.Own(layout.HeldUntil): until.UnixMicro(),
		} {
			rdb.Set(ctx, key, value, 0)
			if got := r.take(in, 5); len(got) != 0 || !in.shut {
				t.Errorf("took %v in spite of %s", got, key)
			}
			if strings.HasSuffix(key, layout.HeldUntil) {
				if d := in.nextDue.Sub(until); d < -time.Second || d > time.Second {
					t.Errorf("held until %s, not %s", in.nextDue, until)
				}
			}
			rdb.Del(ctx, key)
		}
		if in.wake(false); in.hopeful {
			t.Error("news of jobs opens a shut inlet")
		}
		in.wake(true)
		if got := r.take(in, 5); !slices.Equal(got, []string{"a"}) {
			t.Errorf("took %v after the resume", got)
		}
	})
}

// TestSkips: ids whose task is gone, and lane entries whose task asynqmon has
// moved on, are dropped, and no key is left over.
func TestSkips(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient, env *redistest.Env) {
		r := newRig(t, rdb, env)
		ctx := t.Context()
		insp := asynq.NewInspectorFromRedisClient(rdb)
		for _, id := range []string{"keep", "gone"} {
			r.enqueue(queue.Job{ID: id})
			r.enqueue(queue.Job{ID: "lane-" + id, Priority: queue.PriorityHigh})
		}
		r.enqueue(queue.Job{ID: "moved", Priority: queue.PriorityLow, Delay: time.Hour})
		rdb.Del(ctx, r.k.Task("gone")) // its id is still in pending
		if err := insp.DeleteTask(provider1, "lane-gone"); err != nil {
			t.Fatal(err)
		}
		if err := insp.RunTask(provider1, "moved"); err != nil { // asynqmon's "run now"
			t.Fatal(err)
		}
		got := r.take(r.bare("p1", 20, shaper.Limits{}), 10)
		slices.Sort(got)
		if want := []string{"keep", "lane-keep", "moved"}; !slices.Equal(got, want) {
			t.Errorf("took %v, not %v", got, want)
		}
		rdb.ZAdd(ctx, r.k.Lane(layout.Low), redis.Z{Score: 1, Member: "moved"})
		if got := r.take(r.bare("p1", 20, shaper.Limits{}), 10); len(got) != 0 {
			t.Errorf("took %v again", got)
		}
		if n := rdb.ZCard(ctx, r.k.Lane(layout.High)).Val() + rdb.ZCard(ctx, r.k.Lane(layout.Low)).Val(); n != 0 {
			t.Errorf("%d ids left in the lanes", n)
		}
	})
}

// TestRoom is rule 1: how many jobs are taken ahead of their calls.
func TestRoom(t *testing.T) {
	for _, c := range []struct {
		name   string
		limits shaper.Limits
		procs  int
		calls  int
		want   int
	}{
		{"a slow rate: two", shaper.Limits{Rate: shaper.PerSecond(5)}, 4, 100, 2},
		{"once an hour: two", shaper.Limits{Rate: shaper.Rate{N: 1, Per: time.Hour}}, 1, 100, 2},
		{"a quarter of a second of the rate", shaper.Limits{Rate: shaper.PerSecond(100), Concurrency: 40}, 1, 100, 25},
		{"over the fleet", shaper.Limits{Rate: shaper.PerSecond(1000)}, 4, 1000, 63},
		{"no rate: half of the calls in flight", shaper.Limits{Concurrency: 40}, 1, 100, 20},
		{"no rate, over the fleet", shaper.Limits{Concurrency: 40}, 4, 100, 5},
		{"no limits: what this worker calls at once", shaper.Limits{}, 4, 100, 100},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := newInlet(nil, layout.Keys{}, "p", c.calls, func() shaper.Limits { return c.limits }, newHands(), &clock{}, quietLog(), nil, nil)
			in.processes = c.procs
			if got := in.allowed(); got != c.want {
				t.Errorf("allowed %d, not %d", got, c.want)
			}
			for i := range c.want {
				in.hands.add(fmt.Sprint(i), "p", "", false)
			}
			if k, _ := in.room(); k != 0 {
				t.Errorf("room for %d more with %d parked", k, c.want)
			}
		})
	}
}

// TestDeadRedisDoesNotSpin: asynq with a dead Redis uses a core and more
// (186 % measured); the inlet asks ever less often. Take the back-off out of
// trouble and it fails.
func TestDeadRedisDoesNotSpin(t *testing.T) {
	redistest.Virtual(t, func(t *testing.T, rdb redis.UniversalClient, env *redistest.Env) {
		r := newRig(t, rdb, env)
		in := r.bare("p1", 10, shaper.Limits{})
		asked := 0
		in.rdb = refusing{UniversalClient: rdb, asked: &asked}
		start := time.Now()
		for time.Since(start) < time.Minute {
			if _, err := in.dequeue(); err != redis.Nil {
				t.Fatalf("asynq is told %v and would ask again at once", err)
			}
			time.Sleep(10 * time.Millisecond)
		}
		if asked < 5 || asked > 60 {
			t.Errorf("asked %d times in a minute", asked)
		}
	})
}

type refusing struct {
	redis.UniversalClient
	asked *int
}

func (c refusing) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	*c.asked++
	return redis.NewCmdResult(nil, context.DeadlineExceeded)
}

// TestExpiredDoNotCount: jobs past their max_age are taken beside the k, so a
// line of them never keeps a live job waiting, and at most as many as there
// are slots. Count them in take.lua and it fails.
func TestExpiredDoNotCount(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient, env *redistest.Env) {
		r := newRig(t, rdb, env)
		for i := range 250 {
			p := queue.PriorityDefault
			if i%5 == 0 {
				p = queue.PriorityHigh
			}
			r.enqueue(queue.Job{ID: fmt.Sprintf("old%03d", i), MaxAge: time.Millisecond, Priority: p})
		}
		r.enqueue(queue.Job{ID: "live1"})
		r.enqueue(queue.Job{ID: "live2"})
		time.Sleep(5 * time.Millisecond)
		in := r.bare("p1", 1000, shaper.Limits{})
		if got := r.take(in, 1); len(got) != 200 {
			t.Errorf("%d taken at once; 200 is the most", len(got))
		}
		if got := r.take(in, 1); len(got) != 51 || got[50] != "live1" {
			t.Errorf("took %d, the last is %q", len(got), got[len(got)-1])
		}
		if _, parked := in.hands.counts(); parked != 1 {
			t.Errorf("%d count as parked", parked)
		}
	})
}
