package app

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/penstock-io/penstock/internal/config"
	"github.com/penstock-io/penstock/internal/redistest"
	"github.com/penstock-io/penstock/shaper/limithttp"
)

const (
	billingToken = "billing-0123456789abcdef"
	reportsToken = "reports-0123456789abcdef"
)

// doorSource is a configuration with a door. Rates are of hours, and decisions
// may take their time, so that no test depends on how fast it runs.
func doorSource(store, door string) string {
	return fmt.Sprintf(`redis: %q
listen: 127.0.0.1:0
auth:
  producers: [{name: billing, token: %s}, {name: reports, token: %s}]
  operators: [{name: ops, token: %s}]
providers: {sms: {base_url: "http://127.0.0.1:1", concurrency: 5}}
webhooks: {shop: {path: /hooks/shop, scheme: none, to: {provider: sms, path: /events}}}
door:
  store_timeout: 10s
%s`, store, billingToken, reportsToken, testToken, door)
}

// doorAnswer is what a request got.
type doorAnswer struct {
	status int
	header http.Header
	body   string
	said   struct {
		Type, Rule, Documentation, Fix, Code string
		RetryAfter                           int `json:"retry_after"`
	}
}

// ask sends a request as a user would; kv are headers.
func (r *running) ask(method, path, token, body string, kv ...string) doorAnswer {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), method, r.url+path, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	for i := 0; i < len(kv); i += 2 {
		req.Header.Set(kv[i], kv[i+1])
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	a := doorAnswer{status: resp.StatusCode, header: resp.Header, body: string(b)}
	_ = json.Unmarshal(b, &a.said)
	return a
}

// statuses sends the same request n times.
func (r *running) statuses(n int, method, path, token string, kv ...string) string {
	r.t.Helper()
	var out []string
	for range n {
		out = append(out, strconv.Itoa(r.ask(method, path, token, "", kv...).status))
	}
	return strings.Join(out, " ")
}

// metric reads one series.
func (r *running) metric(series string) string {
	r.t.Helper()
	for line := range strings.Lines(r.ask("GET", "/metrics", testToken, "").body) {
		if v, ok := strings.CutPrefix(line, series+" "); ok {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

func bothStores(t *testing.T, f func(t *testing.T, store string)) {
	t.Run("embedded", func(t *testing.T) { f(t, "embedded") })
	t.Run("redis", func(t *testing.T) { f(t, redistest.Start(t).URL()) })
}

// Every answer tells the limits in each dialect that is configured, whatever
// its status; a refusal says which rule, when to come back, and where it is
// documented. Health and metrics are never limited.
func TestDoorAnswers(t *testing.T) {
	bothStores(t, func(t *testing.T, store string) {
		r := serve(t, doorSource(store, `
  rules: [{name: per-token, by: token|address, rate: 4/h, warn_at: 50%}]
  fields: [ietf, ratelimit, x-ratelimit]
  documentation: https://docs.example/limits
`), Options{Role: RoleAPI})
		want := []int{200, 404, 400, 404, 429}
		for i, q := range [][2]string{{"GET", "/v1/jobs?provider=sms"}, {"GET", "/v1/jobs/sms/x"}, {"POST", "/v1/jobs"}, {"GET", "/nowhere"}, {"GET", "/v1/jobs?provider=sms"}} {
			a := r.ask(q[0], q[1], billingToken, "")
			if a.status != want[i] {
				t.Fatalf("%v: %d %s", q, a.status, a.body)
			}
			left := strconv.Itoa(max(0, 3-i))
			h := a.header
			if h.Get("RateLimit-Policy") != `"per-token";q=4;w=3600` || !strings.HasPrefix(h.Get("RateLimit"), `"per-token";r=`+left+`;t=`) ||
				h.Get("RateLimit-Limit") != "4" || h.Get("RateLimit-Remaining") != left || h.Get("X-RateLimit-Limit") != "4" || h.Get("X-RateLimit-Remaining") != left {
				t.Errorf("%v: %v", q, h)
			}
			if at, err := strconv.ParseInt(h.Get("X-RateLimit-Reset"), 10, 64); err != nil || at < time.Now().Unix() || at > time.Now().Unix()+3601 {
				t.Errorf("X-RateLimit-Reset %s", h.Get("X-RateLimit-Reset"))
			}
			if warned := h.Get(limithttp.WarningHeader) != ""; warned != (i >= 1) {
				t.Errorf("request %d warned: %v", i+1, warned)
			}
			if got := limithttp.ReadFields(h); len(got) == 0 || got[0].Limit != 4 || got[0].Window != time.Hour {
				t.Errorf("our own parser reads nothing: %v", h) // IETF
			}
		}
		a := r.ask("GET", "/v1/jobs?provider=sms", billingToken, "")
		wait, err := strconv.Atoi(a.header.Get("Retry-After"))
		if a.status != 429 || err != nil || wait < 800 || wait > 900 || a.said.RetryAfter != wait || a.said.Rule != "per-token" ||
			a.said.Documentation != "https://docs.example/limits#per-token" || a.said.Fix == "" || a.header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("refused: %d %v %s", a.status, a.header, a.body)
		}
		if got := r.statuses(2, "GET", "/v1/jobs?provider=sms", reportsToken); got != "200 200" {
			t.Errorf("another token: %s", got)
		}
		for _, path := range []string{"/healthz", "/readyz", "/metrics"} {
			if got := r.statuses(6, "GET", path, testToken); strings.Contains(got, "429") {
				t.Errorf("%s: %s", path, got)
			}
		}
		if got := r.metric(`penstock_limit_decisions_total{outcome="refused",rule="per-token"}`); got != "2" {
			t.Errorf("%s refusals counted", got)
		}
		if s := r.logs.String(); strings.Contains(s, billingToken) {
			t.Error("a token in the log")
		}
	})
}

// Guessed tokens are counted by their address, plans and organisations by what
// the file says of a token; a request that one rule refuses costs the others
// nothing.
func TestDoorClients(t *testing.T) {
	bothStores(t, func(t *testing.T, store string) {
		r := serve(t, doorSource(store, `
  rules:
    - {name: per-token, by: token|address, rate: 2/h, plans: {gold: {rate: 4/h}}}
    - {name: per-organisation, by: organisation, rate: 5/h, algorithm: sliding_log}
  clients: [{token: billing, organisation: shop, plan: gold}, {token: reports, organisation: shop}, {token: ops, organisation: us}]
  allow: {organisations: [us]}
`), Options{Role: RoleAPI})
		if got := r.statuses(3, "GET", "/v1/jobs?provider=sms", "guess-1") + " " + r.statuses(1, "GET", "/v1/jobs?provider=sms", "guess-2"); got != "401 401 429 429" {
			t.Errorf("guesses: %s", got)
		}
		if got := r.statuses(6, "GET", "/v1/jobs?provider=sms", billingToken); got != "200 200 200 200 429 429" {
			t.Errorf("gold: %s", got)
		}
		if got := r.statuses(3, "GET", "/v1/jobs?provider=sms", reportsToken); got != "200 429 429" {
			t.Errorf("the organisation's last unit: %s", got)
		}
		if a := r.ask("GET", "/v1/jobs?provider=sms", reportsToken, ""); a.said.Rule != "per-organisation" {
			t.Errorf("%s", a.body)
		}
		if got := r.statuses(8, "GET", "/v1/jobs?provider=sms", testToken); strings.Contains(got, "429") {
			t.Errorf("allowed: %s", got)
		}
	})
}

// Lists go first, deny before allow; addresses come through trusted proxies,
// and an IPv6 network is one client.
func TestDoorAddresses(t *testing.T) {
	r := serve(t, doorSource("embedded", `
  rules: [{name: a, by: address, rate: 1/h}]
  deny: {addresses: [192.0.2.7, "2001:db8:bad::/48"], tokens: [reports]}
  allow: {addresses: [192.0.2.0/24]}
  trusted_proxies: [127.0.0.0/8, 10.0.0.0/8]
`), Options{Role: RoleAPI})
	from := func(addr string, n int) string {
		return r.statuses(n, "GET", "/login", "", "X-Forwarded-For", addr)
	}
	for _, c := range []struct{ addr, want string }{
		{"192.0.2.7", "403"}, {"192.0.2.8", "200"}, {"192.0.2.8", "200"}, {"2001:db8:bad::1", "403"},
		{"198.51.100.1", "200"}, {"198.51.100.1", "429"}, {"192.0.2.7, 198.51.100.1", "429"}, {"198.51.100.1, 10.1.2.3", "429"},
		{"2001:db8::1", "200"}, {"2001:db8::2", "429"}, {"2001:db8:0:1::1", "200"}, {"garbage", "200"},
	} {
		if got := from(c.addr, 1); got != c.want {
			t.Errorf("%s: %s, want %s", c.addr, got, c.want)
		}
	}
	if a := r.ask("GET", "/v1/jobs?provider=sms", reportsToken, "", "X-Forwarded-For", "192.0.2.8"); a.status != 403 || a.said.Fix == "" {
		t.Errorf("a denied token from an allowed address: %d %s", a.status, a.body)
	}
	if strings.Contains(r.logs.String(), "192.0.2.7") {
		t.Error("an address in the clear in the log")
	}
}

// A shadow refuses nobody and is counted; a canary refuses always the same
// tenants, on every server; both are hidden from those they do not hold.
func TestDoorShadowAndCanary(t *testing.T) {
	refused := func(t *testing.T) string {
		r := serve(t, doorSource("embedded", `
  rules:
    - {name: shadow, rate: 1/h, mode: shadow}
    - {name: canary, by: "header:X-Tenant", rate: 1/h, mode: canary 40%}
`), Options{Role: RoleAPI})
		var hit []string
		for i := range 50 {
			tenant := fmt.Sprintf("tenant-%d", i)
			first := r.ask("GET", "/login", "", "", "X-Tenant", tenant)
			second := r.ask("GET", "/login", "", "", "X-Tenant", tenant)
			if first.status != 200 {
				t.Errorf("%s: %d", tenant, first.status)
			}
			if held := strings.Contains(first.header.Get("RateLimit-Policy"), `"canary"`); held != (second.status == 429) {
				t.Errorf("%s: fields %v, then %d", tenant, first.header, second.status)
			}
			if second.status == 429 {
				hit = append(hit, tenant)
			}
		}
		if n, err := strconv.Atoi(r.metric(`penstock_limit_decisions_total{outcome="would_refuse",rule="shadow"}`)); err != nil || n < 50 {
			t.Errorf("the shadow would have refused %d", n)
		}
		if got := r.metric(`penstock_limit_decisions_total{outcome="refused",rule="shadow"}`); got != "0" {
			t.Errorf("the shadow refused %s", got)
		}
		return strings.Join(hit, " ")
	}
	var one, two string
	t.Run("one", func(t *testing.T) { one = refused(t) })
	t.Run("two", func(t *testing.T) { two = refused(t) })
	if n := len(strings.Fields(one)); one != two || n < 10 || n > 30 {
		t.Errorf("%d of 50: %s\nthen: %s", n, one, two)
	}
}

// A batch costs a unit a line, and what its route costs; rules that count
// requests count one.
func TestDoorBatch(t *testing.T) {
	bothStores(t, func(t *testing.T, store string) {
		r := serve(t, doorSource(store, `
  rules:
    - {name: jobs, by: token, routes: ["POST /v1/jobs", "POST /v1/jobs:batch"], rate: 10/h, costs: {"POST /v1/jobs:batch": 3}}
    - {name: requests, by: token, rate: 100/h, count: requests}
`), Options{Role: RoleAPI})
		var in strings.Builder
		for i := range 12 {
			fmt.Fprintf(&in, "{\"provider\":\"sms\",\"id\":\"j%d\",\"delay\":\"1h\"}\n", i)
		}
		a := r.ask("POST", "/v1/jobs:batch", billingToken, in.String())
		got := map[string]int{}
		for line := range strings.Lines(a.body) {
			var l struct {
				Status int
				Error  struct {
					RetryAfter int `json:"retry_after"`
					Fix        string
				}
			}
			if err := json.Unmarshal([]byte(line), &l); err != nil {
				t.Fatal(err)
			}
			got[strconv.Itoa(l.Status)]++
			if l.Status == 429 && (l.Error.RetryAfter < 300 || l.Error.RetryAfter > 360 || l.Error.Fix == "") {
				t.Errorf("%s", line)
			}
		}
		if diff := cmp.Diff(map[string]int{"202": 8, "429": 4}, got); diff != "" || a.status != 200 {
			t.Errorf("%d %s", a.status, diff)
		}
		if h := a.header.Get("RateLimit"); !strings.Contains(h, `"jobs";r=0`) {
			t.Errorf("the fields of the answer do not show the lines: %s", h)
		}
		a = r.ask("POST", "/v1/jobs:batch", billingToken, in.String())
		if a.status != 429 || a.said.Rule != "jobs" || a.header.Get("Retry-After") == "" {
			t.Errorf("nothing left: %d %s", a.status, a.body)
		}
		if a := r.ask("GET", "/v1/jobs?provider=sms", billingToken, ""); !strings.HasPrefix(a.header.Get("RateLimit"), `"requests";r=98;`) {
			t.Errorf("requests: %s", a.header.Get("RateLimit")) // a refused one costs nothing
		}
	})
}

// While Redis is away each rule does as it is told, and that is counted and
// logged apart.
func TestDoorStoreAway(t *testing.T) {
	red := redistest.Start(t)
	r := serve(t, doorSource(red.URL(), `
  rules:
    - {name: open, routes: [GET /v1/jobs], rate: 100/h}
    - {name: closed, routes: [POST /v1/jobs], rate: 100/h, when_store_away: closed}
    - {name: local, routes: [GET /login], rate: 8/h, when_store_away: local_share 25%}
`), Options{Role: RoleAPI})
	if got := r.statuses(1, "GET", "/login", "") + " " + r.statuses(1, "GET", "/v1/jobs?provider=sms", billingToken); got != "200 200" {
		t.Fatal(got)
	}
	red.Kill()
	if a := r.ask("GET", "/v1/jobs?provider=sms", billingToken, ""); a.status != 503 || a.said.Code != "store_away" || a.header.Get("RateLimit") != "" {
		t.Errorf("open lets it pass, to an API that has no store: %d %s %v", a.status, a.body, a.header)
	}
	if a := r.ask("POST", "/v1/jobs", billingToken, `{"provider":"sms"}`); a.status != 503 || a.said.Rule != "closed" || a.header.Get("Retry-After") != "1" {
		t.Errorf("closed: %d %s", a.status, a.body)
	}
	if got := r.statuses(4, "GET", "/login", ""); got != "200 200 429 429" {
		t.Errorf("a quarter of 8: %s", got)
	}
	for series, want := range map[string]string{
		`penstock_limit_store_away_total{by="open",rule="open"}`: "1", `penstock_limit_store_away_total{by="closed",rule="closed"}`: "1",
		`penstock_limit_store_away_total{by="local",rule="local"}`: "4", `penstock_limit_store_away_total{by="closed",rule="open"}`: "0",
	} {
		if got := r.metric(series); got != want {
			t.Errorf("%s is %s, want %s", series, got, want)
		}
	}
	for _, by := range []string{"open", "closed", "local"} {
		if !strings.Contains(r.logs.String(), `msg="limit decided without its store" rule=`+by+` by=`+by) {
			t.Errorf("nothing logged of %s", by)
		}
	}
	red.Restart()
	for deadline := time.Now().Add(20 * time.Second); r.ask("POST", "/v1/jobs", billingToken, `{"provider":"sms","id":"back","delay":"1h"}`).status >= 500; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it does not come back")
		}
	}
}

// Who goes on in spite of refusals is blocked, for longer each time; the audit
// file tells all of it, without a name in the clear.
func TestDoorEscalationAndAudit(t *testing.T) {
	audit := filepath.Join(t.TempDir(), "audit.log")
	r := serve(t, doorSource("embedded", fmt.Sprintf(`
  audit_file: %s
  rules: [{name: a, by: token|address, rate: 1/h, escalation: {strikes: 3, block: 2h, longest: 8h}, audit: true}]
`, audit)), Options{Role: RoleAPI})
	if got := r.statuses(5, "GET", "/v1/jobs?provider=sms", billingToken); got != "200 429 429 429 429" {
		t.Fatal(got)
	}
	a := r.ask("GET", "/v1/jobs?provider=sms", billingToken, "")
	if a.said.RetryAfter < 7000 || a.said.RetryAfter > 7200 || !strings.HasSuffix(a.said.Type, "#abnormal-usage-detected") {
		t.Errorf("blocked: %s", a.body)
	}
	if got := r.statuses(1, "GET", "/v1/jobs?provider=sms", reportsToken); got != "200" {
		t.Errorf("another: %s", got)
	}
	if got := r.metric(`penstock_limit_decisions_total{outcome="blocked",rule="a"}`); got != "2" {
		t.Errorf("%s blocked", got)
	}
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(audit)
	if err != nil {
		t.Fatal(err)
	}
	msgs, clients := map[string]int{}, map[string]bool{}
	for line := range strings.Lines(string(b)) {
		var l struct{ Msg, Rule, Client, Outcome string }
		if err := json.Unmarshal([]byte(line), &l); err != nil || l.Rule != "a" {
			t.Fatalf("%v %s", err, line)
		}
		msgs[l.Msg+" "+l.Outcome]++
		clients[l.Client] = true
	}
	if diff := cmp.Diff(map[string]int{"limit audit allowed": 2, "limit audit refused": 3, "limit audit blocked": 2, "limit strike ": 3}, msgs); diff != "" {
		t.Error(diff)
	}
	if len(clients) != 2 || strings.Contains(string(b), "billing") {
		t.Errorf("clients %v", slices.Collect(maps.Keys(clients)))
	}
	if st, err := os.Stat(audit); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", st.Mode(), err)
	}
}

// Webhooks stand behind the door, too, each path by its own rule.
func TestDoorWebhooks(t *testing.T) {
	r := serve(t, doorSource("embedded", `
  rules: [{name: hooks, by: route, routes: ["POST /hooks/shop"], rate: 2/h}]
`), Options{Role: RoleAPI})
	var got []int
	for i := range 3 {
		a := r.ask("POST", "/hooks/shop", "", fmt.Sprintf(`{"n":%d}`, i), "Content-Type", "application/json")
		got = append(got, a.status)
		if a.header.Get("RateLimit-Policy") != `"hooks";q=2;w=3600` {
			t.Errorf("%v", a.header)
		}
	}
	if !slices.Equal(got, []int{200, 200, 429}) {
		t.Errorf("%v", got)
	}
	if got := r.statuses(5, "GET", "/v1/jobs?provider=sms", billingToken); got != "200 200 200 200 200" {
		t.Errorf("not its route: %s", got)
	}
}

// Two processes on one Redis share a limit; namespaces do not.
func TestDoorFleet(t *testing.T) {
	red := redistest.Start(t)
	src := doorSource(red.URL(), "  rules: [{name: a, rate: 3/h}]\n")
	one, two := serve(t, src, Options{Role: RoleAPI}), serve(t, src, Options{Role: RoleAPI})
	other := serve(t, strings.Replace(src, `redis: "`+red.URL()+`"`, `redis: {url: "`+red.URL()+`", namespace: shop}`, 1), Options{Role: RoleAPI})
	if got := one.statuses(2, "GET", "/login", "") + " " + two.statuses(2, "GET", "/login", "") + " " + other.statuses(3, "GET", "/login", ""); got != "200 200 200 429 200 200 200" {
		t.Error(got)
	}
}

// Without a door there are no fields, and a file that cannot be written stops the start.
func TestDoorOff(t *testing.T) {
	src, _, _ := strings.Cut(doorSource("embedded", ""), "door:")
	r := serve(t, src, Options{Role: RoleAPI})
	a := r.ask("GET", "/login", "", "")
	for name := range a.header {
		if strings.Contains(strings.ToLower(name), "ratelimit") {
			t.Errorf("%s", name)
		}
	}
	cfg := parse(t, doorSource("embedded", "  audit_file: /nonexistent/audit.log\n  rules: [{name: a, rate: 1/h, audit: true}]\n"))
	if err := Serve(t.Context(), cfg, Options{Role: RoleAPI}); err == nil || !strings.Contains(err.Error(), "door.audit_file: open /nonexistent/audit.log") {
		t.Errorf("%v", err)
	}
}

// Every route of the API that the door's configuration knows is one that the
// API has, and the other way round.
func TestDoorKnowsRoutes(t *testing.T) {
	src, err := os.ReadFile("../api/server.go")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for line := range strings.Lines(string(src)) {
		for part := range strings.SplitSeq(line, `"`) {
			method, path, ok := strings.Cut(part, " ")
			if !ok || !slices.Contains([]string{"GET", "POST", "PATCH", "DELETE"}, method) || !strings.HasPrefix(path, "/") || slices.Contains(openPaths, path) || strings.Contains(path, "…") {
				continue
			}
			n++
			door := fmt.Sprintf("  rules: [{name: a, rate: 1/h, routes: [%q]}]\n", part)
			if _, rep := config.Parse("x.yaml", []byte(doorSource("embedded", door)), os.LookupEnv); rep.Failed() {
				t.Errorf("%s: %s", part, rep)
			}
		}
	}
	if n < 14 {
		t.Errorf("only %d routes", n)
	}
}
