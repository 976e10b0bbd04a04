package simulate

import (
	"fmt"
	"time"

	"github.com/penstock-io/penstock/breaker"
)

// slowRows: providers of a call in two seconds and of ten an hour.
func slowRows() []row {
	var rows []row
	for _, p := range []struct {
		name, rate         string
		down, length, ends time.Duration
		seeds              int
	}{
		{"0.5 per s", "1/2s", 5 * time.Minute, 10 * time.Minute, 30 * time.Minute, 5},
		{"10 per hour", "10/h", 4 * time.Hour, 5 * time.Hour, 14 * time.Hour, 3},
	} {
		yaml := func(change string) string {
			return fmt.Sprintf(`
duration: %v
fleet: {workers: 4}
limits: {rate: %s, concurrency: 10}
demand: [{rate: %s}]
timeline: [{at: %v, for: %v, %s}]
`, p.ends, p.rate, p.rate, p.down, p.length, change)
		}
		rows = append(rows, row{name: "outage at " + p.name, seeds: p.seeds, scenario: yaml("outage: true"), check: func(r *Result) []figure {
			up := p.down + p.length
			open, ok := r.Enters("open", p.down)
			closed, ok2 := r.Enters("closed", up)
			rate := r.Scenario.Limits.Rate
			return []figure{
				atMost("opens after calls", since(micro(int64(r.Calls(p.down, open))*1_000_000), ok, 0), 10),
				exactly("openings, probes apart", float64(opened(r, 0, whole)), 1),
				atMost("closes after good calls", since(micro(int64(r.Of(breaker.OK, up, closed))*1_000_000), ok2, 0), 10),
				atMost("R, of R_cfg", rateOver(r), 1),
				atMost("calls in ten periods of the rate", float64(r.Peak(10*rate.Per/time.Duration(rate.N), 0, p.ends)), 10),
			}
		}}, row{name: "refusals at " + p.name, seeds: p.seeds, scenario: yaml("limit: 1/d"), check: func(r *Result) []figure {
			cut, ok := time.Duration(0), false
			for _, e := range r.Events {
				if e.At > p.down && !ok {
					cut, ok = e.At, true
				}
			}
			return []figure{
				atMost("cut after calls", since(micro(int64(r.Calls(p.down, cut))*1_000_000), ok, 0), 10),
				atMost("R, of R_cfg", rateOver(r), 1),
			}
		}})
	}
	return rows
}

func otherRows() []row {
	rows := []row{
		{name: "capacity a tenth", scenario: "brownout", check: func(r *Result) []figure {
			const a, b = 90 * time.Second, 300 * time.Second
			base := r.LatencyP(0.5, 30*time.Second, 60*time.Second)
			return []figure{
				atLeast("used of what is left", r.PerSecond(a, b)/30, 0.9),
				atMost("p50 x", float64(r.LatencyP(0.5, a, b))/float64(base), 5),
				exactly("timeouts", float64(r.Counts.Timeout), 0),
			}
		}},
		{name: "Retry-After 30 for one worker of eight", scenario: "retry-after", check: func(r *Result) []figure {
			first, ok := r.FirstEnd(breaker.Throttled, 60*time.Second)
			until := first + 30*time.Second
			return []figure{
				exactly("refused", since(time.Second, ok, 0), 1),
				exactly("calls from 0.5 s on until then", float64(r.Calls(first+500*time.Millisecond, until)), 0),
				atLeast("calls/s afterwards", r.PerSecond(until+2*time.Second, until+10*time.Second), 54),
			}
		}},
	}
	for _, jump := range []string{"10s", "-10s", "1h", "-1h"} {
		rows = append(rows, row{name: "clock jumps by " + jump, scenario: fmt.Sprintf(`
duration: 200s
limits: {rate: 200/s, concurrency: 50}
demand: [{rate: 100/s, even: true}, {at: 120s}]
provider: {p50: 200ms}
timeline: [{at: 60s, clock: %s}, {at: 60s, kill: 1}]
`, jump), check: func(r *Result) []figure {
			return []figure{
				atMost("stall s", r.Gap(59*time.Second, 90*time.Second).Seconds(), 1),
				atMost("peak, of R_cfg", float64(r.Peak(time.Second, 0, whole))/200, 1),
				exactly("permits left", float64(r.Permits), 0),
				exactly("lost", lost(r), 0),
			}
		}})
	}
	return rows
}
