package redistest

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
)

// Env is where a suite runs.
type Env struct {
	// Virtual says that the test runs in a synctest bubble: time.Sleep takes
	// no time, and time moves only when everything waits. What starts inside
	// must end inside; no sockets.
	Virtual bool
	// Server is the real server; nil in the bubble.
	Server *Server

	t    testing.TB
	mini *miniredis.Miniredis
}

// Client returns another client of the same store, closed with the test.
func (e *Env) Client() redis.UniversalClient {
	if e.Server != nil {
		return e.Server.Client()
	}
	c := pipeClient(e.mini)
	e.t.Cleanup(func() { _ = c.Close() })
	return c
}

// Flush removes everything from the store, scripts too.
func (e *Env) Flush(ctx context.Context) {
	e.t.Helper()
	c := e.Client()
	if err := c.FlushAll(ctx).Err(); err != nil {
		e.t.Fatal(err)
	}
	if err := c.ScriptFlush(ctx).Err(); err != nil {
		e.t.Fatal(err)
	}
}

// Eventually waits until cond holds, and fails the test after limit. In the
// bubble the wait is virtual.
func (e *Env) Eventually(limit time.Duration, what string, cond func() bool) {
	e.t.Helper()
	deadline := time.Now().Add(limit)
	for !cond() {
		if time.Now().After(deadline) {
			e.t.Fatalf("not within %s: %s", limit, what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// Both runs a suite on a real redis-server (subtest "redis") and on miniredis
// in a synctest bubble (subtest "virtual"). The suite must not call t.Run,
// t.Parallel or t.Deadline: the bubble forbids it.
func Both(t *testing.T, suite func(t *testing.T, rdb redis.UniversalClient, env *Env)) {
	t.Helper()
	t.Run("virtual", func(t *testing.T) { Virtual(t, suite) })
	t.Run("redis", func(t *testing.T) { Real(t, suite) })
}

// Virtual runs a suite on miniredis in a synctest bubble.
func Virtual(t *testing.T, suite func(t *testing.T, rdb redis.UniversalClient, env *Env)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		m := miniredis.NewMiniRedis()
		m.ClockTTL(true)
		env := &Env{Virtual: true, t: t, mini: m}
		c := pipeClient(m)
		t.Cleanup(m.Close) // last, after all clients
		t.Cleanup(func() { _ = c.Close() })
		suite(t, c, env)
	})
}

// Real runs a suite on a real redis-server of its own.
func Real(t *testing.T, suite func(t *testing.T, rdb redis.UniversalClient, env *Env)) {
	t.Helper()
	s := Start(t)
	suite(t, s.Client(), &Env{Server: s, t: t})
}

// pipeClient is a client over net.Pipe: no listener, so that a bubble can
// tell that everything in it waits.
func pipeClient(m *miniredis.Miniredis) *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr: "127.0.0.1:0", // never dialled; an IP literal, so that nothing asks DNS
		Dialer: func(context.Context, string, string) (net.Conn, error) {
			c, err := m.Dial()
			if err != nil {
				return nil, err
			}
			return buffered(c), nil
		},
		DisableIdentity: true,
	})
}
