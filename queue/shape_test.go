package queue

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/penstock-io/penstock/internal/redistest"
	"github.com/penstock-io/penstock/queue/internal/layout"
)

// asynqScript reads one of asynq's scripts from its source.
func asynqScript(t *testing.T, name string) string {
	t.Helper()
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/hibiken/asynq").Output()
	if err != nil {
		t.Fatal(err)
	}
	src, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), "internal", "rdb", "rdb.go"))
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile("(?s)var " + name + " = redis.NewScript\\(`(.*?)`\\)").FindSubmatch(src)
	if m == nil {
		t.Fatalf("asynq has no %s any more", name)
	}
	return strings.Join(strings.Fields(string(m[1])), " ")
}

// TestAsynqShape fails when an upgrade of asynq changes the scripts that ours
// stand in for: then ours must be looked at.
func TestAsynqShape(t *testing.T) {
	for name, want := range map[string]string{
		"enqueueCmd": `if redis.call("EXISTS", KEYS[1]) == 1 then return 0 end ` +
			`redis.call("HSET", KEYS[1], "msg", ARGV[1], "state", "pending", "pending_since", ARGV[3]) ` +
			`redis.call("LPUSH", KEYS[2], ARGV[2]) return 1`,
		"scheduleCmd": `if redis.call("EXISTS", KEYS[1]) == 1 then return 0 end ` +
			`redis.call("HSET", KEYS[1], "msg", ARGV[1], "state", "scheduled") ` +
			`redis.call("ZADD", KEYS[2], ARGV[2], ARGV[3]) return 1`,
	} {
		if diff := cmp.Diff(want, asynqScript(t, name)); diff != "" {
			t.Errorf("%s has changed: %s", name, diff)
		}
	}
}

// catcher is a client that keeps what asynq's scripts would have been given.
type catcher struct {
	redis.UniversalClient
	keys []string
	args []any
}

func (c *catcher) EvalSha(ctx context.Context, _ string, keys []string, args ...any) *redis.Cmd {
	c.keys, c.args = keys, args
	cmd := redis.NewCmd(ctx)
	cmd.SetVal(int64(1))
	return cmd
}

// wireFields are the fields of a protobuf message, those of the headers sorted.
func wireFields(t *testing.T, b []byte) []string {
	t.Helper()
	var out []string
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			t.Fatal(protowire.ParseError(n))
		}
		m := protowire.ConsumeFieldValue(num, typ, b[n:])
		if m < 0 {
			t.Fatal(protowire.ParseError(m))
		}
		out = append(out, fmt.Sprintf("%d/%d %q", num, typ, b[n:n+m]))
		b = b[n+m:]
	}
	slices.Sort(out)
	return out
}

// TestTaskIsAsynqs: for a job, asynq's own client would give its scripts the
// same keys, and the same message field by field, as we give to ours. It fails
// when an upgrade of asynq writes anything else.
func TestTaskIsAsynqs(t *testing.T) {
	redistest.Virtual(t, func(t *testing.T, rdb redis.UniversalClient, env *redistest.Env) {
		f := newFixture(t, rdb, env)
		for name, job := range map[string]Job{
			"plain":    {Body: []byte(`{"a":1}`), Path: "/m"},
			"nothing":  {},
			"binary":   {Body: []byte("\xff\x00"), Method: "PUT", Headers: map[string]string{"A": "ü"}},
			"large":    {Body: make([]byte, InlineBody+1)},
			"delayed":  {Delay: time.Hour, MaxAge: time.Hour, Attempts: 3, Cost: 2},
			"high":     {Priority: PriorityHigh, IdempotencyKey: "k"},
			"handler":  {Type: "mail", Body: []byte("x")},
			"long key": {ID: strings.Repeat("é", 128)},
		} {
			job.Provider = "sms"
			p, err := f.prepare(t.Context(), job)
			f.must(err)
			ours := p.args[0].([]byte)
			msg, err := layout.ParseMessage(ours)
			f.must(err)

			c := &catcher{UniversalClient: rdb}
			opts := []asynq.Option{asynq.Queue("sms"), asynq.TaskID(p.job.ID), asynq.MaxRetry(layout.AsynqMaxRetry), asynq.Timeout(taskTimeout)}
			idAt := 1
			if p.script == f.scripts.schedule {
				opts = append(opts, asynq.ProcessAt(time.Unix(p.args[1].(int64), 0)))
				idAt = 2
			}
			_, err = asynq.NewClientFromRedisClient(c).Enqueue(asynq.NewTaskWithHeaders(msg.Type, msg.Payload, msg.Headers), opts...)
			f.must(err)
			if diff := cmp.Diff(c.keys, p.keys[:2]); diff != "" {
				t.Errorf("%s: keys: %s", name, diff)
			}
			if c.args[idAt] != p.args[idAt] || idAt == 2 && c.args[1] != p.args[1] {
				t.Errorf("%s: args %v, ours %v", name, c.args[1:], p.args[1:3])
			}
			if diff := cmp.Diff(wireFields(t, c.args[0].([]byte)), wireFields(t, ours)); diff != "" {
				t.Errorf("%s: message: %s", name, diff)
			}
		}
	})
}

// TestMessageIsAsynqs: our reader of the task message agrees with asynq's.
func TestMessageIsAsynqs(t *testing.T) {
	both(t, func(t *testing.T, f *fixture) {
		f.put(Job{ID: "a", Path: "/p", Body: []byte("\x00\xffbody"), Headers: map[string]string{"A": "ü"}})
		info, err := asynq.NewInspectorFromRedisClient(f.rdb).GetTaskInfo("sms", "a")
		f.must(err)
		raw, err := f.rdb.HGet(t.Context(), f.k.Task("a"), "msg").Bytes()
		f.must(err)
		got, err := layout.ParseMessage(raw)
		f.must(err)
		want := layout.Message{Type: info.Type, Payload: info.Payload, ID: info.ID, Queue: info.Queue, Headers: info.Headers}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	})
}

// TestScriptHeaders: every script says what it takes, gives, and where it may run.
func TestScriptHeaders(t *testing.T) {
	files, err := filepath.Glob("*.lua")
	if err != nil || len(files) < 10 {
		t.Fatalf("%d scripts, %v", len(files), err)
	}
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, word := range []string{"KEYS[1]", "ARGV", "Result:"} {
			head, _, _ := strings.Cut(string(b), "\nlocal ")
			if !strings.Contains(head, word) {
				t.Errorf("%s: its header does not tell %s", name, word)
			}
		}
		if strings.Contains(string(b), "tostring(") {
			t.Errorf("%s: tostring loses digits on Redis; use string.format('%%d', …)", name)
		}
	}
}
