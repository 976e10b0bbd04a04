package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/penstock-io/penstock/internal/fragile"
	"github.com/penstock-io/penstock/queue"
)

const (
	outageDemand = 50 // jobs a second, before, during and after it
	outagePlaces = 20 // in flight over the fleet
	outageEvery  = time.Second / outageDemand
	// plainPatience is how long after the last job plain asynq is waited for, at
	// scale 1; its retries come minutes later.
	plainPatience = 3 * time.Minute
	outageMost    = 5 * time.Minute
)

// outageTimes are its parts.
type outageTimes struct{ before, down, after time.Duration }

func (o outageTimes) all() time.Duration { return o.before + o.down + o.after }

// outageTimes at full scale are 10 s, 60 s and 60 s.
func (r *rig) outageTimes() outageTimes {
	part := func(full, least time.Duration) time.Duration {
		return max(least, time.Duration(float64(full)*r.opt.Scale).Round(100*ms))
	}
	return outageTimes{part(10*time.Second, 2*time.Second), part(time.Minute, 2*time.Second), part(time.Minute, 2*time.Second)}
}

// outage: the same jobs, as many each second all along, through both sides,
// while the provider answers 503 to everything for a minute.
func (r *rig) outage(run int) error {
	times := r.outageTimes()
	for _, side := range []string{sidePenstock, sidePlain} {
		if side == sidePlain && run > 1 {
			continue // once is enough to see what it does
		}
		r.progress("outage of %s, %s, run %d of %d: about %s", times.down, side, run, r.opt.Runs, times.all())
		seen, err := r.through(side, times)
		if err != nil {
			return fmt.Errorf("%s: %w", side, err)
		}
		r.add(outageResult(side, run, times, seen))
	}
	return nil
}

// throughOutage is what the provider saw.
type throughOutage struct {
	jobs     int
	report   fragile.Report
	calls    int           // during the outage
	recovery time.Duration // until 90 % of demand succeeds in a second again; never if it did not
	peak     int           // calls that came in the worst second after it
	done     time.Duration // from the end of the outage until the last job succeeded; never if some did not
}

func (r *rig) through(side string, times outageTimes) (seen throughOutage, err error) {
	if err := r.redis.flush(r.ctx); err != nil {
		return seen, err
	}
	seen.jobs = int(times.all() / outageEvery)
	shop, err := fragile.Start("", fragile.Config{
		Name: providerName, Latency: fragile.Latency{Mean: 20 * ms, Jitter: 10 * ms}, Remember: 20 * seen.jobs,
		Timeline: []fragile.Trouble{{From: times.before, To: times.before + times.down, What: fragile.Fail, Status: 503}},
	})
	if err != nil {
		return seen, err
	}
	defer func() { err = errors.Join(err, shop.Close()) }()
	f, err := r.start(workerSpec{Side: side, Concurrency: outagePlaces / 2,
		Providers: []providerSpec{{Name: providerName, URL: shop.URL(), Rate: fmt.Sprintf("%d/s", 2*outageDemand), Concurrency: outagePlaces}}}, 0, 0)
	if err != nil {
		return seen, err
	}
	defer func() { err = errors.Join(err, f.stop(r.ctx)) }()
	shop.Reset() // the outage is counted from the first job on
	if err := r.feed(side, seen.jobs); err != nil {
		return seen, err
	}
	most := outageMost
	if side == sidePlain {
		most = max(5*time.Second, time.Duration(float64(plainPatience)*r.opt.Scale))
	}
	if err := r.await(shop, seen.jobs, most); err != nil {
		return seen, err
	}
	calls := shop.Calls()
	seen.report = shop.Report()
	seen.judge(calls, times)
	return seen, nil
}

// feed stores n jobs evenly; one that is late goes at once.
func (r *rig) feed(side string, n int) error {
	c := r.redis.client()
	defer c.Close()
	put, err := func() (func(context.Context, int) error, error) {
		if side == sidePlain {
			plain := PlainEnqueuer(c)
			return func(ctx context.Context, i int) error { return plain(ctx, providerName, jobID(i), body) }, nil
		}
		client, err := queue.NewClient(queue.Config{Redis: c})
		return func(ctx context.Context, i int) error {
			_, err := client.Enqueue(ctx, queue.Job{Provider: providerName, ID: jobID(i), Path: "/messages", Body: body})
			return err
		}, err
	}()
	if err != nil {
		return err
	}
	begun := time.Now()
	for i := range n {
		if err := pause(r.ctx, time.Until(begun.Add(time.Duration(i)*outageEvery))); err != nil {
			return err
		}
		if err := put(r.ctx, i); err != nil {
			return fmt.Errorf("enqueue: %w", err)
		}
	}
	return nil
}

// judge reads the provider's own record of the calls.
func (seen *throughOutage) judge(calls []fragile.Call, times outageTimes) {
	from, to := times.before, times.before+times.down
	var arrived, good []time.Duration // after the outage
	succeeded := map[string]bool{}
	for _, c := range calls {
		switch {
		case c.At >= from && c.At < to:
			seen.calls++
		case c.At >= to:
			arrived = append(arrived, c.At-to)
		}
		if c.Status == 200 {
			succeeded[c.Key] = true
			if c.At >= to {
				good = append(good, c.At+c.Took-to)
			}
		}
	}
	slices.Sort(arrived)
	slices.Sort(good)
	seen.peak, _ = busiest(arrived)
	seen.recovery, seen.done = never, never
	if want := outageDemand * 9 / 10; len(good) >= want {
		for i := want - 1; i < len(good); i++ {
			if good[i]-good[i-want+1] <= time.Second {
				seen.recovery = good[i]
				break
			}
		}
	}
	if len(succeeded) >= seen.jobs && len(good) > 0 {
		seen.done = good[len(good)-1]
	}
}

// busiest returns the most of the sorted times that lie within one second, and
// when that second begins.
func busiest(at []time.Duration) (most int, begin time.Duration) {
	first := 0
	for i := range at {
		for at[i]-at[first] >= time.Second {
			first++
		}
		if n := i - first + 1; n > most {
			most, begin = n, at[first]
		}
	}
	return most, begin
}

func outageResult(side string, run int, times outageTimes, seen throughOutage) Result {
	rep := seen.report
	m := []Metric{
		figure("succeeded", Count, float64(rep.JobsSucceeded)),
		figure("calls in it", Count, float64(seen.calls)),
		figure("90% after", Sec, seen.recovery.Seconds()),
		figure("peak after", Count, float64(seen.peak)),
		figure("all done after", Sec, seen.done.Seconds()),
		figure("attempts/job", PerJobUnit, rep.AttemptsMean),
		figure("twice", Count, float64(rep.SucceededTwice)),
	}
	res := Result{Bench: "outage", Case: fmt.Sprintf("%s, %d jobs/s", times.down, outageDemand), Side: side, Run: run, Metrics: m}
	if side == sidePlain {
		if left := seen.jobs - rep.JobsSucceeded; left > 0 {
			res.Note = fmt.Sprintf("%d of %d jobs were still to be done when it was stopped; they wait in asynq's retry", left, seen.jobs)
		}
		return res
	}
	m[0] = m[0].atLeast(float64(seen.jobs)).atMost(float64(seen.jobs))
	m[3] = m[3].atMost(1.1 * 2 * outageDemand) // the rate that is allowed, and how evenly it can be measured
	m[6] = m[6].atMost(0)
	return res
}
