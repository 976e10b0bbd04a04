package webhooks

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/penstock-io/penstock/queue"
)

// Defaults and bounds of a spool.
const (
	DefaultSpoolBytes = 256 << 20
	minSpoolBytes     = 1 << 20
	maxSegment        = 4 << 20
)

var (
	// ErrSpoolFull: there is no room for one more delivery.
	ErrSpoolFull = errors.New("the spool is full")
	// ErrSpoolInUse: another process has the directory.
	ErrSpoolInUse = errors.New("the spool's directory is in use")
	// ErrSpoolClosed: Close was called.
	ErrSpoolClosed = errors.New("the spool is closed")
)

// SpoolConfig of a Spool.
type SpoolConfig struct {
	// Dir is a directory of the spool's own, on a disk that survives a
	// restart; made if it is not there. Bodies stand in it in the clear. Required.
	Dir string
	// MaxBytes on disk; deliveries beyond are refused (503). At least 1 MiB.
	// Zero: 256 MiB.
	MaxBytes int64
	// NoSync leaves it to the operating system when a delivery reaches the disk:
	// an acknowledged one then survives kill -9, but not a power cut.
	NoSync bool
	// Queue takes the deliveries when Redis is back: a *queue.Client. Required.
	Queue Enqueuer
	// Observer hears of the spool's size. Nil: nobody.
	Observer Observer
	// Logger. Nil: slog.Default().
	Logger *slog.Logger
}

// Spool keeps deliveries on disk while Redis is away, and puts them into the
// queue in their order when it is back.
//
// A delivery is acknowledged after it is written and fsynced, so neither
// kill -9 nor a power cut loses it; several at once share one fsync (see
// SpoolConfig.NoSync). A tail
// that was cut off by a crash is removed at the next start (it was never
// acknowledged). A delivery may be put into the queue again after a crash; its
// job's id makes that one job.
//
// Safe for several goroutines; one process at a time.
type Spool struct {
	cfg  SpoolConfig
	log  *slog.Logger
	lock *os.File

	mu       sync.Mutex
	changed  *sync.Cond // something was synced, or the spool closed
	segments []*segment // in order; new deliveries go to the last
	next     uint64     // number of the next segment
	size     int64      // bytes on disk
	waiting  int        // deliveries that are not replayed yet
	syncing  bool
	draining bool // the last replay went well
	closed   bool

	// unknown is since when a provider is served by nobody; of the replay's goroutine.
	unknown map[string]time.Time

	cancel context.CancelFunc
	done   sync.WaitGroup
}

// OpenSpool opens the directory, repairs what a crash has left, and starts to
// replay. Close ends it. What cannot be used is an error that names it.
func OpenSpool(cfg SpoolConfig) (*Spool, error) {
	if cfg.Dir == "" || cfg.Queue == nil {
		return nil, fmt.Errorf("%w: spool: Dir and Queue are required", ErrConfig)
	}
	defaults(&cfg.MaxBytes, DefaultSpoolBytes)
	if cfg.MaxBytes < minSpoolBytes {
		return nil, fmt.Errorf("%w: spool: max_bytes must be at least %d, not %d", ErrConfig, minSpoolBytes, cfg.MaxBytes)
	}
	if cfg.Observer == nil {
		cfg.Observer = nobody{}
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("spool: %w", err)
	}
	s := &Spool{cfg: cfg, log: cfg.Logger, unknown: map[string]time.Time{}}
	s.changed = sync.NewCond(&s.mu)
	var err error
	if s.lock, err = lockDir(cfg.Dir); err != nil {
		return nil, err
	}
	if err := s.load(); err != nil {
		s.closeFiles()
		return nil, err
	}
	cfg.Observer.WebhookSpool(s.waiting, s.size)
	if s.waiting > 0 {
		s.log.Warn("webhook spool holds deliveries of an earlier run; they are put into the queue now", "deliveries", s.waiting, "bytes", s.size)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	s.done.Go(func() { s.replay(ctx) })
	return s, nil
}

// Len is the number of deliveries that are waiting to be replayed.
func (s *Spool) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.waiting
}

// empty reports whether nothing waits. Where only a little does, on its way
// into the queue, it waits a moment for that: else a storm would go on being
// written to disk for as long as it lasts, always behind the delivery before.
func (s *Spool) empty() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waiting == 0 || s.waiting > replayJobs || !s.draining {
		return s.waiting == 0
	}
	until := time.Now().Add(emptyWait)
	wake := time.AfterFunc(emptyWait, func() {
		s.mu.Lock() // or it could come between a waiter's look at the clock and its wait
		defer s.mu.Unlock()
		s.changed.Broadcast()
	})
	defer wake.Stop()
	for s.waiting > 0 && s.draining && !s.closed && time.Now().Before(until) {
		s.changed.Wait()
	}
	return s.waiting == 0
}

// Room is how many more bytes the spool takes.
func (s *Spool) Room() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(0, s.cfg.MaxBytes-s.size-segmentHead)
}

// Close stops replaying and releases the directory. Deliveries that wait stay
// on disk for the next start.
func (s *Spool) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	s.changed.Broadcast()
	s.mu.Unlock()
	s.cancel()
	s.done.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.syncing {
		s.changed.Wait()
	}
	return s.closeFiles()
}

func (s *Spool) closeFiles() error {
	var errs []error
	for _, g := range s.segments {
		errs = append(errs, g.file.Close())
	}
	if s.lock != nil {
		errs = append(errs, s.lock.Close())
	}
	return errors.Join(errs...)
}

// add writes one delivery and returns when it is safe on disk.
func (s *Spool) add(webhook string, j queue.Job) error {
	rec, err := encodeRecord(webhook, j, time.Now())
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	g, err := s.roomLocked(int64(len(rec)) + recordHead)
	if err != nil {
		return err
	}
	n, err := g.append(rec)
	if err != nil {
		return fmt.Errorf("spool: %w", err)
	}
	s.size += n
	return s.syncLocked(g, g.written)
}

// roomLocked returns the segment for n more bytes, after the bound was checked.
func (s *Spool) roomLocked(n int64) (*segment, error) {
	switch {
	case s.closed:
		return nil, ErrSpoolClosed
	case s.size+n+segmentHead > s.cfg.MaxBytes:
		return nil, ErrSpoolFull
	}
	if k := len(s.segments); k > 0 {
		if g := s.segments[k-1]; !g.broken && (g.written+n <= s.segmentSize() || g.written == segmentHead) {
			return g, nil
		}
	}
	g, err := createSegment(s.cfg.Dir, s.next)
	if err != nil {
		return nil, fmt.Errorf("spool: %w", err)
	}
	s.next++
	s.size += segmentHead
	s.segments = append(s.segments, g)
	return g, nil
}

// segmentSize is small enough that room is freed in several steps.
func (s *Spool) segmentSize() int64 { return min(maxSegment, s.cfg.MaxBytes/8) }

// syncLocked returns when g is on disk up to upTo. Whoever comes first syncs
// for all who have written by then; the lock is not held meanwhile.
func (s *Spool) syncLocked(g *segment, upTo int64) error {
	for g.synced < upTo && !g.broken {
		if s.syncing {
			s.changed.Wait()
			continue
		}
		s.syncing = true
		end, n := g.written, g.records
		s.mu.Unlock()
		var err error
		if !s.cfg.NoSync {
			err = g.file.Sync()
		}
		s.mu.Lock()
		s.syncing = false
		if err != nil {
			// What a failed fsync has written is unknown for good: nothing more
			// is put into this file, and nobody waiting is acknowledged.
			g.broken = true
			s.log.Error("webhook spool: fsync failed", "error", err)
		} else {
			s.waiting += n - g.safe
			g.synced, g.safe = end, n
			s.cfg.Observer.WebhookSpool(s.waiting, s.size)
		}
		s.changed.Broadcast()
	}
	if g.synced < upTo {
		return errors.New("spool: fsync failed")
	}
	return nil
}
