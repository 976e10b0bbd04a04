// Command quickstart is Penstock in one program: a producer enqueues a hundred
// jobs, a worker calls them one by one at the rate that the provider allows,
// and the provider says what it saw.
//
//	go run ./examples/quickstart
//	go run ./examples/quickstart -redis redis://127.0.0.1:6379/0
//
// Without -redis (or REDIS_URL) the store is in this process. It exits 0 when
// every job succeeded.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"os"
	"os/signal"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"github.com/penstock-io/penstock/queue"
	"github.com/penstock-io/penstock/queue/embedded"
	"github.com/penstock-io/penstock/queue/worker"
	"github.com/penstock-io/penstock/shaper"
	"github.com/penstock-io/penstock/shaper/guard"
)

const (
	provider = "shop"
	jobs     = 100
	rate     = 50 // calls a second that the provider takes
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	url := flag.String("redis", os.Getenv("REDIS_URL"), "redis://host:port/db; empty: a store in this process")
	flag.Parse()
	if err := run(ctx, *url, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "quickstart:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, url string, out io.Writer) (err error) {
	rdb, closeStore, err := store(url)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeStore()) }()
	downstream := startShop()
	defer downstream.stop()

	// The guard says when a call may start, for every process that uses this Redis.
	g := guard.New(guard.Config{
		Redis: rdb, Provider: provider, Timeout: 5 * time.Second,
		Limits: shaper.Limits{Rate: shaper.PerSecond(rate), Concurrency: 4},
	})
	// The worker takes jobs when the guard will soon have room, and makes the calls.
	w, err := worker.New(worker.Config{
		Redis: rdb, Guard: g,
		HTTP:   &worker.HTTP{BaseURL: downstream.url},
		Retry:  worker.Retry{Attempts: 5, Base: 100 * time.Millisecond},
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	work, stopWork := context.WithCancel(ctx)
	stopped := make(chan error, 1)
	go func() { stopped <- w.Run(work) }()
	// Stop the worker, then the guard, then the store.
	defer func() {
		stopWork()
		err = errors.Join(err, <-stopped, g.Close(context.WithoutCancel(ctx)))
	}()

	// The producer needs nothing but Redis; usually it is another process.
	client, err := queue.NewClient(queue.Config{Redis: rdb})
	if err != nil {
		return err
	}
	// Make the provider known now, as the worker may not have started yet.
	if err := client.Publish(ctx, provider, queue.Spec{}); err != nil {
		return err
	}
	began := time.Now()
	receipts, err := enqueue(ctx, client)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "enqueued %d jobs in %s\n", len(receipts), time.Since(began).Round(time.Millisecond))

	attempts, err := await(ctx, client, receipts)
	if err != nil {
		return err
	}
	took := time.Since(began)
	calls, most := downstream.report()
	fmt.Fprintf(out, "%d jobs succeeded in %s with %d attempts\n", len(receipts), took.Round(10*time.Millisecond), attempts)
	fmt.Fprintf(out, "the provider saw %d calls, at most %d in any second; it allows %d\n", calls, most, rate)
	return nil
}

// store connects to Redis, or starts a store in this process.
func store(url string) (redis.UniversalClient, func() error, error) {
	if url == "" {
		s := embedded.Start()
		return s.Client(), s.Close, nil
	}
	opt, err := redis.ParseURL(url)
	if err != nil {
		return nil, nil, err
	}
	rdb := redis.NewClient(opt)
	return rdb, rdb.Close, nil
}

// enqueue stores the jobs, many in a round trip.
func enqueue(ctx context.Context, client *queue.Client) ([]queue.Receipt, error) {
	// An id of one's own makes an enqueue safe to repeat: the same id with the
	// same content is one job, and one successful call.
	order := uuid.NewString()
	var source iter.Seq[queue.Job] = func(yield func(queue.Job) bool) {
		for i := range jobs {
			job := queue.Job{
				Provider: provider, ID: fmt.Sprintf("order-%s-%03d", order, i),
				Method: "POST", Path: "/orders", Headers: map[string]string{"Content-Type": "application/json"},
				Body: fmt.Appendf(nil, `{"order":%d}`, i), MaxAge: time.Minute,
			}
			if !yield(job) {
				return
			}
		}
	}
	var receipts []queue.Receipt
	for r, err := range client.EnqueueAll(ctx, source) {
		if err != nil {
			return nil, err
		}
		receipts = append(receipts, r)
	}
	// Once more, as a producer does that got no answer: nothing is added.
	for job := range source {
		r, err := client.Enqueue(ctx, job)
		if err != nil || !r.Known {
			return nil, cmp.Or(err, errors.New("the same job was taken twice"))
		}
		break
	}
	return receipts, nil
}

// await looks at each job until all are final, and adds up their attempts.
func await(ctx context.Context, client *queue.Client, receipts []queue.Receipt) (attempts int, err error) {
	for _, r := range receipts {
		for {
			info, err := client.Get(ctx, r.Provider, r.ID)
			switch {
			case err != nil:
				return 0, err
			case info.State == queue.Succeeded:
				attempts += info.Attempts
			case info.State.Final():
				return 0, fmt.Errorf("job %s is %s: %s", info.ID, info.State, info.Reason)
			default:
				select {
				case <-time.After(50 * time.Millisecond):
					continue
				case <-ctx.Done():
					return 0, context.Cause(ctx)
				}
			}
			break
		}
	}
	return attempts, nil
}
