package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// purse is a Charge of some units.
type purse struct {
	mu    sync.Mutex
	left  int64
	asked []int64
}

func (p *purse) charge(_ context.Context, units int64) (int64, *Problem) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked = append(p.asked, units)
	n := min(units, p.left)
	if p.left -= n; n < units {
		return n, TooMany(`The limit "jobs" is used up.`, "Come back later.", 1500*time.Millisecond)
	}
	return n, nil
}

func (p *purse) fill(n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left = n
}

func jobLines(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "{\"provider\":\"sms\",\"id\":\"j%d\"}\n", i)
	}
	return b.String()
}

// A batch costs by its lines: those that there is no room for are refused, the
// others are stored; after a refusal nobody asks again until its time.
func TestBatchCharged(t *testing.T) {
	p := &purse{left: 5}
	f := start(t, func(c *Config) { c.Charge = p.charge })
	resp, body := f.do("POST", "/v1/jobs:batch", "\n"+jobLines(3)+" \nnot json\n"+jobLines(2000)[len(jobLines(3)):])
	if resp.StatusCode != 200 {
		t.Fatalf("%d %s", resp.StatusCode, body)
	}
	got := map[int]int{}
	var last *Problem
	for _, l := range lines(t, body) {
		got[l.Status]++
		if l.Status == 429 {
			last = l.Error
		}
	}
	// 1 with the request, 5 more, one of them for the line that is not JSON.
	if diff := cmp.Diff(map[int]int{202: 5, 400: 1, 429: 1995}, got); diff != "" {
		t.Error(diff)
	}
	if last == nil || last.Code != CodeTooMany || last.RetryAfter < 1 || last.RetryAfter > 2 || last.Fix == "" {
		t.Errorf("refused with %+v", last)
	}
	if len(p.asked) > 2 {
		t.Errorf("asked %v", p.asked)
	}
}

// Without limits lines cost nothing, and one that is alone is paid by its request.
func TestBatchOfOne(t *testing.T) {
	p := &purse{}
	f := start(t, func(c *Config) { c.Charge = p.charge })
	if _, body := f.do("POST", "/v1/jobs:batch", jobLines(1)); !strings.Contains(body, `"status":202`) || len(p.asked) > 0 {
		t.Errorf("%s %v", body, p.asked)
	}
	if _, body := f.do("POST", "/v1/jobs:batch", ""); body != "" || len(p.asked) > 0 {
		t.Errorf("%s %v", body, p.asked)
	}
}

// patient sends lines with a patience whose sleeps fill the purse.
func patient(t *testing.T, f *fixture, p *purse, in io.Reader, wait time.Duration) (got map[int]int, slept []time.Duration, end error) {
	t.Helper()
	c, err := NewClient(f.URL, prodToken)
	if err != nil {
		t.Fatal(err)
	}
	got = map[int]int{}
	opt := Patience{Wait: wait, sleep: func(_ context.Context, d time.Duration) error {
		slept = append(slept, d)
		p.fill(700)
		return nil
	}}
	for l, err := range c.BatchPatiently(t.Context(), in, opt) {
		if err != nil {
			return got, slept, err
		}
		if _, twice := got[l.Line]; twice {
			t.Errorf("line %d has two results", l.Line)
		}
		got[l.Line] = l.Status
	}
	return got, slept, nil
}

// A client sends again what a limit refused, after the time that it names, and
// every line is stored once.
func TestBatchPatiently(t *testing.T) {
	p := &purse{left: 100}
	f := start(t, func(c *Config) { c.Charge = p.charge })
	in := "\n" + jobLines(2000) + "not json" // the last line has no ending
	got, slept, err := patient(t, f, p, strings.NewReader(in), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 2001 || got[1] != 0 || got[2] != 202 || got[2001] != 202 || got[2002] != 400 {
		t.Errorf("%d results; line 2: %d, 2001: %d, 2002: %d", len(got), got[2], got[2001], got[2002])
	}
	for line, status := range got {
		if line < 2002 && status != 202 {
			t.Errorf("line %d: %d", line, status)
		}
	}
	if len(slept) < 2 || slept[0] < time.Second || slept[0] > 2*time.Second {
		t.Errorf("slept %v", slept)
	}
}

// Without patience nothing is waited for, and what was refused is said.
func TestBatchNoPatience(t *testing.T) {
	p := &purse{left: 2}
	f := start(t, func(c *Config) { c.Charge = p.charge })
	got, slept, err := patient(t, f, p, strings.NewReader(jobLines(10)), 0)
	if err != nil || len(slept) > 0 || len(got) != 10 || got[3] != 202 || got[4] != 429 || got[10] != 429 {
		t.Errorf("%v %v %v", got, slept, err)
	}
}

// A request that is refused as a whole, by a door that knows no codes of ours,
// is sent again as a whole.
func TestBatchRefusedAsAWhole(t *testing.T) {
	p := &purse{}
	f := start(t, nil)
	refusals := 2
	var mu sync.Mutex
	inner := f.Config.Handler
	f.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		refuse := refusals > 0
		refusals--
		mu.Unlock()
		if refuse {
			w.Header().Set("Retry-After", "7")
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusTooManyRequests)
			_, _ = io.WriteString(w, `{"title":"Quota exceeded","status":429,"detail":"The limit \"all\" is used up.","fix":"Come back in 7 s."}`)
			return
		}
		inner.ServeHTTP(w, r)
	})
	got, slept, err := patient(t, f, p, strings.NewReader(jobLines(300)), time.Minute)
	if err != nil || len(got) != 300 {
		t.Errorf("%d results, %v", len(got), err)
	}
	if diff := cmp.Diff([]time.Duration{7 * time.Second, 7 * time.Second}, slept); diff != "" {
		t.Error(diff)
	}
	mu.Lock()
	refusals = 1
	mu.Unlock()
	_, _, err = patient(t, f, p, strings.NewReader(jobLines(3)), 5*time.Second)
	prob, ok := errors.AsType[*Problem](err)
	if !ok || prob.Code != CodeTooMany || prob.RetryAfter != 7 || prob.Detail != `The limit "all" is used up.` {
		t.Errorf("out of patience: %v", err)
	}
}

// A server that stops answering, or answers what was not asked, does not make
// the client go round for ever.
func TestBatchPatientlyOddServers(t *testing.T) {
	for name, c := range map[string]struct {
		body, want string
	}{
		"nothing":  {"", "have no result"},
		"too few":  {`{"line":1,"status":202}` + "\n", "have no result"},
		"not sent": {`{"line":7,"status":202}` + "\n", "was not sent"},
	} {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				_, _ = io.WriteString(w, c.body)
			}))
			defer s.Close()
			cl, err := NewClient(s.URL, "")
			if err != nil {
				t.Fatal(err)
			}
			var end error
			for _, err := range cl.BatchPatiently(t.Context(), strings.NewReader(jobLines(3)), Patience{Wait: time.Second}) {
				end = err
			}
			if end == nil || !strings.Contains(end.Error(), c.want) {
				t.Errorf("%v", end)
			}
		})
	}
}

// More lines than one request may hold unanswered go in several.
func TestBatchPatientlyMany(t *testing.T) {
	if testing.Short() {
		t.Skip()
	}
	p := &purse{left: 1 << 30}
	f := start(t, func(c *Config) { c.Charge = p.charge })
	got, _, err := patient(t, f, p, strings.NewReader(jobLines(maxUnanswered+500)), time.Minute)
	if err != nil || len(got) != maxUnanswered+500 {
		t.Errorf("%d %v", len(got), err)
	}
}

// A read that fails is an error, after the results of what was sent.
func TestBatchPatientlyBadInput(t *testing.T) {
	p := &purse{}
	f := start(t, nil)
	broken := errors.New("the disk is gone")
	got, _, err := patient(t, f, p, io.MultiReader(strings.NewReader(jobLines(3)), &failingReader{broken}), time.Minute)
	if len(got) != 3 || !errors.Is(err, broken) {
		t.Errorf("%v %v", got, err)
	}
}

type failingReader struct{ err error }

func (r *failingReader) Read([]byte) (int, error) { return 0, r.err }

// Who sends a request is known by the token that was proved, and by nothing else.
func TestCaller(t *testing.T) {
	s, err := New(Config{OnlyHealth: true, Tokens: []Token{{Name: "billing", Secret: prodToken}, {Name: "ops", Secret: opsToken, Operator: true}}})
	if err != nil {
		t.Fatal(err)
	}
	open, err := New(Config{OnlyHealth: true})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, auth := range []string{"", "Bearer " + prodToken, "bearer " + opsToken, "Bearer wrong", "Basic " + prodToken} {
		r := httptest.NewRequest("GET", "/", nil)
		if auth != "" {
			r.Header.Set("Authorization", auth)
		}
		got = append(got, s.Caller(r)+"/"+open.Caller(r))
	}
	if want := []string{"/", "billing/", "ops/", "/", "/"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
