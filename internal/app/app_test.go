package app

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/penstock-io/penstock/internal/api"
	"github.com/penstock-io/penstock/internal/config"
	"github.com/penstock-io/penstock/internal/redistest"
	"github.com/penstock-io/penstock/queue"
)

func TestMain(m *testing.M) {
	// A pool of go-redis that met a dead server looks for it once a second, and
	// sees only then that it was closed.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"))
}

const testToken = "operator-0123456789"

// downstream is a provider that counts its calls by Idempotency-Key.
type downstream struct {
	*httptest.Server
	mu    sync.Mutex
	calls map[string]int
	total int
	last  *http.Request
	body  string
	// gate, if set, is waited for in each call.
	gate chan struct{}
	in   chan struct{}
}

func newDownstream(t *testing.T) *downstream {
	t.Helper()
	d := &downstream{calls: map[string]int{}, in: make(chan struct{}, 1000)}
	d.Server = httptest.NewServer(d)
	t.Cleanup(d.Close)
	return d
}

func (d *downstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b, _ := io.ReadAll(r.Body)
	d.mu.Lock()
	d.calls[r.Header.Get("Idempotency-Key")]++
	d.total++
	d.last, d.body = r, string(b)
	gate := d.gate
	d.mu.Unlock()
	d.in <- struct{}{}
	if gate != nil {
		<-gate
	}
}

func (d *downstream) count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.total
}

// running is a Serve under way.
type running struct {
	t      *testing.T
	client *api.Client
	url    string
	logs   *logs
	stop   func() error
	// started waits until everything runs.
	started func()
}

// logs is a log that may be read while it is written.
type logs struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logs) Write(p []byte) (int, error) { l.mu.Lock(); defer l.mu.Unlock(); return l.b.Write(p) }
func (l *logs) String() string              { l.mu.Lock(); defer l.mu.Unlock(); return l.b.String() }

func parse(t *testing.T, src string) *config.Config {
	t.Helper()
	c, rep := config.Parse("test.yaml", []byte(src), os.LookupEnv)
	if c == nil {
		t.Fatalf("refused:\n%s", rep)
	}
	return c
}

// serve starts everything in this process on a free port.
func serve(t *testing.T, src string, opt Options) *running {
	t.Helper()
	r := launch(t, src, opt)
	r.started()
	return r
}

// launch is serve without waiting: started does.
func launch(t *testing.T, src string, opt Options) *running {
	t.Helper()
	r := &running{t: t, logs: &logs{}}
	started, ended := make(chan net.Addr, 1), make(chan error, 1)
	opt.Started = func(a net.Addr) { started <- a }
	opt.Logger = slog.New(slog.NewTextHandler(r.logs, &slog.HandlerOptions{Level: slog.LevelDebug}))
	ctx, cancel := context.WithCancel(t.Context())
	go func() { ended <- Serve(ctx, parse(t, src), opt) }()
	var once sync.Once
	var err error
	r.stop = func() error {
		once.Do(func() { cancel(); err = <-ended })
		return err
	}
	t.Cleanup(func() {
		if err := r.stop(); err != nil {
			t.Errorf("the end: %v", err)
		}
		if t.Failed() {
			t.Logf("the log:\n%s", r.logs)
		}
	})
	r.started = func() {
		t.Helper()
		select {
		case addr := <-started:
			if addr != nil {
				r.url = "http://" + addr.String()
				if r.client, err = api.NewClient(r.url, testToken); err != nil {
					t.Fatal(err)
				}
			}
		case err := <-ended:
			ended <- err
			t.Fatalf("did not start: %v", err)
		}
	}
	return r
}

// until waits for a job to be in a state.
func (r *running) until(provider, id string, want queue.State) api.JobInfo {
	r.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		i, err := r.client.Job(r.t.Context(), provider, id)
		if err == nil && i.State == want {
			return i
		}
		if time.Now().After(deadline) {
			r.t.Fatalf("%s/%s is %+v (%v), want %s", provider, id, i, err, want)
		}
	}
}

func (r *running) enqueue(job string) api.Receipt {
	r.t.Helper()
	got, err := r.client.Enqueue(r.t.Context(), []byte(job))
	if err != nil {
		r.t.Fatalf("%s: %v", job, err)
	}
	return got
}

func source(store, base, extra string) string {
	return fmt.Sprintf(`redis: %q
listen: 127.0.0.1:0
auth: {operators: [{name: ops, token: %s}]}
providers:
  sms:
    base_url: %q
    headers: {Authorization: "Bearer topsecret"}
    rate: 1000/s
    concurrency: 20
%s
`, store, testToken, base, extra)
}

// The whole thing in one process, on both kinds of store.
func TestServe(t *testing.T) {
	stores := map[string]func(*testing.T) string{
		"embedded": func(*testing.T) string { return "embedded" },
		"redis":    func(t *testing.T) string { return "redis://" + redistest.Start(t).Addr },
	}
	for name, store := range stores {
		t.Run(name, func(t *testing.T) {
			d := newDownstream(t)
			r := serve(t, source(store(t), d.URL+"/v1", ""), Options{})
			const body = `{"n": 9007199254740993, "x": 1e400}`
			r.enqueue(`{"provider":"sms","id":"order 1/é","path":"/messages","body":` + body + `}`)
			i := r.until("sms", "order 1/é", queue.Succeeded)
			if i.Attempts != 1 || i.Status != 200 {
				t.Errorf("got %+v", i)
			}
			d.mu.Lock()
			got := []string{d.last.Method, d.last.URL.Path, d.last.Header.Get("Authorization"), d.last.Header.Get("Content-Type"), d.body}
			d.mu.Unlock()
			if fmt.Sprint(got) != fmt.Sprint([]string{"POST", "/v1/messages", "Bearer topsecret", "application/json", body}) {
				t.Errorf("QUE-17: the provider saw %q", got)
			}
			if rec := r.enqueue(`{"provider":"sms","id":"order 1/é","path":"/messages","body":` + body + `}`); !rec.Known || rec.State != queue.Succeeded {
				t.Errorf("QUE-07: the same again: %+v", rec)
			}
			pauseAndResume(t, r, d)
			manyLines(t, r, d)
			if err := r.stop(); err != nil {
				t.Errorf("stop: %v", err)
			}
			if s := r.logs.String(); strings.Contains(s, "topsecret") || strings.Contains(s, testToken) {
				t.Errorf("OUT-06: a secret in the log")
			}
		})
	}
}

// pauseAndResume: nothing is called while paused; limits change live.
func pauseAndResume(t *testing.T, r *running, d *downstream) {
	t.Helper()
	ctx := t.Context()
	if p, err := r.client.Pause(ctx, "sms"); err != nil || !p.Paused {
		t.Fatalf("%+v %v", p, err)
	}
	before := d.count()
	r.enqueue(`{"provider":"sms","id":"paused"}`)
	if l, err := r.client.SetLimits(ctx, "sms", []byte(`{"rate":"500/s"}`), false); err != nil || l.After.Rate != "500/s" {
		t.Fatalf("%+v %v", l, err)
	}
	p, err := r.client.Provider(ctx, "sms")
	if err != nil || p.Limits.Rate != "500/s" || p.Jobs[queue.Waiting] != 1 || p.Defaults.Attempts != 15 {
		t.Fatalf("%+v %v", p, err)
	}
	if d.count() != before {
		t.Error("a paused provider was called")
	}
	if p, err := r.client.Resume(ctx, "sms"); err != nil || p.Paused {
		t.Fatalf("%+v %v", p, err)
	}
	r.until("sms", "paused", queue.Succeeded)
}

// manyLines: a batch, each job called once.
func manyLines(t *testing.T, r *running, d *downstream) {
	t.Helper()
	var in strings.Builder
	const n = 300
	for i := range n {
		fmt.Fprintf(&in, `{"provider":"sms","id":"b%d","body":"x"}`+"\n", i)
	}
	got := 0
	for l, err := range r.client.Batch(t.Context(), strings.NewReader(in.String())) {
		if err != nil || l.Status != http.StatusAccepted {
			t.Fatalf("%+v %v", l, err)
		}
		got++
	}
	if got != n {
		t.Fatalf("%d results", got)
	}
	for i := range n {
		r.until("sms", fmt.Sprintf("b%d", i), queue.Succeeded)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range n {
		if c := d.calls[fmt.Sprintf("b%d", i)]; c != 1 {
			t.Errorf("b%d was called %d times", i, c)
		}
	}
}

// What stands at the doors: health, metrics, asynqmon, and what is not built.
func TestDoors(t *testing.T) {
	d := newDownstream(t)
	r := serve(t, source("embedded", d.URL, ""), Options{})
	r.enqueue(`{"provider":"sms","id":"one"}`)
	r.until("sms", "one", queue.Succeeded)
	for _, tt := range []struct{ path, want string }{
		{"/healthz", "ok"}, {"/readyz", "ready"}, {"/metrics", `penstock_attempts_total{outcome="ok",provider="sms"} 1`},
		{"/metrics", `penstock_rate_allowed{provider="sms"} 1000`}, {"/queues/", `id="root"`}, {"/queues/api/queues", `"queue":"sms"`},
		{"/v1/providers", `"name":"sms"`},
	} {
		if status, body := r.get(tt.path); status != 200 || !strings.Contains(body, tt.want) {
			t.Errorf("%s: %d without %q", tt.path, status, tt.want)
		}
	}
	http.DefaultClient.CloseIdleConnections()
}

func (r *running) get(path string) (int, string) {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), "GET", r.url+path, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+testToken)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b)
}

// An API process and a worker process on one Redis; the worker serves health only.
func TestRoles(t *testing.T) {
	d := newDownstream(t)
	src := source("redis://"+redistest.Start(t).Addr, d.URL, "")
	front := serve(t, src, Options{Role: RoleAPI})
	front.enqueue(`{"provider":"sms","id":"early"}`)
	if i := front.until("sms", "early", queue.Waiting); i.Attempts != 0 {
		t.Errorf("the API called a provider: %+v", i)
	}
	back := serve(t, src, Options{Role: RoleWorker, Listen: "127.0.0.1:0"})
	front.until("sms", "early", queue.Succeeded)
	if status, _ := back.get("/readyz"); status != 200 {
		t.Errorf("the worker's readiness: %d", status)
	}
	if status, _ := back.get("/v1/providers"); status != 404 {
		t.Errorf("the worker serves the API: %d", status)
	}
	quiet := serve(t, src, Options{Role: RoleWorker})
	if quiet.url != "" {
		t.Error("a worker listens unasked")
	}
	http.DefaultClient.CloseIdleConnections()
}

// A stop while Redis is still waited for is a stop, not a failure.
func TestStopWhileStarting(t *testing.T) {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	dead := free.Addr().String()
	free.Close()
	ctx, cancel := context.WithCancel(t.Context())
	l := &logs{}
	done := make(chan error, 1)
	go func() {
		done <- Serve(ctx, parse(t, source("redis://"+dead, "http://127.0.0.1:1", "")), Options{Logger: slog.New(slog.NewTextHandler(l, nil))})
	}()
	for !strings.Contains(l.String(), "does not answer yet") {
		time.Sleep(5 * time.Millisecond)
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("got %v", err)
	}
}

// A stop lets calls under way end, and stores what came of them.
func TestStopWaitsForCalls(t *testing.T) {
	d := newDownstream(t)
	d.gate = make(chan struct{})
	red := redistest.Start(t)
	src := source("redis://"+red.Addr, d.URL, "")
	r := serve(t, src, Options{})
	r.enqueue(`{"provider":"sms","id":"slow"}`)
	<-d.in
	stopped := make(chan error, 1)
	go func() { stopped <- r.stop() }()
	for !strings.Contains(r.logs.String(), "no more jobs are taken") {
		time.Sleep(5 * time.Millisecond)
	}
	select {
	case err := <-stopped:
		t.Fatalf("stopped while a call was under way: %v", err)
	default:
	}
	close(d.gate)
	if err := <-stopped; err != nil {
		t.Fatal(err)
	}
	again := serve(t, src, Options{Role: RoleAPI})
	again.until("sms", "slow", queue.Succeeded)
	if d.count() != 1 {
		t.Errorf("called %d times", d.count())
	}
}

// What keeps a process from starting is said in a sentence with a remedy.
func TestCannotStart(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	dead := free.Addr().String()
	free.Close()
	evicts := redistest.Start(t, "maxmemory", "100mb", "maxmemory-policy", "allkeys-lru")
	locked := redistest.Start(t)
	locked.Config("requirepass", "rightpassword")
	for _, tt := range []struct {
		name, redis string
		opt         Options
		says        []string
	}{
		{"dead Redis", "redis://:topsecret@" + dead, Options{}, []string{dead, "does not answer after", "redis.url"}},
		{"QUE-24 a policy that evicts", "redis://" + evicts.Addr, Options{}, []string{"allkeys-lru", "noeviction"}},
		{"QUE-19 a wrong password", "redis://:topsecret@" + locked.Addr, Options{}, []string{"WRONGPASS", "password"}},
		{"a taken address", "embedded", Options{Listen: taken.Addr().String()}, []string{"in use", "--listen"}},
		{"no such role", "embedded", Options{Role: "boss"}, []string{"boss", "worker"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.opt.Logger = slog.New(slog.DiscardHandler)
			err := Serve(t.Context(), parse(t, source(tt.redis, "http://127.0.0.1:1", "")), tt.opt)
			if err == nil {
				t.Fatal("it started")
			}
			for _, s := range tt.says {
				if !strings.Contains(err.Error(), s) {
					t.Errorf("%v does not say %q", err, s)
				}
			}
			if strings.Contains(err.Error(), "topsecret") {
				t.Errorf("the password is in %v", err)
			}
		})
	}
	t.Run("open to others without tokens", func(t *testing.T) {
		c := parse(t, "redis: embedded\nproviders: {sms: {base_url: \"http://127.0.0.1:1\", rate: 1/s}}\n")
		err := Serve(t.Context(), c, Options{Listen: "0.0.0.0:0", Logger: slog.New(slog.DiscardHandler)})
		if err == nil || !strings.Contains(err.Error(), "no token") {
			t.Errorf("got %v", err)
		}
	})
}

// QUE-22, QUE-23: Redis away is 503, full is 507, and both pass.
func TestRedisInTrouble(t *testing.T) {
	d := newDownstream(t)
	red := redistest.Start(t, "maxmemory", "100mb")
	r := serve(t, source("redis://"+red.Addr, d.URL, ""), Options{})
	r.enqueue(`{"provider":"sms","id":"before"}`)
	r.until("sms", "before", queue.Succeeded)

	if _, err := r.client.Pause(t.Context(), "sms"); err != nil {
		t.Fatal(err)
	}
	r.enqueue(`{"provider":"sms","id":"queued"}`)
	c := red.Client()
	red.Config("maxmemory", "1mb")
	r.refused(`{"provider":"sms","id":"full"}`, api.CodeFull)
	r.readiness(507)
	if _, err := r.client.Pause(t.Context(), "sms"); err != nil {
		t.Errorf("pause while full: %v", err)
	}
	if _, err := r.client.Resume(t.Context(), "sms"); err != nil {
		t.Errorf("resume while full: %v", err)
	}
	r.until("sms", "queued", queue.Succeeded) // workers drain all the same
	red.Config("maxmemory", "100mb")
	r.accepted(`{"provider":"sms","id":"after"}`)
	_ = c.Close()

	red.Kill()
	r.refused(`{"provider":"sms","id":"away"}`, api.CodeStoreAway)
	r.readiness(503)
	if status, _ := r.get("/healthz"); status != 200 {
		t.Errorf("not alive: %d", status)
	}
	red.Restart()
	r.accepted(`{"provider":"sms","id":"back"}`)
	r.until("sms", "back", queue.Succeeded)
	http.DefaultClient.CloseIdleConnections()
}

// readiness waits until /readyz answers with a status.
func (r *running) readiness(want int) {
	r.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		status, body := r.get("/readyz")
		if status == want {
			return
		}
		if time.Now().After(deadline) {
			r.t.Fatalf("/readyz: %d %s, want %d", status, body, want)
		}
	}
}

// refused waits until an enqueue is refused with a code.
func (r *running) refused(job string, want api.Code) {
	r.t.Helper()
	r.eventually(job, func(err error) bool {
		p, ok := errors.AsType[*api.Problem](err)
		return ok && p.Code == want && p.RetryAfter > 0
	})
}

// accepted waits until an enqueue is accepted.
func (r *running) accepted(job string) {
	r.t.Helper()
	r.eventually(job, func(err error) bool { return err == nil })
}

func (r *running) eventually(job string, ok func(error) bool) {
	r.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		_, err := r.client.Enqueue(r.t.Context(), []byte(job))
		if ok(err) {
			return
		}
		if time.Now().After(deadline) {
			r.t.Fatalf("%s: %v", job, err)
		}
	}
}
