package queue

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/penstock-io/penstock/queue/internal/layout"
)

// pages reads a whole list, page by page.
func (f *fixture) pages(filter Filter) (ids []string, n int) {
	f.t.Helper()
	for {
		p, err := f.List(f.t.Context(), "sms", filter)
		f.must(err)
		n++
		if filter.Limit > 0 && len(p.Jobs) > filter.Limit {
			f.t.Fatalf("a page of %d", len(p.Jobs))
		}
		for _, j := range p.Jobs {
			if filter.State != "" && j.State != filter.State {
				f.t.Errorf("%s is %s in a list of %s", j.ID, j.State, filter.State)
			}
			ids = append(ids, j.ID)
		}
		if p.Next == "" {
			return ids, n
		}
		filter.Cursor = p.Next
		if n > 1000 {
			f.t.Fatal("the list does not end")
		}
	}
}

// retrying moves an active job to retry as a worker does.
func (f *fixture) retry(id string, p Priority, in time.Duration) {
	ctx := f.t.Context()
	f.must(f.rdb.LRem(ctx, f.k.Asynq("active"), 0, id).Err())
	f.must(f.rdb.ZRem(ctx, f.k.Asynq("lease"), id).Err())
	now := time.Now().UnixMilli()
	due := now + in.Milliseconds()
	f.must(f.rdb.HSet(ctx, f.k.Task(id), "state", "retry").Err())
	f.must(f.rdb.ZAdd(ctx, f.k.Asynq("retry"), redis.Z{Score: float64(layout.ParkScore(due, now)), Member: id}).Err())
	f.must(f.rdb.ZAdd(ctx, f.k.Lane(p), redis.Z{Score: float64(due), Member: id}).Err())
}

// fill makes jobs of every state and returns the ids that are in each.
func (f *fixture) fill(n int) map[State][]string {
	want := map[State][]string{}
	name := func(s State, i int) string {
		id := fmt.Sprintf("%s-%03d", s, i)
		want[s] = append(want[s], id)
		return id
	}
	for _, s := range []State{Succeeded, Dead, Expired, Cancelled} {
		for i := range n {
			f.put(Job{ID: name(s, i)})
			f.settle(f.take(), s, time.Hour)
		}
	}
	for i := range n {
		f.put(Job{ID: name(Retrying, i)})
		f.retry(f.take(), PriorityDefault, time.Duration(i)*time.Minute)
	}
	for i := range n {
		f.put(Job{ID: name(Running, i)})
		f.take()
	}
	for i := range n {
		f.put(Job{ID: name(Waiting, i)})
		f.put(Job{ID: name(Delayed, i), Delay: time.Duration(i+1) * time.Hour})
	}
	for i := range n {
		f.put(Job{ID: name(Waiting, n+i), Priority: PriorityLow})
	}
	return want
}

// TestListAndCounts: every job once, in every page size, and counted.
func TestListAndCounts(t *testing.T) {
	both(t, func(t *testing.T, f *fixture) {
		want := f.fill(11)
		counts, err := f.Counts(t.Context(), "sms")
		f.must(err)
		var all []string
		for _, s := range States() {
			if int(counts[s]) != len(want[s]) {
				t.Errorf("%s: counted %d, want %d", s, counts[s], len(want[s]))
			}
			for _, limit := range []int{1, 3, 10, 11, 12, 0} {
				got, _ := f.pages(Filter{State: s, Limit: limit})
				slices.Sort(got)
				if diff := cmp.Diff(want[s], got); diff != "" {
					t.Errorf("%s, limit %d: %s", s, limit, diff)
				}
			}
			all = append(all, want[s]...)
		}
		got, _ := f.pages(Filter{Limit: 7})
		slices.Sort(got)
		slices.Sort(all)
		if diff := cmp.Diff(all, got); diff != "" {
			t.Errorf("all states: %s", diff)
		}
		oldest, _ := f.pages(Filter{State: Waiting})
		if !slices.Equal(oldest[:2], []string{"waiting-000", "waiting-001"}) {
			t.Errorf("waiting begins with %v", oldest[:2])
		}
	})
}

// TestListMoves: what is waiting all the time comes in some page, though
// others are taken and put in between the pages.
func TestListMoves(t *testing.T) {
	both(t, func(t *testing.T, f *fixture) {
		for i := range 30 {
			f.put(Job{ID: fmt.Sprintf("%02d", i)})
		}
		var got []string
		filter := Filter{State: Waiting, Limit: 4}
		for page := 0; ; page++ {
			p, err := f.List(t.Context(), "sms", filter)
			f.must(err)
			for _, j := range p.Jobs {
				got = append(got, j.ID)
			}
			if filter.Cursor = p.Next; p.Next == "" {
				break
			}
			f.take()
			f.take()
			f.put(Job{ID: fmt.Sprint("new", page)})
		}
		for i := 14; i < 30; i++ {
			if !slices.Contains(got, fmt.Sprintf("%02d", i)) {
				t.Errorf("%02d was never listed", i)
			}
		}
		if sorted := slices.Compact(slices.Clone(got)); len(sorted) != len(got) {
			t.Errorf("listed twice: %v", got)
		}
	})
}

// TestListOnce: a job whose call has ended, and which asynq has not let go yet,
// is final, and listed once.
func TestListOnce(t *testing.T) {
	both(t, func(t *testing.T, f *fixture) {
		f.put(Job{ID: "a"})
		f.take()
		f.must(f.rdb.Set(t.Context(), f.k.Tombstone("a"), `{"s":"succeeded","h":"x","a":1,"t":1}`, time.Hour).Err())
		f.must(f.rdb.ZAdd(t.Context(), f.k.Done(Succeeded), redis.Z{Score: 1, Member: "a"}).Err())
		for state, want := range map[State]int{"": 1, Succeeded: 1, Running: 0} {
			p, err := f.List(t.Context(), "sms", Filter{State: state})
			f.must(err)
			if len(p.Jobs) != want {
				t.Errorf("state %q: listed %d times, want %d", state, len(p.Jobs), want)
			}
		}
	})
}

// TestListLarge is case QUE-26 for looking: 20,000 final jobs in one set.
func TestListLarge(t *testing.T) {
	both(t, func(t *testing.T, f *fixture) {
		n := 20_000
		if f.env.Virtual {
			n = 3_000
		}
		f.stones(n, Dead, time.Hour, 0)
		c, err := f.Counts(t.Context(), "sms")
		f.must(err)
		if c[Dead] != int64(n) {
			t.Errorf("QUE-26: counted %d", c[Dead])
		}
		p, err := f.List(t.Context(), "sms", Filter{State: Dead, Limit: MaxPage})
		f.must(err)
		if len(p.Jobs) != MaxPage || p.Next == "" {
			t.Errorf("a page of %d, next %q", len(p.Jobs), p.Next)
		}
	})
}

// stones makes n final jobs of which only tombstones are left, final ago.
func (f *fixture) stones(n int, s State, keep, ago time.Duration) {
	f.t.Helper()
	ctx := f.t.Context()
	at := time.Now().Add(-ago).UnixMilli()
	for lot := range slices.Chunk(make([]int, n), 1000) {
		_, err := f.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
			for i := range lot {
				id := fmt.Sprintf("s%d-%d", n, i)
				n++
				if keep > ago {
					p.Set(ctx, f.k.Tombstone(id), layout.Tombstone{State: s, At: at}.Encode(), keep-ago)
				}
				p.ZAdd(ctx, f.k.Done(s), redis.Z{Score: float64(at), Member: id})
			}
			return nil
		})
		f.must(err)
	}
}

// TestListRefuses: cursors and filters that are none.
func TestListRefuses(t *testing.T) {
	both(t, func(t *testing.T, f *fixture) {
		for _, filter := range []Filter{
			{State: "gone"}, {Limit: -1}, {Limit: MaxPage + 1}, {Cursor: "x"}, {Cursor: "!!"},
			{Cursor: cursor{segment: 99}.String()}, {Cursor: cursor{segment: 1, score: "(inf", id: "a"}.String()},
			{Cursor: cursor{segment: 1, score: "1", id: "a\nb"}.String()},
		} {
			if _, err := f.List(t.Context(), "sms", filter); !errors.Is(err, ErrInvalid) {
				t.Errorf("%+v: %v", filter, err)
			}
		}
		if _, err := f.List(t.Context(), "nobody", Filter{}); !errors.Is(err, ErrUnknownProvider) {
			t.Errorf("an unknown provider: %v", err)
		}
		f.must(f.Publish(t.Context(), "empty", Spec{}))
		if p, err := f.List(t.Context(), "empty", Filter{}); err != nil || len(p.Jobs) != 0 || p.Next != "" {
			t.Errorf("an empty queue: %+v, %v", p, err)
		}
	})
}

// TestInfo: what Get tells through a job's life, and afterwards.
func TestInfo(t *testing.T) {
	both(t, func(t *testing.T, f *fixture) {
		f.put(Job{ID: "a", Path: "/p", MaxAge: time.Minute, Attempts: 4, Cost: 2, Body: []byte("12345")})
		i := f.info("a")
		if i.Method != "POST" || i.Path != "/p" || i.BodySize != 5 || i.Allowed != 4 || i.Cost != 2 || i.Priority != PriorityDefault {
			t.Errorf("%+v", i)
		}
		if d := i.Expires.Sub(i.Due); d != time.Minute {
			t.Errorf("max_age runs %s from the due time", d)
		}
		if d := time.Since(i.Accepted); d < -time.Second || d > 5*time.Second {
			t.Errorf("accepted %s ago", d)
		}
		f.take()
		f.settle("a", Dead, time.Hour)
		i = f.info("a")
		if i.State != Dead || i.Reason != "because" || i.Status != 422 || i.Attempts != 3 || i.Path != "/p" || i.Final.IsZero() {
			t.Errorf("dead: %+v", i)
		}
		if d := time.Until(i.KeptUntil); d < 58*time.Minute || d > time.Hour+time.Minute {
			t.Errorf("kept for %s", d)
		}
		if _, err := f.Get(t.Context(), "sms", "none"); !errors.Is(err, ErrNotFound) {
			t.Errorf("unknown: %v", err)
		}
	})
}

// TestNoSecretsInInfo is case OUT-06 for job info and errors.
func TestNoSecretsInInfo(t *testing.T) {
	both(t, func(t *testing.T, f *fixture) {
		j := Job{
			ID: "a", Path: "/p?to=1&api_key=hunter2&Access%54oken=hunter2&sig=hunter2",
			Headers: map[string]string{"Authorization": "Bearer hunter2", "X-Api-Key": "hunter2", "Cookie": "hunter2", "X-Trace": "visible"},
		}
		f.put(j)
		i := f.info("a")
		if s := fmt.Sprintf("%+v", i); strings.Contains(s, "hunter2") || !strings.Contains(s, "visible") || !strings.Contains(s, "to=1") {
			t.Errorf("OUT-06: %s", s)
		}
		j.Body = []byte("hunter2")
		_, err := f.Enqueue(t.Context(), Job{Provider: "sms", ID: "a", Body: j.Body})
		if err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("OUT-06: %v", err)
		}
	})
}

// TestArchivedByHand: what asynqmon archived is dead, can be replayed, and
// does not block its id in silence (QUE-06).
func TestArchivedByHand(t *testing.T) {
	both(t, func(t *testing.T, f *fixture) {
		ctx := t.Context()
		insp := asynq.NewInspectorFromRedisClient(f.rdb)
		f.put(Job{ID: "a"})
		f.must(insp.ArchiveTask("sms", "a"))
		if s := f.state("a"); s != Dead {
			t.Errorf("state %s", s)
		}
		if ids, _ := f.pages(Filter{State: Dead}); !slices.Equal(ids, []string{"a"}) {
			t.Errorf("listed %v", ids)
		}
		if _, err := f.Enqueue(ctx, Job{Provider: "sms", ID: "a", Body: []byte("x")}); !errors.Is(err, ErrConflict) {
			t.Errorf("QUE-06: %v", err)
		}
		if _, err := f.Replay(ctx, "sms", "a"); err != nil {
			t.Error(err)
		}
		if s := f.state("a"); s != Waiting || f.rdb.ZCard(ctx, f.k.Asynq("archived")).Val() != 0 {
			t.Errorf("after replay: %s", s)
		}
	})
}
