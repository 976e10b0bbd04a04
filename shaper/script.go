package shaper

import (
	"context"
	"strings"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// Script is a Lua script that may begin with a line of flags
// ("#!lua flags=allow-oom"), which Redis 7 and Valkey understand and the
// embedded store does not: there the line is left out. Safe for several
// goroutines.
type Script struct {
	full, plain *redis.Script
	usePlain    atomic.Bool
}

// NewScript prepares src; nothing is sent.
func NewScript(src string) *Script {
	s := &Script{full: redis.NewScript(src), plain: redis.NewScript(src)}
	if strings.HasPrefix(src, "#!") {
		_, body, _ := strings.Cut(src, "\n")
		s.plain = redis.NewScript("\n" + body)
	}
	return s
}

// Run sends EVALSHA, and the source where the server does not have it.
func (s *Script) Run(ctx context.Context, c redis.Scripter, keys []string, args ...any) *redis.Cmd {
	if s.usePlain.Load() {
		cmd := s.plain.Run(ctx, c, keys, args...)
		if err := cmd.Err(); err == nil || !strings.HasPrefix(err.Error(), "OOM") {
			return cmd
		}
		// Another server than the one that knew no flags, and it needs them:
		// a script is refused at its first write, so nothing is done yet.
		s.usePlain.Store(false)
	}
	cmd := s.full.Run(ctx, c, keys, args...)
	if err := cmd.Err(); err != nil && noFlags(err) {
		s.usePlain.Store(true)
		return s.plain.Run(ctx, c, keys, args...)
	}
	return cmd
}

// noFlags reports that the server did not understand the line of flags.
func noFlags(err error) bool {
	return strings.Contains(err.Error(), "near '#'")
}
