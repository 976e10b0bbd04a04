package worker

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/penstock-io/penstock/queue/internal/layout"
)

//go:embed settle.lua
var settleLua string

const (
	// linger is how long a job that is done waits for company in its request,
	// while plenty of slots are free. Its tombstone is stored already.
	linger = 20 * time.Millisecond
	// settleBatch is the most jobs that one request settles.
	settleBatch = 100
	// gatherWait is how long jobs given back at a stop wait for each other at
	// most, and gatherLook how often it is looked whether all are there.
	gatherWait, gatherLook = time.Second, 2 * time.Millisecond
	// statsFor is how long asynq keeps its counts of a day.
	statsFor = 90 * 24 * time.Hour
)

// order is one job's way out of the active list; its fields are settle.lua's.
type order struct {
	kind   byte // d, c, r or b
	h      *hand
	failed bool
	msg    string // c, r: the message to store

	body   bool              // d: it has a body of its own
	result string            // c
	until  int64             // c: Unix s
	tomb   *layout.Tombstone // c: nil when the gate has written it
	keep   time.Duration     // c: of the tombstone

	lane string        // r: h, d or l
	in   time.Duration // r

	lock    string // d, c: asynq's unique lock
	patient bool   // may linger
	answer  chan string
}

// settler stores what became of jobs, many in one request: while one is under
// way, the next gathers. It retries until Redis answers.
type settler struct {
	rdb     redis.UniversalClient
	keys    layout.Keys
	process string
	slots   int
	hands   *hands
	log     *slog.Logger
	script  *layout.Script

	mu      sync.Mutex
	waiting []*order
	urgent  int       // of them that do not linger
	hurry   bool      // nobody lingers any more
	gather  time.Time // until then jobs given back wait for each other
	oldest  time.Time // of those that do
	more    chan struct{}
	quit    chan struct{} // closed: Redis gets no more time
	done    chan struct{}
}

func newSettler(rdb redis.UniversalClient, keys layout.Keys, process string, slots int, hs *hands, log *slog.Logger) *settler {
	return &settler{
		rdb: rdb, keys: keys, process: process, slots: slots, hands: hs, log: log, script: layout.NewScript(settleLua),
		more: make(chan struct{}, 1), quit: make(chan struct{}), done: make(chan struct{}),
	}
}

// Answers of the settler besides settle.lua's own.
const (
	answerOK        = "ok"
	answerGone      = "gone"      // someone else has the job now
	answerCancelled = "cancelled" // nothing done: cancellation was asked for
	answerGaveUp    = "gave up"   // the worker stopped while Redis was away
)

// put hands in an order and waits for its answer.
func (s *settler) put(o *order) string {
	o.answer = make(chan string, 1)
	s.mu.Lock()
	s.waiting = append(s.waiting, o)
	if !o.patient {
		s.urgent++
	} else if s.oldest.IsZero() {
		s.oldest = time.Now()
	}
	s.mu.Unlock()
	select {
	case s.more <- struct{}{}:
	default:
	}
	return <-o.answer
}

// run serves orders until stop is called and none is left.
func (s *settler) run(stop <-chan struct{}) {
	defer close(s.done)
	for {
		batch, wait := s.next()
		if len(batch) > 0 {
			s.send(batch)
			continue
		}
		timer := time.NewTimer(cmp.Or(wait, time.Hour))
		select {
		case <-s.more:
		case <-timer.C:
		case <-stop:
			if batch := s.rest(); len(batch) > 0 {
				s.send(batch)
				continue
			}
			timer.Stop()
			return
		}
		timer.Stop()
	}
}

// next takes the batch that is ready, or says how long to wait for one (0: for
// the next order).
func (s *settler) next() ([]*order, time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.waiting) == 0 {
		return nil, 0
	}
	if s.gatheringLocked() {
		if batch := s.cutLocked(func(o *order) bool { return o.kind != 'b' }); len(batch) > 0 {
			return batch, 0
		}
		return nil, gatherLook
	}
	if inHand, _ := s.hands.counts(); s.urgent == 0 && !s.hurry && inHand <= s.slots/4 && len(s.waiting) < settleBatch {
		if left := linger - time.Since(s.oldest); left > 0 {
			return nil, left
		}
	}
	return s.cutLocked(nil), 0
}

// hasten ends all lingering: the worker stops. Jobs given back wait for each
// other, so that they go to the head of the line in their order.
func (s *settler) hasten() {
	s.mu.Lock()
	s.hurry, s.gather = true, time.Now().Add(gatherWait)
	s.mu.Unlock()
	select {
	case s.more <- struct{}{}:
	default:
	}
}

func (s *settler) rest() []*order {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cutLocked(nil)
}

// gatheringLocked reports that the worker stops and not all of its jobs that
// are not called have been given back yet.
func (s *settler) gatheringLocked() bool {
	if !time.Now().Before(s.gather) {
		return false
	}
	back := 0
	for _, o := range s.waiting {
		if o.kind == 'b' {
			back++
		}
	}
	return back > 0 && back < s.hands.uncalled()
}

// cutLocked takes up to a batch out of the orders, of those that are wanted
// (nil: all). Jobs given back go to the head of the line one by one: the first
// of the line last.
func (s *settler) cutLocked(wanted func(*order) bool) []*order {
	slices.SortStableFunc(s.waiting, func(a, b *order) int { return cmp.Compare(b.h.seq, a.h.seq) })
	var batch []*order
	s.waiting = slices.DeleteFunc(s.waiting, func(o *order) bool {
		take := len(batch) < settleBatch && (wanted == nil || wanted(o))
		if take {
			batch = append(batch, o)
		}
		return take
	})
	s.urgent, s.oldest = 0, time.Time{}
	for _, o := range s.waiting {
		if !o.patient {
			s.urgent++
		} else if s.oldest.IsZero() {
			s.oldest = time.Now()
		}
	}
	return batch
}

// send stores a batch and answers each order. It tries until Redis has done
// it, or the worker gives up.
func (s *settler) send(batch []*order) {
	for failures := 0; ; failures++ {
		answers, err := s.try(batch)
		if err == nil {
			for i, o := range batch {
				o.answer <- answers[i]
			}
			return
		}
		if failures == 0 {
			s.log.Error("cannot store what became of jobs; trying until redis answers", "jobs", len(batch), "error", err)
		}
		pause := min(5*time.Second, 50*time.Millisecond<<min(failures, 7))
		timer := time.NewTimer(pause/2 + time.Duration(rand.Int64N(int64(pause/2))))
		select {
		case <-timer.C:
		case <-s.quit:
			timer.Stop()
			s.log.Error("stopped while redis was away; the jobs come back from its records", "jobs", len(batch), "error", err)
			for _, o := range batch {
				o.answer <- answerGaveUp
			}
			return
		}
	}
}

func (s *settler) try(batch []*order) ([]string, error) {
	now := time.Now()
	a := s.keys.Asynq
	day := now.UTC().Format("2006-01-02")
	keys := append([]string{
		a("active"), a("lease"), a("pending"), a("scheduled"), a("retry"), a("completed"),
	}, s.keys.Lanes()...)
	keys = append(keys, s.keys.Owner(s.process), s.keys.Own(layout.Cancel), s.keys.Own(layout.Bodies),
		a("processed:"+day), a("processed"), a("failed:"+day), a("failed"))
	args := make([]any, 0, 5+10*len(batch))
	args = append(args, a("t:"), s.keys.Prefix, now.Add(statsFor).Unix(), s.keys.Own(layout.Jobs), len(batch))
	for _, o := range batch {
		args = append(args, o.args()...)
	}
	answers, err := s.script.Run(context.Background(), s.rdb, keys, args...).StringSlice()
	if err == nil && len(answers) != len(batch) {
		err = fmt.Errorf("settle.lua answered %d of %d", len(answers), len(batch))
	}
	return answers, err
}

var errNoKind = errors.New("no such kind of order")

// args are the ten values of settle.lua.
func (o *order) args() []any {
	head := []any{string(o.kind), o.h.id, flag(o.failed), o.msg}
	switch o.kind {
	case 'd':
		return append(head, flag(o.body), "", "", "", "", o.lock)
	case 'c':
		tomb, index := "", ""
		if o.tomb != nil {
			tomb, index = o.tomb.Encode(), layout.DoneName(o.tomb.State)
		}
		return append(head, o.until, o.result, tomb, o.keep.Milliseconds(), index, o.lock)
	case 'r':
		ms := int64(math.Ceil(float64(max(0, o.in)) / float64(time.Millisecond)))
		return append(head, o.lane, ms, layout.Far, "", "", "")
	case 'b':
		return append(head, o.h.origin, "", layout.Far, "", "", "")
	}
	panic(errNoKind)
}
