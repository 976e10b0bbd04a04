package provider

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/penstock-io/penstock/breaker"
)

func TestCall(t *testing.T) {
	type seen struct {
		Method, URI, Host, Body string
		Header                  http.Header
	}
	var got seen
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got = seen{Method: r.Method, URI: r.RequestURI, Host: r.Host, Body: string(body), Header: r.Header}
		if len(r.TransferEncoding) > 0 {
			t.Errorf("sent in chunks: %v", r.TransferEncoding)
		}
		w.Header().Set("X-Answer", "yes")
		w.WriteHeader(http.StatusAccepted)
		io.WriteString(w, "done")
	})
	p := newProvider(t, Config{BaseURL: server.URL + "/v1/", Headers: map[string]string{"authorization": "Bearer own", "X-Fixed": "1"}})
	host := strings.TrimPrefix(server.URL, "http://")
	ua := []string{userAgent}
	for _, test := range []struct {
		name string
		call Call
		want seen
	}{
		{"plain", Call{Path: "/messages?x=1", Body: []byte("{}"), IdempotencyKey: "job-1"},
			seen{"POST", "/v1/messages?x=1", host, "{}", http.Header{"Content-Length": {"2"}, "Idempotency-Key": {"job-1"}, "User-Agent": ua}}},
		{"no key", Call{Method: "PUT", Path: "/a", Body: []byte("x")},
			seen{"PUT", "/v1/a", host, "x", http.Header{"Content-Length": {"1"}, "User-Agent": ua}}},
		{"OUT-05 empty body keeps its type", Call{Headers: map[string]string{"content-type": "application/json"}, IdempotencyKey: "job-1"},
			seen{"POST", "/v1", host, "", http.Header{"Content-Length": {"0"}, "Content-Type": {"application/json"}, "Idempotency-Key": {"job-1"}, "User-Agent": ua}}},
		{"get", Call{Method: "GET", Path: "/a%2Fb", IdempotencyKey: "job-1"},
			seen{"GET", "/v1/a%2Fb", host, "", http.Header{"Idempotency-Key": {"job-1"}, "User-Agent": ua}}},
		{"get with a body", Call{Method: "GET", Body: []byte("q")},
			seen{"GET", "/v1", host, "q", http.Header{"Content-Length": {"1"}, "User-Agent": ua}}},
		{"delete", Call{Method: "DELETE", IdempotencyKey: "job-1"},
			seen{"DELETE", "/v1", host, "", http.Header{"Idempotency-Key": {"job-1"}, "User-Agent": ua}}},
		{"the job's own key, headers and agent", Call{Headers: map[string]string{"idempotency-key": "mine", "user-agent": "me", "X-Job": "ü"}, IdempotencyKey: "job-1"},
			seen{"POST", "/v1", host, "", http.Header{"Content-Length": {"0"}, "Idempotency-Key": {"mine"}, "User-Agent": {"me"}, "X-Job": {"ü"}}}},
		{"configuration wins", Call{Headers: map[string]string{"Authorization": "Bearer theirs", "x-fixed": "2"}},
			seen{"POST", "/v1", host, "", http.Header{"Content-Length": {"0"}, "User-Agent": ua}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			for attempt := range 2 {
				got = seen{}
				r := p.Call(t.Context(), test.call)
				test.want.Header.Set("Authorization", "Bearer own")
				test.want.Header.Set("X-Fixed", "1")
				if diff := cmp.Diff(test.want, got); diff != "" {
					t.Errorf("OUT-05: attempt %d: %s", attempt+1, diff)
				}
				want := Result{Verdict: Verdict{Outcome: breaker.OK, Fate: Succeeded}, Status: 202, Header: r.Header, Body: []byte("done"), Sent: true}
				if test.call.Method == "HEAD" {
					want.Body = nil
				}
				if diff := cmp.Diff(want, r); diff != "" || r.Header.Get("X-Answer") != "yes" {
					t.Errorf("attempt %d: %s", attempt+1, diff)
				}
			}
		})
	}
}

// TestUnsendable: what cannot be sent is dead at once, without a call, and says
// why without quoting a value.
func TestUnsendable(t *testing.T) {
	server := serve(t, func(w http.ResponseWriter, r *http.Request) { t.Errorf("called: %s %s", r.Method, r.RequestURI) })
	p := newProvider(t, Config{BaseURL: server.URL})
	calls := map[string]Call{
		"path elsewhere":        {Path: "//evil.example/"},
		"scheme ftp":            {Path: "ftp://h.example/x"},
		"method with a space":   {Method: "GET /x HTTP/1.1\r\nX: y"},
		"method connect":        {Method: "CONNECT"},
		"method trace":          {Method: "trace"},
		"header name":           {Headers: map[string]string{"a b": "s3cret"}},
		"header name empty":     {Headers: map[string]string{"": "s3cret"}},
		"header name colon":     {Headers: map[string]string{":authority": "s3cret"}},
		"header name break":     {Headers: map[string]string{"A\r\nB": "s3cret"}},
		"header value break":    {Headers: map[string]string{"A": "s3cret\r\nHost: evil.example"}},
		"header value newline":  {Headers: map[string]string{"A": "s3cret\n"}},
		"header value nul":      {Headers: map[string]string{"A": "s3cret\x00"}},
		"header twice":          {Headers: map[string]string{"x-a": "s3cret", "X-A": "s3cret"}},
		"key with a break":      {IdempotencyKey: "s3cret\r\nX: y"},
		"key with a blank":      {IdempotencyKey: " s3cret"},
		"own key empty":         {Headers: map[string]string{"Idempotency-Key": ""}, IdempotencyKey: "s3cret"},
		"own key with a blank":  {Headers: map[string]string{"Idempotency-Key": "s3cret\t"}},
		"own key set two times": {Headers: map[string]string{"Idempotency-Key": "s3cret", "idempotency-key": "b"}},
	}
	for _, name := range framing {
		calls["framing "+name] = Call{Headers: map[string]string{strings.ToLower(name): "s3cret"}}
	}
	for name, call := range calls {
		t.Run("RET-12/"+name, func(t *testing.T) {
			r := p.Call(t.Context(), call)
			if r.Outcome != breaker.Excluded || r.Fate != Dead || r.Sent || !errors.Is(r.Err, ErrUnsendable) {
				t.Errorf("%+v", r)
			}
			if err := p.Check(call); !errors.Is(err, ErrUnsendable) || err.Error() != r.Reason || strings.Contains(err.Error(), "s3cret") {
				t.Errorf("Check: %v; Call: %s", err, r.Reason)
			}
		})
	}
	if err := p.Check(Call{Path: "/fine", IdempotencyKey: "k"}); err != nil {
		t.Error(err)
	}
}

func TestConnectionsAreReused(t *testing.T) {
	var mu sync.Mutex
	remotes := map[string]int{}
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		remotes[r.RemoteAddr]++
		mu.Unlock()
		status, _ := strconv.Atoi(r.URL.Query().Get("status"))
		w.WriteHeader(status)
		io.WriteString(w, strings.Repeat("x", 100<<10)) // beyond what is kept
	})
	p := newProvider(t, Config{BaseURL: server.URL})
	for i := range 40 {
		status := []int{200, 404, 429, 500}[i%4]
		if r := p.Call(t.Context(), Call{Path: fmt.Sprintf("/?status=%d", status), Body: []byte("x")}); r.Status != status || !r.Truncated || len(r.Body) != DefaultKeep {
			t.Fatalf("%d, %d bytes, %v", r.Status, len(r.Body), r.Err)
		}
	}
	if len(remotes) != 1 {
		t.Errorf("40 calls one after the other took %d connections", len(remotes))
	}
}

// TestManyConnectionsAreKept: as many as were in use at once, and not the two
// that net/http keeps by itself.
func TestManyConnectionsAreKept(t *testing.T) {
	const calls = 30
	var together sync.WaitGroup
	var mu sync.Mutex
	remotes := map[string]bool{}
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		remotes[r.RemoteAddr] = true
		mu.Unlock()
		together.Done()
		together.Wait() // nobody is answered before all are here
	})
	p := newProvider(t, Config{BaseURL: server.URL})
	for range 3 {
		together.Add(calls)
		var all sync.WaitGroup
		for range calls {
			all.Go(func() {
				if r := p.Call(t.Context(), Call{Body: []byte("x")}); r.Status != 200 {
					t.Errorf("%+v", r)
				}
			})
		}
		all.Wait()
	}
	if len(remotes) != calls {
		t.Errorf("three times %d calls at once took %d connections", calls, len(remotes))
	}
}

// TestBodies: nothing that a provider sends can hold a call beyond its end or
// fill the memory, and the answer's status decides what becomes of the job.
func TestBodies(t *testing.T) {
	drip := func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			w.Write([]byte("."))
			w.(http.Flusher).Flush()
			time.Sleep(100 * time.Millisecond)
		}
	}
	cut := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "100")
		io.WriteString(w, "half")
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}
	for _, test := range []struct {
		name      string
		handler   http.HandlerFunc
		outcome   breaker.Outcome
		fate      Fate
		length    int // of what is kept; -1 for any
		truncated bool
		took      time.Duration
	}{
		{"empty", func(w http.ResponseWriter, r *http.Request) {}, breaker.OK, Succeeded, 0, false, 0},
		{"exactly what is kept", func(w http.ResponseWriter, r *http.Request) { w.Write(make([]byte, 1000)) }, breaker.OK, Succeeded, 1000, false, 0},
		{"one more", func(w http.ResponseWriter, r *http.Request) { w.Write(make([]byte, 1001)) }, breaker.OK, Succeeded, 1000, true, 0},
		{"huge, length stated", func(w http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			w.Header().Set("Content-Length", "1000000000000")
			w.Write(make([]byte, 5000))
			<-r.Context().Done()
		}, breaker.OK, Succeeded, 1000, true, 0},
		{"endless", func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				w.Write(make([]byte, 4096))
			}
		}, breaker.OK, Succeeded, 1000, true, 0},
		{"endless failure", func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(500)
			for r.Context().Err() == nil {
				w.Write(make([]byte, 4096))
			}
		}, breaker.Failed, Again, 1000, true, 0},
		{"drop by drop", drip, breaker.Timeout, Succeeded, -1, true, 10 * time.Second},
		{"drop by drop, refused", func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(429)
			drip(w, r)
		}, breaker.Throttled, AgainFree, -1, true, 10 * time.Second},
		{"cut in the body", cut, breaker.Failed, Succeeded, 4, true, 0},
		{"cut before an answer", func(w http.ResponseWriter, r *http.Request) { panic(http.ErrAbortHandler) }, breaker.Failed, Again, 0, false, 0},
		{"no answer", func(w http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			<-r.Context().Done()
		}, breaker.Timeout, Again, 0, false, 10 * time.Second},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, stop := inBubble(t, Config{Timeout: 10 * time.Second, KeepBytes: 1000}, test.handler)
				defer stop()
				start := time.Now()
				r := p.Call(t.Context(), Call{Body: []byte("x")})
				if r.Outcome != test.outcome || r.Fate != test.fate || r.Truncated != test.truncated || !r.Sent || (len(r.Body) != test.length && test.length >= 0) {
					t.Errorf("outcome %v, fate %v, %d bytes, truncated %v, %v", r.Outcome, r.Fate, len(r.Body), r.Truncated, r.Err)
				}
				if took := time.Since(start); took != test.took {
					t.Errorf("took %v, want %v", took, test.took)
				}
			})
		})
	}
}

// TestEnds tells our deadlines from our cancellations (RET-15: also those of
// less than a second).
func TestEnds(t *testing.T) {
	hang := func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	}
	synctest.Test(t, func(t *testing.T) {
		p, stop := inBubble(t, Config{Timeout: 500 * time.Millisecond}, hang)
		defer stop()
		cause := errors.New("the permit is gone")
		for _, test := range []struct {
			name    string
			ctx     func() (context.Context, context.CancelFunc)
			outcome breaker.Outcome
			fate    Fate
			took    time.Duration
			sent    bool
		}{
			{"our timeout", func() (context.Context, context.CancelFunc) { return context.WithCancel(t.Context()) },
				breaker.Timeout, Again, 500 * time.Millisecond, true},
			{"the permit's deadline", func() (context.Context, context.CancelFunc) {
				return context.WithTimeoutCause(t.Context(), 200*time.Millisecond, cause)
			}, breaker.Timeout, Again, 200 * time.Millisecond, true},
			{"cancelled", func() (context.Context, context.CancelFunc) {
				ctx, cancel := context.WithCancelCause(t.Context())
				time.AfterFunc(100*time.Millisecond, func() { cancel(cause) })
				return ctx, func() { cancel(nil) }
			}, breaker.Excluded, AgainFree, 100 * time.Millisecond, true},
			{"cancelled before", func() (context.Context, context.CancelFunc) {
				ctx, cancel := context.WithCancelCause(t.Context())
				cancel(cause)
				return ctx, func() {}
			}, breaker.Excluded, AgainFree, 0, false},
			{"deadline past before", func() (context.Context, context.CancelFunc) {
				return context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
			}, breaker.Excluded, AgainFree, 0, false},
		} {
			ctx, cancel := test.ctx()
			start := time.Now()
			r := p.Call(ctx, Call{Body: []byte("x"), IdempotencyKey: "k"})
			if took := time.Since(start); r.Outcome != test.outcome || r.Fate != test.fate || took != test.took || r.Sent != test.sent || r.Err == nil {
				t.Errorf("%s: after %v: %+v", test.name, took, r)
			}
			cancel()
		}
	})
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	for _, status := range []int{301, 302, 303, 307, 308} {
		var hits atomic.Int64
		server := serve(t, func(w http.ResponseWriter, r *http.Request) {
			hits.Add(1)
			w.Header().Set("Location", "http://169.254.169.254/latest/meta-data")
			w.WriteHeader(status)
		})
		r := newProvider(t, Config{BaseURL: server.URL}).Call(t.Context(), Call{Body: []byte("x")})
		if r.Status != status || r.Fate != Dead || r.Outcome != breaker.OK || hits.Load() != 1 {
			t.Errorf("%d: %+v after %d calls", status, r, hits.Load())
		}
	}
}

// TestPrepare is case OUT-03: what is made per attempt is made anew for each.
func TestPrepare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var stamps, ids, bodies []string
		p, stop := inBubble(t, Config{Prepare: func(req *http.Request, body []byte) {
			req.Header.Set("X-Timestamp", strconv.FormatInt(time.Now().Unix(), 10))
			bodies = append(bodies, string(body))
			if string(body) == "spoiled" {
				req.Header.Set("X-Bad", "a\nb")
			}
		}}, func(w http.ResponseWriter, r *http.Request) {
			stamps = append(stamps, r.Header.Get("X-Timestamp"))
			ids = append(ids, r.Header.Get("Idempotency-Key"))
			w.WriteHeader(500)
		})
		defer stop()
		start := time.Now().Unix()
		call := Call{Body: []byte("event"), IdempotencyKey: "evt-1"}
		p.Call(t.Context(), call)
		time.Sleep(10 * time.Minute)
		p.Call(t.Context(), call)
		want := []string{strconv.FormatInt(start, 10), strconv.FormatInt(start+600, 10)}
		if diff := cmp.Diff(want, stamps); diff != "" {
			t.Errorf("OUT-03: %s", diff)
		}
		if diff := cmp.Diff([]string{"evt-1", "evt-1", "event", "event"}, append(ids, bodies...)); diff != "" {
			t.Errorf("OUT-03: %s", diff)
		}
		if r := p.Call(t.Context(), Call{Body: []byte("spoiled")}); r.Fate != Dead || r.Sent {
			t.Errorf("a header spoiled by Prepare: %+v", r)
		}
	})
}

func TestThrottledWithWait(t *testing.T) {
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Retry-After", time.Now().Add(90*time.Second).UTC().Format(http.TimeFormat))
		w.Header().Set("Date", time.Now().UTC().Format(http.TimeFormat))
		w.WriteHeader(429)
	})
	r := newProvider(t, Config{BaseURL: server.URL}).Call(t.Context(), Call{})
	if r.Outcome != breaker.Throttled || r.Fate != AgainFree || r.RetryAfter < 89*time.Second || r.RetryAfter > 90*time.Second {
		t.Errorf("%+v", r)
	}
}

// TestHugeHeader: an answer's header is bounded as well.
func TestHugeHeader(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for i := range 100 {
			w.Header().Set("X-"+strconv.Itoa(i), strings.Repeat("x", 4<<10))
		}
	}))
	t.Cleanup(server.Close)
	r := newProvider(t, Config{BaseURL: server.URL}).Call(t.Context(), Call{})
	if r.Outcome != breaker.Failed || r.Fate != Again {
		t.Errorf("%+v", r)
	}
}
