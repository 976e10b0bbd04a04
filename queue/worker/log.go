package worker

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// quiet drops what asynq logs.
type quiet struct{}

func (quiet) Debug(...any) {}
func (quiet) Info(...any)  {}
func (quiet) Warn(...any)  {}
func (quiet) Error(...any) {}
func (quiet) Fatal(...any) {}

// asynqLog passes what asynq warns of to slog. What asynq calls info is debug
// for us: its life is not the operator's concern.
type asynqLog struct{ log *slog.Logger }

func (l asynqLog) put(level slog.Level, a []any) {
	l.log.Log(context.Background(), level, "asynq: "+strings.TrimSpace(fmt.Sprint(a...)))
}
func (l asynqLog) Debug(a ...any) { l.put(slog.LevelDebug, a) }
func (l asynqLog) Info(a ...any)  { l.put(slog.LevelDebug, a) }
func (l asynqLog) Warn(a ...any)  { l.put(slog.LevelWarn, a) }
func (l asynqLog) Error(a ...any) { l.put(slog.LevelError, a) }

// Fatal logs only: a library does not end its process.
func (l asynqLog) Fatal(a ...any) { l.put(slog.LevelError, a) }

// seldom lets a message through at most once in every.
type seldom struct {
	every time.Duration
	mu    sync.Mutex
	last  time.Time
}

func (s *seldom) ok(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.last.IsZero() && now.Sub(s.last) < s.every {
		return false
	}
	s.last = now
	return true
}
