// Package embedded is a store in the process itself, for the demo, for
// examples and for first steps: no Redis to install, nothing to configure.
//
// It is in memory only. When the process ends, every job in it is gone, and no
// other process can reach it: one process is the whole fleet. It is also
// several times slower than Redis. Use Redis 7 or later, or Valkey, for
// everything that matters.
//
// Behind it stands miniredis, which speaks Redis's protocol and runs the same
// Lua scripts; what it lacks is memory limits, persistence and flags of scripts.
package embedded

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
)

// Warning is what a program that uses the embedded store should tell its user.
const Warning = "the embedded store is in memory only: every job is lost when this process ends"

// tick is how often keys are made older: miniredis has no clock of its own
// for expiry.
const tick = time.Second

// Store is a store in memory. Make it with Start. Safe for several goroutines.
type Store struct {
	server *miniredis.Miniredis
	client *redis.Client
	stop   context.CancelFunc
	done   sync.WaitGroup
	once   sync.Once
}

// Start starts a store; Close ends it. It opens no port: the only way in is
// the store's own clients.
func Start() *Store {
	ctx, stop := context.WithCancel(context.Background())
	s := &Store{server: miniredis.NewMiniRedis(), stop: stop}
	s.client = s.NewClient()
	s.done.Go(func() { s.age(ctx) })
	return s
}

// Client is the store's own client; Close closes it. Components that share it
// must be stopped before.
func (s *Store) Client() redis.UniversalClient { return s.client }

// NewClient returns another client, which the caller closes.
func (s *Store) NewClient() *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr: "127.0.0.1:0", // never dialled; an IP literal, so that nothing asks DNS
		Dialer: func(context.Context, string, string) (net.Conn, error) {
			c, err := s.server.Dial()
			if err != nil {
				return nil, err
			}
			return buffered(c), nil
		},
		// What miniredis does not know is not asked for.
		DisableIdentity: true,
		PoolSize:        64,
	})
}

// Flush removes everything, as FLUSHALL does.
func (s *Store) Flush() { s.server.FlushAll() }

// Close closes the store's client and ends the store; what was in it is gone.
// It may be called more than once.
func (s *Store) Close() error {
	var err error
	s.once.Do(func() {
		s.stop()
		s.done.Wait()
		err = s.client.Close()
		s.server.Close()
	})
	return err
}

// age makes keys with a TTL older as time goes by. One pass a second over
// them: miniredis's own ClockTTL would take one on every command.
func (s *Store) age(ctx context.Context) {
	t := time.NewTicker(tick)
	defer t.Stop()
	last := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			now := time.Now()
			s.server.FastForward(now.Sub(last))
			last = now
		}
	}
}
