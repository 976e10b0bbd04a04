package queue

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/penstock-io/penstock/internal/redistest"
)

type bulkResult struct {
	r   Receipt
	err error
}

func collect(seq iter.Seq2[Receipt, error]) []bulkResult {
	var out []bulkResult
	for r, err := range seq {
		out = append(out, bulkResult{r, err})
	}
	return out
}

// TestEnqueueAllOrder: a result for each job, in their order; what is wrong
// with one does not touch the rest.
func TestEnqueueAllOrder(t *testing.T) {
	both(t, func(t *testing.T, f *fixture) {
		f.put(Job{ID: "known", Body: []byte("a")})
		f.put(Job{ID: "taken", Body: []byte("a")})
		var jobs []Job
		for i := range 600 {
			j := Job{Provider: "sms", ID: fmt.Sprint("j", i)}
			switch i % 7 {
			case 1:
				j.Delay = time.Hour
			case 2:
				j.Priority = PriorityHigh
			case 3:
				j.Body = make([]byte, InlineBody+1)
			}
			jobs = append(jobs, j)
		}
		jobs[10] = Job{Provider: "nobody", ID: "j10"}
		jobs[11] = Job{Provider: "sms", ID: "j11", Attempts: -1}
		jobs[12] = Job{Provider: "sms", ID: "known", Body: []byte("a")}
		jobs[13] = Job{Provider: "sms", ID: "taken", Body: []byte("b")}
		jobs[14] = Job{Provider: "sms", ID: "j9", Delay: 0} // j9 again, in the same lot: other content or not
		jobs[14] = jobs[9]
		jobs[400] = Job{Provider: "sms", Body: make([]byte, DefaultMaxBody+1)}

		got := collect(f.EnqueueAll(t.Context(), slices.Values(jobs)))
		if len(got) != len(jobs) {
			t.Fatalf("%d results for %d jobs", len(got), len(jobs))
		}
		want := map[int]error{10: ErrUnknownProvider, 11: ErrInvalid, 13: ErrConflict, 400: ErrTooLarge}
		for i, g := range got {
			if !errors.Is(g.err, want[i]) {
				t.Errorf("job %d: %v, want %v", i, g.err, want[i])
			}
			if g.r.ID != jobs[i].ID {
				t.Errorf("result %d is of %q, not %q", i, g.r.ID, jobs[i].ID)
			}
			if known := i == 12 || i == 14; g.err == nil && g.r.Known != known {
				t.Errorf("job %d: known %v", i, g.r.Known)
			}
		}
		// First in, first out: the line's end is the oldest.
		if ids := f.rdb.LRange(t.Context(), f.k.Asynq("pending"), -5, -1).Val(); !slices.Equal(ids, []string{"j4", "j3", "j0", "taken", "known"}) {
			t.Errorf("the line ends with %v", ids)
		}
	})
}

// TestEnqueueAllSlowSource: a job is not held back until others come.
func TestEnqueueAllSlowSource(t *testing.T) {
	both(t, func(t *testing.T, f *fixture) {
		next := make(chan Job)
		src := func(yield func(Job) bool) {
			for j := range next {
				if !yield(j) {
					return
				}
			}
		}
		sent := 1
		go func() { next <- Job{Provider: "sms"} }()
		for r, err := range f.EnqueueAll(t.Context(), src) {
			f.must(err)
			if r.State != Waiting {
				t.Errorf("%+v", r)
			}
			if sent++; sent > 3 {
				close(next)
				continue
			}
			next <- Job{Provider: "sms"} // only now, after the receipt
		}
		if n := f.rdb.LLen(t.Context(), f.k.Asynq("pending")).Val(); n != 3 {
			t.Errorf("%d stored", n)
		}
	})
}

// TestEnqueueAllStops: a break, a cancelled context and a panic of the source
// leave no goroutine and no reader of the source behind.
func TestEnqueueAllStops(t *testing.T) {
	redistest.Real(t, func(t *testing.T, rdb redis.UniversalClient, env *redistest.Env) {
		f := newFixture(t, rdb, env)
		defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
		reading := false
		endless := func(yield func(Job) bool) {
			reading = true
			defer func() { reading = false }()
			for yield(Job{Provider: "sms"}) {
			}
		}
		n := 0
		for _, err := range f.EnqueueAll(t.Context(), endless) {
			f.must(err)
			if n++; n == 1000 {
				break
			}
		}
		if reading {
			t.Error("break: the source is still being read")
		}

		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		n = 0
		var last error
		for _, err := range f.EnqueueAll(ctx, endless) {
			if n++; n == 1000 {
				cancel()
			}
			last = err
		}
		if reading {
			t.Error("cancel: the source is still being read")
		}
		if last != nil && !errors.Is(last, context.Canceled) {
			t.Errorf("cancel: %v", last)
		}

		func() {
			defer func() {
				if p := recover(); p != "source" {
					t.Errorf("recovered %v", p)
				}
			}()
			for _, err := range f.EnqueueAll(t.Context(), func(yield func(Job) bool) {
				yield(Job{Provider: "sms"})
				panic("source")
			}) {
				f.must(err)
			}
		}()
	})
}

// TestEnqueueAllScriptsGone is case QUE-25 for pipelines: a flush between two
// lots, and a missing script inside of one.
func TestEnqueueAllScriptsGone(t *testing.T) {
	both(t, func(t *testing.T, f *fixture) {
		i := 0
		for _, err := range f.EnqueueAll(t.Context(), func(yield func(Job) bool) {
			for range 2000 {
				if !yield(Job{Provider: "sms"}) {
					return
				}
			}
		}) {
			f.must(err)
			if i++; i%100 == 0 {
				f.must(f.rdb.ScriptFlush(t.Context()).Err())
			}
		}
		if n := f.rdb.LLen(t.Context(), f.k.Asynq("pending")).Val(); n != 2000 {
			t.Errorf("%d stored, want 2000", n)
		}
	})
}

// TestEnqueueAllStoreGone: each job has the store's error, and nothing hangs.
func TestEnqueueAllStoreGone(t *testing.T) {
	s := redistest.Start(t)
	rdb := s.ClientWith(redis.Options{MaxRetries: -1, DialTimeout: time.Second})
	c, err := NewClient(Config{Redis: rdb})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Publish(t.Context(), "sms", Spec{}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Enqueue(t.Context(), Job{Provider: "sms"}); err != nil {
		t.Fatal(err)
	}
	s.Kill()
	got := collect(c.EnqueueAll(t.Context(), slices.Values(slices.Repeat([]Job{{Provider: "sms"}}, 300))))
	if len(got) != 300 {
		t.Fatalf("%d results", len(got))
	}
	for i, g := range got {
		if !errors.Is(g.err, ErrUnavailable) {
			t.Fatalf("job %d: %v", i, g.err)
		}
	}
	if _, err := c.Enqueue(t.Context(), Job{Provider: "sms"}); !errors.Is(err, ErrUnavailable) {
		t.Errorf("Enqueue: %v", err)
	}
	if _, err := c.Enqueue(t.Context(), Job{Provider: "new"}); !errors.Is(err, ErrUnavailable) || strings.Contains(err.Error(), "unknown") {
		t.Errorf("a provider not known before: %v", err)
	}
}
