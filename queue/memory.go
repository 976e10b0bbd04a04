package queue

import (
	"context"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// fullPercent of maxmemory is where Enqueue starts to refuse.
	fullPercent = 85
	// sampleEvery is how old the knowledge of the memory in use may be.
	sampleEvery = time.Second
	// samplePart of maxmemory written since the last sample makes a new one due.
	samplePart = 100
	// jobOverhead is about what Redis needs for a job beside its bytes.
	jobOverhead = 700
	// fullRetry is the wait that FullError suggests.
	fullRetry = 5 * time.Second
)

// sampler knows, of the one server that holds a provider's keys, how full it
// is and how far its clock is from ours. It asks at most once a second, and
// only while jobs are put in.
type sampler struct {
	mu      sync.Mutex
	at      time.Time // of the last sample; zero: none yet
	asking  bool
	used    int64
	max     int64 // 0: no limit
	offset  time.Duration
	written int64 // bytes put in since the sample
	noInfo  bool  // the server does not tell its memory
	log     *slog.Logger
}

// room refuses when the server is nearly full; n bytes are about to be written.
func (s *sampler) room(ctx context.Context, node redis.UniversalClient, n int64) error {
	s.mu.Lock()
	first := s.at.IsZero()
	due := first || time.Since(s.at) >= sampleEvery || s.max > 0 && s.written > s.max/samplePart
	if due && (first || !s.asking) {
		s.asking = true
		s.mu.Unlock()
		err := s.ask(ctx, node)
		s.mu.Lock()
		s.asking = false
		if err != nil {
			s.mu.Unlock()
			return err
		}
	}
	defer s.mu.Unlock()
	if s.max > 0 && (s.used+s.written+n)*100 >= s.max*fullPercent {
		return &FullError{Used: s.used, Max: s.max, RetryAfter: fullRetry}
	}
	s.written += n
	return nil
}

// now is the server's time, by its clock at the last sample.
func (s *sampler) now() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Now().Add(s.offset)
}

func (s *sampler) ask(ctx context.Context, node redis.UniversalClient) error {
	s.mu.Lock()
	noInfo := s.noInfo
	s.mu.Unlock()

	var info *redis.StringCmd
	var clock *redis.TimeCmd
	start := time.Now()
	_, _ = node.Pipelined(ctx, func(p redis.Pipeliner) error {
		if !noInfo {
			info = p.Info(ctx, "memory")
		}
		clock = p.Time(ctx)
		return nil
	})
	took := time.Since(start)
	server, err := clock.Result()
	if err != nil {
		return mapError(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at, s.written = time.Now(), 0
	s.offset = server.Sub(start.Add(took / 2))
	switch {
	case noInfo:
	case info.Err() != nil:
		// The embedded store, or no right to ask: Redis's own refusal stands.
		s.noInfo = true
		if !embeddedStore(info.Err()) {
			s.log.Warn("redis does not tell its memory in use: jobs are refused only when it is full, not before",
				"fix", "let this user run INFO", "error", info.Err())
		}
	default:
		m := parseInfo(info.Val())
		s.max = m.int("maxmemory")
		s.used = m.int("used_memory") - m.int("mem_not_counted_for_evict")
	}
	return nil
}

// infoMap is the answer to INFO.
type infoMap map[string]string

func parseInfo(s string) infoMap {
	m := make(infoMap)
	for line := range strings.Lines(s) {
		if k, v, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			m[k] = v
		}
	}
	return m
}

func (m infoMap) int(k string) int64 {
	n, err := strconv.ParseInt(m[k], 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// nodeFor is the one server that holds a key, where the client is a cluster's.
func nodeFor(ctx context.Context, rdb redis.UniversalClient, key string) (redis.UniversalClient, error) {
	if c, ok := rdb.(interface {
		MasterForKey(ctx context.Context, key string) (*redis.Client, error)
	}); ok {
		node, err := c.MasterForKey(ctx, key)
		if err != nil {
			return nil, mapError(err)
		}
		return node, nil
	}
	return rdb, nil
}
