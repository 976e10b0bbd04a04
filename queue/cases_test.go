package queue

import (
	"bytes"
	"fmt"
	"log/slog"
	"sync"
	"testing"
)

// QUE-09, QUE-10: Penstock has no schedule of its own. Replicas that each
// enqueue a tick under its own id make one job of it, however many they are and
// whoever dies; the others are told so, without a line in the log.
func TestTicksOfReplicas(t *testing.T) {
	both(t, func(t *testing.T, f *fixture) {
		var said bytes.Buffer
		var mu sync.Mutex
		fresh := map[string]int{}
		var all sync.WaitGroup
		for range 3 {
			c, err := NewClient(Config{Redis: f.rdb, Logger: slog.New(slog.NewTextHandler(&said, &slog.HandlerOptions{Level: slog.LevelInfo}))})
			if err != nil {
				t.Fatal(err)
			}
			all.Go(func() {
				for tick := range 20 {
					id := fmt.Sprintf("report:%d", tick*15)
					r, err := c.Enqueue(t.Context(), Job{Provider: "sms", ID: id, Path: "/report"})
					if err != nil {
						t.Error(err)
					}
					if !r.Known {
						mu.Lock()
						fresh[id]++
						mu.Unlock()
					}
				}
			})
		}
		all.Wait()
		if n, err := f.Counts(t.Context(), "sms"); err != nil || len(fresh) != 20 || n[Waiting] != 20 {
			t.Errorf("%d ticks, %v %v", len(fresh), n, err)
		}
		for id, n := range fresh {
			if n != 1 {
				t.Errorf("%s was accepted %d times", id, n)
			}
		}
		if said.Len() > 0 {
			t.Errorf("QUE-10: the log says %s", &said)
		}
	})
}

// QUE-33: the Idempotency-Key of a job is its id, said or not said: that
// makes no other content.
func TestKeyThatIsTheID(t *testing.T) {
	both(t, func(t *testing.T, f *fixture) {
		f.put(Job{ID: "a", Path: "/p"})
		for _, j := range []Job{{ID: "a", Path: "/p", IdempotencyKey: "a"}, {ID: "a", Path: "/p", Headers: map[string]string{"idempotency-key": "a"}}} {
			if r := f.put(j); !r.Known {
				t.Errorf("%+v is another job", j)
			}
		}
	})
}
