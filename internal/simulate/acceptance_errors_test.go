package simulate

import (
	"fmt"
	"time"

	"github.com/penstock-io/penstock/breaker"
)

func errorRows() []row {
	var rows []row
	for _, e := range []float64{0.03, 0.08, 0.2, 0.3, 0.45} {
		rows = append(rows, steady(e), steadySlow(e))
	}
	rows = append(rows, flapping(10), flapping(30))
	return append(rows,
		row{name: "slow leak", scenario: "leak", check: func(r *Result) []figure {
			first := whole
			for _, p := range r.Points {
				if p.Factor > 0 && p.Factor < 1 && p.At > 60*time.Second {
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
				atMost("errors/s over 30 s", float64(most)/30, 15),
				exactly("openings", float64(r.Openings(0, whole)), 0),
			}
		}},
		row{name: "2 % errors for an hour", scenario: `
duration: 1h
limits: {rate: 100/s, concurrency: 50}
demand: [{rate: 20/s}]
provider: {errors: 0.02}
`, check: func(r *Result) []figure {
			return []figure{exactly("openings, cuts and sheddings", float64(len(r.Events)), 0)}
		}},
		row{name: "errors from the start, demand grows", seeds: 3, scenario: `
duration: 900s
limits: {rate: 200/s, concurrency: 50}
demand: [{rate: 2/s}, {at: 120s, rate: 60/s}]
provider: {errors: 0.1}
`, check: func(r *Result) []figure {
			return []figure{
				exactly("openings", float64(r.Openings(0, whole)), 0),
				atLeast("calls/s at last", r.PerSecond(600*time.Second, 900*time.Second), 54),
			}
		}},
		row{name: "all 4xx", scenario: `
duration: 300s
until_done: true
limits: {rate: 100/s, concurrency: 50}
demand: [{rate: 60/s}, {at: 120s}]
provider: {refusal: 404}
`, check: func(r *Result) []figure {
			return []figure{
				exactly("openings, cuts and sheddings", float64(len(r.Events)), 0),
				exactly("retries", float64(r.Counts.Starts-r.Jobs), 0),
			}
		}})
}

// steady is a ratio of errors that no load causes, until the arrivals stop and
// the backlog of retries drains.
func steady(e float64) row {
	return row{name: fmt.Sprintf("steady %v errors at 60 per s", e), seeds: 3, scenario: fmt.Sprintf(`
duration: 3h
until_done: true
limits: {rate: 200/s, concurrency: 50}
demand: [{rate: 60/s}, {at: 600s}]
timeline: [{at: 60s, errors: %v}]
retry: {attempts: 100}
`, e), check: func(r *Result) []figure {
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
			exactly("openings while jobs arrive", float64(r.Openings(0, 600*time.Second)), 0),
			atMost("retries % of calls while first attempts wait", 100*float64(retries)/float64(max(1, contended)), 20),
			exactly("jobs with more attempts than failures", float64(r.OverSpent), 0),
			exactly("lost", lost(r), 0),
			atMost("99 % drained s after the arrivals", (r.Final(0.99) - 600*time.Second).Seconds(), 3600),
		}
	}}
}

func steadySlow(e float64) row {
	return row{name: fmt.Sprintf("steady %v errors at 1 per s", e), seeds: 20, scenario: fmt.Sprintf(`
duration: 660s
limits: {rate: 2/s, concurrency: 50}
demand: [{rate: 1/s}]
timeline: [{at: 60s, errors: %v}]
retry: {attempts: 100}
`, e), check: func(r *Result) []figure {
		return []figure{atMost("openings in 10 min, probes apart", float64(opened(r, 60*time.Second, 660*time.Second)), 1)}
	}}
}

// flapping is compared with the same jobs through the same limits without the
// law and without a budget.
func flapping(half int) row {
	up, period := time.Duration(half)*time.Second, time.Duration(2*half)*time.Second
	return row{name: fmt.Sprintf("flapping %d s and %d s", half, half), seeds: 15, scenario: fmt.Sprintf(`
duration: 330s
limits: {rate: 200/s, concurrency: 50}
demand: [{rate: 60/s}]
timeline: [{at: 30s, for: %v, every: %v, outage: true}]
`, up, period), check: func(r *Result) []figure {
		sc := r.Scenario
		sc.Adaptive, sc.Budget = "off", "off"
		plain, err := Run(sc)
		if err != nil {
			panic(err)
		}
		return []figure{
			atMost("errors % of an unprotected caller's", 100*float64(r.Counts.Bad())/float64(plain.Counts.Bad()), 5),
			atMost("openings a minute", float64(r.Openings(30*time.Second, 330*time.Second))/5, 3),
		}
	}}
}
