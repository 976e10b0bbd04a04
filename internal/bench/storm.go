package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/penstock-io/penstock/internal/fragile"
)

const (
	stormDeliveries = 5000
	stormRepeats    = 0.2  // of the deliveries
	stormPace       = 1000 // deliveries a second
	stormInward     = 200  // calls a second that the application is given
	stormPlaces     = 40
	stormAway       = time.Minute
	stormDown       = time.Second // of a Redis that is killed and started again
	// stormMost is how long everything may take beyond what the rate asks for.
	stormMost = 3 * time.Minute
	// stormPause is a gap between two calls, twenty times the usual one, that is
	// a pause and no part of the stream's evenness.
	stormPause = 20 * time.Second / stormInward
)

// storm is a storm of signed webhooks against a serve process, and the trouble
// in the middle of it.
type storm struct {
	name string
	// fsync is Redis's appendfsync.
	fsync string
	spool bool
	// trouble happens in the middle. Nil: none.
	trouble func(*stormRig) error
}

func storms() []storm {
	return []storm{
		{name: "everysec", fsync: "everysec"},
		{name: "always", fsync: "always"},
		{name: "receiver killed", fsync: "always", trouble: (*stormRig).killReceiver},
		{name: "redis killed", fsync: "always", trouble: (*stormRig).killRedis},
		{name: "spool, redis away", fsync: "always", spool: true, trouble: (*stormRig).takeRedisAway},
		{name: "spool, both killed", fsync: "always", spool: true, trouble: (*stormRig).killBoth},
	}
}

// webhooks: every storm.
func (r *rig) webhooks(run int) error {
	for _, s := range storms() {
		res, err := r.storm(s, run)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		r.add(res)
	}
	return nil
}

// stormRig is one storm under way.
type stormRig struct {
	*rig
	redis    *redisServer
	receiver *receiver
	shop     *fragile.Server
	// troubled is when the trouble began, in the shop's time; 0: it has not.
	troubled time.Duration
}

// storm runs one of them.
func (r *rig) storm(s storm, run int) (res Result, err error) {
	n := r.scaled(stormDeliveries)
	plan := newPlan(n, stormRepeats, stormPace)
	r.progress("webhooks, %s, run %d of %d: %d deliveries of %d events", s.name, run, r.opt.Runs, n, plan.events)
	sr := &stormRig{rig: r}
	if sr.shop, err = fragile.Start("", fragile.Config{Limit: fragile.Rate{N: stormInward, Per: time.Second},
		Latency: fragile.Latency{Mean: 20 * ms, Jitter: 10 * ms}, Remember: 4 * n}); err != nil {
		return res, err
	}
	defer func() { err = errors.Join(err, sr.shop.Close()) }()
	if sr.redis, err = startDurable(r.ctx, s.fsync); err != nil {
		return res, err
	}
	defer func() { err = errors.Join(err, sr.redis.Close()) }()
	if sr.receiver, err = startReceiver(r.ctx, r.opt.Serve, sr.redis.addr, sr.shop.URL(), s.spool); err != nil {
		return res, err
	}
	defer func() { err = errors.Join(err, sr.receiver.Close()) }()

	troubled := make(chan error, 1)
	go func() { troubled <- sr.trouble(s, plan.length()/2) }()
	acks, err := plan.send(r.ctx, sr.receiver.hook())
	if err = errors.Join(err, <-troubled); err != nil {
		return res, fmt.Errorf("%w\n%s", err, sr.receiver.tail())
	}
	if err := r.await(sr.shop, plan.events, stormMost+time.Duration(plan.events)*time.Second/stormInward); err != nil {
		return res, err
	}
	if err := pause(r.ctx, time.Second); err != nil { // whatever would come twice
		return res, err
	}
	return stormResult(s, run, plan, acks, sr), nil
}

// trouble waits for the middle.
func (sr *stormRig) trouble(s storm, after time.Duration) error {
	if s.trouble == nil {
		return nil
	}
	if err := pause(sr.ctx, after); err != nil {
		return err
	}
	sr.troubled = sr.shop.Now()
	return s.trouble(sr)
}

// killReceiver kills serve with SIGKILL and starts it again, as a supervisor does.
func (sr *stormRig) killReceiver() error {
	if err := sr.receiver.kill(); err != nil {
		return err
	}
	return sr.receiver.start(sr.ctx)
}

// killRedis kills Redis with SIGKILL and starts it again on its files.
func (sr *stormRig) killRedis() error { return sr.redisAway(stormDown) }

// takeRedisAway keeps Redis away for a minute.
func (sr *stormRig) takeRedisAway() error {
	return sr.redisAway(max(stormDown, time.Duration(float64(stormAway)*sr.opt.Scale)))
}

// killBoth kills Redis, and the receiver while it spools. It starts again, and
// goes on spooling, before Redis does.
func (sr *stormRig) killBoth() error {
	if err := sr.redis.kill(); err != nil {
		return err
	}
	for _, step := range []func() error{
		func() error { return pause(sr.ctx, stormDown/2) },
		sr.killReceiver,
		func() error { return pause(sr.ctx, stormDown) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return sr.redis.again(sr.ctx)
}

func (sr *stormRig) redisAway(d time.Duration) error {
	if err := sr.redis.kill(); err != nil {
		return err
	}
	if err := pause(sr.ctx, d); err != nil {
		return err
	}
	return sr.redis.again(sr.ctx)
}

func stormResult(s storm, run int, p *plan, a acks, sr *stormRig) Result {
	rep, calls := sr.shop.Report(), sr.shop.Calls()
	needless := rep.SucceededTwice
	if s.trouble != nil {
		needless = afterKill(calls, sr.troubled, 1).needless
	}
	flow := streamOf(calls)
	m := []Metric{
		figure("acknowledged", Count, float64(a.acknowledged)).atLeast(float64(len(p.deliveries))),
		figure("ack p50", Millis, quantile(a.took, 0.5)),
		figure("ack p99", Millis, quantile(a.took, 0.99)),
		figure("refused tries", Count, float64(sum(a.refused))),
		figure("repeats seen", Count, float64(a.results["duplicate"])),
		figure("spooled", Count, float64(a.results["spooled"])),
		figure("lost", Count, float64(p.events-rep.JobsSucceeded)).atMost(0),
		figure("twice", Count, float64(rep.SucceededTwice)),
		figure("not in flight", Count, float64(needless)).atMost(0),
		figure("over the rate", Count, float64(rep.Refused)).atMost(0),
		figure("most in 1s", Count, float64(rep.MostArrived)).atMost(stormInward),
		figure("evenness", Figure, flow.evenness).atMost(0.35),
		figure("inward", PerSec, float64(len(calls))/max(flow.flowing.Seconds(), 1e-9)),
		figure("stood still", Sec, flow.pauses.Seconds()),
	}
	if s.trouble == nil {
		m[3] = m[3].atMost(0)
		m[4] = m[4].atLeast(float64(len(p.deliveries) - p.events)).atMost(float64(len(p.deliveries) - p.events))
	}
	if s.spool && a.refused["no connection"] == 0 { // none is a receiver's that is dead
		m[3] = m[3].atMost(0)
	}
	res := Result{Bench: "webhooks", Case: s.name, Side: sidePenstock, Run: run, Metrics: m}
	if len(a.refused) > 0 {
		res.Note = "tries without a 2xx: " + fmt.Sprint(a.refused)
	}
	return res
}

// stream is how calls followed each other.
type stream struct {
	flowing, pauses time.Duration
	// evenness is the coefficient of variation of the gaps that are no pauses.
	evenness float64
}

func streamOf(calls []fragile.Call) (s stream) {
	var at []time.Duration
	for _, c := range calls {
		at = append(at, c.At)
	}
	slices.Sort(at)
	var gaps []float64
	for i := 1; i < len(at); i++ {
		g := at[i] - at[i-1]
		if g >= stormPause {
			s.pauses += g
			continue
		}
		gaps = append(gaps, g.Seconds())
		s.flowing += g
	}
	s.evenness = variation(gaps)
	return s
}

// receiverReady is how long serve may take to start.
const receiverReady = 30 * time.Second

// awaitThat waits until cond, at most so long.
func awaitThat(ctx context.Context, most time.Duration, what string, cond func() bool) error {
	deadline := time.Now().Add(most)
	for !cond() {
		if time.Now().After(deadline) {
			return fmt.Errorf("not within %s: %s", most, what)
		}
		if err := pause(ctx, 10*ms); err != nil {
			return err
		}
	}
	return nil
}
