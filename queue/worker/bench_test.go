package worker

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/penstock-io/penstock/internal/redistest"
	"github.com/penstock-io/penstock/queue"
	"github.com/penstock-io/penstock/shaper"
	"github.com/penstock-io/penstock/shaper/guard"
)

// BenchmarkDrain is how fast one worker empties a queue whose calls take no
// time, beside plain asynq with the same handler and concurrency. cmds/job are
// Redis commands of the worker's side, those inside Lua counted.
//
//	go test ./queue/worker -bench Drain -benchtime 5000x -run ^$
func BenchmarkDrain(b *testing.B) {
	for _, c := range []int{10, 40, 100} {
		b.Run(fmt.Sprintf("penstock/concurrency=%d", c), func(b *testing.B) { drain(b, shaper.Limits{}, c) })
		b.Run(fmt.Sprintf("plain/concurrency=%d", c), func(b *testing.B) { drainPlain(b, c) })
	}
}

// BenchmarkShaped is the commands a job costs at a rate, over two workers.
//
//	go test ./queue/worker -bench Shaped -benchtime 500x -run ^$
func BenchmarkShaped(b *testing.B) {
	for _, rate := range []int64{100, 1000} {
		b.Run(fmt.Sprintf("rate=%d", rate), func(b *testing.B) {
			drain(b, shaper.Limits{Rate: shaper.PerSecond(rate), Concurrency: 40}, 0, 2)
		})
	}
}

func drain(b *testing.B, limits shaper.Limits, concurrency int, workers ...int) {
	srv := redistest.Start(b)
	rdb := srv.Client()
	q, err := queue.NewClient(queue.Config{Redis: rdb})
	if err != nil {
		b.Fatal(err)
	}
	if err := q.Publish(b.Context(), provider1, queue.Spec{}); err != nil {
		b.Fatal(err)
	}
	jobs := func(yield func(queue.Job) bool) {
		for range b.N {
			if !yield(queue.Job{Provider: provider1, Type: "t", Body: make([]byte, 200)}) {
				return
			}
		}
	}
	for _, err := range q.EnqueueAll(b.Context(), jobs) {
		if err != nil {
			b.Fatal(err)
		}
	}
	var left atomic.Int64
	left.Store(int64(b.N))
	over := make(chan struct{})
	n := 1
	if len(workers) > 0 {
		n = workers[0]
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, n)
	before := spentBy(b, rdb)
	b.ResetTimer()
	for range n {
		own := srv.Client()
		g := guard.New(guard.Config{Redis: own, Provider: provider1, Limits: limits, Logger: quietLog()})
		w, err := New(Config{Redis: own, Guard: g, Concurrency: concurrency, Logger: quietLog(), Handler: func(context.Context, *Job) error {
			if limits.Concurrency > 0 {
				time.Sleep(20 * time.Millisecond)
			}
			if left.Add(-1) == 0 {
				close(over)
			}
			return nil
		}})
		if err != nil {
			b.Fatal(err)
		}
		go func() {
			err := w.Run(ctx)
			g.Close(context.Background())
			ended <- err
		}()
	}
	<-over
	b.StopTimer()
	cancel()
	for range n {
		if err := <-ended; err != nil {
			b.Error(err)
		}
	}
	before.report(b, rdb)
}

func drainPlain(b *testing.B, concurrency int) {
	rdb := redistest.Start(b).Client()
	c := asynq.NewClientFromRedisClient(rdb)
	for range b.N {
		if _, err := c.Enqueue(asynq.NewTask("t", make([]byte, 200)), asynq.Queue("q")); err != nil {
			b.Fatal(err)
		}
	}
	var left atomic.Int64
	left.Store(int64(b.N))
	over := make(chan struct{})
	srv := asynq.NewServerFromRedisClient(rdb, asynq.Config{Queues: map[string]int{"q": 1}, Concurrency: concurrency, Logger: quiet{}, LogLevel: asynq.FatalLevel})
	before := spentBy(b, rdb)
	b.ResetTimer()
	if err := srv.Start(asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
		if left.Add(-1) == 0 {
			close(over)
		}
		return nil
	})); err != nil {
		b.Fatal(err)
	}
	<-over
	b.StopTimer()
	srv.Shutdown()
	before.report(b, rdb)
}

// spending is what was used so far: commands, and microseconds of processor
// time here and in the server.
type spending struct{ commands, here, there float64 }

// report says what was spent per job since. Rates on a busy machine are noise;
// what a job costs is not.
func (s spending) report(b *testing.B, rdb redis.UniversalClient) {
	n, now := float64(b.N), spentBy(b, rdb)
	b.ReportMetric(n/b.Elapsed().Seconds(), "jobs/s")
	b.ReportMetric((now.commands-s.commands)/n, "cmds/job")
	b.ReportMetric((now.here-s.here)/n, "µs-here/job")
	b.ReportMetric((now.there-s.there)/n, "µs-redis/job")
}

var (
	callsOf = regexp.MustCompile(`calls=(\d+)`)
	cpuOf   = regexp.MustCompile(`used_cpu_(?:sys|user):([0-9.]+)`)
)

func spentBy(b testing.TB, rdb redis.UniversalClient) spending {
	b.Helper()
	sum := func(section string, re *regexp.Regexp) (total float64) {
		info, err := rdb.Info(context.Background(), section).Result()
		if err != nil {
			b.Fatal(err)
		}
		for _, m := range re.FindAllStringSubmatch(info, -1) {
			f, _ := strconv.ParseFloat(m[1], 64)
			total += f
		}
		return total
	}
	var ru syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &ru); err != nil {
		b.Fatal(err)
	}
	return spending{
		commands: sum("commandstats", callsOf), there: 1e6 * sum("cpu", cpuOf),
		here: float64(ru.Utime.Nano()+ru.Stime.Nano()) / 1e3,
	}
}

func commandsOf(t testing.TB, rdb redis.UniversalClient) float64 { return spentBy(t, rdb).commands }
