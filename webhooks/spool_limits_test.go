package webhooks

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/queue"
)

// A provider that is gone from the configuration must not hold up the others
// for ever; a Redis that has lost its data knows it again before that.
func TestSpoolOfARemovedProvider(t *testing.T) {
	for name, backAfter := range map[string]time.Duration{"removed": time.Hour, "lost its data": 40 * time.Second} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				q := &unknownQueue{until: time.Now().Add(backAfter)}
				s := openSpool(t, dir, q, nil)
				gone := spoolJob(0)
				gone.Provider = "gone"
				for _, j := range []queue.Job{gone, spoolJob(1)} {
					if err := s.add("stripe", j); err != nil {
						t.Fatal(err)
					}
				}
				time.Sleep(unknownWait - 10*time.Second)
				if name == "removed" && s.Len() != 2 {
					t.Errorf("%d wait, want both for some minutes", s.Len())
				}
				time.Sleep(20 * time.Second)
				want := 1
				if name != "removed" {
					want = 2
				}
				if s.Len() != 0 || len(q.all()) != want {
					t.Errorf("%d wait, %d were put in, want %d", s.Len(), len(q.all()), want)
				}
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// A storm that goes on does not keep the spool alive: soon after the store is
// back deliveries go straight to it again, and none overtakes its own sender's.
func TestSpoolEndsInTheStorm(t *testing.T) {
	q := &slowQueue{fakeQueue: fakeQueue{err: queue.ErrUnavailable}}
	s := openSpool(t, t.TempDir(), q, nil)
	b := newWorkbench(t, func(c *Config) { c.Queue, c.Spool = q, s })
	const senders, least = 64, 20
	var accepted, sent [senders]int
	var all sync.WaitGroup
	stop := make(chan struct{})
	for w := range senders {
		all.Go(func() {
			for i := 0; accepted[w] < least; i++ {
				select {
				case <-stop:
					return
				default:
				}
				rec := b.deliver(b.request(t, fmt.Sprintf(`{"id":"%02d-%06d"}`, w, i)))
				if rec.Code != 200 {
					t.Errorf("%d %s", rec.Code, rec.Body)
					return
				}
				sent[w]++
				if rec.Header().Get(ResultHeader) == "accepted" {
					accepted[w]++
				}
			}
		})
	}
	eventually(t, "some are spooled", func() bool { return s.Len() > 20 })
	q.set(nil)
	late := time.AfterFunc(20*time.Second, func() { close(stop) })
	all.Wait()
	if !late.Stop() {
		t.Errorf("in time: %v of %v went straight to the store", accepted, sent)
	}
	eventually(t, "empty", func() bool { return s.Len() == 0 })
	last := map[string]string{}
	for _, j := range q.all() {
		w, _, _ := strings.Cut(j.ID, "-")
		if j.ID <= last[w] {
			t.Fatalf("%s came after %s", j.ID, last[w])
		}
		last[w] = j.ID
	}
}

// slowQueue takes a moment for each round trip, as Redis does.
type slowQueue struct{ fakeQueue }

func (q *slowQueue) Enqueue(ctx context.Context, j queue.Job) (queue.Receipt, error) {
	time.Sleep(time.Millisecond)
	return q.fakeQueue.Enqueue(ctx, j)
}

func (q *slowQueue) EnqueueAll(ctx context.Context, jobs iter.Seq[queue.Job]) iter.Seq2[queue.Receipt, error] {
	return func(yield func(queue.Receipt, error) bool) {
		time.Sleep(time.Millisecond)
		for j := range jobs {
			if !yield(q.fakeQueue.Enqueue(ctx, j)) {
				return
			}
		}
	}
}

// unknownQueue does not know the provider "gone" for a while.
type unknownQueue struct {
	fakeQueue
	until time.Time
}

func (q *unknownQueue) Enqueue(ctx context.Context, j queue.Job) (queue.Receipt, error) {
	if j.Provider == "gone" && time.Now().Before(q.until) {
		return queue.Receipt{}, queue.ErrUnknownProvider
	}
	return q.fakeQueue.Enqueue(ctx, j)
}

// Without fsync deliveries are on disk for the next process all the same.
func TestSpoolNoSync(t *testing.T) {
	dir := t.TempDir()
	s, err := OpenSpool(SpoolConfig{Dir: dir, NoSync: true, MaxBytes: 1 << 20, Queue: &fakeQueue{err: queue.ErrUnavailable}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	before := s.Room()
	for i := range 20 {
		if err := s.add("stripe", spoolJob(i)); err != nil {
			t.Fatal(err)
		}
	}
	if before > 1<<20 || s.Room() >= before {
		t.Errorf("room %d, then %d", before, s.Room())
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	q := &fakeQueue{}
	s = openSpool(t, dir, q, nil)
	eventually(t, "empty", func() bool { return s.Len() == 0 })
	sameJobs(t, q.all(), 20)
}
