package webhooks

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// logEvery is how often one kind of line is written at most: who floods a
// webhook with bad signatures must not flood the log.
const logEvery = time.Second

// sparse writes at most one line of a kind in logEvery, and says in the next
// one how many it left out. Safe for several goroutines.
type sparse struct {
	log *slog.Logger

	mu    sync.Mutex
	kinds map[string]*kind
}

type kind struct {
	next time.Time
	left int
}

func newSparse(l *slog.Logger) *sparse { return &sparse{log: l, kinds: map[string]*kind{}} }

// line writes a line of a kind; kinds are few, they are our own words.
func (s *sparse) line(level slog.Level, k, msg string, args ...any) {
	if !s.log.Enabled(context.Background(), level) {
		return
	}
	s.mu.Lock()
	now := time.Now()
	e := s.kinds[k]
	if e == nil {
		e = &kind{}
		s.kinds[k] = e
	}
	if now.Before(e.next) {
		e.left++
		s.mu.Unlock()
		return
	}
	left := e.left
	e.next, e.left = now.Add(logEvery), 0
	s.mu.Unlock()
	if left > 0 {
		args = append(args, "not_logged", left)
	}
	s.log.Log(context.Background(), level, msg, args...)
}
