package queue

import (
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/penstock-io/penstock/internal/redistest"
)

// A job's own keep outlives the provider's: its id stays known, it can still be
// seen in its list and replayed, and afterwards nothing of it is left.
func TestKeepOfItsOwn(t *testing.T) {
	redistest.Virtual(t, func(t *testing.T, rdb redis.UniversalClient, env *redistest.Env) {
		f := newFixture(t, rdb, env)
		ctx := t.Context()
		const own = 4 * time.Hour
		for _, id := range []string{"good", "bad"} {
			f.put(Job{ID: id, Body: make([]byte, InlineBody+1), Keep: own})
			f.take()
		}
		f.settle("good", Succeeded, own)
		f.settle("bad", Dead, own)
		f.put(Job{ID: "stopped", Keep: own})
		if _, err := f.Cancel(ctx, "sms", "stopped"); err != nil {
			t.Fatal(err)
		}
		s := f.sweeper()
		time.Sleep(2 * time.Hour)
		if done := f.sweep(s, time.Hour); done.Forgotten != 0 {
			t.Errorf("%d forgotten after the provider's keep", done.Forgotten)
		}
		for id, want := range map[string]State{"good": Succeeded, "bad": Dead, "stopped": Cancelled} {
			if got := f.state(id); got != want {
				t.Errorf("%s is %s, want %s", id, got, want)
			}
			if r, err := f.Enqueue(ctx, Job{Provider: "sms", ID: id, Body: []byte("other"), Keep: own}); !errors.Is(err, ErrConflict) {
				t.Errorf("%s again: %+v %v", id, r, err)
			}
			page, err := f.List(ctx, "sms", Filter{State: want})
			if err != nil || len(page.Jobs) != 1 {
				t.Errorf("the list of %s: %d jobs, %v", want, len(page.Jobs), err)
			}
		}
		if _, err := f.Replay(ctx, "sms", "bad"); err != nil {
			t.Errorf("replay: %v", err)
		}
		time.Sleep(2*time.Hour + 3*time.Second)
		if done := f.sweep(s, time.Hour); done.Forgotten != 2 {
			t.Errorf("%d forgotten after their own keep, want good and stopped", done.Forgotten)
		}
		if _, err := f.Get(ctx, "sms", "good"); !errors.Is(err, ErrNotFound) {
			t.Errorf("good is still known: %v", err)
		}
	})
}

func TestKeepIsChecked(t *testing.T) {
	for _, keep := range []time.Duration{-1, time.Millisecond, MaxDelay + 1} {
		err := Job{Provider: "p", Keep: keep}.Validate()
		if e, ok := errors.AsType[*FieldError](err); !ok || e.Field != "keep" {
			t.Errorf("%s: %v", keep, err)
		}
	}
}
