package api

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/penstock-io/penstock/queue"
)

// lines reads an NDJSON answer.
func lines(t *testing.T, body string) []BatchLine {
	t.Helper()
	var out []BatchLine
	for l := range strings.Lines(body) {
		var b BatchLine
		if err := json.Unmarshal([]byte(l), &b); err != nil {
			t.Fatalf("%q: %v", l, err)
		}
		out = append(out, b)
	}
	return out
}

func TestBatch(t *testing.T) {
	f := start(t, nil)
	f.token = prodToken
	long := `{"provider":"sms","body":"` + strings.Repeat("x", 7<<20) + `"}`
	in := strings.Join([]string{
		`{"provider":"sms","id":"a"}`, `not json`, ``, "  \t", `{"provider":"sms","id":"a"}`, `{"provider":"sms","id":"a","path":"/x"}`,
		`{"provider":"nobody"}`, long, `{"provider":"sms","body":"` + strings.Repeat("y", 2<<20) + `"}`, "{\"provider\":\"\xff\"}", "{\"provider\":\"sms\",\"id\":\"b\"}\r", `{"provider":"sms","id":"c"}`,
	}, "\n")
	resp, body := f.do("POST", "/v1/jobs:batch", in)
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "application/x-ndjson" {
		t.Fatalf("%d %s", resp.StatusCode, body)
	}
	got := lines(t, body)
	want := []struct{ line, status int }{{1, 202}, {2, 400}, {5, 200}, {6, 409}, {7, 404}, {8, 413}, {9, 413}, {10, 400}, {11, 202}, {12, 202}}
	if len(got) != len(want) {
		t.Fatalf("%d results, want %d: %.2000s", len(got), len(want), body)
	}
	for i, w := range want {
		g := got[i]
		if g.Line != w.line || g.Status != w.status || (g.Error != nil) != (w.status >= 400) || (w.status < 300) != (g.ID != "" && g.State == queue.Waiting) {
			t.Errorf("line %d: %+v, want status %d", w.line, g, w.status)
		}
		if g.Error != nil && (g.Error.Status != g.Status || g.Error.Detail == "") {
			t.Errorf("line %d: error %+v", w.line, g.Error)
		}
	}
}

// A line has its result before the next one is sent.
func TestBatchStreams(t *testing.T) {
	f := start(t, nil)
	pr, pw := io.Pipe()
	req, err := http.NewRequestWithContext(t.Context(), "POST", f.URL+"/v1/jobs:batch", pr)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+prodToken)
	answered := make(chan *http.Response, 1)
	go func() {
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Error(err)
		}
		answered <- resp
	}()
	if _, err := io.WriteString(pw, `{"provider":"sms","id":"0"}`+"\n"); err != nil {
		t.Fatal(err)
	}
	resp := <-answered
	defer resp.Body.Close()
	sc := bufio.NewScanner(resp.Body)
	for i := range 5 {
		if !sc.Scan() || !strings.Contains(sc.Text(), fmt.Sprintf(`"id":"%d"`, i)) {
			t.Fatalf("result %d: %q %v", i, sc.Text(), sc.Err())
		}
		if i == 2 { // bad lines too
			if _, err := io.WriteString(pw, "bad\n"); err != nil {
				t.Fatal(err)
			}
			if !sc.Scan() || !strings.Contains(sc.Text(), `"status":400`) {
				t.Fatalf("the bad line: %q", sc.Text())
			}
		}
		if _, err := fmt.Fprintf(pw, `{"provider":"sms","id":"%d"}`+"\n", i+1); err != nil {
			t.Fatal(err)
		}
	}
	pw.Close()
	if !sc.Scan() || sc.Scan() {
		t.Error("not exactly one more result")
	}
}

// Many lines in one go, by a caller who reads nothing until all is sent.
func TestBatchToACallerWhoReadsLate(t *testing.T) {
	f := start(t, nil)
	const n = 20_000
	var b strings.Builder
	for i := range n {
		if i%10 != 9 { // most are bad: their results are long and fill the sockets
			b.WriteString("bad\n")
			continue
		}
		fmt.Fprintf(&b, `{"provider":"sms","id":"%d"}`+"\n", i)
	}
	conn, err := net.Dial("tcp", f.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST /v1/jobs:batch HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n", prodToken, b.Len())
	if _, err := io.WriteString(conn, b.String()); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	got := lines(t, string(body))
	if len(got) != n {
		t.Fatalf("%d results of %d lines", len(got), n)
	}
	for i, l := range got {
		if l.Line != i+1 || (l.Status == 400) != (i%10 != 9) {
			t.Fatalf("result %d: %+v", i+1, l)
		}
	}
}

// A body that is cut, or comes too slowly, has results for what came.
func TestBatchCutOff(t *testing.T) {
	f := start(t, func(c *Config) { c.SlowBody = 200 * time.Millisecond })
	for _, tt := range []struct {
		name string
		end  func(net.Conn)
		want int
	}{
		{"too slow", func(net.Conn) {}, 408},
		{"cut", func(c net.Conn) { _ = c.(*net.TCPConn).CloseWrite() }, 400},
	} {
		t.Run(tt.name, func(t *testing.T) {
			conn, err := net.Dial("tcp", f.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			fmt.Fprintf(conn, "POST /v1/jobs:batch HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: 1000\r\n\r\n{\"provider\":\"sms\",\"id\":%q}\n{\"prov", prodToken, tt.name)
			tt.end(conn)
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			body, _ := io.ReadAll(resp.Body)
			got := lines(t, string(body))
			if len(got) != 2 || got[0].Status != 202 || got[1].Line != 2 || got[1].Status != tt.want {
				t.Errorf("got %s", body)
			}
		})
	}
	t.Run("one job", func(t *testing.T) {
		conn, err := net.Dial("tcp", f.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn, "POST /v1/jobs HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: 1000\r\n\r\n{", prodToken)
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if body, _ := io.ReadAll(resp.Body); resp.StatusCode != 408 {
			t.Errorf("%d %s", resp.StatusCode, body)
		}
	})
}

// The store going away ends no line without a result.
func TestBatchStoreAway(t *testing.T) {
	f := start(t, nil)
	if err := f.store.Close(); err != nil {
		t.Fatal(err)
	}
	_, body := f.do("POST", "/v1/jobs:batch", strings.Repeat(`{"provider":"sms"}`+"\n", 3))
	got := lines(t, body)
	if len(got) != 3 || got[2].Status != 503 || got[2].Error.RetryAfter == 0 {
		t.Errorf("got %s", body)
	}
}
