package worker

import (
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/penstock-io/penstock/queue/internal/layout"
	"github.com/penstock-io/penstock/shaper"
)

const (
	// poll is the net under the wake-ups: for jobs that others put in. It is
	// also the longest that one dequeue of asynq is held up: asynq's lease of a
	// job runs from the beginning of the dequeue, and lasts 30 s.
	poll = 5 * time.Second
	// window is how much of the rate is taken ahead of its calls.
	window = 250 * time.Millisecond
	// batch is the most jobs that one request takes, and lot the most with
	// expired ones.
	batch, lot = 100, 200
	// lease in s that a taken job gets in asynq's set; asynq's heartbeat renews it.
	lease = 30
	// beat is how often a process's sign of life is sent along.
	beat = 4 * time.Second
	// openPoll is the least time between two looks at an open breaker.
	openPoll = 250 * time.Millisecond
	// wheel of the lanes' turns: high, default, low at 8 : 4 : 1.
	wheel = "hdhhdhlhdhhdh"
)

// inlet decides how many jobs are taken, from which lane, and when. One per
// worker; dequeue is called by one goroutine of asynq.
type inlet struct {
	rdb     redis.UniversalClient
	keys    layout.Keys
	process string
	slots   int // jobs in hand at most: as many as asynq has handlers
	calls   int // of them called at once
	limits  func() shaper.Limits
	hands   *hands
	clock   *clock
	log     *slog.Logger
	script  *layout.Script
	jobs    <-chan struct{} // a job was put in
	gate    <-chan struct{} // the gate has news
	stopped chan struct{}
	stop    func()

	mu        sync.Mutex
	stash     []string // messages taken, for the dequeues to come
	processes int
	turn      int
	lastBeat  time.Time
	lastTake  time.Time
	hopeful   bool      // there may be jobs
	shut      bool      // held, open or paused: news of jobs changes nothing
	probing   bool      // half-open: one job at a time
	nextDue   time.Time // zero: none known
	nextPoll  time.Time
	empties   int // wake-ups in a row that found nothing
	failures  int // of Redis, in a row
	complain  seldom
}

// slotsFor is how many jobs are in hand at most for so many calls at once: those
// called, as many parked, and those whose end is being stored.
func slotsFor(calls int) int { return 2*calls + max(calls, 64) }

func newInlet(rdb redis.UniversalClient, keys layout.Keys, process string, calls int, limits func() shaper.Limits,
	hs *hands, clk *clock, log *slog.Logger, jobs, gate <-chan struct{}) *inlet {
	in := &inlet{
		rdb: rdb, keys: keys, process: process, slots: slotsFor(calls), calls: calls, limits: limits, hands: hs, clock: clk, log: log,
		script: layout.NewScript(takeLua), jobs: jobs, gate: gate, stopped: make(chan struct{}), hopeful: true,
		complain: seldom{every: 10 * time.Second},
	}
	in.stop = sync.OnceFunc(func() { close(in.stopped) })
	return in
}

// dequeue answers one dequeue of asynq: the next message, or redis.Nil after
// poll or when the inlet is stopped.
func (in *inlet) dequeue() (string, error) {
	patience := time.NewTimer(poll)
	defer patience.Stop()
	for {
		if msg, ok := in.pop(); ok {
			return msg, nil
		}
		wait := poll
		if k, free := in.room(); k > 0 {
			var now bool
			if now, wait = in.when(time.Now()); now {
				in.request(k, free)
				continue
			}
		}
		if !in.sleep(wait, patience.C) {
			return "", redis.Nil
		}
	}
}

// pop gives out one message of the stash; nothing once the inlet is stopped.
func (in *inlet) pop() (string, bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	select {
	case <-in.stopped:
		return "", false
	default:
	}
	if len(in.stash) == 0 {
		return "", false
	}
	msg := in.stash[0]
	in.stash[0] = ""
	in.stash = in.stash[1:]
	return msg, true
}

// allowed is how many jobs may be taken and not yet called.
func (in *inlet) allowed() int {
	l := in.limits()
	in.mu.Lock()
	procs, probing := max(1, in.processes), in.probing
	in.mu.Unlock()
	switch {
	case probing:
		return 1
	case !l.Rate.IsZero():
		return max(2, int(l.Rate.PerSec()*window.Seconds()/float64(procs)+0.999))
	case l.Concurrency > 0:
		return max(2, l.Concurrency/2/procs)
	}
	// Short calls: what begins in paceOver, so that taking, calling and storing
	// overlap. Long ones: no more than are called, for another process may be free.
	return max(2, in.calls, min(in.slots-in.calls, in.hands.recent()))
}

// room is how many jobs may be taken now, and how many slots are free. It
// waits for several places before it says more than none, so that a request
// carries several jobs, as long as enough jobs are parked to bridge that.
func (in *inlet) room() (k, free int) {
	all, parked := in.hands.counts()
	free = in.slots - all
	allowed := in.allowed()
	places := allowed - parked
	k = min(places, free, batch)
	if k <= 0 {
		return 0, free
	}
	if parked > 0 && k == places && places < (allowed+1)/2 {
		return 0, free
	}
	if k == free && free < in.slots/8 {
		in.mu.Lock()
		recent := time.Since(in.lastTake) < 5*time.Millisecond
		in.mu.Unlock()
		if recent {
			return 0, free
		}
	}
	return k, free
}

// when says whether to ask now, or how long to wait.
func (in *inlet) when(now time.Time) (bool, time.Duration) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.failures > 0 {
		// In trouble with Redis only the poll counts, which backs off.
		return !now.Before(in.nextPoll), in.nextPoll.Sub(now)
	}
	next := in.nextPoll
	if !in.nextDue.IsZero() && in.nextDue.Before(next) {
		next = in.nextDue
	}
	if in.hopeful {
		next = now
		if in.empties > 1 {
			// Everyone is woken by each job, and one gets it: those who come too
			// late come again a little later.
			next = in.lastTake.Add(time.Duration(min(in.empties, 10)) * 2 * time.Millisecond)
		}
	}
	return !now.Before(next), next.Sub(now)
}

// sleep waits for news; false: answer asynq that there is nothing.
func (in *inlet) sleep(d time.Duration, patience <-chan time.Time) bool {
	timer := time.NewTimer(max(d, time.Millisecond))
	defer timer.Stop()
	select {
	case <-in.stopped:
		return false
	case <-patience:
		return false
	case <-timer.C:
	case <-in.hands.freed:
	case <-in.jobs:
		in.wake(false)
	case <-in.gate:
		in.wake(true)
	}
	return true
}

// wake notes news: of a job, or of the gate, which may be open again.
func (in *inlet) wake(gate bool) {
	in.mu.Lock()
	if gate {
		in.shut, in.probing = false, false
	}
	in.hopeful = !in.shut
	in.mu.Unlock()
}

// expect notes that a job of this worker will be due then; nobody publishes it.
func (in *inlet) expect(due time.Time) {
	in.mu.Lock()
	sooner := !in.shut && (in.nextDue.IsZero() || due.Before(in.nextDue))
	if sooner {
		in.nextDue = due
	}
	in.mu.Unlock()
	if sooner {
		in.hands.signal()
	}
}

// trouble backs off: a dead Redis is asked ever less often, never in a loop.
func (in *inlet) trouble(err error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.failures++
	pause := min(poll, 50*time.Millisecond<<min(in.failures, 7))
	in.nextPoll = time.Now().Add(pause/2 + time.Duration(rand.Int64N(int64(pause/2))))
	in.hopeful = true
	if in.complain.ok(time.Now()) {
		in.log.Error("the inlet cannot reach redis; no job is taken until it answers", "error", err)
	}
}

// leftover empties the stash after asynq has stopped asking: the ids of jobs
// taken for nobody.
func (in *inlet) leftover() []string {
	in.mu.Lock()
	defer in.mu.Unlock()
	var ids []string
	for _, raw := range in.stash {
		if m, err := layout.ParseMessage([]byte(raw)); err == nil {
			ids = append(ids, m.ID)
		}
	}
	in.stash = nil
	return ids
}
