package shaper

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/penstock-io/penstock/internal/redistest"
)

// fleetOrder is what a process of the fleet is told, in the environment.
type fleetOrder struct {
	Addr    string
	Limits  Limits
	Callers int
	Took    time.Duration
	For     time.Duration
	Lease   time.Duration
}

// fleetCall is one call, as a process of the fleet prints it. Begin and End
// are Unix microseconds of the machine's clock, which all processes share.
type fleetCall struct {
	Begin, End int64
	TAT        int64
	Lost       bool
}

const fleetEnv = "PENSTOCK_TEST_FLEET"

// fleetMember runs one process of the fleet where the environment says so.
func fleetMember() bool {
	text := os.Getenv(fleetEnv)
	if text == "" {
		return false
	}
	var o fleetOrder
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		panic(err)
	}
	rdb := redis.NewClient(&redis.Options{Addr: o.Addr})
	g, err := NewGate(GateConfig{Redis: rdb, Name: "fleet", Limits: o.Limits, Lease: o.Lease})
	if err != nil {
		panic(err)
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	out := bufio.NewWriter(os.Stdout)
	end := time.Now().Add(o.For)
	for range o.Callers {
		wg.Go(func() {
			for time.Now().Before(end) {
				p, err := g.Acquire(until(end), Arrival{})
				if err != nil {
					return
				}
				ctx, cancel := p.Context(until(end.Add(time.Minute)))
				c := fleetCall{Begin: time.Now().UnixMicro(), TAT: p.tat}
				t := time.NewTimer(o.Took/2 + rand.N(o.Took))
				select {
				case <-t.C:
				case <-ctx.Done():
					c.Lost = true
				}
				c.End = time.Now().UnixMicro()
				cancel(nil)
				mu.Lock()
				_ = json.NewEncoder(out).Encode(c)
				_ = out.Flush()
				mu.Unlock()
				p.Settle(Settlement{OK: true})
			}
		})
	}
	wg.Wait()
	return true
}

type fleetProcess struct {
	cmd   *exec.Cmd
	calls []fleetCall
	done  chan struct{}
}

func startFleetProcess(t *testing.T, o fleetOrder) *fleetProcess {
	t.Helper()
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	p := &fleetProcess{cmd: exec.Command(os.Args[0]), done: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), fleetEnv+"="+string(text))
	p.cmd.Stderr = os.Stderr
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.cmd.Process.Kill(); <-p.done })
	go func() {
		defer close(p.done)
		for s := bufio.NewScanner(out); s.Scan(); {
			var c fleetCall
			if json.Unmarshal(s.Bytes(), &c) == nil {
				p.calls = append(p.calls, c)
			}
		}
		_ = p.cmd.Wait()
	}()
	return p
}

// The promise itself, with real processes on a real Redis: slots are one
// interval apart whoever gets them (so any window w has at most w/interval +
// burst), no slot is given twice, and never more than L calls are in flight,
// while one process is killed and one is stopped for longer than the lease
// and goes on. The stopped one's own calls are measured apart.
func TestFleet(t *testing.T) {
	redistest.Real(t, func(t *testing.T, rdb redis.UniversalClient, env *redistest.Env) {
		const lease = 2 * time.Second
		o := fleetOrder{
			Addr: env.Server.Addr, Callers: 8, Took: 60 * time.Millisecond, For: 9 * time.Second, Lease: lease,
			Limits: Limits{Rate: PerSecond(120), Concurrency: 8},
		}
		var fleet []*fleetProcess
		for range 4 {
			fleet = append(fleet, startFleetProcess(t, o))
		}
		killed, stopped := fleet[0], fleet[1]
		time.Sleep(2 * time.Second)
		killedAt := time.Now()
		_ = killed.cmd.Process.Kill()
		time.Sleep(500 * time.Millisecond)
		_ = stopped.cmd.Process.Signal(syscall.SIGSTOP)
		stoppedAt := time.Now()
		time.Sleep(lease + 1500*time.Millisecond)
		_ = stopped.cmd.Process.Signal(syscall.SIGCONT)
		contAt := time.Now()
		var all, others []fleetCall
		for _, p := range fleet {
			<-p.done
			all = append(all, p.calls...)
			if p != stopped {
				others = append(others, p.calls...)
			}
			t.Logf("a process made %d calls", len(p.calls))
		}
		if len(all) < 300 {
			t.Fatalf("only %d calls; the test shows nothing", len(all))
		}
		var slots []int64
		for _, c := range all {
			slots = append(slots, c.TAT)
		}
		slices.Sort(slots)
		checkSpacing(t, slots, o.Limits.Interval())

		// Concurrency, by the clock that all share. Without the stopped process
		// never above L; with it, L until it was stopped.
		if most := inFlight(others, 0, 1<<62); most > o.Limits.Concurrency {
			t.Errorf("%d in flight, limit %d", most, o.Limits.Concurrency)
		}
		if most := inFlight(all, 0, stoppedAt.UnixMicro()); most > o.Limits.Concurrency {
			t.Errorf("%d in flight before the stop, limit %d", most, o.Limits.Concurrency)
		}
		own := inFlight(all, contAt.UnixMicro(), 1<<62) - o.Limits.Concurrency
		t.Logf("after going on, the stopped process exceeded L by %d calls of its own", max(0, own))
		if own > o.Callers {
			t.Errorf("exceeded by %d, more than its own %d calls", own, o.Callers)
		}
		// What the dead held is back within the lease.
		back := 0
		for _, c := range others {
			if at := time.UnixMicro(c.Begin); at.After(killedAt.Add(lease+time.Second)) && at.Before(killedAt.Add(lease+2*time.Second)) {
				back++
			}
		}
		if back < 60 {
			t.Errorf("%d calls in the second after the lease of the killed process; want most of 120", back)
		}
		p := mustAcquire(t, testGate(t, rdb, o.Limits, func(c *GateConfig) { c.Name, c.Lease = "fleet", lease }), Arrival{})
		p.Release()
	})
}

// inFlight is the most calls at once that overlap [from, to].
func inFlight(calls []fleetCall, from, to int64) int {
	type edge struct {
		at int64
		by int
	}
	var edges []edge
	for _, c := range calls {
		if c.Begin >= to || c.End <= from {
			continue
		}
		edges = append(edges, edge{c.Begin, 1}, edge{min(c.End, to), -1})
	}
	slices.SortFunc(edges, func(a, b edge) int {
		if a.at != b.at {
			return int(a.at - b.at)
		}
		return a.by - b.by
	})
	n, most := 0, 0
	for _, e := range edges {
		n += e.by
		most = max(most, n)
	}
	return most
}

// clocked makes gates read a clock that a test can set, in place of TIME.
func clocked(t *testing.T, g *Gate) {
	t.Helper()
	const real = "local now = num(t[1]) * 1000000 + num(t[2])"
	if strings.Count(gateSource, real) != 1 {
		t.Fatal("gate.lua reads TIME otherwise now; adapt the test")
	}
	g.script = NewScript(strings.Replace(gateSource, real, real+" + num(call('GET', 'test:offset'))", 1))
}

// LIM-16: TIME steps by an hour either way, or by ten seconds: a stall of at
// most a second, no burst above capacity, no lease immortal or lost.
func TestClockJumps(t *testing.T) {
	for _, jump := range []time.Duration{time.Hour, -time.Hour, 10 * time.Second, -10 * time.Second, -10 * time.Minute} {
		t.Run(jump.String(), func(t *testing.T) {
			redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient, env *redistest.Env) {
				l := Limits{Rate: PerSecond(20), Concurrency: 4}
				g, other := testGate(t, rdb, l), testGate(t, env.Client(), l)
				clocked(t, g)
				clocked(t, other)
				held := mustAcquire(t, g, Arrival{Job: "held"})
				for range 5 {
					mustAcquire(t, other, Arrival{}).Settle(Settlement{OK: true})
				}
				rdb.Set(t.Context(), "test:offset", jump.Microseconds(), 0)
				start := time.Now()
				const n = 10
				slots, _ := drain(t, n, 3, time.Millisecond, other)
				took := time.Since(start)
				checkSpacing(t, slots, l.Interval())
				if least := (n - 1) * l.Interval(); took < least {
					t.Errorf("%d calls in %s after the jump: a burst (least %s)", n, took, least)
				}
				if env.Virtual && took > n*l.Interval()+time.Second {
					t.Errorf("stalled: %d calls took %s", n, took)
				}
				if _, err := other.Acquire(t.Context(), Arrival{Job: "held"}); err != ErrRunning {
					t.Errorf("the running job's lease was lost by the jump: %v", err)
				}
				if env.Virtual { // its lease is not immortal either
					freeze(g)
					for range 8 {
						time.Sleep(2 * time.Second)
						mustAcquire(t, other, Arrival{}).Release()
					}
					mustAcquire(t, other, Arrival{Job: "held"}).Release()
					thaw(g)
				}
				held.Release()
			})
		})
	}
}

// What is refused at once, and never half accepted. LIM-05, LIM-06, LIM-08,
// LIM-09, LIM-11; NaN and infinity (LIM-07) cannot be written in these types,
// and their texts are refused by ParseRate.
func TestRefusedLimits(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}})
	defer func() { _ = rdb.Close() }()
	for name, l := range map[string]Limits{
		"LIM-05 rate zero":          {Rate: Rate{Per: time.Second}},
		"LIM-06 rate negative":      {Rate: PerSecond(-1)},
		"LIM-06 burst negative":     {Rate: PerSecond(1), Burst: -5},
		"LIM-08 period zero":        {Rate: Rate{N: 10}},
		"LIM-08 period negative":    {Rate: Rate{N: 10, Per: -time.Second}},
		"LIM-11 burst huge":         {Rate: Rate{N: 1, Per: time.Hour}, Burst: 1<<63 - 1},
		"LIM-11 period ten years":   {Rate: Rate{N: 1, Per: 10 * 365 * 24 * time.Hour}, Burst: 1e9},
		"LIM-11 burst times period": {Rate: Rate{N: 1, Per: 30 * 24 * time.Hour}, Burst: 1_000_000},
		"rate too fast":             {Rate: PerSecond(1 << 40)},
		"concurrency negative":      {Concurrency: -1},
		"headroom negative":         {Headroom: -time.Second},
		"headroom huge":             {Headroom: 1<<63 - 1},
	} {
		t.Run(name, func(t *testing.T) {
			if err := l.Validate(); err == nil {
				t.Errorf("%+v was accepted", l)
			}
			if _, err := NewGate(GateConfig{Redis: rdb, Name: "x", Limits: l}); err == nil {
				t.Errorf("a gate with %+v was made", l)
			}
		})
	}
	for _, text := range []string{
		"", "0/s", "-1/s", "+1/s", "NaN/s", "Inf/s", "1e300/s", "1e-12/s", "0.33/s", "10/0s", "10/-1s", "10/", "/s", "10", "10/fortnight",
		"9223372036854775808/s", "1/1ns", "100/s/s", "1/87600h",
	} {
		if r, err := ParseRate(text); err == nil {
			t.Errorf("ParseRate(%q) = %+v, want an error", text, r)
		}
	}
	for text, want := range map[string]Rate{
		"100/s": PerSecond(100), "12/m": {N: 12, Per: time.Minute}, "10/h": {N: 10, Per: time.Hour}, "1/3s": {N: 1, Per: 3 * time.Second},
		"5/10s": {N: 5, Per: 10 * time.Second}, " 7/d ": {N: 7, Per: 24 * time.Hour},
	} {
		r, err := ParseRate(text)
		if err != nil || r != want {
			t.Errorf("ParseRate(%q) = %+v, %v; want %+v", text, r, err, want)
		}
		if again, err := ParseRate(r.String()); err != nil || again != r {
			t.Errorf("%q does not survive: %q", text, r.String())
		}
	}
}

// LIM-10, LIM-14: intervals are exact, rounded up, never to zero.
func TestInterval(t *testing.T) {
	for _, c := range []struct {
		l    Limits
		want time.Duration
	}{
		{Limits{}, 0},
		{Limits{Rate: PerSecond(100)}, 10250 * time.Microsecond},
		{Limits{Rate: PerSecond(3), Headroom: NoHeadroom}, 333334 * time.Microsecond},
		{Limits{Rate: Rate{N: 12, Per: time.Minute}, Headroom: NoHeadroom}, 5 * time.Second},
		{Limits{Rate: Rate{N: 6, Per: time.Minute}, Headroom: NoHeadroom}, 10 * time.Second},
		{Limits{Rate: Rate{N: 1, Per: 3 * time.Second}, Headroom: NoHeadroom}, 3 * time.Second},
		{Limits{Rate: PerSecond(20_000)}, 52 * time.Microsecond},
	} {
		if got := c.l.Interval(); got != c.want {
			t.Errorf("%+v: %s, want %s", c.l, got, c.want)
		}
	}
}

// A strict sliding window of the stated limit never sees a breach: any n+1
// slots span more than the window and the headroom together.
func TestStrictWindow(t *testing.T) {
	for _, n := range []int64{1, 3, 7, 100, 999, 20_000} {
		l := Limits{Rate: PerSecond(n)}
		if span := time.Duration(n) * l.Interval(); span < time.Second+DefaultHeadroom {
			t.Errorf("%d/s: %d calls span %s", n, n+1, span)
		}
	}
}

// LIM-03: after an idle hour no more than the burst leaves at once.
func TestBurstAfterIdle(t *testing.T) {
	for _, burst := range []int{1, 5} {
		t.Run(fmt.Sprint(burst), func(t *testing.T) {
			redistest.Virtual(t, func(t *testing.T, rdb redis.UniversalClient, env *redistest.Env) {
				l := Limits{Rate: Rate{N: 10, Per: time.Minute}, Burst: burst}
				g := testGate(t, rdb, l)
				mustAcquire(t, g, Arrival{}).Settle(Settlement{OK: true})
				time.Sleep(time.Hour)
				g = testGate(t, env.Client(), l) // a restart changes nothing
				start := time.Now()
				var at []time.Duration
				for range burst + 3 {
					mustAcquire(t, g, Arrival{}).Settle(Settlement{OK: true})
					at = append(at, time.Since(start).Round(time.Second))
				}
				for i := range burst {
					if at[i] != 0 {
						t.Errorf("call %d of the burst went after %s", i, at[i])
					}
				}
				if at[burst] < 6*time.Second {
					t.Errorf("call %d went after %s; the burst is %d", burst, at[burst], burst)
				}
			})
		})
	}
}

// A permit cannot stand for more calls than the provider takes in a period.
func TestMaxCost(t *testing.T) {
	for _, tt := range []struct {
		l    Limits
		want int
	}{
		{Limits{}, 0}, {Limits{Concurrency: 5}, 0}, {Limits{Rate: PerSecond(100)}, 100},
		{Limits{Rate: Rate{N: 5, Per: time.Hour}, Burst: 20}, 20}, {Limits{Rate: Rate{N: 1, Per: time.Second}}, 1},
	} {
		if got := tt.l.MaxCost(); got != tt.want {
			t.Errorf("%+v: %d, want %d", tt.l, got, tt.want)
		}
	}
}
