package simulate

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/penstock-io/penstock/breaker"
)

func TestDebug(t *testing.T) {
	y := os.Getenv("SIM_YAML")
	if y == "" {
		t.Skip()
	}
	sc, err := Read(strings.NewReader(y))
	if err != nil {
		t.Fatal(err)
	}
	sc.Seed, _ = strconv.ParseUint(os.Getenv("SIM_SEED"), 10, 64)
	r, _ := Run(sc)
	step, _ := time.ParseDuration(os.Getenv("SIM_STEP"))
	if step == 0 {
		step = 10 * time.Second
	}
	ev := r.Events
	pts := r.Points
	for at := time.Duration(0); at < r.Took+step; at += step {
		for len(ev) > 0 && ev[0].At < at {
			fmt.Println("   ", ev[0])
			ev = ev[1:]
		}
		for len(pts) > 1 && pts[1].At <= at {
			pts = pts[1:]
		}
		firsts := 0
		for _, c := range r.calls[r.index(at):r.index(at+step)] {
			if c.first {
				firsts++
			}
		}
		p := pts[0]
		fmt.Printf("%6.1fs %-9s R %6.1f C %6.1f f %.3f L %d inflight %d waiting %d  calls/s %.1f first %.1f 429 %d bad %d to %d\n", at.Seconds(), p.Phase, p.Rate, p.Ceiling, p.Factor, p.Concurrency, p.InFlight, p.Waiting,
			r.PerSecond(at, at+step), float64(firsts)/step.Seconds(), r.Of(breaker.Throttled, at, at+step), r.Of(breaker.Failed, at, at+step), r.Of(breaker.Timeout, at, at+step))
	}
	fmt.Println(r.Counts, r.Deferrals, r.Succeeded, r.Dead, r.Waiting, r.MostCalls)
}
