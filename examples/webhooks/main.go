// Command webhooks is a webhook service in one program: a payment gateway sends
// a storm of signed events, repeats some, and gives up on slow receivers; the
// application behind can take fifty a second and breaks under more. Penstock
// stands between: it proves each delivery, drops repeats, acknowledges once the
// event is stored, and passes it on at the application's pace.
//
//	go run ./examples/webhooks
//	go run ./examples/webhooks -redis redis://127.0.0.1:6379/0
//
// Without -redis (or REDIS_URL) the store is in this process. It exits 0 when
// every event was acknowledged, and reached the application once.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
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
	"github.com/penstock-io/penstock/webhooks"
)

const (
	provider = "application"
	secret   = "whsec_made_up_for_this_example"
	pace     = 50 // events a second that the application takes
	places   = 4  // at once
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	url := flag.String("redis", os.Getenv("REDIS_URL"), "redis://host:port/db; empty: a store in this process")
	flag.Parse()
	if err := run(ctx, *url, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "webhooks:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, url string, out io.Writer) (err error) {
	rdb, closeStore, err := store(url)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeStore()) }()
	app := startApplication()
	defer app.stop()

	stopWorker, err := startWorker(ctx, rdb, app.url)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stopWorker()) }()

	client, err := queue.NewClient(queue.Config{Redis: rdb})
	if err != nil {
		return err
	}
	// Make the destination known now, as the worker may not have started yet.
	if err := client.Publish(ctx, provider, queue.Spec{}); err != nil {
		return err
	}
	hook, err := webhooks.New(webhooks.Config{
		// The webhook's name is part of the jobs' ids; a new one lets this
		// example run again on the same Redis.
		Name:    "payments-" + uuid.NewString()[:8],
		Options: webhooks.Options{Scheme: webhooks.Stripe, Secrets: webhooks.Secrets(secret)},
		To:      webhooks.Destination{Provider: provider, Path: "/events"},
		MaxBody: 64 << 10,
		Queue:   client,
		Logger:  slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("/hooks/payments", hook)
	door := httptest.NewServer(mux)
	defer door.Close()

	g := gateway{url: door.URL + "/hooks/payments", client: door.Client()}
	if err := g.storm(ctx, out); err != nil {
		return err
	}
	if err := g.forgeries(ctx, out); err != nil {
		return err
	}
	return app.await(ctx, out)
}

// startWorker calls the application at its pace.
func startWorker(ctx context.Context, rdb redis.UniversalClient, url string) (stop func() error, err error) {
	g := guard.New(guard.Config{
		Redis: rdb, Provider: provider, Timeout: 5 * time.Second,
		Limits: shaper.Limits{Rate: shaper.PerSecond(pace), Concurrency: places},
	})
	w, err := worker.New(worker.Config{
		Redis: rdb, Guard: g, HTTP: &worker.HTTP{BaseURL: url},
		Retry: worker.Retry{Attempts: 5, Base: 100 * time.Millisecond}, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return nil, err
	}
	work, stopWork := context.WithCancel(ctx)
	stopped := make(chan error, 1)
	go func() { stopped <- w.Run(work) }()
	return func() error {
		stopWork()
		return errors.Join(<-stopped, g.Close(context.WithoutCancel(ctx)))
	}, nil
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
