package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/penstock-io/penstock/queue"
	"github.com/penstock-io/penstock/queue/embedded"
	"github.com/penstock-io/penstock/shaper"
)

const (
	opsToken  = "ops-0123456789abcdef"
	prodToken = "producer-0123456789abcdef"
)

// fleet is a Fleet of one provider "sms".
type fleet struct {
	mu     sync.Mutex
	limits shaper.Limits
	paused bool
	away   error
}

func (f *fleet) Provider(_ context.Context, name string) (ProviderStatus, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.away != nil {
		return ProviderStatus{}, f.away
	}
	if name != "sms" {
		return ProviderStatus{}, queue.ErrUnknownProvider
	}
	return ProviderStatus{Name: name, InForce: f.limits, Limits: LimitsOf(f.limits), Paused: f.paused}, nil
}

func (f *fleet) Providers(ctx context.Context) ([]ProviderStatus, error) {
	p, err := f.Provider(ctx, "sms")
	return []ProviderStatus{p}, err
}

func (f *fleet) SetLimits(_ context.Context, _ string, l shaper.Limits) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.limits = l
	return nil
}

func (f *fleet) Pause(ctx context.Context, name string) error  { return f.set(ctx, name, true) }
func (f *fleet) Resume(ctx context.Context, name string) error { return f.set(ctx, name, false) }

func (f *fleet) set(ctx context.Context, name string, paused bool) error {
	if _, err := f.Provider(ctx, name); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.paused = paused
	return nil
}

// fixture is a server on a real queue in the embedded store.
type fixture struct {
	*httptest.Server
	t     *testing.T
	queue *queue.Client
	store *embedded.Store
	fleet *fleet
	logs  *bytes.Buffer
	token string
}

func start(t *testing.T, change func(*Config)) *fixture {
	t.Helper()
	f := &fixture{t: t, store: embedded.Start(), token: opsToken, logs: &bytes.Buffer{},
		fleet: &fleet{limits: shaper.Limits{Rate: shaper.PerSecond(100), Concurrency: 20}}}
	t.Cleanup(func() { _ = f.store.Close() })
	var err error
	if f.queue, err = queue.NewClient(queue.Config{Redis: f.store.Client()}); err != nil {
		t.Fatal(err)
	}
	if err := f.queue.Publish(t.Context(), "sms", queue.Spec{MaxBody: 1 << 20}); err != nil {
		t.Fatal(err)
	}
	cfg := Config{Jobs: f.queue, Fleet: f.fleet, MaxBody: 1 << 20, Logger: slog.New(slog.NewTextHandler(&locked{w: f.logs}, nil)),
		Tokens: []Token{{Name: "billing", Secret: prodToken}, {Name: "ops", Secret: opsToken, Operator: true}}}
	if change != nil {
		change(&cfg)
	}
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	f.Server = httptest.NewServer(s)
	t.Cleanup(f.Close)
	return f
}

// locked makes a writer safe for the server's goroutines.
type locked struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *locked) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(b)
}

// do sends a request with the fixture's token and returns status and body.
func (f *fixture) do(method, path, body string, header ...string) (*http.Response, string) {
	f.t.Helper()
	req, err := http.NewRequestWithContext(f.t.Context(), method, f.URL+path, strings.NewReader(body))
	if err != nil {
		f.t.Fatal(err)
	}
	if f.token != "" {
		req.Header.Set("Authorization", "Bearer "+f.token)
	}
	for i := 0; i+1 < len(header); i += 2 {
		if header[i] == "Host" {
			req.Host = header[i+1]
			continue
		}
		req.Header.Set(header[i], header[i+1])
	}
	c := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := c.Do(req)
	if err != nil {
		f.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		f.t.Fatal(err)
	}
	return resp, string(b)
}

// refused checks a problem document and returns it.
func (f *fixture) refused(resp *http.Response, body string, want Code) *Problem {
	f.t.Helper()
	var p Problem
	if err := json.Unmarshal([]byte(body), &p); err != nil || resp.Header.Get("Content-Type") != "application/problem+json" {
		f.t.Fatalf("%d %s is no problem document", resp.StatusCode, body)
	}
	if p.Code != want || resp.StatusCode != want.Status() || p.Status != resp.StatusCode || p.Type == "" || p.Title == "" {
		f.t.Errorf("got %d %s, want %s", resp.StatusCode, body, want)
	}
	if retry := resp.Header.Get("Retry-After") != ""; retry != (want == CodeStoreAway || want == CodeFull || want == CodeTooMany) {
		f.t.Errorf("%s has Retry-After: %v", want, retry)
	}
	return &p
}

func TestJobLife(t *testing.T) {
	f := start(t, nil)
	f.token = prodToken
	const job = `{"provider":"sms","path":"/messages","id":"order/1 é?","body":{"n":9007199254740993},"delay":"1h"}`
	resp, body := f.do("POST", "/v1/jobs", job)
	if resp.StatusCode != http.StatusAccepted {
		t.Fatalf("%d %s", resp.StatusCode, body)
	}
	at := resp.Header.Get("Location")
	if at != "/v1/jobs/sms/order%2F1%20%C3%A9%3F" {
		t.Errorf("Location %q", at)
	}
	if resp, body := f.do("POST", "/v1/jobs", job); resp.StatusCode != http.StatusOK || !strings.Contains(body, `"known":true`) {
		t.Errorf("the same again: %d %s", resp.StatusCode, body)
	}
	resp, body = f.do("POST", "/v1/jobs", strings.Replace(job, "/messages", "/other", 1))
	f.refused(resp, body, CodeConflict)

	resp, body = f.do("GET", at, "")
	var info JobInfo
	if err := json.Unmarshal([]byte(body), &info); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%d %s", resp.StatusCode, body)
	}
	if info.ID != "order/1 é?" || info.State != queue.Delayed || info.Due.IsZero() || info.Headers["Content-Type"] != "application/json" {
		t.Errorf("got %+v", info)
	}
	resp, body = f.do("GET", "/v1/jobs?provider=sms&state=delayed", "")
	if resp.StatusCode != http.StatusOK || !strings.Contains(body, `"order/1 é?"`) {
		t.Errorf("list: %d %s", resp.StatusCode, body)
	}
	if resp, body := f.do("DELETE", at, ""); resp.StatusCode != http.StatusOK || !strings.Contains(body, `"cancelled"`) {
		t.Errorf("cancel: %d %s", resp.StatusCode, body)
	}
	if resp, body := f.do("POST", at+"/replay", ""); resp.StatusCode != http.StatusAccepted {
		t.Errorf("replay: %d %s", resp.StatusCode, body)
	}
}

func TestRefusals(t *testing.T) {
	f := start(t, nil)
	for _, tt := range []struct {
		name, method, path, body string
		want                     Code
	}{
		{"unknown provider", "POST", "/v1/jobs", `{"provider":"nobody"}`, CodeUnknownProvider},
		{"QUE-14 names", "POST", "/v1/jobs", `{"provider":"task:email"}`, CodeInvalid},
		{"QUE-14 names in a path", "GET", "/v1/jobs/a%2Fb/x", "", CodeInvalid},
		{"QUE-14 dots", "GET", "/v1/jobs/%2e%2e/x", "", CodeInvalid},
		{"QUE-15 a name that is not UTF-8", "POST", "/v1/jobs", "{\"provider\":\"sms\xff\"}", CodeInvalid},
		{"QUE-15 an id in a path", "GET", "/v1/jobs/sms/%FF", "", CodeInvalid},
		{"RET-15 a negative delay", "POST", "/v1/jobs", `{"provider":"sms","delay":"-5s"}`, CodeInvalid},
		{"RET-15 a negative max_age", "POST", "/v1/jobs", `{"provider":"sms","max_age":"-5s"}`, CodeInvalid},
		{"LIM-18 a misspelt field", "POST", "/v1/jobs", `{"provider":"sms","dealy":"5s"}`, CodeInvalid},
		{"no such job", "GET", "/v1/jobs/sms/none", "", CodeNotFound},
		{"cancel no such job", "DELETE", "/v1/jobs/sms/none", "", CodeNotFound},
		{"no such path", "GET", "/v2/jobs", "", CodeNotFound},
		{"no such method", "PUT", "/v1/jobs", "{}", CodeMethod},
		{"a body encoding", "POST", "/v1/jobs", "x", CodeMediaType},
		{"why", "GET", "/v1/jobs/sms/1/why", "", CodeNotBuilt},
		{"events", "GET", "/v1/events", "", CodeNotBuilt},
		{"dashboard", "GET", "/", "", CodeNotBuilt},
		{"list by key", "GET", "/v1/jobs?provider=sms&key=t", "", CodeNotBuilt},
		{"list of no provider", "GET", "/v1/jobs", "", CodeInvalid},
		{"list with a misspelt filter", "GET", "/v1/jobs?provider=sms&sate=dead", "", CodeInvalid},
		{"list of no state", "GET", "/v1/jobs?provider=sms&state=asleep", "", CodeInvalid},
		{"list with a wrong cursor", "GET", "/v1/jobs?provider=sms&cursor=%00", "", CodeInvalid},
		{"list with a wrong limit", "GET", "/v1/jobs?provider=sms&limit=-1", "", CodeInvalid},
		{"no such provider", "GET", "/v1/providers/nobody", "", CodeUnknownProvider},
		{"pause no such provider", "POST", "/v1/providers/nobody/pause", "", CodeUnknownProvider},
		{"LIM-05 rate zero", "PATCH", "/v1/providers/sms", `{"rate":"0/s"}`, CodeInvalid},
		{"LIM-06 negative rate", "PATCH", "/v1/providers/sms", `{"rate":"-1/s"}`, CodeInvalid},
		{"LIM-06 negative burst", "PATCH", "/v1/providers/sms", `{"burst":-5}`, CodeInvalid},
		{"LIM-07 NaN", "PATCH", "/v1/providers/sms", `{"rate":NaN}`, CodeInvalid},
		{"LIM-07 infinite", "PATCH", "/v1/providers/sms", `{"concurrency":1e400}`, CodeInvalid},
		{"LIM-08 period zero", "PATCH", "/v1/providers/sms", `{"rate":"10/0s"}`, CodeInvalid},
		{"LIM-09 burst zero", "PATCH", "/v1/providers/sms", `{"burst":0}`, CodeInvalid},
		{"LIM-11 overflow", "PATCH", "/v1/providers/sms", `{"rate":"1/h","burst":1000000}`, CodeInvalid},
		{"LIM-18 a misspelt limit", "PATCH", "/v1/providers/sms", `{"rte":"1/s"}`, CodeInvalid},
		{"a limit of the file", "PATCH", "/v1/providers/sms", `{"timeout":"1s"}`, CodeInvalid},
		{"a limit not built", "PATCH", "/v1/providers/sms", `{"quotas":[]}`, CodeNotBuilt},
		{"an empty change", "PATCH", "/v1/providers/sms", `{}`, CodeInvalid},
		{"a wrong dry_run", "PATCH", "/v1/providers/sms?dry_run=maybe", `{"burst":2}`, CodeInvalid},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f.t = t
			var header []string
			if tt.want == CodeMediaType {
				header = []string{"Content-Encoding", "gzip"}
			}
			resp, body := f.do(tt.method, tt.path, tt.body, header...)
			if p := f.refused(resp, body, tt.want); p.Detail == "" || tt.want != CodeInvalid && p.Fix == "" && tt.want != CodeNotFound {
				t.Errorf("says too little: %s", body)
			}
		})
	}
	if got := f.fleet.limits; got != (shaper.Limits{Rate: shaper.PerSecond(100), Concurrency: 20}) {
		t.Errorf("a refused change changed the limits: %+v", got)
	}
}

// QUE-16: 413 above the provider's limit, counted on decoded bytes; the request
// itself is bounded before it is read.
func TestQUE16Sizes(t *testing.T) {
	f := start(t, nil)
	const limit = 1 << 20
	text := func(n int) string { return `{"provider":"sms","body":"` + strings.Repeat("x", n) + `"}` }
	for _, tt := range []struct {
		name, body string
		want       int
	}{
		{"of limit", text(limit), http.StatusAccepted},
		{"of limit, escaped", `{"provider":"sms","body":"` + strings.Repeat(`\u0001`, limit) + `"}`, http.StatusAccepted},
		{"of limit + 1", text(limit + 1), http.StatusRequestEntityTooLarge},
		{"of 2 MiB", text(2 << 20), http.StatusRequestEntityTooLarge},
		{"of 8 MiB", text(8 << 20), http.StatusRequestEntityTooLarge},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f.t = t
			resp, body := f.do("POST", "/v1/jobs", tt.body)
			if resp.StatusCode != tt.want {
				t.Errorf("%d %.200s", resp.StatusCode, body)
			}
		})
	}
	t.Run("of unknown length", func(t *testing.T) {
		req, err := http.NewRequestWithContext(t.Context(), "POST", f.URL+"/v1/jobs", io.MultiReader(strings.NewReader(text(8<<20))))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+opsToken)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusRequestEntityTooLarge {
			t.Errorf("%d", resp.StatusCode)
		}
	})
}

func TestPatchLimits(t *testing.T) {
	f := start(t, nil)
	resp, body := f.do("PATCH", "/v1/providers/sms?dry_run", `{"rate":"50/s"}`)
	want := `{"provider":"sms","before":{"rate":"100/s","burst":1,"headroom":"25ms","concurrency":20},"after":{"rate":"50/s","burst":1,"headroom":"25ms","concurrency":20},"dry_run":true}`
	if diff := cmp.Diff(want, strings.TrimSpace(body)); resp.StatusCode != 200 || diff != "" {
		t.Errorf("%d %s", resp.StatusCode, diff)
	}
	if f.fleet.limits.Rate != shaper.PerSecond(100) {
		t.Error("a dry run changed the limits")
	}
	resp, body = f.do("PATCH", "/v1/providers/sms", `{"rate":null,"concurrency":7,"headroom":"0s","burst":null}`)
	if resp.StatusCode != 200 {
		t.Fatalf("%d %s", resp.StatusCode, body)
	}
	if diff := cmp.Diff(shaper.Limits{Burst: 1, Headroom: shaper.NoHeadroom, Concurrency: 7}, f.fleet.limits); diff != "" {
		t.Error(diff)
	}
	if !strings.Contains(f.logs.String(), "limits changed") || !strings.Contains(f.logs.String(), "by=ops") {
		t.Errorf("the change is not logged: %s", f.logs)
	}
	for path, paused := range map[string]bool{"pause": true, "resume": false} {
		if resp, body := f.do("POST", "/v1/providers/sms/"+path, ""); resp.StatusCode != 200 || f.fleet.paused != paused {
			t.Errorf("%s: %d %s", path, resp.StatusCode, body)
		}
	}
}

func TestReadiness(t *testing.T) {
	var mu sync.Mutex
	var not error
	f := start(t, func(c *Config) {
		c.Ready = func(context.Context) error { mu.Lock(); defer mu.Unlock(); return not }
	})
	f.token = ""
	for _, tt := range []struct {
		err  error
		want int
	}{{nil, 200}, {queue.ErrUnavailable, 503}, {&queue.FullError{}, 507}, {errors.New("x"), 500}} {
		mu.Lock()
		not = tt.err
		mu.Unlock()
		if resp, body := f.do("GET", "/readyz", ""); resp.StatusCode != tt.want {
			t.Errorf("%v: %d %s", tt.err, resp.StatusCode, body)
		}
		if resp, _ := f.do("GET", "/healthz", ""); resp.StatusCode != 200 {
			t.Errorf("alive: %d", resp.StatusCode)
		}
	}
}

// A dead Redis is 503 with Retry-After, on every path that needs it.
func TestStoreAway(t *testing.T) {
	f := start(t, nil)
	if err := f.store.Close(); err != nil {
		t.Fatal(err)
	}
	f.fleet.away = &queue.UnavailableError{Err: io.EOF}
	for _, tt := range [][3]string{
		{"POST", "/v1/jobs", `{"provider":"sms"}`}, {"GET", "/v1/jobs/sms/1", ""}, {"GET", "/v1/jobs?provider=sms", ""},
		{"DELETE", "/v1/jobs/sms/1", ""}, {"GET", "/v1/providers", ""}, {"PATCH", "/v1/providers/sms", `{"burst":2}`},
	} {
		resp, body := f.do(tt[0], tt[1], tt[2])
		f.refused(resp, body, CodeStoreAway)
	}
}
