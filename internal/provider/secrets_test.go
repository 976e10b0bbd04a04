package provider

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
)

// TestSecrets is case OUT-06: what the configuration holds is sent, and is
// neither said in a result, an error or a log line, nor printed by mistake.
func TestSecrets(t *testing.T) {
	var authorization, token string
	status := 429
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		authorization, token = r.Header.Get("Authorization"), r.Header.Get("X-Token")
		w.Header().Set("Retry-After", "1796040030")
		w.WriteHeader(status)
	})
	var log bytes.Buffer
	logger := slog.New(slog.NewJSONHandler(&log, nil))
	cfg := Config{Name: "sms", BaseURL: strings.Replace(server.URL, "http://", "http://user:s3cret%2F@", 1),
		Headers: map[string]string{"X-Token": "s3cret"}, Logger: logger}
	p := newProvider(t, cfg)
	said := &strings.Builder{}
	tell := func(things ...any) {
		for _, thing := range things {
			fmt.Fprintf(said, "%v %+v %s\n", thing, thing, thing)
			logger.Info("told", "thing", thing)
		}
	}

	r := p.Call(t.Context(), Call{})
	if authorization != "Basic dXNlcjpzM2NyZXQv" || token != "s3cret" {
		t.Errorf("sent %q and %q", authorization, token)
	}
	if strings.Count(log.String(), "makes no sense") != 1 {
		t.Errorf("not said once: %s", &log)
	}
	p.Call(t.Context(), Call{})
	if strings.Count(log.String(), "makes no sense") != 1 {
		t.Errorf("said more than once: %s", &log)
	}
	tell(r, r.Verdict, p, cfg, &cfg)

	server.Close()
	r = p.Call(t.Context(), Call{})
	tell(r, r.Err)
	for _, path := range []string{"//x", "/\n", "x"} {
		r = p.Call(t.Context(), Call{Path: path})
		tell(r, r.Err)
	}
	for _, bad := range []Config{
		{Name: "sms", BaseURL: "http://user:s3cret@h.example:x"},
		{Name: "sms", BaseURL: "http://user:s3cret@h.example", Headers: map[string]string{"Authorization": "s3cret"}},
		{Name: "sms", BaseURL: "http://h.example", Headers: map[string]string{"A": "s3cret\n"}},
		{Name: "sms", BaseURL: "http://h.example", Headers: map[string]string{"Host": "s3cret"}},
	} {
		_, err := New(bad)
		if err == nil {
			t.Errorf("%v taken", bad)
		}
		tell(err)
	}
	all := said.String() + log.String()
	for _, secret := range []string{"s3cret", "dXNlcjpzM2NyZXQv", "user:"} {
		if strings.Contains(all, secret) {
			t.Errorf("OUT-06: %q was said: %s", secret, all)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	good := Config{Name: "sms", BaseURL: "https://h.example"}
	if p, err := New(good); err != nil {
		t.Fatal(err)
	} else if p.timeout != DefaultTimeout || p.keep != DefaultKeep {
		t.Errorf("defaults: %v, %d", p.timeout, p.keep)
	}
	for want, change := range map[string]func(*Config){
		"name is missing":          func(c *Config) { c.Name = "" },
		"base_url is missing":      func(c *Config) { c.BaseURL = "" },
		"https:// or http://":      func(c *Config) { c.BaseURL = "ftp://h.example" },
		"timeout -5s is negative":  func(c *Config) { c.Timeout = -5e9 },
		"-1 bytes":                 func(c *Config) { c.KeepBytes = -1 },
		"status 429 cannot":        func(c *Config) { c.Again = []int{409, 429} },
		"status 403 cannot":        func(c *Config) { c.Again = []int{403} },
		"status 500 cannot":        func(c *Config) { c.Again = []int{500} },
		"status 0 cannot":          func(c *Config) { c.Again = []int{0} },
		"header Host cannot":       func(c *Config) { c.Headers = map[string]string{"Host": "x"} },
		"header connection cannot": func(c *Config) { c.Headers = map[string]string{"connection": "close"} },
		"Idempotency-Key cannot":   func(c *Config) { c.Headers = map[string]string{"idempotency-key": "x"} },
		"header X-A is set twice":  func(c *Config) { c.Headers = map[string]string{"x-a": "1", "X-A": "2"} },
		`"a b" is no header name`:  func(c *Config) { c.Headers = map[string]string{"a b": "1"} },
		"keep one of them": func(c *Config) {
			c.BaseURL = "https://u@h.example"
			c.Headers = map[string]string{"authorization": "x"}
		},
		"these are never called":     func(c *Config) { c.BaseURL = "http://169.254.169.254"; c.AllowPrivate = true },
		"holds a control character,": func(c *Config) { c.Headers = map[string]string{"A": "b\r\nc"} },
	} {
		cfg := good
		change(&cfg)
		_, err := New(cfg)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
		if err != nil && cfg.Name != "" && !strings.HasPrefix(err.Error(), "provider sms: ") {
			t.Errorf("%v does not name the provider", err)
		}
	}
}

// BenchmarkCall measures a whole call to a server in the same process.
func BenchmarkCall(b *testing.B) {
	server := serve(b, func(w http.ResponseWriter, r *http.Request) {})
	p, err := New(Config{Name: "sms", BaseURL: server.URL})
	if err != nil {
		b.Fatal(err)
	}
	defer p.Close()
	call := Call{Path: "/messages", Body: []byte(`{"to":"x"}`), IdempotencyKey: "job-1", Headers: map[string]string{"Content-Type": "application/json"}}
	b.ReportAllocs()
	for b.Loop() {
		if r := p.Call(b.Context(), call); r.Status != http.StatusOK {
			b.Fatal(r)
		}
	}
}
