package app

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/penstock-io/penstock/internal/redistest"
	"github.com/penstock-io/penstock/queue"
	"github.com/penstock-io/penstock/queue/embedded"
)

// After a loss of all data a provider is known again at the next turn, and
// what lies about is swept.
func TestTend(t *testing.T) {
	st := embedded.Start()
	defer st.Close()
	q, err := queue.NewClient(queue.Config{Redis: st.Client()})
	if err != nil {
		t.Fatal(err)
	}
	a := &app{cfg: parse(t, source("embedded", "http://127.0.0.1:1", "    keep: 1m")), opt: Options{Role: RoleAll}, log: slog.New(slog.DiscardHandler), queue: q}
	ctx := t.Context()
	st.Flush()
	if _, err := q.Enqueue(ctx, queue.Job{Provider: "sms"}); !errors.Is(err, queue.ErrUnknownProvider) {
		t.Fatalf("got %v", err)
	}
	a.tend(ctx)
	spec, err := q.Spec(ctx, "sms")
	for deadline := time.Now().Add(10 * time.Second); err != nil && time.Now().Before(deadline); spec, err = q.Spec(ctx, "sms") {
		time.Sleep(20 * time.Millisecond) // the client remembers for a second that it was unknown
	}
	if err != nil || spec.Keep != time.Minute {
		t.Fatalf("%+v %v", spec, err)
	}
	if _, err := q.Enqueue(ctx, queue.Job{Provider: "sms", Delay: time.Hour, ID: "x"}); err != nil {
		t.Fatal(err)
	}
	a.tend(ctx)
	if i, err := q.Get(ctx, "sms", "x"); err != nil || i.State != queue.Delayed {
		t.Errorf("%+v %v", i, err)
	}
}

// What is wrong with the server is said once, however many providers there are.
func TestServerWarningsOnce(t *testing.T) {
	d := newDownstream(t)
	red := redistest.Start(t) // no appendonly, no maxmemory
	r := serve(t, source("redis://"+red.Addr, d.URL, fmt.Sprintf("  other: {base_url: %q, rate: 1/s}\n", d.URL)), Options{})
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{"appendonly is off", "maxmemory is not set"} {
		if n := strings.Count(r.logs.String(), s); n != 1 {
			t.Errorf("%q is said %d times", s, n)
		}
	}
}
