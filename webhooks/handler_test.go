package webhooks

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/penstock-io/penstock/queue"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeQueue is a queue in memory: by id, with the errors it is told.
type fakeQueue struct {
	mu   sync.Mutex
	jobs []queue.Job
	ids  map[string]bool
	err  error         // answered instead, as long as it is set
	lost bool          // stores, and answers err all the same
	hang chan struct{} // answers only when this is closed
	asks int
}

func (q *fakeQueue) Enqueue(_ context.Context, j queue.Job) (queue.Receipt, error) {
	q.mu.Lock()
	hang := q.hang
	q.asks++
	q.mu.Unlock()
	if hang != nil {
		<-hang
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.err != nil && !q.lost {
		return queue.Receipt{}, q.err
	}
	r := queue.Receipt{Provider: j.Provider, ID: j.ID, State: queue.Waiting, Known: q.ids[j.ID]}
	if !r.Known {
		if q.ids == nil {
			q.ids = map[string]bool{}
		}
		q.ids[j.ID] = true
		j.Body = bytes.Clone(j.Body)
		q.jobs = append(q.jobs, j)
	}
	return r, q.err
}

func (q *fakeQueue) set(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.err = err
}

func (q *fakeQueue) asked() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.asks
}

func (q *fakeQueue) all() []queue.Job {
	q.mu.Lock()
	defer q.mu.Unlock()
	return append([]queue.Job{}, q.jobs...)
}

// recorder is an Observer that remembers.
type recorder struct {
	mu       sync.Mutex
	got      []Delivery
	replayed map[Result]int
	spool    int
}

func (o *recorder) WebhookDelivery(_ string, d Delivery) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.got = append(o.got, d)
}
func (o *recorder) WebhookSpool(n int, _ int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.spool = n
}
func (o *recorder) WebhookReplayed(_ string, r Result) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.replayed == nil {
		o.replayed = map[Result]int{}
	}
	o.replayed[r]++
}
func (o *recorder) last() Delivery {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.got) == 0 {
		return Delivery{}
	}
	return o.got[len(o.got)-1]
}

// syncBuffer is a log that several goroutines write.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}
func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

const hush = "whsec_hush-hush"

// bench is a handler with all that it talks to.
type workbench struct {
	cfg   Config
	queue *fakeQueue
	seen  *recorder
	log   *syncBuffer
	h     *Handler
}

func newWorkbench(t testing.TB, change func(*Config)) *workbench {
	t.Helper()
	b := &workbench{queue: &fakeQueue{}, seen: &recorder{}, log: &syncBuffer{}}
	b.cfg = Config{
		Name: "stripe", Options: Options{Scheme: Stripe, Secrets: Secrets(hush)},
		To:    Destination{Provider: "billing", Path: "/events"},
		Queue: b.queue, Observer: b.seen,
		Logger: slog.New(slog.NewJSONHandler(b.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	if change != nil {
		change(&b.cfg)
	}
	var err error
	if b.h, err = New(b.cfg); err != nil {
		t.Fatal(err)
	}
	return b
}

// request is a delivery signed now.
func (b *workbench) request(t testing.TB, body string) *http.Request {
	t.Helper()
	m := &Message{Method: "POST", Header: http.Header{"Content-Type": {"application/json"}}, Body: []byte(body)}
	mustSigned(t, b.cfg.Options, m, "evt_1", time.Now())
	r := httptest.NewRequest("POST", "http://hooks.test/hooks/stripe", strings.NewReader(body))
	r.Header = m.Header
	return r
}

func (b *workbench) deliver(r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	b.h.ServeHTTP(w, r)
	return w
}

func TestAccepted(t *testing.T) {
	b := newWorkbench(t, nil)
	const body = `{"id":"evt_1", "x": "é\u00e9\/"}` + "\r\n"
	r := b.request(t, body)
	r.Header.Set("X-Other", "not passed on")
	w := b.deliver(r)
	if w.Code != 200 || w.Body.Len() != 0 || w.Header().Get(ResultHeader) != "accepted" {
		t.Errorf("%d %q %v", w.Code, w.Body, w.Header())
	}
	want := []queue.Job{{
		Provider: "billing", ID: "stripe:evt_1", Path: "/events", Body: []byte(body),
		Headers: map[string]string{"Content-Type": "application/json"}, Keep: DefaultWindow,
	}}
	if d := cmp.Diff(want, b.queue.all()); d != "" {
		t.Error(d)
	}
	if d := b.seen.last(); d.Result != Accepted || d.Secret != "1" || d.Bytes != len(body) {
		t.Errorf("%+v", d)
	}
	// The second delivery, signed at another time, is the same event.
	w = b.deliver(b.request(t, body+" "))
	if w.Code != 200 || w.Header().Get(ResultHeader) != "duplicate" || len(b.queue.all()) != 1 || b.seen.last().Result != Duplicate {
		t.Errorf("%d %v %+v", w.Code, w.Header(), b.seen.last())
	}
	if !strings.Contains(b.log.String(), "webhook duplicate") {
		t.Error("no log line of the repeat")
	}
}

// Every way to be refused has its answer, its metric and its log line, and
// none shows a secret.
func TestRefusals(t *testing.T) {
	old := func(t *testing.T, b *workbench, off time.Duration) *http.Request {
		m := &Message{Body: []byte(stripeBody)}
		mustSigned(t, b.cfg.Options, m, "", time.Now().Add(off))
		r := b.request(t, stripeBody)
		r.Header = m.Header
		return r
	}
	for _, c := range []struct {
		name   string
		change func(*Config)
		req    func(t *testing.T, b *workbench) *http.Request
		reason Reason
		status int
	}{
		{"wrong secret", nil, func(t *testing.T, b *workbench) *http.Request {
			b.cfg.Options.Secrets = Secrets("whsec_elsewhere")
			return b.request(t, stripeBody)
		}, WrongSignature, 401},
		{"stale", nil, func(t *testing.T, b *workbench) *http.Request { return old(t, b, -10*time.Minute) }, Stale, 401},
		{"future", nil, func(t *testing.T, b *workbench) *http.Request { return old(t, b, 10*time.Minute) }, Future, 401},
		{"WHK-12 unsigned", nil, func(t *testing.T, b *workbench) *http.Request {
			r := b.request(t, stripeBody)
			r.Header.Del("Stripe-Signature")
			return r
		}, NoSignature, 401},
		{"changed body", nil, func(t *testing.T, b *workbench) *http.Request {
			r := b.request(t, stripeBody)
			r.Body = io.NopCloser(strings.NewReader(strings.ToUpper(stripeBody)))
			return r
		}, WrongSignature, 401},
		{"SIG-STRIPE-19 empty", nil, func(t *testing.T, b *workbench) *http.Request { return b.request(t, "") }, NoEventID, 400},
		{"no event id", nil, func(t *testing.T, b *workbench) *http.Request { return b.request(t, `{"object":"event"}`) }, NoEventID, 400},
		{"WHK-06 too large", func(c *Config) { c.MaxBody = 10 }, func(t *testing.T, b *workbench) *http.Request { return b.request(t, stripeBody) }, TooLarge, 413},
		{"WHK-06 too large, chunked", func(c *Config) { c.MaxBody = 10 }, func(t *testing.T, b *workbench) *http.Request {
			r := b.request(t, stripeBody)
			r.ContentLength = -1
			return r
		}, TooLarge, 413},
		{"cut", nil, func(t *testing.T, b *workbench) *http.Request {
			r := b.request(t, stripeBody)
			r.Body = io.NopCloser(io.MultiReader(strings.NewReader(stripeBody[:5]), errReader{io.ErrUnexpectedEOF}))
			return r
		}, CutBody, 400},
		{"GET", nil, func(t *testing.T, b *workbench) *http.Request {
			r := b.request(t, stripeBody)
			r.Method = "GET"
			return r
		}, BadMethod, 405},
		{"content type", nil, func(t *testing.T, b *workbench) *http.Request {
			r := b.request(t, stripeBody)
			r.Header.Set("Content-Type", "text/html; charset=utf-8")
			return r
		}, BadType, 415},
		{"gzip", nil, func(t *testing.T, b *workbench) *http.Request {
			r := b.request(t, stripeBody)
			r.Header.Set("Content-Encoding", "gzip")
			return r
		}, BadType, 415},
		{"redis away", func(c *Config) { c.Queue = &fakeQueue{err: &queue.UnavailableError{Err: errors.New("refused")}} },
			func(t *testing.T, b *workbench) *http.Request { return b.request(t, stripeBody) }, StoreAway, 503},
		{"redis full", func(c *Config) { c.Queue = &fakeQueue{err: &queue.FullError{Used: 9, Max: 10}} },
			func(t *testing.T, b *workbench) *http.Request { return b.request(t, stripeBody) }, StoreFull, 503},
		{"no destination", func(c *Config) { c.Queue = &fakeQueue{err: queue.ErrUnknownProvider} },
			func(t *testing.T, b *workbench) *http.Request { return b.request(t, stripeBody) }, NoDestination, 503},
		{"destination's limit", func(c *Config) { c.Queue = &fakeQueue{err: queue.ErrTooLarge} },
			func(t *testing.T, b *workbench) *http.Request { return b.request(t, stripeBody) }, TooLarge, 413},
		{"job refused", func(c *Config) { c.Queue = &fakeQueue{err: queue.ErrInvalid} },
			func(t *testing.T, b *workbench) *http.Request { return b.request(t, stripeBody) }, Misconfigured, 500},
		{"spool full", func(c *Config) { c.Queue, c.Spool = &fakeQueue{err: queue.ErrUnavailable}, &Spool{closed: false} },
			func(t *testing.T, b *workbench) *http.Request { return b.request(t, stripeBody) }, SpoolFull, 503},
		{"spool closed", func(c *Config) { c.Queue, c.Spool = &fakeQueue{err: queue.ErrUnavailable}, &Spool{closed: true} },
			func(t *testing.T, b *workbench) *http.Request { return b.request(t, stripeBody) }, SpoolFailed, 503},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newWorkbench(t, c.change)
			w := b.deliver(c.req(t, b))
			if w.Code != c.status || w.Header().Get(ResultHeader) != "refused" {
				t.Errorf("answer %d %v, want %d", w.Code, w.Header(), c.status)
			}
			var p problem
			if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || p.Reason != c.reason || p.Status != c.status || p.Detail == "" ||
				w.Header().Get("Content-Type") != "application/problem+json" {
				t.Errorf("body %s (%v), want reason %s", w.Body, err, c.reason)
			}
			if (c.status == 503) != (w.Header().Get("Retry-After") == "5") {
				t.Errorf("Retry-After %q", w.Header().Get("Retry-After"))
			}
			if (c.status == 405) != (w.Header().Get("Allow") == "POST") {
				t.Errorf("Allow %q", w.Header().Get("Allow"))
			}
			if d := b.seen.last(); len(b.seen.got) != 1 || d.Result != Refused || d.Reason != c.reason {
				t.Errorf("metric %+v", b.seen.got)
			}
			log := b.log.String()
			if !strings.Contains(log, `"reason":"`+string(c.reason)+`"`) || strings.Count(log, "\n") != 1 {
				t.Errorf("log %s", log)
			}
			for _, secret := range []string{"hush", "whsec", "elsewhere", "v1=", "charge.succeeded"} {
				if strings.Contains(log+w.Body.String(), secret) {
					t.Errorf("%q shows in %s%s", secret, log, w.Body)
				}
			}
			if len(b.queue.all()) != 0 {
				t.Error("a job was stored")
			}
		})
	}
}

type errReader struct{ err error }

func (e errReader) Read([]byte) (int, error) { return 0, e.err }

// WHK-05 over real connections: what is too long is not read, what is slow is cut.
func TestBodies(t *testing.T) {
	b := newWorkbench(t, func(c *Config) {
		c.MaxBody, c.BodyTimeout = 1000, 100*time.Millisecond
		c.Options.EventID = EventID{Off: true}
	})
	wrapped := func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/wrapped" { // a writer without Unwrap: no deadlines
			w = struct{ http.ResponseWriter }{w}
		}
		b.h.ServeHTTP(w, r)
	}
	srv := httptest.NewServer(http.HandlerFunc(wrapped))
	defer srv.Close()
	post := func(path, head, body string, more bool) string {
		t.Helper()
		c, err := net.Dial("tcp", srv.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(20 * time.Second))
		fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: h\r\n%s\r\n%s", path, head, body)
		if !more {
			_ = c.(*net.TCPConn).CloseWrite()
		}
		resp, err := io.ReadAll(io.LimitReader(c, 12))
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimPrefix(string(resp), "HTTP/1.1 ")
	}
	signed := func(body string) string {
		m := &Message{Body: []byte(body)}
		mustSigned(t, b.cfg.Options, m, "", time.Now())
		return "Stripe-Signature: " + m.Header.Get("Stripe-Signature") + "\r\nConnection: close\r\n"
	}
	limit, over := strings.Repeat("x", 1000), strings.Repeat("x", 1001)
	endless := strings.Repeat("400\r\n"+strings.Repeat("y", 1024)+"\r\n", 8)
	for _, c := range []struct {
		name, path, head, body string
		more                   bool
		want                   string
	}{
		{"WHK-05 1 GiB announced", "/", signed("") + "Content-Length: 1073741824\r\n", "", true, "413"},
		{"WHK-05 endless chunks", "/", signed("") + "Transfer-Encoding: chunked\r\n", endless, true, "413"},
		{"WHK-05 at the limit", "/", signed(limit) + "Content-Length: 1000\r\n", limit, true, "200"},
		{"WHK-05 one more", "/", signed(over) + "Content-Length: 1001\r\n", over, true, "413"},
		{"WHK-05 one more, chunked", "/", signed(over) + "Transfer-Encoding: chunked\r\n", "3e9\r\n" + over + "\r\n0\r\n\r\n", true, "413"},
		{"WHK-05 slow", "/", signed(limit) + "Content-Length: 1000\r\n", limit[:999], true, "408"},
		{"WHK-05 slow, no deadlines", "/wrapped", signed(limit) + "Content-Length: 1000\r\n", limit[:999], true, "408"},
		{"at the limit, no deadlines", "/wrapped", signed(limit) + "Content-Length: 1000\r\n", limit, true, "200"},
		{"cut", "/", signed(limit) + "Content-Length: 1000\r\n", limit[:999], false, "400"},
		{"no body", "/", signed(""), "", true, "200"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := post(c.path, c.head, c.body, c.more); got != c.want {
				t.Errorf("answered %q, want %s", got, c.want)
			}
		})
	}
}

// Every vector's delivery is answered as it says, in its own time.
func TestVectorsAnswered(t *testing.T) {
	vectors := readVectors(t)
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(time.Unix(vectors[0].Now, 0)))
		for _, vec := range vectors {
			q := &fakeQueue{}
			h, err := New(Config{Name: "w", Options: vec.options(t), To: Destination{Provider: "p"}, Queue: q, Logger: slog.New(slog.DiscardHandler)})
			if err != nil {
				if vec.Accept {
					t.Errorf("%s: %v", vec.ID, err)
				}
				continue
			}
			m := vec.message(t)
			r := httptest.NewRequest(m.Method, "http://inside/", bytes.NewReader(m.Body))
			r.Header = m.Header
			if scheme, rest, ok := strings.Cut(m.URL, "://"); ok {
				h.cfg.PublicURL, r.RequestURI = scheme+"://"+rest[:strings.Index(rest, "/")], rest[strings.Index(rest, "/"):]
			}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if accepted := w.Code == 200; accepted != vec.Accept || len(q.all()) != map[bool]int{true: 1}[accepted] {
				t.Errorf("%s: answered %d with %d jobs, want accept = %v (%s)", vec.ID, w.Code, len(q.all()), vec.Accept, vec.Reason)
			}
			if vec.Valid && !vec.Accept && (vec.ID == "SIG-STRIPE-19" || vec.ID == "SIG-GITHUB-14") && w.Code != 400 {
				t.Errorf("%s: answered %d, want 400", vec.ID, w.Code)
			}
		}
	})
}

// SIG-TWILIO-07: behind a proxy the URL is the configured one.
func TestPublicURL(t *testing.T) {
	for public, target := range map[string]string{
		"https://hooks.example.test":     "/twilio?b=2&a=1&msg=Couldn%27t+find",
		"https://hooks.example.test/in/": "/twilio?b=2",
	} {
		o := Options{Scheme: Twilio, Secrets: Secrets("token")}
		m := &Message{URL: strings.TrimSuffix(public, "/") + target, Header: http.Header{"Content-Type": {formType}}, Body: []byte("A=1")}
		mustSigned(t, o, m, "", testNow)
		b := newWorkbench(t, func(c *Config) { c.Options, c.PublicURL = o, public })
		r := httptest.NewRequest("POST", "http://10.0.0.7:8080"+target, bytes.NewReader(m.Body))
		r.Header = m.Header
		if w := b.deliver(r); w.Code != 200 {
			t.Errorf("%s: %d %s", public, w.Code, w.Body)
		}
		b = newWorkbench(t, func(c *Config) { c.Options = o })
		if w := b.deliver(r); w.Code != 401 || !strings.Contains(w.Body.String(), "public_url") {
			t.Errorf("%s: without it %d %s", public, w.Code, w.Body)
		}
	}
}

func TestChallengeAnswered(t *testing.T) {
	b := newWorkbench(t, func(c *Config) { c.Name, c.Options = "slack", Options{Scheme: Slack, Secrets: Secrets("abc")} })
	r := b.request(t, `{"type":"url_verification","challenge":"c<b>1"}`)
	w := b.deliver(r)
	if w.Code != 200 || w.Body.String() != "c<b>1" || !strings.HasPrefix(w.Header().Get("Content-Type"), "text/plain") {
		t.Errorf("%d %q %v", w.Code, w.Body, w.Header())
	}
	if len(b.queue.all()) != 0 || b.seen.last().Result != Challenged {
		t.Error("a challenge is no event")
	}
	r.Header.Del("X-Slack-Signature")
	if w := b.deliver(r); w.Code != 401 || strings.Contains(w.Body.String(), "c<b>1") {
		t.Errorf("unsigned: %d %s", w.Code, w.Body)
	}
}

// WHK-02: no mark is set apart from the job itself.
func TestMarkedWithTheJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newWorkbench(t, nil)
		b.queue.set(queue.ErrUnavailable) // (a) died before the job was stored
		if w := b.deliver(b.request(t, stripeBody)); w.Code != 503 {
			t.Fatalf("(a) %d", w.Code)
		}
		time.Sleep(time.Second)
		b.queue.set(nil)
		if w := b.deliver(b.request(t, stripeBody)); w.Code != 200 || w.Header().Get(ResultHeader) != "accepted" {
			t.Fatalf("(a) delivered again: %d %v", w.Code, w.Header())
		}
		b = newWorkbench(t, nil)
		b.queue.lost = true
		b.queue.set(queue.ErrUnavailable) // (b) stored, and the answer lost
		if w := b.deliver(b.request(t, stripeBody)); w.Code != 503 {
			t.Fatalf("(b) %d", w.Code)
		}
		time.Sleep(time.Second)
		b.queue.set(nil)
		if w := b.deliver(b.request(t, stripeBody)); w.Code != 200 || w.Header().Get(ResultHeader) != "duplicate" || len(b.queue.all()) != 1 {
			t.Fatalf("(b) delivered again: %d %v", w.Code, w.Header())
		}
	})
}

// A Redis that says nothing costs one timeout, not one for each delivery.
func TestSilentRedis(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newWorkbench(t, nil)
		b.queue.hang = make(chan struct{})
		start := time.Now()
		if w := b.deliver(b.request(t, stripeBody)); w.Code != 503 || time.Since(start) != DefaultStoreTimeout {
			t.Fatalf("%d after %s", w.Code, time.Since(start))
		}
		start = time.Now()
		for range 100 {
			if w := b.deliver(b.request(t, stripeBody)); w.Code != 503 {
				t.Fatalf("%d", w.Code)
			}
		}
		if time.Since(start) != 0 || b.queue.asked() != 1 {
			t.Errorf("100 more took %s and asked %d times", time.Since(start), b.queue.asked())
		}
		time.Sleep(askAgain + time.Millisecond)
		close(b.queue.hang)
		if w := b.deliver(b.request(t, stripeBody)); w.Code != 200 {
			t.Errorf("back again: %d", w.Code)
		}
		if w := b.deliver(b.request(t, `{"id":"evt_2"}`)); w.Code != 200 {
			t.Errorf("and for good: %d", w.Code)
		}
		synctest.Wait()
	})
}

func TestBusy(t *testing.T) {
	b := newWorkbench(t, func(c *Config) { c.MaxInFlight = 1 })
	b.h.places <- struct{}{}
	if w := b.deliver(b.request(t, stripeBody)); w.Code != 503 || b.seen.last().Reason != Busy || w.Header().Get("Retry-After") == "" {
		t.Errorf("%d %+v", w.Code, b.seen.last())
	}
	<-b.h.places
	if w := b.deliver(b.request(t, stripeBody)); w.Code != 200 {
		t.Errorf("%d", w.Code)
	}
}

func TestHeadersPassedOn(t *testing.T) {
	for name, c := range map[string]struct {
		o       Options
		headers []string
		give    http.Header
		want    map[string]string
	}{
		"github": {Options{Scheme: GitHub, Secrets: Secrets("s")}, nil,
			http.Header{"X-Github-Event": {"push"}, "User-Agent": {"GitHub-Hookshot"}},
			map[string]string{"Content-Type": "application/json", "X-Github-Event": "push", "X-Github-Delivery": "evt_1"}},
		"none": {Options{Scheme: GitHub, Secrets: Secrets("s")}, []string{}, nil, map[string]string{}},
		"chosen": {Options{Scheme: GitHub, Secrets: Secrets("s")}, []string{"x-a", "X-Bad", "X-None"},
			http.Header{"X-A": {"1", "2"}, "X-Bad": {"\xff"}}, map[string]string{"X-A": "1, 2"}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newWorkbench(t, func(cfg *Config) { cfg.Options, cfg.Headers = c.o, c.headers })
			r := b.request(t, `{}`)
			for k, v := range c.give {
				r.Header[k] = v
			}
			if w := b.deliver(r); w.Code != 200 {
				t.Fatalf("%d %s", w.Code, w.Body)
			}
			if d := cmp.Diff(c.want, b.queue.all()[0].Headers); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestJobID(t *testing.T) {
	long := strings.Repeat("e", 200)
	for event, want := range map[string]string{
		"evt_1": "stripe:evt_1", "Zoë": "stripe:Zoë",
		"a\x00b": "", long: "", " x ": "", "\xff": "",
	} {
		got := JobID("stripe", event)
		if want == "" {
			if queue.CheckID(got) != nil || strings.Contains(got, event) || got != JobID("stripe", event) {
				t.Errorf("%q: %q", event, got)
			}
		} else if got != want {
			t.Errorf("%q: %q, want %q", event, got, want)
		}
	}
	if id := JobID(strings.Repeat("n", 63), long); queue.CheckID(id) != nil {
		t.Errorf("the longest name and a digest: %q is no id", id)
	}
	if JobID("w", long) == JobID("w", long+"e") {
		t.Error("two events, one id")
	}
}

func TestConfigRefused(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"no name":       func(c *Config) { c.Name = "" },
		"bad name":      func(c *Config) { c.Name = "a b" },
		"no queue":      func(c *Config) { c.Queue = nil },
		"no provider":   func(c *Config) { c.To.Provider = "" },
		"bad path":      func(c *Config) { c.To.Path = "../x" },
		"bad priority":  func(c *Config) { c.To.Priority = "urgent" },
		"WHK-13 secret": func(c *Config) { c.Options.Secrets = Secrets("") },
		"max_body":      func(c *Config) { c.MaxBody = -1 },
		"body_timeout":  func(c *Config) { c.BodyTimeout = -1 },
		"retry_after":   func(c *Config) { c.RetryAfter = time.Millisecond },
		"no methods":    func(c *Config) { c.Methods = []string{} },
		"bad method":    func(c *Config) { c.Methods = []string{"post"} },
		"content type":  func(c *Config) { c.ContentTypes = []string{"application/json; charset=utf-8"} },
		"public_url":    func(c *Config) { c.PublicURL = "hooks.example.com" },
		"public_url, ?": func(c *Config) { c.PublicURL = "https://h/?a=1" },
		"headers":       func(c *Config) { c.Headers = []string{"X Y"} },
		"encoding":      func(c *Config) { c.Headers = []string{"content-encoding"} },
		"secret's header": func(c *Config) {
			c.Options = Options{Scheme: SharedSecret, Header: "X-Tok", Secrets: Secrets(hush)}
			c.Headers = []string{"x-tok"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := Config{Name: "w", Options: Options{Scheme: Stripe, Secrets: Secrets(hush)}, To: Destination{Provider: "p"}, Queue: &fakeQueue{}}
			change(&c)
			_, err := New(c)
			if !errors.Is(err, ErrConfig) || strings.Contains(err.Error(), "hush") {
				t.Errorf("%v", err)
			}
		})
	}
}

// Scheme none is said loudly, and what else weakens a webhook is said.
func TestWarnings(t *testing.T) {
	for name, c := range map[string]struct {
		o    Options
		want []string
	}{
		"none":     {Options{Scheme: None}, []string{`"ERROR"`, "PROVES NOTHING", "repeats are not recognised"}},
		"hmac":     {Options{Scheme: HMAC, Header: "X", Secrets: Secrets("k")}, []string{"for ever", "repeats are not recognised"}},
		"id off":   {Options{Scheme: GitHub, Secrets: Secrets("k"), EventID: EventID{Off: true}}, []string{"repeats are not recognised"}},
		"all well": {Options{Scheme: Stripe, Secrets: Secrets("k")}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			b := newWorkbench(t, func(cfg *Config) { cfg.Options = c.o })
			log := b.log.String()
			for _, w := range c.want {
				if !strings.Contains(log, w) {
					t.Errorf("%q is not in %s", w, log)
				}
			}
			if len(c.want) == 0 && log != "" {
				t.Errorf("logged %s", log)
			}
		})
	}
	// Without an id every delivery is a job of its own.
	b := newWorkbench(t, func(cfg *Config) { cfg.Options = Options{Scheme: None} })
	for range 2 {
		if w := b.deliver(b.request(t, "same")); w.Code != 200 {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
	}
	if jobs := b.queue.all(); len(jobs) != 2 || jobs[0].ID == jobs[1].ID {
		t.Errorf("%d jobs", len(jobs))
	}
}

// Who floods a webhook does not flood the log.
func TestLogIsSparse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newWorkbench(t, nil)
		for range 1000 {
			r := b.request(t, stripeBody)
			r.Header.Del("Stripe-Signature")
			b.deliver(r)
		}
		time.Sleep(logEvery)
		r := b.request(t, stripeBody)
		r.Header.Del("Stripe-Signature")
		b.deliver(r)
		log := b.log.String()
		if strings.Count(log, "\n") != 2 || !strings.Contains(log, `"not_logged":999`) {
			t.Errorf("logged %s", log)
		}
		if len(b.seen.got) != 1001 {
			t.Errorf("%d counted", len(b.seen.got))
		}
	})
}

func BenchmarkHandler(b *testing.B) {
	w := newWorkbench(b, func(c *Config) { c.Logger, c.Observer = slog.New(slog.DiscardHandler), nil })
	body := `{"id":"evt_1","data":"` + strings.Repeat("x", 1000) + `"}`
	r := w.request(b, body)
	for b.Loop() {
		r.Body = io.NopCloser(strings.NewReader(body))
		if rec := w.deliver(r); rec.Code != 200 {
			b.Fatal(rec.Code)
		}
	}
}
