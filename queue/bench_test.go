package queue

import (
	"slices"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/penstock-io/penstock/internal/redistest"
)

var benchBody = []byte(`{"to":"+4915112345678","text":"hello from the benchmark, two hundred bytes or so of a job's body, as most are` +
	`, with some more text to fill it up to what the other measurements used, that is this much."}`)

func benchClient(b *testing.B) (*Client, redis.UniversalClient) { return benchClientT(b) }

func benchClientT(b testing.TB) (*Client, redis.UniversalClient) {
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

// BenchmarkPairs alternates plain asynq, Enqueue and EnqueueAll in lots of 2000
// on one server, so that all see the same machine, and reports rates and ratios.
func BenchmarkPairs(b *testing.B) {
	c, rdb := benchClient(b)
	plain := asynq.NewClientFromRedisClient(rdb)
	const lot = 2000
	ctx := b.Context()
	jobs := slices.Repeat([]Job{benchJob()}, lot)
	runs := []struct {
		name string
		run  func() error
		took time.Duration
	}{
		{name: "asynq", run: func() error {
			for range lot {
				t := asynq.NewTaskWithHeaders("penstock:http", benchBody, map[string]string{"path": "/messages", "method": "POST"})
				if _, err := plain.EnqueueContext(ctx, t, asynq.Queue("plain")); err != nil {
					return err
				}
			}
			return nil
		}},
		{name: "one", run: func() error {
			for _, j := range jobs {
				if _, err := c.Enqueue(ctx, j); err != nil {
					return err
				}
			}
			return nil
		}},
		{name: "all", run: func() error {
			for _, err := range c.EnqueueAll(ctx, slices.Values(jobs)) {
				if err != nil {
					return err
				}
			}
			return nil
		}},
	}
	rounds := 0
	for b.Loop() {
		rounds++
		for i := range runs {
			start := time.Now()
			if err := runs[i].run(); err != nil {
				b.Fatal(err)
			}
			runs[i].took += time.Since(start)
		}
	}
	for _, r := range runs {
		b.ReportMetric(float64(rounds*lot)/r.took.Seconds(), r.name+"/s")
		b.ReportMetric(runs[0].took.Seconds()/r.took.Seconds(), r.name+"/asynq")
	}
}
