package app

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/penstock-io/penstock/internal/config"
	"github.com/penstock-io/penstock/internal/redistest"
	"github.com/penstock-io/penstock/queue"
	"github.com/penstock-io/penstock/webhooks"
)

const (
	hookSecret = "whsec_topsecret_topsecret"
	outSecret  = "whsec_dG9wc2VjcmV0dG9wc2VjcmV0dG9wc2VjcmV0"
)

// hookSource is a configuration with one webhook of Stripe and one of a partner.
func hookSource(store, base, extra string) string {
	return source(store, base, fmt.Sprintf(`    sign: {scheme: standard, secrets: [%s]}
    max_body: 64KiB
webhooks:
  stripe: {path: /hooks/stripe, scheme: stripe, secrets: [%s], max_body: 1KiB, to: {provider: sms, path: /events}}
  partner:
    path: /hooks/partner
    scheme: hmac
    header: X-Sig
    secrets: [%s]
    event_id: {header: X-Id}
    headers: [Content-Type, X-Kind]
    body_timeout: 200ms
    to: {provider: sms, path: /partner}
%s`, outSecret, hookSecret, hookSecret, extra))
}

// sender signs and sends deliveries to one webhook.
type sender struct {
	t      *testing.T
	url    string
	signer *webhooks.Signer
}

func newSender(t *testing.T, url string, o webhooks.Options) *sender {
	t.Helper()
	s, err := webhooks.NewSigner(o)
	if err != nil {
		t.Fatal(err)
	}
	return &sender{t: t, url: url, signer: s}
}

func (r *running) stripe() *sender {
	return newSender(r.t, r.url+"/hooks/stripe", webhooks.Options{Scheme: webhooks.Stripe, Secrets: webhooks.Secrets(hookSecret)})
}

// delivery is a signed request.
func (s *sender) delivery(body string, at time.Time) *http.Request {
	s.t.Helper()
	m := &webhooks.Message{Method: "POST", URL: s.url, Header: http.Header{"Content-Type": {"application/json"}}, Body: []byte(body)}
	if err := s.signer.Sign(m, "id-1", at); err != nil {
		s.t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(s.t.Context(), "POST", s.url, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header = m.Header
	return r
}

// answer is what a sender reads.
type answer struct {
	status int
	result string
	retry  string
	reason string
	fix    string
}

func (s *sender) send(r *http.Request) answer {
	s.t.Helper()
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	defer http.DefaultClient.CloseIdleConnections()
	b, _ := io.ReadAll(resp.Body)
	a := answer{status: resp.StatusCode, result: resp.Header.Get(webhooks.ResultHeader), retry: resp.Header.Get("Retry-After")}
	if resp.StatusCode != http.StatusOK {
		var p struct{ Reason, Fix string }
		if err := json.Unmarshal(b, &p); err != nil {
			s.t.Errorf("the answer is no problem document: %q", b)
		}
		a.reason, a.fix = p.Reason, p.Fix
	}
	return a
}

// Webhooks through the whole of serve, on both kinds of store: stored before
// the 200, once, delivered unchanged and signed; each refusal has its answer,
// its metric and its line.
func TestWebhooks(t *testing.T) {
	stores := map[string]func(*testing.T) string{
		"embedded": func(*testing.T) string { return "embedded" },
		"redis":    func(t *testing.T) string { return "redis://" + redistest.Start(t).Addr },
	}
	for name, store := range stores {
		t.Run(name, func(t *testing.T) {
			d := newDownstream(t)
			r := serve(t, hookSource(store(t), d.URL+"/v1", ""), Options{})
			delivered(t, r, d)
			refused(t, r)
			hookMetrics(t, r)
			badBodies(t, r)
			if err := r.stop(); err != nil {
				t.Errorf("stop: %v", err)
			}
			if s := r.logs.String(); strings.Contains(s, "topsecret") || strings.Contains(s, "dG9wc2Vj") || strings.Contains(s, "v1=") {
				t.Errorf("OUT-06: a secret or a signature in the log")
			}
		})
	}
}

func delivered(t *testing.T, r *running, d *downstream) {
	t.Helper()
	const body = `{"id": "evt_1", "n": 9007199254740993, "x": "é\u00e9\/"}` + "\r\n"
	s := r.stripe()
	if a := s.send(s.delivery(body, time.Now())); a.status != 200 || a.result != "accepted" {
		t.Fatalf("%+v", a)
	}
	i := r.until("sms", "stripe:evt_1", queue.Succeeded)
	if left := time.Until(i.KeptUntil); left < webhooks.DefaultWindow-time.Minute {
		t.Errorf("WHK-03: the id is kept for %s", left)
	}
	d.mu.Lock()
	got := []string{d.last.Method, d.last.URL.Path, d.last.Header.Get("Authorization"), d.last.Header.Get("Content-Type"), d.last.Header.Get("Stripe-Signature"), d.body}
	header := d.last.Header.Clone()
	d.mu.Unlock()
	if want := []string{"POST", "/v1/events", "Bearer topsecret", "application/json", "", body}; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the application saw %q, want %q", got, want)
	}
	v, err := webhooks.NewVerifier(webhooks.Options{Scheme: webhooks.Standard, Secrets: webhooks.Secrets(outSecret)})
	if err != nil {
		t.Fatal(err)
	}
	if ev, err := v.Open(&webhooks.Message{Method: "POST", Header: header, Body: []byte(body)}, time.Now()); err != nil || ev.ID != "stripe:evt_1" {
		t.Errorf("OUT-03: signed inward: %+v %v", ev, err)
	}
	// The same event once more, signed at another time, with other bytes round it.
	if a := s.send(s.delivery(body+" ", time.Now().Add(time.Second))); a.status != 200 || a.result != "duplicate" {
		t.Errorf("a repeat: %+v", a)
	}

	p := newSender(t, r.url+"/hooks/partner", webhooks.Options{Scheme: webhooks.HMAC, Header: "X-Sig", Secrets: webhooks.Secrets(hookSecret)})
	req := p.delivery("raw \x00\xff", time.Now())
	req.Header.Set("Content-Type", "application/octet-stream")
	req.Header.Set("X-Id", "order/1 é")
	req.Header.Set("X-Kind", "paid")
	req.Header.Set("X-Other", "not passed on")
	if a := p.send(req); a.status != 200 || a.result != "accepted" {
		t.Fatalf("%+v", a)
	}
	r.until("sms", "partner:order/1 é", queue.Succeeded)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.body != "raw \x00\xff" || d.last.Header.Get("X-Kind") != "paid" || d.last.Header.Get("X-Other") != "" {
		t.Errorf("the application saw %q %v", d.body, d.last.Header)
	}
}

// refused: a clear answer for each, and nothing stored.
func refused(t *testing.T, r *running) {
	t.Helper()
	s := r.stripe()
	wrong := newSender(t, s.url, webhooks.Options{Scheme: webhooks.Stripe, Secrets: webhooks.Secrets("another_secret_of_someone")})
	const body = `{"id":"evt_refused"}`
	now := time.Now()
	unsigned := s.delivery(body, now)
	unsigned.Header.Del("Stripe-Signature")
	changed := s.delivery(body, now)
	changed.Body, changed.ContentLength = io.NopCloser(strings.NewReader(`{"id":"evt_refuseD"}`)), int64(len(body))
	get := s.delivery(body, now)
	get.Method = "GET"
	typed := s.delivery(body, now)
	typed.Header.Set("Content-Type", "text/html")
	noID := s.delivery(`{"n":1}`, now)
	for name, c := range map[string]struct {
		r      *http.Request
		status int
		reason webhooks.Reason
	}{
		"WHK-13 wrong secret":     {wrong.delivery(body, now), 401, webhooks.WrongSignature},
		"WHK-12 no signature":     {unsigned, 401, webhooks.NoSignature},
		"WHK-08 other bytes":      {changed, 401, webhooks.WrongSignature},
		"WHK-10 stale":            {s.delivery(body, now.Add(-6*time.Minute)), 401, webhooks.Stale},
		"WHK-10 of the future":    {s.delivery(body, now.Add(6*time.Minute)), 401, webhooks.Future},
		"WHK-06 too large":        {s.delivery(`{"id":"x"}`+strings.Repeat(" ", 1024), now), 413, webhooks.TooLarge},
		"a method it does not":    {get, 405, webhooks.BadMethod},
		"a type that it does not": {typed, 415, webhooks.BadType},
		"no event id":             {noID, 400, webhooks.NoEventID},
	} {
		if a := s.send(c.r); a.status != c.status || a.reason != string(c.reason) || a.result != "refused" {
			t.Errorf("%s: %+v, want %d %s", name, a, c.status, c.reason)
		}
		if !strings.Contains(r.logs.String(), "reason="+string(c.reason)) {
			t.Errorf("%s: no line with reason=%s", name, c.reason)
		}
	}
	if i, err := r.client.Job(t.Context(), "sms", "stripe:evt_refused"); err == nil {
		t.Errorf("stored all the same: %+v", i)
	}
	// The API is still itself, with its door.
	resp, err := http.Get(r.url + "/v1/providers")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	http.DefaultClient.CloseIdleConnections()
	if resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("the API without a token: %d", resp.StatusCode)
	}
}

// badBodies: what does not arrive whole, in time or in bounds is answered for
// what it is, and its connection closed.
func badBodies(t *testing.T, r *running) {
	t.Helper()
	const head = "POST /hooks/%s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
	for name, c := range map[string]struct {
		hook, rest string
		close      bool // our half, after rest
		status     int
		reason     webhooks.Reason
	}{
		"cut body":                     {"stripe", "Content-Length: 100\r\n\r\n{", true, 400, webhooks.CutBody},
		"WHK-05 slow body":             {"partner", "Content-Length: 100\r\n\r\n{", false, 408, webhooks.SlowBody},
		"WHK-05 a stated GiB":          {"stripe", "Content-Length: 1073741824\r\n\r\n", false, 413, webhooks.TooLarge},
		"WHK-05 chunks without an end": {"stripe", "Transfer-Encoding: chunked\r\n\r\n" + strings.Repeat("100\r\n"+strings.Repeat("x", 256)+"\r\n", 8), false, 413, webhooks.TooLarge},
	} {
		conn, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Fprintf(conn, head+"%s", c.hook, c.rest); err != nil {
			t.Fatal(err)
		}
		if c.close {
			_ = conn.(*net.TCPConn).CloseWrite()
		}
		_ = conn.SetReadDeadline(time.Now().Add(20 * time.Second))
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		text, err := io.ReadAll(resp.Body)
		conn.Close()
		if err != nil || resp.StatusCode != c.status || !strings.Contains(string(text), `"reason":"`+string(c.reason)+`"`) || !resp.Close {
			t.Errorf("%s: %d %s %v", name, resp.StatusCode, text, err)
		}
		if !strings.Contains(r.logs.String(), "reason="+string(c.reason)) {
			t.Errorf("%s: no line of it", name)
		}
	}
}

// metricsOf are the lines of /metrics that hold a text.
func (r *running) metricsOf(text string) string {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), "GET", r.url+"/metrics", nil)
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+testToken)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	defer http.DefaultClient.CloseIdleConnections()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	var out bytes.Buffer
	for line := range strings.Lines(string(b)) {
		if strings.Contains(line, text) && !strings.HasPrefix(line, "#") {
			out.WriteString(line)
		}
	}
	return out.String()
}

func hookMetrics(t *testing.T, r *running) {
	t.Helper()
	got := r.metricsOf("penstock_webhook_")
	for _, want := range []string{
		`penstock_webhook_deliveries_total{result="accepted",webhook="stripe"} 1`,
		`penstock_webhook_deliveries_total{result="duplicate",webhook="stripe"} 1`,
		`penstock_webhook_deliveries_total{result="accepted",webhook="partner"} 1`,
		`penstock_webhook_deliveries_total{result="refused",webhook="stripe"} 9`,
		`penstock_webhook_refusals_total{reason="wrong_signature",webhook="stripe"} 2`,
		`penstock_webhook_refusals_total{reason="stale",webhook="stripe"} 1`,
		`penstock_webhook_refusals_total{reason="too_large",webhook="stripe"} 1`,
		`penstock_webhook_signatures_total{secret="1",webhook="stripe"} 2`,
		`penstock_webhook_answer_duration_seconds_count{result="accepted",webhook="stripe"} 1`,
	} {
		if !strings.Contains(got, want+"\n") {
			t.Errorf("there is no %s in\n%s", want, got)
		}
	}
	if strings.Contains(got, "penstock_webhook_spool") {
		t.Error("figures of a spool that is not there")
	}
}

// Every role serves what it should: a worker takes no webhooks.
func TestWebhooksByRole(t *testing.T) {
	d := newDownstream(t)
	srv := redistest.Start(t)
	src := hookSource("redis://"+srv.Addr, d.URL, "")
	w := serve(t, src, Options{Role: RoleWorker, Listen: "127.0.0.1:0"})
	s := newSender(t, w.url+"/hooks/stripe", webhooks.Options{Scheme: webhooks.Stripe, Secrets: webhooks.Secrets(hookSecret)})
	resp, err := http.DefaultClient.Do(s.delivery(`{"id":"evt_1"}`, time.Now()))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	http.DefaultClient.CloseIdleConnections()
	if resp.StatusCode != http.StatusNotFound {
		t.Errorf("a worker answered %d", resp.StatusCode)
	}
	a := serve(t, src, Options{Role: RoleAPI})
	s = a.stripe()
	if got := s.send(s.delivery(`{"id":"evt_1"}`, time.Now())); got.status != 200 {
		t.Errorf("%+v", got)
	}
	a.until("sms", "stripe:evt_1", queue.Succeeded)
}

// Every route of the API is one that no webhook may have.
func TestReservedPaths(t *testing.T) {
	files, err := filepath.Glob("../api/*.go")
	if err != nil {
		t.Fatal(err)
	}
	route := regexp.MustCompile(`"(?:(?:GET|POST|PUT|PATCH|DELETE) )?(/[a-z0-9{][^" ]*|/)"`)
	found := 0
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") || filepath.Base(file) != "server.go" {
			continue
		}
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range route.FindAllStringSubmatch(string(b), -1) {
			p := strings.NewReplacer("{$}", "", "{", "", "}", "").Replace(m[1])
			found++
			if !config.IsReservedPath(p) {
				t.Errorf("%s is the API's, and a webhook may take it", p)
			}
		}
	}
	if found < 15 {
		t.Fatalf("only %d routes found", found)
	}
}
