package simulate

import (
	"fmt"
	"time"

	"github.com/penstock-io/penstock/breaker"
)

func moreRows() []row {
	rows := []row{
		{"demand under the limit", `
duration: 300s
limits: {rate: 100/s, concurrency: 50}
demand: [{rate: 60/s}]
provider: {limit: 100/s, kind: sliding}
`, func(r *Result) []figure {
			return []figure{
				exactly("429", float64(r.Counts.Throttled), 0),
				atMost("off demand %", 100*abs(float64(r.Succeeded)/float64(r.Jobs)-1), 2),
			}
		}},
		{"slow leak", `
duration: 700s
limits: {rate: 200/s, concurrency: 50}
demand: [{rate: 60/s}]
timeline: [{at: 60s, errors: 0.4, over: 10m}]
`, func(r *Result) []figure {
			first := time.Duration(0)
			for _, p := range r.Points {
				if p.Factor < 1 && p.Factor > 0 && p.At > 60*time.Second {
					first = p.At
					break
				}
			}
			most := 0
			for at := 60 * time.Second; at < 670*time.Second; at += time.Second {
				most = max(most, r.Of(breaker.Failed, at, at+30*time.Second))
			}
			return []figure{
				atMost("first cut at e", 0.4*(first-60*time.Second).Seconds()/600, 0.15),
				atMost("errors/s", float64(most)/30, 15),
				exactly("openings", float64(r.Openings(0, time.Hour)), 0),
			}
		}},
		{"2 % errors for an hour", `
duration: 1h
limits: {rate: 100/s, concurrency: 50}
demand: [{rate: 20/s}]
provider: {errors: 0.02}
`, func(r *Result) []figure {
			return []figure{exactly("events", float64(len(r.Events)), 0)}
		}},
		{"all 4xx", `
duration: 300s
until_done: true
limits: {rate: 100/s, concurrency: 50}
demand: [{rate: 60/s}, {at: 120s}]
provider: {refusal: 404}
`, func(r *Result) []figure {
			return []figure{exactly("events", float64(len(r.Events)), 0), exactly("retries", float64(r.Counts.Starts-r.Jobs), 0)}
		}},
		{"10,000 jobs through an hour's outage", `
duration: 6h
until_done: true
limits: {rate: 100/s, concurrency: 50}
demand: [{rate: 10/s, jobs: 10000}]
timeline: [{at: 60s, for: 1h, outage: true}]
`, func(r *Result) []figure {
			open, _ := r.Enters("open", 0)
			before := 0
			for _, c := range r.calls {
				if c.outcome != breaker.OK && c.end < open.Microseconds()+1000 {
					before++
				}
			}
			return []figure{
				exactly("succeeded", float64(r.Succeeded), 10000),
				exactly("dead", float64(r.Dead), 0),
				exactly("attempts spent while not closed", float64(r.Attempts-before), 0),
			}
		}},
	}
	for _, e := range []float64{0.03, 0.08, 0.2, 0.3, 0.45} {
		rows = append(rows, row{fmt.Sprintf("steady %v errors at 60/s", e), fmt.Sprintf(`
duration: 2h
until_done: true
limits: {rate: 200/s, concurrency: 50}
demand: [{rate: 60/s}, {at: 600s}]
timeline: [{at: 60s, errors: %v}]
retry: {attempts: 100}
`, e), func(r *Result) []figure {
			retries, contended := 0, 0
			for _, c := range r.calls {
				if c.contended {
					contended++
					if !c.first {
						retries++
					}
				}
			}
			return []figure{
				exactly("openings", float64(r.Openings(0, 600*time.Second)), 0),
				atMost("retries % while firsts wait", 100*float64(retries)/float64(max(1, contended)), 20),
				exactly("overspent", float64(r.OverSpent), 0),
				exactly("lost", lost(r), 0),
				atMost("99 % final s after the arrivals", (r.Final(0.99) - 600*time.Second).Seconds(), 3600),
			}
		}})
		rows = append(rows, row{fmt.Sprintf("steady %v errors at 1/s", e), fmt.Sprintf(`
duration: 660s
limits: {rate: 2/s, concurrency: 50}
demand: [{rate: 1/s}]
timeline: [{at: 60s, errors: %v}]
retry: {attempts: 100}
`, e), func(r *Result) []figure {
			return []figure{atMost("openings in 10 min", float64(r.Openings(0, 10*time.Minute)), 1)}
		}})
	}
	for _, slow := range []struct {
		rate, demand string
		down, length time.Duration
		all          time.Duration
	}{{"1/2s", "1/2s", 5 * time.Minute, 10 * time.Minute, 30 * time.Minute}, {"10/h", "10/h", 12 * time.Hour, 12 * time.Hour, 48 * time.Hour}} {
		rows = append(rows, row{"outage at " + slow.rate, fmt.Sprintf(`
duration: %s
limits: {rate: %s, concurrency: 10}
demand: [{rate: %s}]
timeline: [{at: %s, for: %s, outage: true}]
`, slow.all, slow.rate, slow.demand, slow.down, slow.length), func(r *Result) []figure {
			up := slow.down + slow.length
			open, _ := r.Enters("open", slow.down)
			closed, ok := r.Enters("closed", up)
			over := 0.0
			for _, p := range r.Points {
				over = max(over, p.Rate/r.Scenario.Law.Rate)
			}
			return []figure{
				atMost("opens after calls", float64(r.Calls(slow.down, open)), 10),
				exactly("openings by failures", float64(r.Openings2()), 1),
				atMost("closes after good calls", float64(r.Of(breaker.OK, up, closed))+1e9*(1-bool01(ok)), 10),
				atMost("R / R_cfg", over, 1),
				atMost("peak over ten intervals", float64(r.Peak(10*r.Scenario.Limits.Rate.Per/time.Duration(r.Scenario.Limits.Rate.N), 0, slow.all)), 10),
			}
		}})
		rows = append(rows, row{"refusals at " + slow.rate, fmt.Sprintf(`
duration: %s
limits: {rate: %s, concurrency: 10}
demand: [{rate: %s}]
timeline: [{at: %s, for: %s, limit: 1/d}]
`, slow.all, slow.rate, slow.demand, slow.down, slow.length), func(r *Result) []figure {
			cut, ok := time.Duration(0), false
			for _, e := range r.Events {
				if e.At > slow.down && !ok {
					cut, ok = e.At, true
				}
			}
			over := 0.0
			for _, p := range r.Points {
				over = max(over, p.Rate/r.Scenario.Law.Rate)
			}
			return []figure{
				atMost("cut after calls", float64(r.Calls(slow.down, cut))+1e9*(1-bool01(ok)), 10),
				atMost("R / R_cfg", over, 1),
			}
		}})
	}
	for _, jump := range []string{"10s", "-10s", "1h", "-1h"} {
		rows = append(rows, row{"clock " + jump, fmt.Sprintf(`
duration: 200s
limits: {rate: 200/s, concurrency: 50}
demand: [{rate: 100/s, even: true}, {at: 120s}]
provider: {p50: 200ms}
timeline: [{at: 60s, clock: %s}, {at: 60s, kill: 1}]
`, jump), func(r *Result) []figure {
			return []figure{
				atMost("stall s", r.Gap(59*time.Second, 90*time.Second).Seconds(), 1),
				atMost("peak", float64(r.Peak(time.Second, 0, 200*time.Second)), 200),
				exactly("permits left", float64(r.Permits), 0),
				exactly("lost", lost(r), 0),
			}
		}})
	}
	rows = append(rows, row{"Retry-After 30 for one of eight", `
duration: 120s
limits: {rate: 100/s, concurrency: 50}
demand: [{rate: 60/s}]
provider: {retry_after: 30s}
timeline: [{at: 60s, for: 100ms, limit: 1/d}]
`, func(r *Result) []figure {
		first, ok := r.FirstEnd(breaker.Throttled, 60*time.Second)
		return []figure{
			atLeast("refused", bool01(ok), 1),
			exactly("calls from 0.5 s on until then", float64(r.Calls(first+500*time.Millisecond, first+30*time.Second)), 0),
			atLeast("calls afterwards", float64(r.Calls(first+32*time.Second, first+40*time.Second)), 8*60*0.9),
		}
	}}, row{"outage with 1,000 workers", outageYAML + `
fleet: {workers: 1000}
timeline: [{at: 60s, for: 120s, outage: true}]
`, func(r *Result) []figure {
		from, to, up := 60*time.Second, 180*time.Second, 180*time.Second
		first, ok1 := r.FirstEnd(breaker.Failed, from)
		open, ok2 := r.Enters("open", from)
		good, ok := r.FirstEnd(breaker.OK, up)
		back, ok3 := r.Reaches(90, time.Second, good)
		return []figure{
			atMost("opens after s", since(open, ok1 && ok2, first), 1),
			atMost("calls % of arrivals", float64(r.Calls(from, to))/120, 1),
			atMost("calls per job", float64(r.Counts.Starts)/float64(r.Jobs), 1.1),
			exactly("lost", lost(r), 0),
			atMost("90 % after the first good probe s", since(back, ok && ok3, good), 8),
			atMost("90 % after the recovery s", since(back, ok && ok3, up), 50),
		}
	}}, row{"outage, no rate configured", `
duration: 20m
until_done: true
limits: {concurrency: 50}
demand: [{rate: 100/s}, {at: 300s}]
timeline: [{at: 60s, for: 120s, outage: true}]
`, func(r *Result) []figure {
		from, to, up := 60*time.Second, 180*time.Second, 180*time.Second
		first, ok1 := r.FirstEnd(breaker.Failed, from)
		open, ok2 := r.Enters("open", from)
		closed, _ := r.Enters("closed", up)
		return []figure{
			atMost("opens after s", since(open, ok1 && ok2, first), 1),
			atMost("calls % of arrivals", float64(r.Calls(from, to))/120, 1),
			exactly("lost", lost(r), 0),
			atMost("first second", float64(r.Calls(closed, closed+time.Second)), 31),
		}
	}}, row{"errors since the start, demand grows", `
duration: 900s
limits: {rate: 200/s, concurrency: 50}
demand: [{rate: 2/s}, {at: 120s, rate: 60/s}]
provider: {errors: 0.1}
`, func(r *Result) []figure {
		return []figure{
			exactly("openings", float64(r.Openings(0, time.Hour)), 0),
			atLeast("calls/s at last", r.PerSecond(600*time.Second, 900*time.Second), 54),
		}
	}})
	for _, half := range []int{10, 30} {
		rows = append(rows, row{fmt.Sprintf("flapping %d/%d s", half, half), fmt.Sprintf(`
duration: 330s
limits: {rate: 200/s, concurrency: 50}
demand: [{rate: 60/s}]
timeline: [{at: 30s, for: %ds, every: %ds, outage: true}]
`, half, 2*half), func(r *Result) []figure {
			sc := r.Scenario
			sc.Adaptive, sc.Budget = "off", "off"
			plain, err := Run(sc)
			if err != nil {
				panic(err)
			}
			up := 0
			for at := 30 * time.Second; at < 330*time.Second; at += time.Duration(2*half) * time.Second {
				up += r.Of(breaker.OK, at+time.Duration(half)*time.Second, at+time.Duration(2*half)*time.Second)
			}
			most := r.Openings(0, 330*time.Second) * 60 / 330
			_ = most
			return []figure{
				atMost("errors % of unprotected", 100*float64(r.Counts.Bad())/float64(plain.Counts.Bad()), 5),
				atMost("openings a minute", float64(r.Openings(0, 330*time.Second))/5, 3),
				atLeast("delivered of up-time demand", float64(up)/(150*60), 0),
			}
		}})
	}
	return rows
}

func abs(x float64) float64 {
	if x < 0 {
		return -x
	}
	return x
}
