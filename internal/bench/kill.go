package bench

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/penstock-io/penstock/internal/fragile"
	"github.com/penstock-io/penstock/queue"
)

const (
	killPlaces  = 20          // in flight over the fleet
	killLatency = 200 * ms    // so 100 calls a second
	killBin     = 500 * ms    // of the rate that is looked at
	killSlack   = time.Second // a call that ended so shortly before the kill may not have been settled
	killMost    = 3 * time.Minute
)

// kill: two workers share 20 places; one is killed with SIGKILL.
func (r *rig) kill(run int) (err error) {
	r.progress("kill -9 of one of two workers, run %d of %d", run, r.opt.Runs)
	if err := r.redis.flush(r.ctx); err != nil {
		return err
	}
	n := r.scaled(5000)
	shop, err := fragile.Start("", fragile.Config{Latency: fragile.Latency{Mean: killLatency}, InFlight: killPlaces, Remember: 4 * n})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, shop.Close()) }()
	c := r.redis.client()
	defer c.Close()
	if err := enqueueJobs(r.ctx, c, providerName, n, ""); err != nil {
		return err
	}
	f, err := r.start(workerSpec{Side: sidePenstock, Concurrency: killPlaces,
		Providers: []providerSpec{{Name: providerName, URL: shop.URL(), Concurrency: killPlaces}}}, 0, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.stop(r.ctx)) }()
	if err := r.await(shop, n/6, killMost); err != nil {
		return err
	}
	killed := shop.Now()
	if err := f.processes[1].kill(); err != nil {
		return fmt.Errorf("kill: %w", err)
	}
	if err := r.await(shop, n, killMost); err != nil {
		return err
	}
	client, err := queue.NewClient(queue.Config{Redis: c})
	if err != nil {
		return err
	}
	seen := afterKill(shop.Calls(), killed, killPlaces)
	charged := 0
	for _, id := range seen.again {
		d, err := client.Get(r.ctx, providerName, id)
		if err != nil {
			return err
		}
		charged = max(charged, d.Attempts)
	}
	r.add(killResult(run, n, seen, charged, shop.Report()))
	return nil
}

func killResult(run, n int, seen killSeen, charged int, rep fragile.Report) Result {
	return Result{Bench: "kill", Case: fmt.Sprintf("%d in flight, %s each", killPlaces, killLatency), Side: sidePenstock, Run: run, Metrics: []Metric{
		figure("succeeded", Count, float64(rep.JobsSucceeded)).atLeast(float64(n)),
		figure("capacity back", Sec, seen.back.Seconds()).atMost(11),
		figure("called again", Count, float64(len(seen.again))),
		figure("last again", Sec, seen.lastAgain.Seconds()).atMost(45),
		figure("not in flight", Count, float64(seen.needless)).atMost(0),
		figure("attempts charged", Count, float64(charged)).atMost(1),
		figure("peak in flight", Count, float64(rep.PeakInFlight)).atMost(killPlaces),
		figure("refused", Share, rep.RefusedShare()).atMost(0),
	}}
}

// killSeen is what the calls say about a kill.
type killSeen struct {
	back      time.Duration // from the kill until every place is used again; never if it was not
	again     []string      // jobs called more than once
	lastAgain time.Duration // from the kill to the last second call
	needless  int           // of them, those whose first call had ended well before
}

// never stands for a time that did not come.
const never = time.Hour

func afterKill(calls []fragile.Call, killed time.Duration, places int) killSeen {
	seen := killSeen{back: placesBack(calls, killed, places)}
	first := map[string]fragile.Call{}
	last := map[string]fragile.Call{}
	for _, c := range calls {
		if f, ok := first[c.Key]; !ok || c.At < f.At {
			first[c.Key] = c
		}
		if l, ok := last[c.Key]; !ok || c.At > l.At {
			last[c.Key] = c
		}
	}
	for key, l := range last {
		f := first[key]
		if l.At == f.At {
			continue
		}
		seen.again = append(seen.again, key)
		seen.lastAgain = max(seen.lastAgain, l.At-killed)
		if f.At+f.Took < killed-killSlack {
			seen.needless++
		}
	}
	return seen
}

// placesBack returns when, after the kill, so many calls are in flight again
// at once. The killed one's calls, which it left, do not count.
func placesBack(calls []fragile.Call, killed time.Duration, places int) time.Duration {
	type change struct {
		at time.Duration
		by int
	}
	var changes []change
	for _, c := range calls {
		if c.End != fragile.Left {
			changes = append(changes, change{c.At, 1}, change{c.At + c.Took, -1})
		}
	}
	// At the same time, what ends goes first.
	slices.SortFunc(changes, func(a, b change) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.by, b.by)) })
	inFlight := 0
	for _, c := range changes {
		inFlight += c.by
		if c.at > killed && inFlight >= places {
			return c.at - killed
		}
	}
	return never
}
