package provider

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/penstock-io/penstock/breaker"
)

// cutter is a server that answers the first request of each connection, reads
// the second whole, and then cuts the connection without an answer.
type cutter struct {
	listener net.Listener
	seen     atomic.Int64
	reset    bool
	serving  sync.WaitGroup
}

func newCutter(t *testing.T, reset bool) *cutter {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cutter{listener: listener, reset: reset}
	c.serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			c.serving.Go(func() { c.serve(conn) })
		}
	})
	t.Cleanup(func() { listener.Close(); c.serving.Wait() })
	return c
}

func (c *cutter) serve(conn net.Conn) {
	defer conn.Close()
	in := bufio.NewReader(conn)
	for n := 1; ; n++ {
		req, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		io.Copy(io.Discard, req.Body)
		c.seen.Add(1)
		if n == 2 {
			if c.reset {
				conn.(*net.TCPConn).SetLinger(0)
			}
			return
		}
		io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
	}
}

// TestOneCallIsSeenOnce: net/http repeats a request that was lost on a reused
// connection when it takes it for idempotent, which an Idempotency-Key alone
// makes it. Take sendOnce out of Provider.send and this fails.
func TestOneCallIsSeenOnce(t *testing.T) {
	for _, method := range []string{"GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE", "PROPFIND", "QUERY"} {
		for _, body := range []string{"", "body"} {
			for _, headers := range []map[string]string{nil, {"X-Idempotency-Key": "own"}, {"idempotency-key": "own"}} {
				for _, reset := range []bool{false, true} {
					t.Run(fmt.Sprintf("%s/%q/%v/reset=%v", method, body, headers, reset), func(t *testing.T) {
						server := newCutter(t, reset)
						p := newProvider(t, Config{BaseURL: "http://" + server.listener.Addr().String()})
						call := Call{Method: method, Path: "/", Body: []byte(body), Headers: headers, IdempotencyKey: "job-1"}
						if first := p.Call(t.Context(), Call{Path: "/warm"}); first.Status != 200 {
							t.Fatalf("first call: %+v", first)
						}
						second := p.Call(t.Context(), call)
						if second.Outcome != breaker.Failed || second.Fate != Again || !second.Sent {
							t.Errorf("second call: %+v", second)
						}
						if seen := server.seen.Load(); seen != 2 {
							t.Errorf("two calls were made, the provider saw %d", seen)
						}
					})
				}
			}
		}
	}
}

// TestTheTransportWouldRepeat shows that the server above provokes what
// TestOneCallIsSeenOnce rules out.
func TestTheTransportWouldRepeat(t *testing.T) {
	server := newCutter(t, false)
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	send := func() {
		req, err := http.NewRequest("POST", "http://"+server.listener.Addr().String(), bytes.NewReader([]byte("body")))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set(idempotencyKey, "job-1")
		answer, err := transport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, answer.Body)
		answer.Body.Close()
	}
	send()
	send()
	if seen := server.seen.Load(); seen != 3 {
		t.Errorf("the provider saw %d requests of two; net/http does not repeat any more: sendOnce may be simpler now", seen)
	}
}

// TestStaleConnectionCostsNoAttempt: a connection that died in the pool, before
// a byte was written to it, is replaced without anybody noticing.
func TestStaleConnectionCostsNoAttempt(t *testing.T) {
	for _, body := range []string{"", "body"} {
		t.Run(fmt.Sprintf("%q", body), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				seen := 0
				p, stop := inBubble(t, Config{}, func(w http.ResponseWriter, r *http.Request) {
					seen++
					if got, _ := io.ReadAll(r.Body); string(got) != body {
						t.Errorf("OUT-05: body %q, want %q", got, body)
					}
				})
				defer stop()
				killed := 0
				ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
					if info.Reused {
						killed++
						info.Conn.Close()
						synctest.Wait() // until the transport has noticed
					}
				}})
				call := Call{Body: []byte(body), IdempotencyKey: "job-1"}
				for range 3 {
					if r := p.Call(ctx, call); r.Status != 200 || r.Fate != Succeeded {
						t.Errorf("%+v", r)
					}
				}
				if seen != 3 || killed != 2 {
					t.Errorf("three calls, seen %d, connections killed before use %d", seen, killed)
				}
			})
		})
	}
}
