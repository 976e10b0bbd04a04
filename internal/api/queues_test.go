package api

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/penstock-io/penstock/queue"
)

// withQueues mounts asynqmon on the fixture's store.
func withQueues(t *testing.T) *fixture {
	t.Helper()
	var f *fixture
	late := func() (redis.UniversalClient, error) { return f.store.NewClient(), nil }
	var q *Queues
	f = start(t, nil)
	q, err := NewQueues(QueuesConfig{NewRedis: late})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = q.Close() })
	cfg := Config{Jobs: f.queue, Fleet: f.fleet, Queues: q, Tokens: []Token{{Name: "ops", Secret: opsToken, Operator: true}}}
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	f.Config.Handler = s
	return f
}

// The page and everything it names come from this server, with the right types,
// and the content policy lets it run.
func TestQueuesPage(t *testing.T) {
	f := withQueues(t)
	for _, path := range []string{"/queues", "/queues/", "/queues/queues/sms", "/queues/queues/sms/tasks/a.b", "/queues/servers"} {
		resp, page := f.do("GET", path, "")
		if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/html; charset=utf-8" || !strings.Contains(page, `id="root"`) {
			t.Fatalf("%s: %d %.300s", path, resp.StatusCode, page)
		}
		if m := regexp.MustCompile(`(?:src|href)="(?:https?:)?//[^"]*"`).FindString(page); m != "" || strings.Contains(page, "googleapis") {
			t.Errorf("%s loads %s", path, m)
		}
		policy := resp.Header.Get("Content-Security-Policy")
		scripts := regexp.MustCompile(`(?s)<script>(.*?)</script>`).FindAllStringSubmatch(page, -1)
		if len(scripts) == 0 || strings.Contains(policy, "script-src 'self' 'unsafe") || !strings.HasPrefix(policy, "default-src 'none'") {
			t.Errorf("policy %q for %d scripts", policy, len(scripts))
		}
		for _, s := range scripts {
			if !strings.Contains(policy, "'sha256-"+sha256Of(s[1])+"'") {
				t.Errorf("%s: an inline script is not allowed by %q", path, policy)
			}
		}
	}
	_, page := f.do("GET", "/queues/", "")
	links := regexp.MustCompile(`(?:src|href)="(/[^"]*)"`).FindAllStringSubmatch(page, -1)
	if len(links) < 4 {
		t.Fatalf("the page names only %v", links)
	}
	links = append(links, []string{"", "/queues/static/media/logo-color.c2b0c1f3.svg"})
	want := map[string]string{".js": "text/javascript", ".css": "text/css", ".png": "image/png", ".ico": "image/x-icon", ".svg": "image/svg+xml"}
	for _, l := range links {
		resp, body := f.do("GET", l[1], "")
		if kind := resp.Header.Get("Content-Type"); resp.StatusCode != 200 || len(body) == 0 || !strings.HasPrefix(kind, want[l[1][strings.LastIndex(l[1], "."):]]) {
			t.Errorf("%s: %d %s", l[1], resp.StatusCode, kind)
		}
	}
	if resp, _ := f.do("GET", "/queues/static/js/none.js", ""); resp.StatusCode != 404 {
		t.Errorf("a file that is not there: %d", resp.StatusCode)
	}
}

// asynqmon's API shows jobs of every state; nothing can be changed through it.
func TestQueuesAPI(t *testing.T) {
	f := withQueues(t)
	everyState(t, f)
	for _, tt := range []struct{ path, want string }{
		{"queues", `"queue":"sms"`}, {"queues/sms", `"queue":"sms"`}, {"queues/sms/pending_tasks", `"id":"waiting"`},
		{"queues/sms/scheduled_tasks", `"id":"delayed"`}, {"queues/sms/active_tasks", `"id":"running"`},
		{"queues/sms/retry_tasks", `"id":"retrying"`}, {"queues/sms/archived_tasks", `"id":"archived"`},
		{"queues/sms/completed_tasks", `"id":"completed"`}, {"queues/sms/tasks/delayed", `"id":"delayed"`},
		{"servers", `servers`}, {"scheduler_entries", `entries`}, {"queue_stats", `stats`}, {"queues/sms/groups", `groups`},
	} {
		resp, body := f.do("GET", "/queues/api/"+tt.path, "")
		if resp.StatusCode != 200 || !json.Valid([]byte(body)) || !strings.Contains(body, tt.want) || resp.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s: %d %s %.300s", tt.path, resp.StatusCode, resp.Header.Get("Content-Type"), body)
		}
	}
	for _, tt := range [][2]string{{"POST", "queues/sms:pause"}, {"POST", "queues/sms/retry_tasks:run_all"}, {"DELETE", "queues/sms"}, {"DELETE", "queues/sms/tasks/waiting"}} {
		resp, body := f.do(tt[0], "/queues/api/"+tt[1], "")
		f.refused(resp, body, CodeMethod)
	}
	f.token = ""
	for _, path := range []string{"/queues/", "/queues/api/queues", "/queues/static/js/2.83624df2.chunk.js"} {
		resp, body := f.do("GET", path, "")
		f.refused(resp, body, CodeUnauthorized)
	}
}

// everyState puts a task of each of asynq's states into queue sms.
func everyState(t *testing.T, f *fixture) {
	t.Helper()
	ctx := t.Context()
	if _, err := f.queue.Enqueue(ctx, queue.Job{Provider: "sms", ID: "delayed", Delay: time.Hour, Body: []byte("{}")}); err != nil {
		t.Fatal(err)
	}
	c := asynq.NewClientFromRedisClient(f.store.Client())
	put := func(id string, opts ...asynq.Option) {
		opts = append(opts, asynq.TaskID(id), asynq.Queue("sms"))
		if _, err := c.EnqueueContext(ctx, asynq.NewTask("test", []byte(id)), opts...); err != nil {
			t.Fatal(err)
		}
	}
	put("running", asynq.MaxRetry(9))
	put("retrying", asynq.MaxRetry(9))
	put("archived", asynq.MaxRetry(0))
	put("completed", asynq.Retention(time.Hour))
	running, release := make(chan struct{}), make(chan struct{})
	srv := asynq.NewServerFromRedisClient(f.store.Client(), asynq.Config{Concurrency: 4, Queues: map[string]int{"sms": 1}, LogLevel: asynq.FatalLevel, TaskCheckInterval: 50 * time.Millisecond})
	err := srv.Start(asynq.HandlerFunc(func(_ context.Context, task *asynq.Task) error {
		switch string(task.Payload()) {
		case "running":
			close(running)
			<-release
		case "retrying", "archived":
			return fmt.Errorf("failed")
		}
		return nil
	}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { close(release); srv.Shutdown() })
	<-running
	ins := asynq.NewInspectorFromRedisClient(f.store.Client())
	for {
		q, err := ins.GetQueueInfo("sms")
		if err != nil {
			t.Fatal(err)
		}
		if q.Retry == 1 && q.Archived == 1 && q.Completed == 1 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	srv.Stop()
	if _, err := f.queue.Enqueue(ctx, queue.Job{Provider: "sms", ID: "waiting"}); err != nil {
		t.Fatal(err)
	}
}
