package worker

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/penstock-io/penstock/internal/redistest"
	"github.com/penstock-io/penstock/queue/internal/layout"
	"github.com/penstock-io/penstock/shaper/guard"
)

// TestBadConfig: every fault is refused by New, with its field and a remedy.
func TestBadConfig(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:0"})
	defer rdb.Close()
	g := guard.New(guard.Config{Redis: rdb, Provider: "sms"})
	good := func() Config {
		return Config{Redis: rdb, Guard: g, Handler: func(context.Context, *Job) error { return nil }}
	}
	if _, err := New(good()); err != nil {
		t.Fatal(err)
	}
	for field, spoil := range map[string]func(*Config){
		"Redis":               func(c *Config) { c.Redis = nil },
		"Guard":               func(c *Config) { c.Guard = nil },
		"Guard is for":        func(c *Config) { c.Provider = "mail" },
		"Namespace":           func(c *Config) { c.Namespace = "shop" },
		"Guard: guard":        func(c *Config) { c.Guard = guard.New(guard.Config{Redis: rdb, Provider: "No"}) },
		"Handler and HTTP":    func(c *Config) { c.Handler = nil },
		"both set":            func(c *Config) { c.HTTP = &HTTP{BaseURL: "https://x.example"} },
		"HTTP":                func(c *Config) { c.Handler, c.HTTP = nil, &HTTP{BaseURL: "ftp://x.example"} },
		"Retry.Attempts":      func(c *Config) { c.Retry.Attempts = -1 },
		"Retry.MaxAge":        func(c *Config) { c.Retry.MaxAge = -time.Second },
		"Retry: bad back-off": func(c *Config) { c.Retry.Base, c.Retry.Max = time.Hour, time.Second },
		"Keep":                func(c *Config) { c.Keep = time.Millisecond },
		"Concurrency":         func(c *Config) { c.Concurrency = -5 },
	} {
		c := good()
		spoil(&c)
		if _, err := New(c); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", field, err)
		}
	}
}

// TestDeadRedisAtStart: a clear answer within seconds, and nothing left behind.
func TestDeadRedisAtStart(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", DialerRetries: 1, DialTimeout: 100 * time.Millisecond})
	defer rdb.Close()
	g := guard.New(guard.Config{Redis: rdb, Provider: "sms", Logger: quietLog()})
	w, err := New(Config{Redis: rdb, Guard: g, Logger: quietLog(), Handler: func(context.Context, *Job) error { return nil }})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "sms") {
		t.Errorf("%v", err)
	}
	if err := w.Run(t.Context()); !errors.Is(err, ErrRan) {
		t.Errorf("a second Run: %v", err)
	}
}

// TestRewrite: a rewritten message is what asynq itself would have stored:
// what is not changed stays as it was, and asynq reads the rest as we meant it.
func TestRewrite(t *testing.T) {
	redistest.Real(t, func(t *testing.T, rdb redis.UniversalClient, env *redistest.Env) {
		c, insp := asynq.NewClientFromRedisClient(rdb), asynq.NewInspectorFromRedisClient(rdb)
		ctx := t.Context()
		rapid.Check(t, func(rt *rapid.T) {
			text := rapid.StringN(0, 40, -1).Filter(func(s string) bool { return strings.ToValidUTF8(s, "") == s })
			headers := rapid.MapOf(text, text).Draw(rt, "headers")
			payload := rapid.SliceOf(rapid.Byte()).Draw(rt, "payload")
			id := rapid.StringMatching(`[a-z0-9]{1,20}`).Draw(rt, "id")
			info, err := c.Enqueue(asynq.NewTaskWithHeaders("t", payload, headers), asynq.TaskID(id), asynq.Timeout(time.Hour),
				asynq.MaxRetry(rapid.IntRange(0, 1<<30).Draw(rt, "max")), asynq.Retention(time.Minute))
			if err != nil {
				rt.Fatal(err)
			}
			k := layout.For("", info.Queue)
			raw := rdb.HGet(ctx, k.Task(id), "msg").Val()
			ch := change{
				headers: rapid.MapOf(text, text).Draw(rt, "new"), errMsg: "boom", retried: rapid.Bool().Draw(rt, "retried"), atS: 1_796_040_000,
			}
			for range rapid.IntRange(1, 3).Draw(rt, "times") {
				if raw, err = rewrite(raw, ch); err != nil {
					rt.Fatal(err)
				}
			}
			rdb.HSet(ctx, k.Task(id), "msg", raw)
			got, err := insp.GetTaskInfo(info.Queue, id)
			if err != nil {
				rt.Fatal(err)
			}
			if got.MaxRetry != info.MaxRetry || got.Timeout != info.Timeout || got.Retention != info.Retention || !slices.Equal(got.Payload, payload) {
				rt.Fatalf("changed: %+v was %+v", got, info)
			}
			if got.LastErr != "boom" || got.LastFailedAt.Unix() != ch.atS || (got.Retried > 0) != ch.retried {
				rt.Fatalf("%+v after %+v", got, ch)
			}
			m, err := layout.ParseMessage([]byte(raw))
			if err != nil || !maps.Equal(m.Headers, ch.headers) {
				rt.Fatalf("headers: %s, %v", cmp.Diff(ch.headers, m.Headers), err)
			}
			if err := insp.DeleteTask(info.Queue, id); err != nil {
				rt.Fatal(err)
			}
		})
	})
}

// TestRewriteRefusesRubbish: what is not a message is not made into one.
func TestRewriteRefusesRubbish(t *testing.T) {
	for _, raw := range []string{"\xff", "\x0a\xff", "\x08"} {
		if got, err := rewrite(raw, change{}); err == nil {
			t.Errorf("%q became %q", raw, got)
		}
	}
	if lockOf("\xff") != "" {
		t.Error("a lock in rubbish")
	}
	if ms, ok := expiresOf(expiresMark + "\x0d1796040000123z"); !ok || ms != 1796040000123 {
		t.Errorf("%d, %v", ms, ok)
	}
	for _, raw := range []string{"", expiresMark, expiresMark + "\x0d17", expiresMark + "\x02xx"} {
		if ms, ok := expiresOf(raw); ok {
			t.Errorf("%q: %d", raw, ms)
		}
	}
}
