package health

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/penstock-io/penstock/breaker"
	"github.com/penstock-io/penstock/internal/redistest"
	"github.com/penstock-io/penstock/shaper"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// heard are the changes that a fleet tells.
type heard struct {
	mu  sync.Mutex
	all []Change
}

func (h *heard) add(c Change) { h.mu.Lock(); defer h.mu.Unlock(); h.all = append(h.all, c) }

func (h *heard) states() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var s []string
	for _, c := range h.all {
		s = append(s, c.To)
	}
	return strings.Join(s, " ")
}

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// unopened is one process's health that does nothing by itself.
func unopened(t testing.TB, rdb redis.UniversalClient, h *heard, change ...func(*Config)) *Health {
	t.Helper()
	cfg := Config{
		Redis: rdb, Queue: "sms", Provider: "sms", Logger: quiet, Law: breaker.Config{Timeout: time.Second},
		Limits: func() shaper.Limits { return shaper.Limits{Rate: shaper.PerSecond(100)} },
	}
	if h != nil {
		cfg.Changed = h.add
	}
	for _, f := range change {
		f(&cfg)
	}
	m, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// member is one process's health.
func member(t testing.TB, rdb redis.UniversalClient, h *heard, change ...func(*Config)) *Health {
	t.Helper()
	m := unopened(t, rdb, h, change...)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := m.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	if err := m.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	return m
}

func call(m *Health, o breaker.Outcome) {
	gen := m.View().State.Generation
	m.Started(gen)
	m.Ended(gen, o, 20*time.Millisecond)
}

func is(m *Health, phase string) func() bool {
	return func() bool { return m.View().Phase == phase }
}

// The whole way: failures open, for all; a process that has nothing to call
// probes too; good probes close, with a slow start; each change is told once.
func TestOpensProbesCloses(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient, env *redistest.Env) {
		told := &heard{}
		quick := func(c *Config) { c.Law.Opening.First = 500 * time.Millisecond }
		a, b := member(t, rdb, told, quick), member(t, env.Client(), told, quick)
		for range 8 { // BRK-06: none of them sees enough by itself
			call(a, breaker.Failed)
			call(b, breaker.Timeout)
		}
		env.Eventually(5*time.Second, "open for both", func() bool { return is(a, "open")() && is(b, "open")() })
		if until := time.Until(a.View().OpenUntil); until <= 0 || until > time.Second {
			t.Errorf("open for another %s", until)
		}
		env.Eventually(5*time.Second, "half-open for both", func() bool { return is(a, "half_open")() && is(b, "half_open")() })
		for range 3 {
			call(b, breaker.OK)
			time.Sleep(600 * time.Millisecond)
		}
		env.Eventually(5*time.Second, "closed for both", func() bool { return is(a, "closed")() && is(b, "closed")() })
		env.Eventually(time.Minute, "at rest", func() bool { return a.View().State.AtRest() })
		env.Eventually(5*time.Second, "all is told", func() bool { return strings.HasSuffix(told.states(), " closed") })
		if got := told.states(); got != "open half_open slow_start closed" {
			t.Errorf("told: %s", got)
		}
	})
}

// BRK-05: what began before the breaker opened changes nothing afterwards.
func TestOlderGeneration(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient, env *redistest.Env) {
		m := member(t, rdb, nil, func(c *Config) { c.Law.Opening.First = 300 * time.Millisecond })
		const late = 5
		old := m.View().State.Generation
		for range late {
			m.Started(old)
		}
		for range 16 {
			call(m, breaker.Failed)
		}
		env.Eventually(5*time.Second, "half-open", is(m, "half_open"))
		for range late {
			m.Ended(old, breaker.Failed, time.Second)
		}
		time.Sleep(time.Second)
		if got := m.View(); got.Phase != "half_open" {
			t.Errorf("late failures made it %s: %s", got.Phase, got.State.Reason)
		}
	})
}

// BRK-08: the record may be lost, torn or rolled back at any moment.
func TestRecordLost(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient, env *redistest.Env) {
		m := member(t, rdb, nil)
		var before uint64
		for i, harm := range []func(){
			func() { env.Flush(t.Context()) },
			func() { rdb.Set(t.Context(), "penstock:{sms}:control", "not a record at all", 0) },
			func() {
				rdb.Set(t.Context(), "penstock:{sms}:control", shaper.Control{Mode: "on", Version: 7, Phase: "closed"}.String()+"\n{torn", 0)
			},
			func() { rdb.Set(t.Context(), "penstock:{sms}:control", "", 0) },
		} {
			for range 16 {
				call(m, breaker.Failed)
			}
			env.Eventually(5*time.Second, fmt.Sprintf("open, round %d", i), is(m, "open"))
			gen := m.View().State.Generation
			if gen <= before {
				t.Errorf("round %d: generation %d after %d: results of before would count", i, gen, before)
			}
			before = gen
			harm()
			env.Eventually(5*time.Second, fmt.Sprintf("begun anew, round %d", i), func() bool {
				v := m.View()
				return v.Phase == "closed" && v.State.Generation > gen
			})
		}
	})
}

// A record of a newer release is obeyed by its line and never overwritten.
func TestNewerRecord(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient, env *redistest.Env) {
		for _, text := range []string{
			shaper.Control{Mode: "on", Version: 9, Phase: "open", Generation: 4, Since: 4, OpenUntil: time.Now().Add(time.Hour)}.String() +
				" and more\n" + `{"v":9,"reads":9,"phase":"ajar","gen":4,"since":4}`,
			"2 on 9 ajar\n{}",
		} {
			rdb.Set(t.Context(), "penstock:{sms}:control", text, 0)
			m := member(t, rdb, nil)
			for range 16 {
				call(m, breaker.Failed)
			}
			time.Sleep(1500 * time.Millisecond)
			if got := rdb.Get(t.Context(), "penstock:{sms}:control").Val(); got != text {
				t.Errorf("overwritten:\n%s\n%s", text, got)
			}
		}
	})
}

// The last process that starts decides for the fleet; what was obeyed before
// is put out of force; and a shadow computes.
func TestModes(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient, env *redistest.Env) {
		control := func() string {
			c, _, _ := shaper.ParseControl(rdb.Get(t.Context(), "penstock:{sms}:control").Val())
			return c.Mode + " " + c.Phase
		}
		told := &heard{}
		on := member(t, rdb, told)
		for range 16 {
			call(on, breaker.Failed)
		}
		env.Eventually(5*time.Second, "on: open", func() bool { return control() == "on open" })
		off := member(t, rdb, told, func(c *Config) { c.Mode = Off })
		env.Eventually(5*time.Second, "off", func() bool { return control() == "off closed" })
		call(off, breaker.Failed)
		env.Eventually(5*time.Second, "the old one obeys", func() bool { return on.View().Mode == Off })
		told.mu.Lock()
		told.all = nil
		told.mu.Unlock()
		shadow := member(t, rdb, told, func(c *Config) { c.Mode = Shadow })
		env.Eventually(5*time.Second, "shadow: open", func() bool {
			call(shadow, breaker.Failed)
			return control() == "shadow open"
		})
		if v := shadow.View(); v.Phase != "closed" {
			t.Errorf("a shadow is obeyed: %+v", v)
		}
		env.Eventually(5*time.Second, "told", func() bool { return told.states() == "open" })
		if told.all[0].Shadow != true {
			t.Errorf("told as if it were real: %+v", told.all[0])
		}
	})
}

// A repetition of a flush (its reply was lost) adds nothing.
func TestFlushOnce(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient, _ *redistest.Env) {
		m := unopened(t, rdb, nil)
		f := &flush{number: 1 << 40}
		for range 7 {
			f.window.started(0)
			f.window.ended(0, breaker.Failed, 0)
		}
		for range 3 {
			if _, err := m.sense(t.Context(), f, false, ""); err != nil {
				t.Fatal(err)
			}
		}
		s, err := m.sense(t.Context(), &flush{}, true, "")
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, b := range s.sample.Buckets {
			n += b.Failed
		}
		if !s.due || n != 7 || s.sample.Row.Failures != 7 {
			t.Errorf("due %v, %d failures, a row of %d; want 7", s.due, n, s.sample.Row.Failures)
		}
	})
}

// What is stored is what was seen, merged in the script; and no more than the
// law looks at.
func TestBuckets(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient, _ *redistest.Env) {
		m := unopened(t, rdb, nil)
		want := breaker.Bucket{}
		for i := range 4 {
			f := &flush{number: int64(1<<40 + i)}
			for _, o := range breaker.Outcomes() {
				took := time.Duration(i*10) * time.Millisecond
				f.window.started(3)
				f.window.ended(3, o, took)
				want.Starts++
				want.Add(o)
				if o == breaker.OK {
					want.Latencies.Add(took)
				}
			}
			if _, err := m.sense(t.Context(), f, false, ""); err != nil {
				t.Fatal(err)
			}
		}
		s, err := m.sense(t.Context(), &flush{}, true, "")
		if err != nil {
			t.Fatal(err)
		}
		got := breaker.Bucket{}
		for _, b := range s.sample.Buckets {
			if b.Generation != 3 {
				t.Errorf("generation %d", b.Generation)
			}
			got.Merge(b.Counts)
			got.Latencies.Merge(&b.Latencies)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("(-want +got)\n%s", d)
		}
		law := m.cfg.Law
		if f := stale(s.sample.Buckets, s.now.Add(time.Hour), law); len(f) != len(s.sample.Buckets) {
			t.Errorf("an hour later %d of %d are stale", len(f), len(s.sample.Buckets))
		}
		if f := stale(s.sample.Buckets, s.now.Add(-time.Hour), law); len(f) != len(s.sample.Buckets) {
			t.Errorf("a clock set back leaves %d of %d stale", len(f), len(s.sample.Buckets))
		}
	})
}

// Resume does not close an open breaker: it probes at once.
func TestResumeProbes(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient, env *redistest.Env) {
		m := member(t, rdb, nil, func(c *Config) { c.Law.Opening.First, c.Law.Opening.Longest = time.Hour, time.Hour })
		g, err := shaper.NewGate(shaper.GateConfig{Redis: rdb, Name: "sms", Logger: quiet})
		if err != nil {
			t.Fatal(err)
		}
		for range 16 {
			call(m, breaker.Failed)
		}
		env.Eventually(5*time.Second, "open", is(m, "open"))
		if err := g.Resume(t.Context()); err != nil {
			t.Fatal(err)
		}
		env.Eventually(5*time.Second, "half-open", is(m, "half_open"))
	})
}

// A process at rest stops by itself: nothing runs for a provider that nobody calls.
func TestIdle(t *testing.T) {
	redistest.Virtual(t, func(t *testing.T, rdb redis.UniversalClient, env *redistest.Env) {
		m := member(t, rdb, nil)
		call(m, breaker.OK)
		time.Sleep(20 * time.Second)
		m.mu.Lock()
		running := m.running
		m.mu.Unlock()
		if running {
			t.Error("it still beats 20 s after the last call")
		}
		for range 16 {
			call(m, breaker.Failed)
		}
		env.Eventually(5*time.Second, "open", is(m, "open"))
		restarted := member(t, env.Client(), nil) // it has nothing to call, and yet sees to the probe
		if err := m.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		env.Eventually(time.Minute, "half-open", is(restarted, "half_open"))
	})
}

func TestRefusedConfig(t *testing.T) {
	good := Config{Redis: redis.NewClient(&redis.Options{}), Queue: "x", Limits: func() shaper.Limits { return shaper.Limits{} }}
	defer func() { _ = good.Redis.Close() }()
	if _, err := New(good); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*Config){
		"no redis":  func(c *Config) { c.Redis = nil },
		"no queue":  func(c *Config) { c.Queue = "" },
		"no limits": func(c *Config) { c.Limits = nil },
		"mode":      func(c *Config) { c.Mode = 7 },
		"law":       func(c *Config) { c.Law.Refusals.BetaMax = 2 },
	} {
		c := good
		change(&c)
		if _, err := New(c); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
