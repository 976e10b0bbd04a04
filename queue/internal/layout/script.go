package layout

import (
	"context"
	"strings"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// Script is a Lua script that may begin with a line of flags ("#!lua
// flags=allow-oom"), which Redis 7 and Valkey understand and the embedded
// store does not: there the line is left out. One Script serves one server.
// Safe for several goroutines.
type Script struct {
	full, plain *redis.Script
	source      string
	usePlain    atomic.Bool
}

// NewScript prepares src; nothing is sent.
func NewScript(src string) *Script {
	s := &Script{full: redis.NewScript(src), source: src}
	s.plain = s.full
	if strings.HasPrefix(src, "#!") {
		_, body, _ := strings.Cut(src, "\n")
		s.plain = redis.NewScript("\n" + body)
	}
	return s
}

// Run sends EVALSHA, and the source where the server does not have it.
func (s *Script) Run(ctx context.Context, c redis.Scripter, keys []string, args ...any) *redis.Cmd {
	if s.usePlain.Load() || s.plain == s.full {
		return s.plain.Run(ctx, c, keys, args...)
	}
	cmd := s.full.Run(ctx, c, keys, args...)
	if err := cmd.Err(); err != nil && strings.Contains(err.Error(), "Error compiling script") {
		s.usePlain.Store(true)
		return s.plain.Run(ctx, c, keys, args...)
	}
	return cmd
}

// Hash is the script's SHA-1 (of a script without flags).
func (s *Script) Hash() string { return s.full.Hash() }

// Source is the script's text.
func (s *Script) Source() string { return s.source }
