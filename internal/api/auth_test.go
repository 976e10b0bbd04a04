package api

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"
)

func TestWhoMayDoWhat(t *testing.T) {
	f := start(t, func(c *Config) {
		c.Metrics = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
		c.Queues = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	})
	n := 0
	for _, tt := range []struct {
		method, path string
		needs        role
	}{
		{"GET", "/healthz", anyone}, {"GET", "/readyz", anyone}, {"GET", "/login", anyone},
		{"POST", "/v1/jobs", producer}, {"POST", "/v1/jobs:batch", producer}, {"GET", "/v1/jobs?provider=sms", producer},
		{"GET", "/v1/jobs/sms/1", producer}, {"DELETE", "/v1/jobs/sms/1", producer}, {"POST", "/v1/jobs/sms/1/replay", producer}, {"GET", "/v1/jobs/sms/1/why", producer},
		{"GET", "/v1/providers", operator}, {"GET", "/v1/providers/sms", operator}, {"PATCH", "/v1/providers/sms", operator},
		{"POST", "/v1/providers/sms/pause", operator}, {"POST", "/v1/providers/sms/resume", operator},
		{"GET", "/v1/events", operator}, {"GET", "/", operator}, {"GET", "/metrics", operator}, {"GET", "/queues", operator}, {"GET", "/queues/api/queues", operator},
	} {
		for _, who := range []struct {
			header string
			role   role
		}{
			{"", anyone}, {"Bearer wrong", anyone}, {"Bearer ", anyone}, {"Basic " + opsToken, anyone}, {opsToken, anyone},
			{"Bearer " + opsToken + "x", anyone}, {"Bearer " + opsToken[:10], anyone},
			{"Bearer " + prodToken, producer}, {"bearer " + opsToken, operator},
		} {
			n++
			f.token = ""
			resp, body := f.do(tt.method, tt.path, "", "Authorization", who.header)
			refused := resp.StatusCode == 401 || resp.StatusCode == 403
			switch {
			case refused != (who.role < tt.needs):
				t.Errorf("%s %s as %q: %d %s", tt.method, tt.path, who.header, resp.StatusCode, body)
			case resp.StatusCode == 401 && (who.role != anyone || resp.Header.Get("WWW-Authenticate") == ""):
				t.Errorf("%s %s as %q: %d", tt.method, tt.path, who.header, resp.StatusCode)
			case strings.Contains(body, "0123456789abcdef"):
				t.Errorf("%s %s repeats a token: %s", tt.method, tt.path, body)
			}
		}
	}
	if n < 100 {
		t.Fatalf("only %d cases", n)
	}
}

// Without tokens only loopback names are served (a foreign name that resolves
// to this machine is DNS rebinding), and no request of another site's page.
func TestWithoutTokens(t *testing.T) {
	f := start(t, func(c *Config) { c.Tokens = nil })
	f.token = ""
	const job = `{"provider":"sms"}`
	for _, tt := range []struct {
		name   string
		header []string
		ok     bool
	}{
		{"a program", nil, true},
		{"localhost", []string{"Host", "localhost:8080"}, true},
		{"IPv6", []string{"Host", "[::1]:8080"}, true},
		{"IPv6 without port", []string{"Host", "[::1]"}, true},
		{"another name", []string{"Host", "evil.example"}, false},
		{"a name that begins like loopback", []string{"Host", "127.0.0.1.evil.example"}, false},
		{"localhost as a label", []string{"Host", "localhost.evil.example:80"}, false},
		{"a private address", []string{"Host", "10.0.0.1"}, false},
		{"everything", []string{"Host", "0.0.0.0:8080"}, false},
		{"its own page", []string{"Origin", "SELF"}, true},
		{"another origin", []string{"Origin", "https://evil.example"}, false},
		{"no origin", []string{"Origin", "null"}, false},
		{"another site", []string{"Sec-Fetch-Site", "cross-site"}, false},
		{"a sister site", []string{"Sec-Fetch-Site", "same-site"}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f.t = t
			for i, v := range tt.header {
				if v == "SELF" {
					tt.header[i] = f.URL
				}
			}
			for _, c := range [][3]string{{"POST", "/v1/jobs", job}, {"POST", "/v1/jobs:batch", job}, {"POST", "/v1/providers/sms/resume", ""}} {
				resp, body := f.do(c[0], c[1], c[2], tt.header...)
				if (resp.StatusCode < 300) != tt.ok {
					t.Errorf("%s: %d %s", c[1], resp.StatusCode, body)
				}
			}
			// Reading is refused for another Host only: another site cannot see the answer.
			if resp, body := f.do("GET", "/v1/providers", "", tt.header...); tt.header != nil && tt.header[0] == "Host" && (resp.StatusCode < 300) != tt.ok {
				t.Errorf("read: %d %s", resp.StatusCode, body)
			}
		})
	}
}

func TestLogin(t *testing.T) {
	f := start(t, func(c *Config) {
		c.Queues = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("the queues")) })
	})
	f.token = ""
	page := []string{"Accept", "text/html"}
	resp, _ := f.do("GET", "/queues/queues/sms?x=1", "", page...)
	if resp.StatusCode != http.StatusSeeOther || resp.Header.Get("Location") != "/login?next=%2Fqueues%2Fqueues%2Fsms%3Fx%3D1" {
		t.Fatalf("%d to %q", resp.StatusCode, resp.Header.Get("Location"))
	}
	resp, body := f.do("GET", resp.Header.Get("Location"), "")
	if resp.StatusCode != 200 || !strings.Contains(body, `value="/queues/queues/sms?x=1"`) {
		t.Fatalf("%d %s", resp.StatusCode, body)
	}
	_, rest, _ := strings.Cut(body, "<style>")
	style, _, _ := strings.Cut(rest, "</style>")
	if csp := resp.Header.Get("Content-Security-Policy"); !strings.Contains(csp, sha256Of(style)) || !strings.Contains(csp, "default-src 'none'") {
		t.Errorf("the style is not allowed by %q", csp)
	}

	form := []string{"Content-Type", "application/x-www-form-urlencoded", "Origin", f.URL}
	fill := func(token, next string) string { return url.Values{"token": {token}, "next": {next}}.Encode() }
	for _, bad := range []string{"", "wrong", prodToken} {
		if resp, body := f.do("POST", "/login", fill(bad, "/queues/"), form...); resp.StatusCode != 401 || resp.Header.Get("Set-Cookie") != "" || bad != "" && strings.Contains(body, bad) {
			t.Errorf("token %q: %d %s", bad, resp.StatusCode, body)
		}
	}
	if resp, _ := f.do("POST", "/login", fill(opsToken, "/"), "Content-Type", form[1], "Origin", "https://evil.example"); resp.StatusCode != 403 {
		t.Errorf("another site's form: %d", resp.StatusCode)
	}
	for next, want := range map[string]string{"/queues/x": "/queues/x", "//evil.example": "/queues/", "https://evil.example/": "/queues/", "/\\evil.example": "/queues/", "": "/queues/"} {
		if resp, _ := f.do("POST", "/login", fill(opsToken, next), form...); resp.StatusCode != 303 || resp.Header.Get("Location") != want {
			t.Errorf("next %q: %d to %q", next, resp.StatusCode, resp.Header.Get("Location"))
		}
	}
	resp, _ = f.do("POST", "/login", fill(" "+opsToken+"\n", "/queues/"), form...)
	if len(resp.Cookies()) != 1 {
		t.Fatalf("%d, no session", resp.StatusCode)
	}
	c := resp.Cookies()[0]
	if !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || strings.Contains(c.Value, opsToken) {
		t.Errorf("the cookie is %s", c)
	}
	f.session(c.Name, c.Value)
}

// session checks what a session opens, and what breaks it.
func (f *fixture) session(name, value string) {
	cookie := name + "=" + value
	if resp, body := f.do("GET", "/queues/", "", "Cookie", cookie); resp.StatusCode != 200 || body != "the queues" {
		f.t.Errorf("%d %s", resp.StatusCode, body)
	}
	if resp, body := f.do("POST", "/v1/providers/sms/pause", "", "Cookie", cookie, "Origin", f.URL); resp.StatusCode != 200 {
		f.t.Errorf("its own page: %d %s", resp.StatusCode, body)
	}
	if resp, _ := f.do("POST", "/v1/providers/sms/pause", "", "Cookie", cookie, "Origin", "https://evil.example"); resp.StatusCode != 403 {
		f.t.Errorf("another site with the session: %d", resp.StatusCode)
	}
	flipped := value[:5] + string(rune('A'+(value[5]-'A'+1)%26)) + value[6:]
	for _, bad := range []string{"", "x", value[:20], flipped, value + "AA"} {
		if resp, _ := f.do("GET", "/queues/", "", "Cookie", name+"="+bad); resp.StatusCode != 401 {
			f.t.Errorf("session %q: %d", bad, resp.StatusCode)
		}
	}
	if resp, _ := f.do("POST", "/logout", "", "Cookie", cookie, "Origin", f.URL); resp.StatusCode != 303 || resp.Cookies()[0].MaxAge >= 0 {
		f.t.Errorf("logout: %d %v", resp.StatusCode, resp.Cookies())
	}
	d := newDoor([]Token{{Name: "ops", Secret: opsToken, Operator: true}, {Name: "new", Secret: "another-token-0123", Operator: true}})
	old := d.known[0].sealSession(time.Now().Add(-time.Second))
	if resp, _ := f.do("GET", "/queues/", "", "Cookie", name+"="+old); resp.StatusCode != 401 {
		f.t.Errorf("an ended session: %d", resp.StatusCode)
	}
	other := d.known[1].sealSession(time.Now().Add(time.Hour))
	if resp, _ := f.do("GET", "/queues/", "", "Cookie", name+"="+other); resp.StatusCode != 401 {
		f.t.Errorf("a session of a token that is gone: %d", resp.StatusCode)
	}
}

func TestTooManyLogins(t *testing.T) {
	f := start(t, nil)
	f.token = ""
	limited := false
	for range 20 {
		resp, _ := f.do("POST", "/login", "token=guess", "Content-Type", "application/x-www-form-urlencoded")
		limited = limited || resp.StatusCode == http.StatusTooManyRequests
	}
	if !limited {
		t.Error("20 guesses in a row were all looked at")
	}
	if resp, _ := f.do("POST", "/login", "token="+strings.Repeat("x", 1<<20), "Content-Type", "application/x-www-form-urlencoded"); resp.StatusCode < 400 {
		t.Errorf("a form of 1 MiB: %d", resp.StatusCode)
	}
}
