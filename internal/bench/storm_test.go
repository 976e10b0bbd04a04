package bench

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/penstock-io/penstock/internal/app"
	"github.com/penstock-io/penstock/internal/config"
	"github.com/penstock-io/penstock/internal/fragile"
)

// serveCommand makes the test binary a serve process.
const serveCommand = "serve"

func serve(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	set := flag.NewFlagSet(serveCommand, flag.ExitOnError)
	file := set.String("config", "", "")
	level := set.String("log-level", "warn", "")
	_ = set.Parse(args)
	var l slog.Level
	_ = l.UnmarshalText([]byte(*level))
	cfg, rep := config.Load(*file)
	if cfg == nil {
		fmt.Fprint(os.Stderr, rep)
		return 1
	}
	if err := app.Serve(ctx, cfg, app.Options{Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: l}))}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// judged are the figures that no machine excuses. A machine that stands still
// for a moment bunches calls on their way, so what is too fast is not.
var judged = []string{"acknowledged", "lost", "not in flight"}

func judgeStorm(t *testing.T, res Result) {
	t.Helper()
	t.Log(res.Note)
	for _, m := range res.Metrics {
		t.Logf("%s: %s: %s", res.Case, m.Name, m.format(m.Value))
		if !m.Met() && slices.Contains(judged, m.Name) {
			t.Errorf("%s: %s is %s, wanted %s", res.Case, m.Name, m.format(m.Value), m.wanted())
		}
	}
}

// A small storm without trouble: everything acknowledged, every repeat
// recognised, every event delivered once.
func TestStorm(t *testing.T) {
	r := testRig(t)
	r.opt.Scale = 0.04
	ran := 0
	for _, s := range storms() {
		if s.trouble != nil {
			continue
		}
		ran++
		res, err := r.storm(s, 1)
		if err != nil {
			t.Fatal(err)
		}
		judgeStorm(t, res)
		for _, m := range res.Metrics {
			if (m.Name == "repeats seen" || m.Name == "twice") && !m.Met() {
				t.Errorf("%s: %s is %s, wanted %s", res.Case, m.Name, m.format(m.Value), m.wanted())
			}
		}
	}
	if ran == 0 {
		t.Fatal("nothing was tested")
	}
}

func TestPlan(t *testing.T) {
	p := newPlan(5000, 0.2, 1000)
	if p.events != 4000 || len(p.deliveries) != 5000 {
		t.Fatalf("%d events, %d deliveries", p.events, len(p.deliveries))
	}
	if l := p.length(); l < 4900*time.Millisecond || l > 5*time.Second {
		t.Errorf("it lasts %s", l)
	}
	seen, seconds := map[int]int{}, map[int]int{}
	for _, d := range p.deliveries {
		seen[d.event]++
		seconds[int(d.at/time.Second)]++
	}
	if len(seen) != 4000 {
		t.Errorf("%d different events", len(seen))
	}
	for s, n := range seconds {
		if s < 5 && (n < 700 || n > 1300) {
			t.Errorf("%d in second %d", n, s)
		}
	}
}

func TestStream(t *testing.T) {
	var calls []fragile.Call
	for i := range 100 {
		at := time.Duration(i) * 10 * time.Millisecond
		if i >= 50 {
			at += time.Minute // a pause is no unevenness
		}
		calls = append(calls, fragile.Call{At: at})
	}
	if s := streamOf(calls); s.evenness > 1e-9 || s.flowing != 980*time.Millisecond || s.pauses != time.Minute+10*time.Millisecond {
		t.Errorf("%+v", s)
	}
	if s := streamOf(nil); s != (stream{}) {
		t.Errorf("%+v", s)
	}
}
