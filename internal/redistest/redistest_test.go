package redistest

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"
)

// TestBothRunOnTime: TTLs and Lua's TIME follow the test's clock on both backends.
func TestBothRunOnTime(t *testing.T) {
	ran := map[bool]bool{}
	Both(t, func(t *testing.T, rdb redis.UniversalClient, env *Env) {
		ran[env.Virtual] = true
		ctx := t.Context()
		script := redis.NewScript(`local t = redis.call('TIME') return string.format('%d', t[1] * 1000 + math.floor(t[2] / 1000))`)
		read := func() int64 {
			n, err := script.Run(ctx, rdb, nil).Int64()
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
		before := read()
		if d := before - time.Now().UnixMilli(); d < -1000 || d > 1000 {
			t.Errorf("TIME is %d ms away from the test's clock", d)
		}
		if err := rdb.Set(ctx, "k", "v", 50*time.Millisecond).Err(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(60 * time.Millisecond)
		if d := read() - before; d < 60 {
			t.Errorf("TIME moved by %d ms in 60", d)
		}
		if rdb.Exists(ctx, "k").Val() != 0 {
			t.Error("a key outlived its TTL")
		}
		other := env.Client()
		ps := other.Subscribe(ctx, "ch")
		defer ps.Close()
		if _, err := ps.Receive(ctx); err != nil {
			t.Fatal(err)
		}
		if err := rdb.Publish(ctx, "ch", "hi").Err(); err != nil {
			t.Fatal(err)
		}
		if m, err := ps.ReceiveMessage(ctx); err != nil || m.Payload != "hi" {
			t.Errorf("got %v, %v", m, err)
		}
	})
	if !ran[true] || !ran[false] {
		t.Fatalf("ran on %v", ran)
	}
}

// TestServerLife: kill, restart on the same port, stop and continue, settings.
func TestServerLife(t *testing.T) {
	s := Start(t, "appendonly", "yes", "appendfsync", "always")
	ctx := t.Context()
	c := s.ClientWith(redis.Options{MaxRetries: -1, ReadTimeout: 200 * time.Millisecond})
	if err := c.Set(ctx, "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	s.Config("maxmemory", "50mb")
	if v := c.ConfigGet(ctx, "maxmemory").Val()["maxmemory"]; v != "52428800" {
		t.Errorf("maxmemory %q", v)
	}

	s.Stop()
	if err := c.Ping(ctx).Err(); err == nil {
		t.Error("a stopped server answered")
	}
	s.Continue()
	if err := c.Ping(ctx).Err(); err != nil {
		t.Error(err)
	}

	addr := s.Addr
	s.Kill()
	if err := c.Ping(ctx).Err(); err == nil {
		t.Error("a killed server answered")
	}
	s.Restart()
	if s.Addr != addr {
		t.Errorf("came back on %s, not %s", s.Addr, addr)
	}
	if v, err := c.Get(ctx, "k").Result(); err != nil || v != "v" {
		t.Errorf("after the restart: %q, %v", v, err)
	}
}

// TestMissingServer: the remedy is named, and the test fails; it is not skipped.
func TestMissingServer(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	f := &fakeTB{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		Start(f)
	}()
	<-done
	if !strings.Contains(f.fatal, "apt-get install") || f.skipped {
		t.Errorf("fatal %q, skipped %v", f.fatal, f.skipped)
	}
	if !strings.Contains(f.fatal, ErrNoServer.Error()) {
		t.Error(errors.New("another error than ErrNoServer"))
	}
}

// TestNothingStays: the bubble ends every goroutine; the process does too.
func TestNothingStays(t *testing.T) {
	defer goleak.VerifyNone(t)
	t.Run("virtual", func(t *testing.T) {
		Virtual(t, func(t *testing.T, rdb redis.UniversalClient, env *Env) {
			rdb.Ping(context.Background())
			env.Client().Ping(context.Background())
		})
	})
	t.Run("redis", func(t *testing.T) {
		Real(t, func(t *testing.T, rdb redis.UniversalClient, _ *Env) { rdb.Ping(context.Background()) })
	})
}
