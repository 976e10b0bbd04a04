package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/penstock-io/penstock/internal/fragile"
)

func TestCommandStats(t *testing.T) {
	read := func(text string) commandStats {
		t.Helper()
		s, err := parseCommandStats(text)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	before := read("# Commandstats\r\ncmdstat_evalsha:calls=3,usec=9,usec_per_call=3.00\r\ncmdstat_info:calls=1,usec=1\r\n")
	after := read("# Commandstats\r\ncmdstat_evalsha:calls=10,usec=9\r\ncmdstat_hset:calls=4,usec=1\r\ncmdstat_info:calls=2\r\ncmdstat_client|setinfo:calls=8,usec=1\r\n")
	got := after.since(before)
	if diff := cmp.Diff(commandStats{"evalsha": 7, "hset": 4}, got); diff != "" || got.total() != 11 {
		t.Errorf("total %d\n%s", got.total(), diff)
	}
	if _, err := parseCommandStats("cmdstat_get:calls=many"); err == nil {
		t.Error("nonsense is read")
	}
}

// Through the proxy a PING takes at least twice the delay, a pipeline of a
// hundred far less than a hundred times that, and Close leaves nothing.
func TestProxy(t *testing.T) {
	defer goleak.VerifyNone(t)
	s, err := startRedis(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	const oneWay = 20 * time.Millisecond
	p, err := startProxy(s.addr, oneWay)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	trip, err := roundTrip(t.Context(), p.addr())
	if err != nil || trip < 2*oneWay {
		t.Errorf("round trip %s, %v", trip, err)
	}
	far := &redisServer{addr: p.addr()}
	c := far.client()
	defer c.Close()
	begun := time.Now()
	pipe := c.Pipeline()
	for range 100 {
		pipe.Incr(t.Context(), "n")
	}
	if _, err := pipe.Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begun); took > 50*2*oneWay {
		t.Errorf("a pipeline of 100 took %s: each command was delayed by itself", took)
	}
	if n, err := s.control.Get(t.Context(), "n").Int(); err != nil || n != 100 {
		t.Errorf("%d, %v", n, err)
	}
}

func TestRoundTripToNobody(t *testing.T) {
	addr, err := freeAddr()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := roundTrip(t.Context(), addr); err == nil {
		t.Error("nobody answered, and no error")
	}
}

func TestNoRedisServer(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if _, err := startRedis(t.Context()); err == nil || !strings.Contains(err.Error(), "apt-get install") {
		t.Errorf("%v", err)
	}
}

func TestTable(t *testing.T) {
	r := Results{Machine: Machine{CPU: "abacus", Cores: 2, OS: "linux/amd64", Go: "go1.26", Redis: "7.0.15"}, Results: []Result{
		{Bench: "shape", Case: "100/s", Side: "penstock", Run: 1, Metrics: []Metric{
			figure("used", Share, 0.9761).atLeast(0.97), figure("refused", Share, 0.002).atMost(0.001), figure("evenness", Figure, 0.1234)}},
		{Bench: "shape", Case: "100/s", Side: "asynq", Run: 1, Note: "stopped", Metrics: []Metric{
			figure("used", Share, 0.41), figure("refused", Share, 0.9), figure("evenness", Figure, 3)}},
		{Bench: "idle", Case: "20", Side: "penstock", Run: 1, Metrics: []Metric{figure("commands", PerSec, 118), figure("p50", Millis, 1.4).atMost(10)}},
	}}
	var b bytes.Buffer
	if err := r.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	const want = `2 cores (abacus), linux/amd64, go1.26, Redis 7.0.15

shape
   case      side  run     used  refused  evenness
  100/s    wanted       ≥97.00%   ≤0.10%
  100/s  penstock    1   97.61%   0.20%!     0.123
  100/s     asynq    1   41.00%   90.00%     3.000
  100/s asynq run 1: stopped

idle
  case      side  run  commands       p50
    20    wanted                 ≤10.00ms
    20  penstock    1   118.0/s    1.40ms
`
	trim := func(s string) string {
		lines := strings.Split(s, "\n")
		for i := range lines {
			lines[i] = strings.TrimRight(lines[i], " ")
		}
		return strings.Join(lines, "\n")
	}
	if diff := cmp.Diff(trim(want), trim(b.String())); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"refused"}, r.Results[0].Missed()); diff != "" {
		t.Error(diff)
	}
	b.Reset()
	if err := r.WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	var back Results
	if err := json.Unmarshal(b.Bytes(), &back); err != nil || !cmp.Equal(r, back) {
		t.Errorf("%v\n%s", err, cmp.Diff(r, back))
	}
	if (Metric{Value: math.NaN()}).Met() {
		t.Error("a figure that does not exist is met")
	}
}

func TestInOrder(t *testing.T) {
	var list []Result
	for run := 1; run <= 2; run++ {
		for _, name := range []string{"5/s", "100/s"} {
			list = append(list, Result{Bench: "shape", Case: name, Side: "penstock", Run: run}, Result{Bench: "shape", Case: name, Side: "asynq", Run: run})
		}
	}
	inOrder(list)
	var got []string
	for _, r := range list {
		got = append(got, fmt.Sprint(r.Case, r.Side, r.Run))
	}
	want := []string{"5/spenstock1", "5/spenstock2", "5/sasynq1", "5/sasynq2", "100/spenstock1", "100/spenstock2", "100/sasynq1", "100/sasynq2"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestMedianAndQuantile(t *testing.T) {
	if m := median([]float64{3, 1, 2}); m != 2 {
		t.Error(m)
	}
	if m := median([]float64{4, 1, 2, 3}); m != 2.5 {
		t.Error(m)
	}
	if q := quantile([]float64{3, 1, 2}, 1); q != 3 {
		t.Error(q)
	}
	if !math.IsNaN(median(nil)) || !math.IsNaN(quantile(nil, 1)) {
		t.Error("the median of nothing")
	}
}

// A kill by hand: four places, two of them lost with the killed one for 10 s;
// one job in flight is called again, one that was done long before, too.
func TestAfterKill(t *testing.T) {
	const killed = 10 * time.Second
	var calls []fragile.Call
	n := 0
	add := func(at time.Duration, key string, took time.Duration, end fragile.End) {
		calls = append(calls, fragile.Call{At: at, Key: key, Took: took, End: end})
	}
	for place := range 4 {
		for at := time.Duration(place) * 10 * ms; at < 40*time.Second; at += 200 * ms {
			if place > 1 && at > killed && at < killed+10*time.Second {
				continue
			}
			n++
			add(at, jobID(n), 200*ms, fragile.Answered)
		}
	}
	add(killed-100*ms, "flying", 100*ms, fragile.Left)
	add(killed+30*time.Second, "flying", 200*ms, fragile.Answered)
	add(killed-5*time.Second, "done", 200*ms, fragile.Answered)
	add(killed+20*time.Second, "done", 200*ms, fragile.Answered)
	// Some calls of the two lost places end after the kill, as that of 9.83 s does.
	calls = slices.DeleteFunc(calls, func(c fragile.Call) bool {
		return c.At > killed-200*ms && c.At <= killed && c.At%(200*ms) >= 20*ms && c.Key != "flying"
	})
	seen := afterKill(calls, killed, 4)
	if seen.back != 10*time.Second+30*ms || len(seen.again) != 2 || seen.lastAgain != 30*time.Second || seen.needless != 1 {
		t.Errorf("%+v", seen)
	}
	if back := placesBack(calls, 45*time.Second, 4); back != never {
		t.Errorf("never back: %s", back)
	}
}

func TestOptions(t *testing.T) {
	for _, o := range []Options{{Names: []string{"speed"}}, {Runs: -1}, {Scale: math.NaN()}, {Scale: -1}} {
		if _, err := Run(context.Background(), o); err == nil {
			t.Errorf("%+v accepted", o)
		}
	}
	if err := (Options{Names: []string{"speed"}}).Validate(); !strings.Contains(err.Error(), "shape, fairness") {
		t.Error(err)
	}
	if len(Names()) != len(comparisons()) {
		t.Error("Names")
	}
}

func TestWorkerRefuses(t *testing.T) {
	for _, in := range []string{"", "{}\n", "hello\n", `{"side":"other"}` + "\n"} {
		if err := Worker(strings.NewReader(in), &bytes.Buffer{}); err == nil {
			t.Errorf("%q accepted", in)
		}
	}
}
