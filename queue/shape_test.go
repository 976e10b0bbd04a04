package queue

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

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

// TestChangedAsynqIsRefused: a script of another shape is never run in ours' place.
func TestChangedAsynqIsRefused(t *testing.T) {
	redistest.Virtual(t, func(t *testing.T, rdb redis.UniversalClient, env *redistest.Env) {
		f := newFixture(t, rdb, env)
		task := asynq.NewTask("t", nil)
		opts := []asynq.Option{asynq.Queue("sms"), asynq.TaskID("a"), asynq.Unique(taskTimeout)} // three keys
		if _, err := f.taskArgs(t.Context(), task, f.k, "a", false, opts...); err == nil || !strings.Contains(err.Error(), "v0.26.0") {
			t.Errorf("got %v", err)
		}
		if n := rdb.Exists(t.Context(), f.k.Task("a")).Val(); n != 0 {
			t.Error("something was stored")
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
