package provider

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/penstock-io/penstock/breaker"
)

// rawServer answers every connection with what answer does.
func rawServer(t *testing.T, answer func(net.Conn)) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			running.Go(func() { defer conn.Close(); answer(conn) })
		}
	})
	t.Cleanup(func() { listener.Close(); running.Wait() })
	return listener.Addr().String()
}

func TestFailures(t *testing.T) {
	closed := rawServer(t, func(net.Conn) {})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	refused := listener.Addr().String()
	listener.Close()
	reset := rawServer(t, func(c net.Conn) {
		c.Read(make([]byte, 1))
		c.(*net.TCPConn).SetLinger(0)
	})
	garbage := rawServer(t, func(c net.Conn) {
		c.Read(make([]byte, 1000))
		io.WriteString(c, "SSH-2.0-OpenSSH_9.6\r\n")
	})
	upgrade := rawServer(t, func(c net.Conn) {
		c.Read(make([]byte, 1000))
		io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n")
		c.Read(make([]byte, 1000))
	})
	for _, test := range []struct {
		name, url string
		reason    string
		sent      bool
	}{
		{"refused", "http://" + refused, "connection refused", false},
		{"closed at once", "http://" + closed, "", true},
		{"reset", "http://" + reset, "", true},
		{"garbage", "http://" + garbage, "connection lost before an answer", true},
		{"101", "http://" + upgrade, "http 101", true},
		{"no TLS there", "https://" + garbage, "tls: the provider does not speak TLS", false},
	} {
		t.Run("RET-12/"+test.name, func(t *testing.T) {
			r := newProvider(t, Config{BaseURL: test.url, Timeout: 20 * time.Second}).Call(t.Context(), Call{Body: []byte("x")})
			if r.Outcome != breaker.Failed || r.Fate != Again || test.reason != "" && r.Reason != test.reason || r.Reason == "" || test.reason != "" && r.Sent != test.sent {
				t.Errorf("%+v", r)
			}
		})
	}
}

func TestTLS(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("X-Proto", r.Proto)
		if r.URL.Path == "/endless" {
			for r.Context().Err() == nil {
				w.Write(make([]byte, 4096))
			}
		}
		w.Write(body)
	}))
	server.EnableHTTP2 = true
	server.Config.ErrorLog = nil
	server.StartTLS()
	t.Cleanup(server.Close)

	t.Run("RET-12/untrusted certificate", func(t *testing.T) {
		r := newProvider(t, Config{BaseURL: server.URL}).Call(t.Context(), Call{})
		if r.Outcome != breaker.Failed || r.Fate != Dead || r.Sent || r.Reason != "certificate does not verify" {
			t.Errorf("%+v", r)
		}
	})
	t.Run("RET-12/another name's certificate", func(t *testing.T) {
		p := newProvider(t, Config{BaseURL: strings.Replace(server.URL, "127.0.0.1", "localhost", 1)})
		p.transport.TLSClientConfig = server.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
		r := p.Call(t.Context(), Call{})
		if r.Outcome != breaker.Failed || r.Fate != Dead || r.Sent {
			t.Errorf("%+v", r)
		}
	})
	t.Run("HTTP/2", func(t *testing.T) {
		p := newProvider(t, Config{BaseURL: server.URL})
		p.transport.TLSClientConfig = server.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
		for _, method := range []string{"POST", "GET", "DELETE"} {
			for _, body := range []string{"", "body"} {
				r := p.Call(t.Context(), Call{Method: method, Body: []byte(body), IdempotencyKey: "k"})
				if r.Status != 200 || string(r.Body) != body || r.Header.Get("X-Proto") != "HTTP/2.0" {
					t.Errorf("%s %q: %+v", method, body, r)
				}
			}
		}
		if r := p.Call(t.Context(), Call{Path: "/endless"}); r.Fate != Succeeded || !r.Truncated || len(r.Body) != DefaultKeep {
			t.Errorf("endless: %d bytes, %+v", len(r.Body), r.Verdict)
		}
		if r := p.Call(t.Context(), Call{Body: []byte("after")}); string(r.Body) != "after" {
			t.Errorf("after an endless body: %+v", r)
		}
	})
}

// nameServer is a DNS server on loopback that answers with what addresses
// holds at the time; none means that there is no such name.
func nameServer(t *testing.T, addresses *atomic.Pointer[net.IP]) *net.Resolver {
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() {
		packet := make([]byte, 1500)
		for {
			n, from, err := conn.ReadFrom(packet)
			if err != nil {
				return
			}
			var m dnsmessage.Message
			if m.Unpack(packet[:n]) != nil {
				continue
			}
			m.Response, m.Additionals = true, nil
			if ip := addresses.Load(); ip == nil {
				m.RCode = dnsmessage.RCodeNameError
			} else if v4 := ip.To4(); v4 != nil && m.Questions[0].Type == dnsmessage.TypeA {
				m.Answers = []dnsmessage.Resource{{
					Header: dnsmessage.ResourceHeader{Name: m.Questions[0].Name, Class: dnsmessage.ClassINET, TTL: 0},
					Body:   &dnsmessage.AResource{A: [4]byte(v4)},
				}}
			}
			if out, err := m.Pack(); err == nil {
				conn.WriteTo(out, from)
			}
		}
	})
	t.Cleanup(func() { conn.Close(); running.Wait() })
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", conn.LocalAddr().String())
	}}
}

// TestNames: a name is looked up for each connection, and where it leads is
// checked each time.
func TestNames(t *testing.T) {
	var hits atomic.Int64
	server := serve(t, func(w http.ResponseWriter, r *http.Request) { hits.Add(1) })
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(server.URL, "http://"))
	var address atomic.Pointer[net.IP]
	resolver := nameServer(t, &address)
	closedToAll := newProvider(t, Config{BaseURL: "http://sms.provider.example:" + port})
	open := newProvider(t, Config{BaseURL: "http://sms.provider.example:" + port, AllowPrivate: true})
	for _, p := range []*Provider{closedToAll, open} {
		p.dialer.Resolver = resolver
		p.transport.DisableKeepAlives = true
	}
	steps := []struct {
		name    string
		ip      string
		p       *Provider
		outcome breaker.Outcome
		fate    Fate
		reason  string
	}{
		{"RET-11 no such host", "", open, breaker.Failed, Again, "dns: no such host"},
		{"RET-11 found later", "127.0.0.1", open, breaker.OK, Succeeded, ""},
		{"OUT-02 changed its mind", "169.254.169.254", open, breaker.Excluded, AgainFree, "metadata service"},
		{"OUT-02 loopback", "127.0.0.1", closedToAll, breaker.Excluded, AgainFree, "allow_private"},
		{"OUT-02 private", "10.0.0.1", closedToAll, breaker.Excluded, AgainFree, "allow_private"},
		{"OUT-02 metadata", "169.254.169.254", closedToAll, breaker.Excluded, AgainFree, "metadata service"},
		{"OUT-02 unspecified", "0.0.0.0", closedToAll, breaker.Excluded, AgainFree, "allow_private"},
	}
	for _, step := range steps {
		address.Store(nil)
		if step.ip != "" {
			address.Store(new(net.ParseIP(step.ip)))
		}
		before := hits.Load()
		r := step.p.Call(t.Context(), Call{Body: []byte("x")})
		if r.Outcome != step.outcome || r.Fate != step.fate || !strings.Contains(r.Reason, step.reason) {
			t.Errorf("%s: %+v", step.name, r)
		}
		if refused := errors.Is(r.Err, ErrRefusedAddress); refused != (step.outcome == breaker.Excluded) || refused && (r.Sent || hits.Load() != before) {
			t.Errorf("%s: %v, %d calls", step.name, r.Err, hits.Load()-before)
		}
	}
}

// TestNoProxy: the environment cannot send a provider's calls elsewhere.
func TestNoProxy(t *testing.T) {
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"} {
		t.Setenv(name, "http://127.0.0.1:1")
	}
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {})
	p := newProvider(t, Config{BaseURL: server.URL})
	if r := p.Call(t.Context(), Call{}); r.Status != 200 || p.transport.Proxy != nil {
		t.Errorf("%+v", r)
	}
}
