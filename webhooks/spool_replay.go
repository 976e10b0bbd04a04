package webhooks

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/penstock-io/penstock/queue"
)

const (
	replayJobs  = 128
	replayBytes = 4 << 20
	// retryMin and retryMax bound the wait between tries while Redis is away.
	retryMin = 100 * time.Millisecond
	retryMax = 2 * time.Second
	// sayAgain is how often the log is told that Redis is still away.
	sayAgain = 30 * time.Second
	// unknownWait is how long a provider must be unknown until its deliveries
	// are set aside.
	unknownWait = 5 * time.Minute
	// emptyWait is how long a delivery waits for the last ones of the spool.
	emptyWait = 100 * time.Millisecond
	// refusedName holds deliveries that the queue will never take, for a person.
	refusedName = "refused"
	// positionName says how far the replay had come. It is a hint: without it
	// deliveries are put in again, which their ids make harmless.
	positionName = "position"
)

// load opens what an earlier run left.
func (s *Spool) load() error {
	numbers, err := segmentNumbers(s.cfg.Dir)
	if err != nil {
		return fmt.Errorf("spool: %w", err)
	}
	for _, n := range numbers {
		s.next = n + 1
		g, lost, cut, err := openSegment(s.cfg.Dir, n)
		if lost > 0 {
			s.log.Error("webhook spool: damaged records were skipped; deliveries are lost", "segment", n, "bytes", lost)
		}
		if cut > 0 {
			s.log.Warn("webhook spool: a tail that is not whole was cut off; after a crash it is what was not acknowledged yet", "segment", n, "bytes", cut)
		}
		if errors.Is(err, errDamaged) {
			if err := os.Remove(segmentPath(s.cfg.Dir, n)); err != nil {
				return fmt.Errorf("spool: %w", err)
			}
			continue
		}
		if err != nil {
			return fmt.Errorf("spool: segment %d: %w", n, err)
		}
		s.segments = append(s.segments, g)
		s.size += g.written
		s.waiting += g.safe
	}
	s.resume()
	return nil
}

// resume goes on where the position file says, if that place exists.
func (s *Spool) resume() {
	b, err := os.ReadFile(filepath.Join(s.cfg.Dir, positionName))
	if err != nil || len(s.segments) == 0 {
		return
	}
	num, off, _ := strings.Cut(strings.TrimSpace(string(b)), " ")
	n, err1 := strconv.ParseUint(num, 10, 64)
	to, err2 := strconv.ParseInt(off, 10, 64)
	g := s.segments[0]
	if err1 != nil || err2 != nil || n != g.number {
		return
	}
	at, done := segmentHead, 0
	for at < to {
		_, next, err := g.record(at)
		if err != nil {
			return
		}
		at, done = next, done+1
	}
	if at == to {
		g.read, g.done = at, done
		s.waiting -= done
	}
}

// savePosition is written without fsync and renamed into place.
func (s *Spool) savePosition(number uint64, off int64) {
	tmp := filepath.Join(s.cfg.Dir, positionName+".tmp")
	err := os.WriteFile(tmp, fmt.Appendf(nil, "%d %d\n", number, off), 0o600)
	if err == nil {
		err = os.Rename(tmp, filepath.Join(s.cfg.Dir, positionName))
	}
	if err != nil {
		s.log.Warn("webhook spool: the position could not be saved; deliveries may be put in again, which their ids make harmless", "error", err)
	}
}

// spooled is one delivery read back.
type spooled struct {
	raw  []byte
	meta recordMeta
	job  queue.Job
	end  int64
	bad  error // why raw cannot be read
}

// replay puts deliveries into the queue, in order, until ctx ends.
func (s *Spool) replay(ctx context.Context) {
	wait := retryMin
	var said time.Time
	for {
		g := s.nextSegment()
		if g == nil {
			return
		}
		batch, err := s.read(g)
		if err == nil {
			err = s.put(ctx, g, batch)
		}
		s.drains(err == nil)
		if err == nil {
			wait = retryMin
			continue
		}
		if ctx.Err() != nil {
			return
		}
		if time.Since(said) > sayAgain {
			s.log.Error("webhook spool: waiting for the store", "deliveries", s.Len(), "error", err)
			said = time.Now()
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		wait = min(2*wait, retryMax)
	}
}

// drains notes whether deliveries leave the spool.
func (s *Spool) drains(yes bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining != yes {
		s.draining = yes
		s.changed.Broadcast()
	}
}

// nextSegment waits for a segment with something to replay; nil at the end.
func (s *Spool) nextSegment() *segment {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		if s.closed {
			return nil
		}
		for _, g := range s.segments {
			if g.done < g.safe {
				return g
			}
		}
		s.changed.Wait()
	}
}

// read returns the next deliveries of g: several good ones, or one that cannot
// be read.
func (s *Spool) read(g *segment) ([]spooled, error) {
	s.mu.Lock()
	at, end := g.read, g.synced
	s.mu.Unlock()
	var out []spooled
	for size := 0; at < end && len(out) < replayJobs && size < replayBytes; {
		raw, next, err := g.record(at)
		if errors.Is(err, errDamaged) { // said when the segment was opened
			if to := g.resync(at + 1); to >= 0 {
				at = to
				continue
			}
			err = fmt.Errorf("segment %d ends before its records do", g.number)
		}
		if err != nil {
			if len(out) > 0 {
				break
			}
			return nil, err
		}
		r := spooled{raw: raw, end: next}
		r.meta, r.job, r.bad = decodeRecord(raw)
		if r.bad != nil && len(out) > 0 {
			break // it comes alone, next time
		}
		out = append(out, r)
		at, size = next, size+len(raw)
		if r.bad != nil {
			break
		}
	}
	return out, nil
}

// put stores a batch and moves on past what is settled. An error means that
// the first delivery that is left must be tried again.
func (s *Spool) put(ctx context.Context, g *segment, batch []spooled) error {
	done := 0
	var away error
	for rec, err := range s.store(ctx, batch) {
		r := batch[done]
		var res Result
		if res, away = s.settle(r, rec, err); away != nil {
			break
		}
		s.cfg.Observer.WebhookReplayed(r.meta.Webhook, res)
		done++
	}
	if done > 0 {
		s.advance(g, batch[done-1].end, done)
	}
	if away == nil && done < len(batch) {
		away = context.Cause(ctx)
	}
	return away
}

// settle decides what became of one delivery; an error says that it must be
// tried again.
func (s *Spool) settle(r spooled, rec queue.Receipt, err error) (Result, error) {
	switch {
	case err == nil && rec.Known, errors.Is(err, queue.ErrConflict):
		delete(s.unknown, r.job.Provider)
		return Duplicate, nil
	case err == nil:
		delete(s.unknown, r.job.Provider)
		return Accepted, nil
	case r.bad != nil, errors.Is(err, queue.ErrInvalid), errors.Is(err, queue.ErrTooLarge),
		errors.Is(err, queue.ErrUnknownProvider) && s.longUnknown(r.job.Provider):
		return Refused, s.setAside(r, err)
	}
	return "", err
}

// longUnknown reports that nobody has served the provider for unknownWait: it
// was taken out of the configuration, and would hold up all others for ever. A
// Redis that has lost its data knows it again within half a minute.
func (s *Spool) longUnknown(provider string) bool {
	since, ok := s.unknown[provider]
	if !ok {
		s.unknown[provider] = time.Now()
	}
	return ok && time.Since(since) >= unknownWait
}

// store enqueues the batch in order and yields what became of each: with one
// round trip for many, where the queue can do that.
func (s *Spool) store(ctx context.Context, batch []spooled) iter.Seq2[queue.Receipt, error] {
	if r := batch[0]; r.bad != nil {
		return func(yield func(queue.Receipt, error) bool) { yield(queue.Receipt{}, r.bad) }
	}
	jobs := func(yield func(queue.Job) bool) {
		for _, r := range batch {
			if !yield(r.job) {
				return
			}
		}
	}
	if bulk, ok := s.cfg.Queue.(interface {
		EnqueueAll(context.Context, iter.Seq[queue.Job]) iter.Seq2[queue.Receipt, error]
	}); ok {
		return bulk.EnqueueAll(ctx, jobs)
	}
	return func(yield func(queue.Receipt, error) bool) {
		for j := range jobs {
			if !yield(s.cfg.Queue.Enqueue(ctx, j)) {
				return
			}
		}
	}
}

// setAside keeps what the queue will never take, and says so.
func (s *Spool) setAside(r spooled, why error) error {
	s.log.Error("webhook spool: a delivery that the queue will never take was set aside", "webhook", r.meta.Webhook, "job", r.meta.ID,
		"file", filepath.Join(s.cfg.Dir, refusedName), "error", why)
	f, err := os.OpenFile(filepath.Join(s.cfg.Dir, refusedName), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, "%d %q\n", len(r.raw), r.raw)
	return errors.Join(err, f.Sync(), f.Close())
}

// advance moves the replay of g on, and removes segments that are replayed.
func (s *Spool) advance(g *segment, to int64, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g.read, g.done = to, g.done+n
	s.waiting -= n
	s.removeReplayedLocked()
	if len(s.segments) > 0 {
		s.savePosition(s.segments[0].number, s.segments[0].read)
	}
	s.cfg.Observer.WebhookSpool(s.waiting, s.size)
	if s.waiting == 0 {
		s.changed.Broadcast()
		s.log.Info("webhook spool is empty again")
	}
}

// removeReplayedLocked drops whole segments from the front. A segment that
// somebody is writing to, or waiting for, stays.
func (s *Spool) removeReplayedLocked() {
	for len(s.segments) > 0 {
		g := s.segments[0]
		if g.done < g.safe || g.safe < g.records && !g.broken {
			return
		}
		if err := os.Remove(g.file.Name()); err != nil {
			s.log.Error("webhook spool: a replayed segment could not be removed", "error", err)
			return
		}
		_ = g.file.Close()
		s.size -= g.written
		s.segments = s.segments[1:]
	}
}
