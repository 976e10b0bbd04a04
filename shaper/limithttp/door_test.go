package limithttp

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/penstock-io/penstock/internal/redistest"
	"github.com/penstock-io/penstock/shaper"
)

// tally is an Observer that counts.
type tally struct {
	mu sync.Mutex
	n  map[string]int
}

func (o *tally) LimitDecided(rule string, out Outcome, by shaper.Source) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.n == nil {
		o.n = map[string]int{}
	}
	o.n[fmt.Sprint(rule, " ", out)]++
	if by != shaper.FromStore && by != shaper.FromBatch {
		o.n[fmt.Sprint(rule, " by ", by)]++
	}
}
func (o *tally) LimitTook(time.Duration) {}

// testDoor is a door with all that it talks to.
type testDoor struct {
	*Door
	h    http.Handler
	seen *tally
	log  *bytes.Buffer
}

func newTestDoor(t testing.TB, cfg Config) *testDoor {
	t.Helper()
	d := &testDoor{seen: &tally{}, log: &bytes.Buffer{}}
	if cfg.Store == nil {
		cfg.Store = shaper.NewMemoryLimitStore(shaper.MemoryLimits{})
	}
	cfg.Observer, cfg.Logger = d.seen, slog.New(slog.NewJSONHandler(d.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	var err error
	if d.Door, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	d.h = d.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "ok") }))
	return d
}

// call sends a request; kv are headers.
func (d *testDoor) call(method, target string, kv ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, nil)
	for i := 0; i < len(kv); i += 2 {
		if kv[i] == "from" {
			r.RemoteAddr = kv[i+1]
			continue
		}
		r.Header.Add(kv[i], kv[i+1])
	}
	w := httptest.NewRecorder()
	d.h.ServeHTTP(w, r)
	return w
}

func perMinute(n int64, a shaper.Algorithm) shaper.Policy {
	return shaper.Policy{Algorithm: a, Rate: shaper.Rate{N: n, Per: time.Minute}}
}

// Every answer says the limits in the dialects that are configured; a refusal
// says which rule, when to come back, and where it is documented.
func TestAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(10 * time.Second) // into the minute
		d := newTestDoor(t, Config{
			Rules: []Rule{
				{Name: "per-key", By: []string{"api_key"}, Policy: perMinute(2, shaper.FixedWindow)},
				{Name: "all", Policy: shaper.Policy{Algorithm: shaper.GCRA, Rate: shaper.Rate{N: 100, Per: time.Second}, Burst: 10}},
			},
			Fields: Dialects(), Documentation: "https://docs.example/limits",
		})
		var got []string
		for range 3 {
			w := d.call("GET", "/", "X-Api-Key", "alice")
			h := w.Header()
			got = append(got, fmt.Sprintf("%d %s | %s | %s %s %s | %s %s %s | %s", w.Code, h.Get("RateLimit-Policy"), h.Get("RateLimit"),
				h.Get("RateLimit-Limit"), h.Get("RateLimit-Remaining"), h.Get("RateLimit-Reset"),
				h.Get("X-RateLimit-Limit"), h.Get("X-RateLimit-Remaining"), h.Get("X-RateLimit-Reset"), h.Get("Retry-After")))
			if as := ReadFields(h); len(as) != 2 || as[0].Policy != "per-key" || as[0].Limit != 2 || as[0].Window != time.Minute || as[1].Limit != 100 {
				t.Errorf("our own fields read back as %+v", as)
			}
		}
		const policy = `"per-key";q=2;w=60, "all";q=100;w=1`
		want := []string{
			"200 " + policy + ` | "per-key";r=1;t=50, "all";r=9;t=1 | 2 1 50 | 2 1 50 | `,
			"200 " + policy + ` | "per-key";r=0;t=50, "all";r=8;t=1 | 2 0 50 | 2 0 50 | `,
			"429 " + policy + ` | "per-key";r=0;t=50, "all";r=8;t=1 | 2 0 50 | 2 0 50 | 50`,
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
		w := d.call("GET", "/", "X-Api-Key", "alice")
		if Wait(ReadFields(w.Header())) != 50*time.Second {
			t.Errorf("the wait reads back as %s", Wait(ReadFields(w.Header())))
		}
		var p map[string]any
		if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil {
			t.Fatal(err)
		}
		wantBody := map[string]any{
			"type": typeQuota, "title": "Quota exceeded", "status": 429.0, "rule": "per-key", "violated-policies": []any{"per-key"},
			"retry_after": 50.0, "documentation": "https://docs.example/limits#per-key", "detail": `The limit "per-key" is used up.`,
			"fix": "Come back in 50 s, and read the RateLimit fields of each answer to stay below the limit.",
		}
		if diff := cmp.Diff(wantBody, p); diff != "" || w.Header().Get("Content-Type") != "application/problem+json" {
			t.Error(diff, w.Header())
		}
		time.Sleep(50 * time.Second)
		if w := d.call("GET", "/", "X-Api-Key", "alice"); w.Code != 200 {
			t.Errorf("in time: %d", w.Code)
		}
		if d.seen.n["per-key refused"] != 2 || d.seen.n["per-key allowed"] != 3 || d.seen.n["all refused"] != 0 {
			t.Errorf("counted %v", d.seen.n)
		}
	})
}

func TestDialects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rule := Rule{Name: "r", Policy: perMinute(5, shaper.FixedWindow)}
		for _, c := range []struct {
			name   string
			fields []Dialect
			want   map[string]string
		}{
			{"default", nil, map[string]string{"Ratelimit": `"r";r=4;t=60`, "Ratelimit-Policy": `"r";q=5;w=60`}},
			{"none", []Dialect{}, map[string]string{}},
			{"three", []Dialect{FieldsThree}, map[string]string{"Ratelimit-Limit": "5", "Ratelimit-Remaining": "4", "Ratelimit-Reset": "60"}},
			{"x", []Dialect{FieldsX}, map[string]string{"X-Ratelimit-Limit": "5", "X-Ratelimit-Remaining": "4", "X-Ratelimit-Reset": fmt.Sprint(time.Now().Unix() + 60)}},
			{"x delta", []Dialect{FieldsXDelta}, map[string]string{"X-Ratelimit-Limit": "5", "X-Ratelimit-Remaining": "4", "X-Ratelimit-Reset": "60"}},
		} {
			d := newTestDoor(t, Config{Rules: []Rule{rule}, Fields: c.fields})
			got := map[string]string{}
			for k, vs := range d.call("GET", "/").Header() {
				if strings.Contains(k, "Ratelimit") {
					got[k] = strings.Join(vs, " | ")
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("%s: %s", c.name, diff)
			}
		}
	})
}

// RA, what we send: whole seconds, rounded up, never 0, never early.
func TestRetryAfterSent(t *testing.T) {
	digits := regexp.MustCompile(`^[1-9][0-9]*$`)
	for _, a := range shaper.Algorithms() {
		t.Run(string(a), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(12345678 * time.Microsecond)
				p := shaper.Policy{Algorithm: a, Rate: shaper.Rate{N: 3, Per: 10*time.Second + 1234*time.Microsecond}}
				if a == shaper.Concurrency {
					t.Log("places are given back, not waited for")
					return
				}
				d := newTestDoor(t, Config{Rules: []Rule{{Name: "r", Policy: p}}})
				refused := 0
				for range 40 {
					w := d.call("GET", "/")
					if w.Code == 200 {
						continue
					}
					refused++
					ra := w.Header().Get("Retry-After")
					if w.Code != 429 || !digits.MatchString(ra) {
						t.Fatalf("%d, Retry-After %q", w.Code, ra)
					}
					for _, f := range ReadFields(w.Header()) {
						if fmt.Sprint(int64(f.Reset/time.Second)) != ra || f.Remaining != 0 {
							t.Fatalf("Retry-After %s beside %+v", ra, f)
						}
					}
					secs, _ := strconv.Atoi(ra)
					time.Sleep(time.Duration(secs) * time.Second)
					if w := d.call("GET", "/"); w.Code != 200 {
						t.Fatalf("refused after the stated %s s", ra)
					}
				}
				if refused == 0 {
					t.Error("nothing was refused")
				}
			})
		})
	}
}

// A key, its organisation, all: what one refuses costs the others nothing.
func TestHierarchyAndPlans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newTestDoor(t, Config{
			Identify: func(r *http.Request) Client {
				org, key, _ := strings.Cut(r.Header.Get("X-Who"), "/")
				return Client{APIKey: key, Organisation: org, Plan: r.Header.Get("X-Plan")}
			},
			Rules: []Rule{
				{Name: "key", By: []string{"api_key"}, Policy: perMinute(3, shaper.TokenBucket), Plans: map[string]shaper.Policy{"gold": perMinute(30, shaper.TokenBucket)}},
				{Name: "org", By: []string{"organisation"}, Policy: perMinute(5, shaper.TokenBucket)},
				{Name: "all", Policy: perMinute(9, shaper.TokenBucket)},
			},
		})
		count := func(who, plan string, n int) (ok int, last string) {
			for range n {
				w := d.call("GET", "/", "X-Who", who, "X-Plan", plan)
				if w.Code == 200 {
					ok++
				} else {
					var p struct{ Rule string }
					_ = json.Unmarshal(w.Body.Bytes(), &p)
					last = p.Rule
				}
			}
			return ok, last
		}
		for _, c := range []struct {
			who, plan string
			ok        int
			last      string
		}{
			{"acme/a", "", 3, "key"}, {"acme/b", "", 2, "org"}, {"acme/c", "gold", 0, "org"},
			{"corp/d", "gold", 4, "all"}, {"corp/e", "", 0, "all"},
		} {
			if ok, last := count(c.who, c.plan, 10); ok != c.ok || last != c.last {
				t.Errorf("%s (%s): %d passed, then %q; want %d, then %q", c.who, c.plan, ok, last, c.ok, c.last)
			}
		}
	})
}

func TestKeys(t *testing.T) {
	trusted := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")}
	for _, c := range []struct {
		name   string
		by     []string
		a, b   []string // two requests
		same   bool
		header string
	}{
		{"keys", []string{"api_key"}, []string{"X-Api-Key", "a"}, []string{"X-Api-Key", "b"}, false, ""},
		{"one key, two ways", []string{"api_key"}, []string{"X-Api-Key", "a"}, []string{"Authorization", "bearer a"}, true, ""},
		{"no key, one count", []string{"api_key"}, []string{"from", "1.1.1.1:1"}, []string{"from", "2.2.2.2:1"}, true, ""},
		{"key or address", []string{"api_key|address"}, []string{"from", "1.1.1.1:1"}, []string{"from", "2.2.2.2:1"}, false, ""},
		{"a key that looks like an address", []string{"api_key|address"}, []string{"from", "1.1.1.1:1"}, []string{"from", "2.2.2.2:1", "X-Api-Key", "1.1.1.1"}, false, ""},
		{"address, any port", []string{"address"}, []string{"from", "1.1.1.1:1"}, []string{"from", "1.1.1.1:2"}, true, ""},
		{"IPv6, one /64", []string{"address"}, []string{"from", "[2001:db8::1]:1"}, []string{"from", "[2001:db8::ffff:2]:1"}, true, ""},
		{"IPv6, two /64", []string{"address"}, []string{"from", "[2001:db8::1]:1"}, []string{"from", "[2001:db8:0:1::1]:1"}, false, ""},
		{"IPv4 in IPv6", []string{"address"}, []string{"from", "1.1.1.1:1"}, []string{"from", "[::ffff:1.1.1.1]:1"}, true, ""},
		{"untrusted says", []string{"address"}, []string{"from", "1.1.1.1:1", "X-Forwarded-For", "9.9.9.9"}, []string{"from", "1.1.1.1:1"}, true, ""},
		{"trusted says", []string{"address"}, []string{"from", "10.0.0.1:1", "X-Forwarded-For", "9.9.9.9"}, []string{"from", "9.9.9.9:1"}, true, ""},
		{"what the client wrote is not read", []string{"address"}, []string{"from", "10.0.0.1:1", "X-Forwarded-For", "6.6.6.6, 9.9.9.9"}, []string{"from", "9.9.9.9:1"}, true, ""},
		{"two proxies", []string{"address"}, []string{"from", "10.0.0.1:1", "X-Forwarded-For", "9.9.9.9, 10.0.0.2"}, []string{"from", "9.9.9.9:1"}, true, ""},
		{"two lines", []string{"address"}, []string{"from", "10.0.0.1:1", "X-Forwarded-For", "6.6.6.6", "X-Forwarded-For", "9.9.9.9, 10.0.0.2"}, []string{"from", "9.9.9.9:1"}, true, ""},
		{"only proxies", []string{"address"}, []string{"from", "10.0.0.1:1", "X-Forwarded-For", "10.0.0.3"}, []string{"from", "10.0.0.3:1"}, true, ""},
		{"nonsense ends the search", []string{"address"}, []string{"from", "10.0.0.1:1", "X-Forwarded-For", "9.9.9.9, nonsense"}, []string{"from", "10.0.0.1:1"}, true, ""},
		{"IPv6 with a port", []string{"address"}, []string{"from", "10.0.0.1:1", "X-Forwarded-For", "[2001:db8::1]:99"}, []string{"from", "[2001:db8::2]:1"}, true, ""},
		{"Forwarded", []string{"address"}, []string{"from", "[fd00::1]:1", "Forwarded", `for=6.6.6.6, For="[2001:db8::1]:47";proto=https;by=10.0.0.1`}, []string{"from", "[2001:db8::2]:1"}, true, "Forwarded"},
		{"Forwarded, hidden", []string{"address"}, []string{"from", "10.0.0.1:1", "Forwarded", `for=_hidden`}, []string{"from", "10.0.0.1:2"}, true, "Forwarded"},
		{"header", []string{"header:x-tenant"}, []string{"X-Tenant", "a"}, []string{"X-Tenant", "b"}, false, ""},
		{"header, twice", []string{"header:x-tenant"}, []string{"X-Tenant", "a", "X-Tenant", "b"}, []string{"X-Tenant", "a"}, false, ""},
		{"two parts", []string{"api_key", "header:X-T"}, []string{"X-Api-Key", "a", "X-T", "bc"}, []string{"X-Api-Key", "ab", "X-T", "c"}, false, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := newTestDoor(t, Config{
				TrustedProxies: trusted, ProxyHeader: c.header,
				Rules: []Rule{{Name: "r", By: c.by, Policy: perMinute(1, shaper.SlidingLog)}},
			})
			if w := d.call("GET", "/", c.a...); w.Code != 200 {
				t.Fatalf("the first: %d", w.Code)
			}
			if w := d.call("GET", "/", c.b...); (w.Code == 429) != c.same {
				t.Errorf("the second: %d, want one client = %v", w.Code, c.same)
			}
		})
	}
}

func TestRoutesAndCosts(t *testing.T) {
	d := newTestDoor(t, Config{Rules: []Rule{{
		Name: "r", By: []string{"route"}, Routes: []string{"POST /jobs", "GET /jobs/{id}", "/batch", "/big/"},
		Policy: perMinute(10, shaper.SlidingLog), Cost: 2, Costs: map[string]int64{"GET /jobs/{id}": 1, "POST /jobs": 5},
		CostOf: nil,
	}}})
	for _, c := range []struct {
		method, path string
		passed       int
	}{{"POST", "/jobs", 2}, {"GET", "/jobs/1", 10}, {"PUT", "/batch", 5}, {"GET", "/big/a/b", 5}} {
		n := 0
		for i := range 20 {
			path := c.path
			if strings.HasPrefix(path, "/jobs/") {
				path = fmt.Sprint("/jobs/", i) // one route, whatever the id
			}
			if d.call(c.method, path).Code == 200 {
				n++
			}
		}
		if n != c.passed {
			t.Errorf("%s %s: %d passed, want %d", c.method, c.path, n, c.passed)
		}
	}
	for range 30 {
		if w := d.call("GET", "/other"); w.Code != 200 || w.Header().Get("RateLimit") != "" {
			t.Fatalf("no rule is for this route: %d %v", w.Code, w.Header())
		}
	}
	// By size: what the request says, or what the handler finds out.
	d = newTestDoor(t, Config{Rules: []Rule{{Name: "r", Policy: perMinute(10, shaper.SlidingLog),
		CostOf: func(r *http.Request) int64 { n, _ := strconv.ParseInt(r.Header.Get("N"), 10, 64); return n }}}})
	if w := d.call("GET", "/", "N", "9"); w.Code != 200 {
		t.Errorf("%d", w.Code)
	}
	if w := d.call("GET", "/", "N", "-5"); w.Code != 200 || w.Header().Get("RateLimit") != `"r";r=0;t=60` {
		t.Errorf("a cost below 1 is 1: %d %v", w.Code, w.Header())
	}
	w := d.call("GET", "/", "N", strconv.FormatInt(math.MaxInt64, 10))
	if w.Code != 413 || w.Header().Get("Retry-After") != "" || !strings.Contains(w.Body.String(), "Split the request") {
		t.Errorf("more than can ever be granted: %d %v %s", w.Code, w.Header(), w.Body)
	}
}

func TestCharge(t *testing.T) {
	d := newTestDoor(t, Config{Rules: []Rule{
		{Name: "r", Policy: perMinute(10, shaper.SlidingLog)},
		{Name: "places", Policy: shaper.Policy{Algorithm: shaper.Concurrency, Places: 1}},
	}})
	h := d.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		items, _ := strconv.ParseInt(r.Header.Get("N"), 10, 64)
		if err := Charge(r.Context(), items-1); err != nil {
			le, ok := errors.AsType[*LimitedError](err)
			if !ok {
				t.Error(err)
				return
			}
			le.Refusal.Write(w)
		}
	}))
	for _, c := range []struct {
		items string
		code  int
		left  string
	}{{"4", 200, `"r";r=6;t=60`}, {"6", 200, `"r";r=0;t=60`}, {"1", 429, ""}} {
		w := httptest.NewRecorder()
		r := httptest.NewRequest("POST", "/", nil)
		r.Header.Set("N", c.items)
		h.ServeHTTP(w, r)
		if w.Code != c.code || c.left != "" && !strings.HasPrefix(w.Header().Get("RateLimit"), c.left) {
			t.Errorf("%s items: %d %v", c.items, w.Code, w.Header())
		}
	}
	if err := Charge(t.Context(), 5); err != nil {
		t.Errorf("without a door: %v", err)
	}
}

func TestLists(t *testing.T) {
	d := newTestDoor(t, Config{
		Deny: List{Addresses: []netip.Prefix{netip.MustParsePrefix("6.6.6.0/24"), netip.MustParsePrefix("2001:db8::6/128")}, APIKeys: []string{"leaked"}},
		Allow: List{Addresses: []netip.Prefix{netip.MustParsePrefix("192.168.0.0/16")}, Organisations: []string{"us"},
			Match: func(r *http.Request, _ Client) bool { return r.Header.Get("X-Passed") == "captcha" }},
		Identify: func(r *http.Request) Client {
			return Client{APIKey: r.Header.Get("X-Api-Key"), Organisation: r.Header.Get("X-Org")}
		},
		Rules: []Rule{{Name: "r", Policy: perMinute(1, shaper.SlidingLog)}},
	})
	d.call("GET", "/") // uses it up
	for _, c := range []struct {
		code int
		kv   []string
	}{
		{403, []string{"from", "6.6.6.6:1"}}, {403, []string{"X-Api-Key", "leaked"}}, {403, []string{"from", "192.168.1.1:1", "X-Api-Key", "leaked"}},
		{403, []string{"from", "[2001:db8::6]:1"}}, {429, []string{"from", "[2001:db8::7]:1"}},
		{200, []string{"from", "192.168.1.1:1"}}, {200, []string{"X-Org", "us"}}, {200, []string{"X-Passed", "captcha"}}, {429, nil}, {429, []string{"X-Api-Key", ""}},
	} {
		if w := d.call("GET", "/", c.kv...); w.Code != c.code {
			t.Errorf("%v: %d, want %d", c.kv, w.Code, c.code)
		}
	}
	if d.seen.n["deny denied"] != 4 || d.seen.n["allow passed"] != 3 {
		t.Errorf("counted %v", d.seen.n)
	}
	if strings.Contains(d.log.String(), "6.6.6.6") {
		t.Errorf("an address in the clear: %s", d.log)
	}
}

// Shadows decide and count and refuse nobody; a canary's clients are always
// the same, and a larger share keeps them.
func TestShadowAndCanary(t *testing.T) {
	d := newTestDoor(t, Config{Rules: []Rule{
		{Name: "shadow", Policy: perMinute(1, shaper.FixedWindow), Shadow: true},
		{Name: "real", Policy: perMinute(1000, shaper.FixedWindow)},
	}})
	for range 5 {
		if w := d.call("GET", "/"); w.Code != 200 || strings.Contains(w.Header().Get("RateLimit"), "shadow") {
			t.Fatalf("%d %v", w.Code, w.Header())
		}
	}
	if d.seen.n["shadow would_refuse"] < 3 || d.seen.n["shadow refused"] != 0 {
		t.Errorf("counted %v", d.seen.n)
	}
	share := func(percent float64) map[string]bool {
		r, err := newRule(Rule{Name: "canary", Policy: perMinute(1, shaper.GCRA), Enforce: percent})
		if err != nil {
			t.Fatal(err)
		}
		out := map[string]bool{}
		for i := range 10_000 {
			if key := fmt.Sprint("client", i); r.enforced(key) {
				out[key] = true
			}
		}
		return out
	}
	small, again, large := share(5), share(5), share(20)
	if d := cmp.Diff(small, again); d != "" {
		t.Error("not stable")
	}
	if len(small) < 400 || len(small) > 600 || len(large) < 1800 || len(large) > 2200 {
		t.Errorf("5 %% are %d, 20 %% are %d of 10000", len(small), len(large))
	}
	for k := range small {
		if !large[k] {
			t.Fatalf("%s left the canary as it grew", k)
		}
	}
	if n := len(share(0)); n != 10_000 {
		t.Errorf("nothing said is everybody, not %d", n)
	}
}

// Warn, then refuse, then block, for longer each time; the log replays to the
// same blocks.
func TestEscalation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(time.Unix(1796040000, 0)))
		e := shaper.Escalation{Strikes: 3, Within: time.Minute, Block: 2 * time.Minute, Longest: 10 * time.Minute}
		d := newTestDoor(t, Config{Rules: []Rule{{Name: "r", By: []string{"api_key"}, Policy: perMinute(10, shaper.FixedWindow), WarnAt: 80, Escalation: e}}})
		var script []string
		say := func(w *httptest.ResponseRecorder) {
			var p struct {
				Type string
			}
			_ = json.Unmarshal(w.Body.Bytes(), &p)
			_, kind, _ := strings.Cut(p.Type, "#")
			line := strings.TrimSpace(fmt.Sprint(w.Code, " ", w.Header().Get(WarningHeader), " ", w.Header().Get("Retry-After"), " ", kind))
			if len(script) == 0 || script[len(script)-1] != line {
				script = append(script, line)
			}
		}
		for range 15 {
			say(d.call("GET", "/", "X-Api-Key", "bad"))
		}
		if w := d.call("GET", "/", "X-Api-Key", "good"); w.Code != 200 {
			t.Errorf("another client: %d", w.Code)
		}
		time.Sleep(2 * time.Minute)
		for range 15 {
			say(d.call("GET", "/", "X-Api-Key", "bad"))
		}
		want := []string{
			"200", `200 "r";used=80`, `200 "r";used=90`, `200 "r";used=100`,
			`429 "r";used=100 60 quota-exceeded`, `429 "r";used=100 120 abnormal-usage-detected`,
			"200", `200 "r";used=80`, `200 "r";used=90`, `200 "r";used=100`,
			`429 "r";used=100 60 quota-exceeded`, `429 "r";used=100 240 abnormal-usage-detected`,
		}
		if diff := cmp.Diff(want, script); diff != "" {
			t.Error(diff)
		}
		if d.seen.n["r blocked"] != 4 || d.seen.n["r refused"] != 6 {
			t.Errorf("counted %v", d.seen.n)
		}
		replayStrikes(t, d.log.String(), e, 6)
	})
}

// replayStrikes computes every logged state again from the times alone.
func replayStrikes(t *testing.T, log string, e shaper.Escalation, lines int) {
	t.Helper()
	states := map[string]shaper.Offence{}
	n := 0
	for line := range strings.Lines(log) {
		var s struct {
			Msg, Client                          string
			At, Strikes, Since, Doublings, Until int64
		}
		if err := json.Unmarshal([]byte(line), &s); err != nil || s.Msg != "limit strike" {
			continue
		}
		n++
		states[s.Client] = e.Step(states[s.Client], s.At)
		if got := (shaper.Offence{Strikes: s.Strikes, Since: s.Since, Level: s.Doublings, Until: s.Until}); got != states[s.Client] {
			t.Errorf("logged %+v, replayed %+v", got, states[s.Client])
		}
		if strings.Contains(line, "bad") {
			t.Errorf("a key in the clear: %s", line)
		}
	}
	if n != lines {
		t.Errorf("%d lines of strikes, want %d", n, lines)
	}
}

func TestChallengeHook(t *testing.T) {
	d := newTestDoor(t, Config{
		Rules: []Rule{{Name: "r", Policy: perMinute(1, shaper.FixedWindow)}},
		Allow: List{Match: func(r *http.Request, _ Client) bool { return r.Header.Get("X-Solved") == "yes" }},
		Challenge: func(w http.ResponseWriter, r *http.Request, ref Refusal) bool {
			if r.Header.Get("Accept") != "text/html" {
				return false
			}
			w.WriteHeader(http.StatusTooManyRequests)
			_, _ = fmt.Fprint(w, "solve this: ", ref.Rule)
			return true
		},
	})
	d.call("GET", "/")
	if w := d.call("GET", "/", "Accept", "text/html"); w.Body.String() != "solve this: r" || w.Header().Get("RateLimit") == "" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if w := d.call("GET", "/"); w.Code != 429 || w.Header().Get("Content-Type") != "application/problem+json" {
		t.Errorf("%d %v", w.Code, w.Header())
	}
	if w := d.call("GET", "/", "X-Solved", "yes"); w.Code != 200 {
		t.Errorf("%d", w.Code)
	}
}

// A place is held while the handler runs, renewed, and given back whatever
// happens.
func TestConcurrencyAtTheDoor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newTestDoor(t, Config{Rules: []Rule{{Name: "places", Policy: shaper.Policy{Algorithm: shaper.Concurrency, Places: 2, Lease: 3 * time.Second}}}})
		h := d.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/panic" {
				panic(http.ErrAbortHandler)
			}
			time.Sleep(time.Minute) // twenty leases
		}))
		send := func(path string) (code int) {
			defer func() { _ = recover() }()
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
			return w.Code
		}
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				if c := send("/"); c != 200 {
					t.Errorf("%d", c)
				}
			})
		}
		synctest.Wait()
		time.Sleep(30 * time.Second)
		w := d.call("GET", "/")
		if w.Code != 429 || w.Header().Get("RateLimit-Policy") != `"places";q=2;qu="concurrent-requests"` || w.Header().Get("RateLimit") != `"places";r=0;t=1` {
			t.Errorf("while two run: %d %v", w.Code, w.Header())
		}
		wg.Wait()
		for range 5 {
			send("/panic")
		}
		if w := d.call("GET", "/"); w.Code != 200 {
			t.Errorf("all given back: %d", w.Code)
		}
		time.Sleep(10 * time.Second)
	})
}

// Without its store each rule does as it is told, and that is counted and said.
func TestDoorStoreAway(t *testing.T) {
	away := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1, DialTimeout: time.Second, DialerRetries: 1})
	defer away.Close()
	door := func(a shaper.Away) *testDoor {
		return newTestDoor(t, Config{Store: shaper.NewRedisLimitStore(away, ""), StoreTimeout: 10 * time.Second,
			Rules: []Rule{{Name: "r", Policy: perMinute(4, shaper.FixedWindow), Away: a}}})
	}
	open, closed, local := door(shaper.Away{}), door(shaper.Away{Mode: shaper.FailClosed}), door(shaper.Away{Mode: shaper.LocalShare, Share: 0.5})
	codes := map[string]string{}
	for range 4 {
		for name, d := range map[string]*testDoor{"open": open, "closed": closed, "local": local} {
			w := d.call("GET", "/")
			codes[name] += fmt.Sprint(w.Code, " ")
			switch {
			case name == "closed" && (w.Header().Get("Retry-After") != "1" || !strings.Contains(w.Body.String(), "temporary-reduced-capacity")):
				t.Errorf("closed: %v %s", w.Header(), w.Body)
			case name != "local" && w.Header().Get("RateLimit") != "":
				t.Errorf("%s: nobody knows what is left, but %v", name, w.Header())
			}
		}
	}
	if codes["open"] != "200 200 200 200 " || codes["closed"] != "503 503 503 503 " || codes["local"] != "200 200 429 429 " {
		t.Errorf("%v", codes)
	}
	for name, d := range map[string]*testDoor{"open": open, "closed": closed, "local": local} {
		if d.seen.n["r by "+name] != 4 {
			t.Errorf("%s: counted %v", name, d.seen.n)
		}
		if !strings.Contains(d.log.String(), `"by":"`+name+`"`) {
			t.Errorf("%s: logged %s", name, d.log)
		}
	}
}

// The door on Redis, on both backends: two instances, one limit.
func TestDoorOnRedis(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient, env *redistest.Env) {
		cfg := func(c redis.UniversalClient) Config {
			return Config{Store: shaper.NewRedisLimitStore(c, "api"), StoreTimeout: 5 * time.Second, Rules: []Rule{
				{Name: "key", By: []string{"api_key"}, Policy: shaper.Policy{Algorithm: shaper.SlidingCounter, Rate: shaper.Rate{N: 30, Per: time.Hour}},
					Escalation: shaper.Escalation{Strikes: 2}},
				{Name: "batched", Policy: shaper.Policy{Algorithm: shaper.TokenBucket, Rate: shaper.Rate{N: 10_000, Per: time.Second}}, SyncEvery: 100 * time.Millisecond},
				{Name: "places", By: []string{"api_key"}, Policy: shaper.Policy{Algorithm: shaper.Concurrency, Places: 5}},
			}}
		}
		a, b := newTestDoor(t, cfg(rdb)), newTestDoor(t, cfg(env.Client()))
		passed := 0
		for i := range 50 {
			if w := []*testDoor{a, b}[i%2].call("GET", "/", "X-Api-Key", "k"); w.Code == 200 {
				passed++
			}
		}
		if passed != 30 {
			t.Errorf("%d passed, want 30", passed)
		}
		if a.seen.n["key blocked"]+b.seen.n["key blocked"] == 0 {
			t.Errorf("nobody was blocked: %v %v", a.seen.n, b.seen.n)
		}
		if strings.Contains(a.log.String(), "without its store") {
			t.Errorf("%s", a.log)
		}
	})
}

func TestAuditAndSample(t *testing.T) {
	var audit bytes.Buffer
	d := newTestDoor(t, Config{
		Rules: []Rule{
			{Name: "audited", By: []string{"api_key"}, Policy: perMinute(2, shaper.FixedWindow), Audit: true},
			{Name: "plain", Policy: perMinute(1000, shaper.FixedWindow)},
		},
		Audit: slog.New(slog.NewJSONHandler(&audit, nil)), Sample: 0.1,
	})
	for range 500 {
		d.call("GET", "/", "X-Api-Key", "sk_live_hush")
	}
	if n := strings.Count(audit.String(), "\n"); n != 500 || !strings.Contains(audit.String(), `"outcome":"refused"`) {
		t.Errorf("%d audit lines", n)
	}
	if n := strings.Count(d.log.String(), "limit decision"); n < 50 || n > 160 {
		t.Errorf("%d of 1000 decisions sampled, want about 100", n)
	}
	if strings.Contains(d.log.String()+audit.String(), "hush") {
		t.Error("a key in the clear")
	}
	shown := newTestDoor(t, Config{Rules: []Rule{{Name: "r", By: []string{"api_key"}, Policy: perMinute(2, shaper.FixedWindow), Audit: true}}, LogKeys: true})
	shown.call("GET", "/", "X-Api-Key", "alice")
	if !strings.Contains(shown.log.String(), "alice") {
		t.Errorf("log_keys: %s", shown.log)
	}
}

func TestDescribe(t *testing.T) {
	d := newTestDoor(t, Config{
		Deny: List{APIKeys: []string{"secret-key"}},
		Rules: []Rule{
			{Name: "key", By: []string{"api_key|address", "route"}, Routes: []string{"POST /jobs"}, Policy: perMinute(10, shaper.TokenBucket),
				Plans: map[string]shaper.Policy{"gold": perMinute(100, shaper.TokenBucket)}, Enforce: 10, Away: shaper.Away{Mode: shaper.LocalShare, Share: 0.25}},
			{Name: "all", Policy: shaper.Policy{Algorithm: shaper.Concurrency, Places: 50}, Shadow: true},
		},
	})
	want := []string{
		"1 deny: 0 addresses, 1 API keys, 0 organisations",
		"2 allow, uncounted: 0 addresses, 0 API keys, 0 organisations",
		"3 blocks of clients that were refused too often",
		"4 rule key: 10/m token_bucket, by api_key|address and route, for POST /jobs; plan gold: 100/m token_bucket; enforced for 10 % of the clients; store away: local_share of 0.25",
		"5 rule all: 50 at a time, by everybody together, for all requests; shadow; store away: fail_open",
		"rules are decided together: a request that one of them refuses costs the others nothing",
	}
	if diff := cmp.Diff(want, d.Describe()); diff != "" {
		t.Error(diff)
	}
}

func TestRefusedConfigs(t *testing.T) {
	ok := Rule{Name: "r", Policy: perMinute(10, shaper.TokenBucket)}
	rule := func(f func(*Rule)) Config {
		r := ok
		f(&r)
		return Config{Rules: []Rule{r}}
	}
	for name, cfg := range map[string]Config{
		"no store":           {},
		"twice":              {Rules: []Rule{ok, ok}},
		"dialect":            {Fields: []Dialect{"draft-3"}},
		"sample":             {Sample: 2},
		"sample NaN":         {Sample: math.NaN()},
		"ipv6":               {IPv6Prefix: 8},
		"proxy":              {TrustedProxies: []netip.Prefix{{}}},
		"name":               rule(func(r *Rule) { r.Name = "Per Key" }),
		"by":                 rule(func(r *Rule) { r.By = []string{"apikey"} }),
		"by header":          rule(func(r *Rule) { r.By = []string{"header:"} }),
		"by alternative":     rule(func(r *Rule) { r.By = []string{"api_key|ip"} }),
		"by route":           rule(func(r *Rule) { r.By = []string{"route"} }),
		"routes":             rule(func(r *Rule) { r.Routes = []string{"POST jobs"} }),
		"routes twice":       rule(func(r *Rule) { r.Routes = []string{"/a", "/a"} }),
		"costs":              rule(func(r *Rule) { r.Costs = map[string]int64{"{": 1} }),
		"cost 0":             rule(func(r *Rule) { r.Costs = map[string]int64{"/a": 0} }),
		"cost above all":     rule(func(r *Rule) { r.Costs = map[string]int64{"/a": 11} }),
		"cost -1":            rule(func(r *Rule) { r.Cost = -1 }),
		"cost above burst":   rule(func(r *Rule) { r.Cost = 11 }),
		"LIM-05 no policy":   rule(func(r *Rule) { r.Policy = shaper.Policy{} }),
		"LIM-05 plan of 0":   rule(func(r *Rule) { r.Plans = map[string]shaper.Policy{"free": perMinute(0, shaper.TokenBucket)} }),
		"plan's algorithm":   rule(func(r *Rule) { r.Plans = map[string]shaper.Policy{"x": perMinute(1, shaper.GCRA)} }),
		"LIM-07 enforce NaN": rule(func(r *Rule) { r.Enforce = math.NaN() }),
		"enforce 101":        rule(func(r *Rule) { r.Enforce = 101 }),
		"shadow, enforced":   rule(func(r *Rule) { r.Shadow, r.Enforce = true, 5 }),
		"shadow, blocks":     rule(func(r *Rule) { r.Shadow, r.Escalation.Strikes = true, 5 }),
		"warn":               rule(func(r *Rule) { r.WarnAt = -1 }),
		"away":               rule(func(r *Rule) { r.Away.Mode = "open" }),
		"sync":               rule(func(r *Rule) { r.SyncEvery = time.Hour }),
		"escalation":         rule(func(r *Rule) { r.Escalation.Block = time.Minute }),
	} {
		t.Run(name, func(t *testing.T) {
			if name != "no store" {
				cfg.Store = shaper.NewMemoryLimitStore(shaper.MemoryLimits{})
			}
			if _, err := New(cfg); !errors.Is(err, shaper.ErrBadLimit) {
				t.Errorf("%v", err)
			}
		})
	}
}

// BenchmarkDoor states what the door adds to a handler: p50 and p99 of a
// request, in microseconds, beside the handler alone.
func BenchmarkDoor(b *testing.B) {
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "ok") })
	rules := []Rule{
		{Name: "key", By: []string{"api_key"}, Policy: shaper.Policy{Algorithm: shaper.GCRA, Rate: shaper.Rate{N: 1e6, Per: time.Second}}},
		{Name: "address", By: []string{"address"}, Policy: shaper.Policy{Algorithm: shaper.SlidingCounter, Rate: shaper.Rate{N: 1e6, Per: time.Second}}},
	}
	run := func(b *testing.B, h http.Handler) {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("X-Api-Key", "k")
		var took []time.Duration
		for b.Loop() {
			w, start := httptest.NewRecorder(), time.Now()
			h.ServeHTTP(w, r)
			took = append(took, time.Since(start))
		}
		slices.Sort(took)
		b.ReportMetric(float64(took[len(took)/2])/1e3, "p50-µs")
		b.ReportMetric(float64(took[len(took)*99/100])/1e3, "p99-µs")
	}
	b.Run("alone", func(b *testing.B) { run(b, handler) })
	b.Run("memory", func(b *testing.B) {
		d, err := New(Config{Store: shaper.NewMemoryLimitStore(shaper.MemoryLimits{}), Rules: rules})
		if err != nil {
			b.Fatal(err)
		}
		run(b, d.Handler(handler))
	})
	b.Run("redis", func(b *testing.B) {
		d, err := New(Config{Store: shaper.NewRedisLimitStore(redistest.Start(b).Client(), ""), Rules: rules})
		if err != nil {
			b.Fatal(err)
		}
		run(b, d.Handler(handler))
	})
	b.Run("redis, sync_every", func(b *testing.B) {
		ahead := slices.Clone(rules)
		for i := range ahead {
			ahead[i].SyncEvery = 100 * time.Millisecond
		}
		d, err := New(Config{Store: shaper.NewRedisLimitStore(redistest.Start(b).Client(), ""), Rules: ahead})
		if err != nil {
			b.Fatal(err)
		}
		run(b, d.Handler(handler))
	})
}
