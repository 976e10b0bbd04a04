package bench

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

// PlainType is the type of the tasks of plain asynq here.
const PlainType = "bench:http"

// PlainConfig is an asynq server as its documentation shows it: handlers that
// call the provider, and asynq's own retry when the call fails.
type PlainConfig struct {
	Redis redis.UniversalClient
	Queue string
	// Concurrency is asynq's. Zero: the number of cores.
	Concurrency int
	// URL is called with POST and an Idempotency-Key, the task's id.
	URL string
	// Headers are added to each call.
	Headers map[string]string
	// Handler instead of the call to URL. Nil: the call.
	Handler asynq.Handler
	// RetryDelay. Nil: asynq's default, about 15 s to begin with.
	RetryDelay asynq.RetryDelayFunc
}

// PlainServer is a running one.
type PlainServer struct {
	server    *asynq.Server
	transport *http.Transport
}

// StartPlain starts the server. Close it before its Redis client.
func StartPlain(cfg PlainConfig) (*PlainServer, error) {
	p := &PlainServer{transport: &http.Transport{MaxIdleConnsPerHost: max(64, cfg.Concurrency)}}
	h := cfg.Handler
	if h == nil {
		h = plainCall(&http.Client{Transport: p.transport, Timeout: 30 * time.Second}, cfg)
	}
	p.server = asynq.NewServerFromRedisClient(cfg.Redis, asynq.Config{
		Concurrency: cfg.Concurrency, Queues: map[string]int{cfg.Queue: 1},
		RetryDelayFunc: cfg.RetryDelay, LogLevel: asynq.FatalLevel, ShutdownTimeout: time.Second,
	})
	if err := p.server.Start(h); err != nil {
		return nil, fmt.Errorf("plain asynq: %w", err)
	}
	return p, nil
}

// Close stops the server: what still runs after a second goes back to Redis.
func (p *PlainServer) Close() {
	p.server.Shutdown()
	p.transport.CloseIdleConnections()
}

func plainCall(client *http.Client, cfg PlainConfig) asynq.HandlerFunc {
	return func(ctx context.Context, task *asynq.Task) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, cfg.URL, newReader(task.Payload()))
		if err != nil {
			return err
		}
		req.Header.Set("Idempotency-Key", task.ResultWriter().TaskID())
		for name, value := range cfg.Headers {
			req.Header.Set(name, value)
		}
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if _, err := io.Copy(io.Discard, io.LimitReader(resp.Body, 1<<20)); err != nil {
			return err
		}
		if resp.StatusCode >= 300 {
			return fmt.Errorf("answered %d", resp.StatusCode)
		}
		return nil
	}
}

// plainEnqueue puts n tasks into a queue, one by one, ids "job-0" on.
func plainEnqueue(ctx context.Context, c redis.UniversalClient, queue string, n int, body []byte) error {
	put := PlainEnqueuer(c)
	for i := range n {
		if err := put(ctx, queue, jobID(i), body); err != nil {
			return fmt.Errorf("plain asynq: enqueue: %w", err)
		}
	}
	return nil
}

// PlainEnqueuer returns what stores one task for a plain server.
func PlainEnqueuer(c redis.UniversalClient) func(ctx context.Context, queue, id string, body []byte) error {
	client := asynq.NewClientFromRedisClient(c)
	return func(ctx context.Context, queue, id string, body []byte) error {
		_, err := client.EnqueueContext(ctx, asynq.NewTask(PlainType, body), asynq.Queue(queue), asynq.TaskID(id), asynq.Timeout(time.Minute))
		return err
	}
}
