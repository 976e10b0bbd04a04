package bench

import (
	"cmp"
	"fmt"
	"time"

	"github.com/penstock-io/penstock/internal/fragile"
)

const ms = time.Millisecond

// shop is the provider of the shape and fairness comparisons: strict, 20 ± 10 ms.
func shop(rate string) fragile.Config {
	limit, err := fragile.ParseRate(rate)
	if err != nil {
		panic(err) // a constant of this package
	}
	return fragile.Config{Name: providerName, Limit: limit, Latency: fragile.Latency{Mean: 20 * ms, Jitter: 10 * ms}}
}

// shape: a strict sliding window, two processes, 40 in flight.
func (r *rig) shape(run int) error {
	for _, c := range []struct {
		rate     string
		jobs     int
		used     float64
		evenness float64 // 0: none wanted
		commands float64
	}{
		{"100/s", 3000, 0.97, 0.25, 26},
		{"5/s", 300, 0.97, 0.25, 0},
		{"1000/s", 30_000, 0.95, 0, 20},
		{"none", 10_000, 0, 0, 18},
	} {
		d := drain{jobs: r.scaled(c.jobs), shop: shop(c.rate), shape: providerSpec{Rate: c.rate, Concurrency: 40}, oneWay: distances(2, 0)}
		ideal := 20 * time.Second
		name := "no limit"
		if !d.shop.Limit.IsZero() {
			ideal = time.Duration(float64(d.jobs) / d.shop.Limit.PerSecond() * float64(time.Second))
			name = c.rate
		} else {
			// Nothing is limited; both sides make 20 calls at once in a process.
			d.shape.Rate, d.shape.Concurrency, d.inHand = "", 0, 20
		}
		for _, side := range []string{sidePenstock, sidePlain} {
			if side == sidePlain && run > 1 {
				continue // once is enough to see what it does
			}
			r.progress("shape %s, %s, run %d of %d: %d jobs, about %s", name, side, run, r.opt.Runs, d.jobs, ideal.Round(time.Second))
			d.side, d.most, d.atOnce = side, 2*ideal+30*time.Second, 20
			if side == sidePlain && !d.shop.Limit.IsZero() {
				d.most = ideal + ideal/10 // its retries would go on for hours
			}
			out, err := r.drain(d)
			if err != nil {
				return fmt.Errorf("%s, %s: %w", name, side, err)
			}
			r.add(shapeResult(name, side, run, d, out, c.used, c.evenness, c.commands))
		}
	}
	return nil
}

func shapeResult(name, side string, run int, d drain, out drained, used, evenness, commands float64) Result {
	rep := out.report
	m := []Metric{
		figure("succeeded", Count, float64(rep.JobsSucceeded)),
		figure("used", Share, rep.Used),
		figure("refused", Share, rep.RefusedShare()),
		figure("evenness", Figure, rep.Evenness),
		figure("attempts/job", PerJobUnit, rep.AttemptsMean),
		figure("twice", Count, float64(rep.SucceededTwice)),
		figure("peak", Count, float64(rep.PeakInFlight)),
		figure("commands/job", PerJobUnit, out.commandsPerJob()),
		figure("jobs", PerSec, float64(rep.JobsSucceeded)/max(rep.Span.Seconds(), 1e-9)),
	}
	res := Result{Bench: "shape", Case: name, Side: side, Run: run,
		Note: "commands per job: " + out.commands.most(float64(max(1, rep.JobsSucceeded)))}
	if side == sidePlain {
		res.Metrics = m
		if rep.JobsSucceeded < d.jobs {
			res.Note += fmt.Sprintf("; stopped after %s with %d of %d jobs done; the rest waits in asynq's retry", out.took.Round(time.Second), rep.JobsSucceeded, d.jobs)
		}
		return res
	}
	m[0] = m[0].atLeast(float64(d.jobs)).atMost(float64(d.jobs))
	m[2] = m[2].atMost(0.001)
	m[4] = m[4].atMost(1.001)
	m[5] = m[5].atMost(0)
	m[6] = m[6].atMost(float64(cmp.Or(d.shape.Concurrency, len(d.oneWay)*d.inHand)))
	if used > 0 {
		m[1] = m[1].atLeast(used)
	}
	if evenness > 0 {
		m[3] = m[3].atMost(evenness)
	}
	if commands > 0 {
		m[7] = m[7].atMost(commands)
	}
	res.Metrics = m
	return res
}

// fairness: four processes, and what each of them got.
func (r *rig) fairness(run int) error {
	for _, c := range []struct {
		name   string
		rate   string
		places int
		jobs   int
		oneWay []time.Duration
		used   float64
	}{
		{"5/s, one 2 ms away", "5/s", 40, 200, distances(4, 2*ms), 0},
		{"200/s, one 2 ms away", "200/s", 40, 4000, distances(4, 2*ms), 0},
		{"10 in flight, one 2 ms away", "none", 10, 6000, distances(4, 2*ms), 0},
		{"1000/s, all 1 ms away", "1000/s", 40, 15_000, []time.Duration{ms, ms, ms, ms}, 0.95},
	} {
		r.progress("fairness %s, run %d of %d", c.name, run, r.opt.Runs)
		d := drain{side: sidePenstock, jobs: r.scaled(c.jobs), shop: shop(c.rate), oneWay: c.oneWay, workers: true,
			shape: providerSpec{Rate: c.rate, Concurrency: c.places}, most: 3 * time.Minute}
		if d.shop.Limit.IsZero() {
			d.shape.Rate, d.shop.InFlight = "", c.places
		}
		out, err := r.drain(d)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		r.add(fairnessResult(c.name, run, d, out, c.used))
	}
	return nil
}

func fairnessResult(name string, run int, d drain, out drained, used float64) Result {
	n := len(d.oneWay)
	least, most, sum := 1<<62, 0, 0
	for i := range n {
		got := out.report.By[fmt.Sprint(i+1)]
		least, most, sum = min(least, got), max(most, got), sum+got
	}
	fair := max(1e-9, float64(sum)/float64(n))
	m := []Metric{
		figure("succeeded", Count, float64(out.report.JobsSucceeded)).atLeast(float64(d.jobs)),
		figure("least/fair", Ratio, float64(least)/fair).atLeast(0.9),
		figure("most/fair", Ratio, float64(most)/fair).atMost(1.1),
		figure("last/fair", Ratio, float64(out.report.By[fmt.Sprint(n)])/fair),
		figure("last PING", Millis, float64(out.roundTrips[n-1])/float64(ms)),
		figure("used", Share, out.report.Used),
		figure("refused", Share, out.report.RefusedShare()).atMost(0.001),
		figure("jobs", PerSec, float64(out.report.JobsSucceeded)/max(out.report.Span.Seconds(), 1e-9)),
	}
	if used > 0 {
		// Here the share of a process is not what is asked for.
		m[1].Least, m[2].Most = nil, nil
		m[5] = m[5].atLeast(used)
	}
	return Result{Bench: "fairness", Case: name, Side: sidePenstock, Run: run, Metrics: m}
}
