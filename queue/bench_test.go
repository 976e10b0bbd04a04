package queue

import (
	"slices"
	"testing"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/penstock-io/penstock/internal/redistest"
)

var benchBody = []byte(`{"to":"+4915112345678","text":"hello from the benchmark, two hundred bytes or so of a job's body, as most are` +
	`, with some more text to fill it up to what the other measurements used, that is this much."}`)

func benchClient(b *testing.B) (*Client, redis.UniversalClient) {
	rdb := redistest.Start(b).Client()
	c, err := NewClient(Config{Redis: rdb})
	if err != nil {
		b.Fatal(err)
	}
	if err := c.Publish(b.Context(), "sms", Spec{}); err != nil {
		b.Fatal(err)
	}
	return c, rdb
}

func benchJob() Job { return Job{Provider: "sms", Path: "/messages", Body: benchBody} }

// BenchmarkEnqueue against BenchmarkEnqueueAsynq: one producer, one job at a time.
func BenchmarkEnqueue(b *testing.B) {
	c, _ := benchClient(b)
	for b.Loop() {
		if _, err := c.Enqueue(b.Context(), benchJob()); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkEnqueueAsynq(b *testing.B) {
	_, rdb := benchClient(b)
	plain := asynq.NewClientFromRedisClient(rdb)
	for b.Loop() {
		t := asynq.NewTaskWithHeaders("penstock:http", benchBody, map[string]string{"path": "/messages", "method": "POST"})
		if _, err := plain.EnqueueContext(b.Context(), t, asynq.Queue("plain")); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkEnqueueAll(b *testing.B) {
	c, _ := benchClient(b)
	b.ReportAllocs()
	b.ResetTimer()
	for _, err := range c.EnqueueAll(b.Context(), slices.Values(slices.Repeat([]Job{benchJob()}, b.N))) {
		if err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkPrepare(b *testing.B) {
	c, _ := benchClient(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.prepare(b.Context(), benchJob()); err != nil {
			b.Fatal(err)
		}
	}
}
