package fragile

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func startServer(t *testing.T, cfg Config) (*Server, *http.Client) {
	t.Helper()
	s, err := Start("", cfg)
	if err != nil {
		t.Fatal(err)
	}
	tr := &http.Transport{}
	t.Cleanup(func() {
		tr.CloseIdleConnections()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		goleak.VerifyNone(t)
	})
	return s, &http.Client{Transport: tr}
}

func post(ctx context.Context, c *http.Client, url, key, body string) (int, string, error) {
	req, err := http.NewRequestWithContext(ctx, "POST", url, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	resp, err := c.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b), err
}

// Cut, lost and down reach the caller as a broken connection, and are told apart.
func TestBrokenConnections(t *testing.T) {
	s, c := startServer(t, Config{Timeline: []Trouble{{What: Cut, Times: 1}, {What: Lose, Times: 1}}})
	for _, key := range []string{"cut", "lost"} {
		if status, _, err := post(t.Context(), c, s.URL(), key, ""); err == nil {
			t.Errorf("%s: answered %d", key, status)
		}
	}
	if err := s.Inject(Trouble{What: Outage}); err != nil {
		t.Fatal(err)
	}
	if status, _, err := post(t.Context(), c, s.URL(), "down", ""); err == nil {
		t.Errorf("down: answered %d", status)
	}
	rep := s.Report()
	if rep.Cut != 1 || rep.Lost != 1 || rep.Down != 1 || rep.JobsSucceeded != 1 || rep.Accepted != 2 || rep.InFlight != 0 {
		t.Errorf("%+v", rep)
	}
}

// A hang lasts until the caller leaves, and frees its place then.
func TestHang(t *testing.T) {
	s, c := startServer(t, Config{Timeline: []Trouble{{What: Hang, Times: 1}}, Remember: 5})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { _, _, err := post(ctx, c, s.URL(), "a", ""); ended <- err }()
	for s.Live().InFlight == 0 { // until it hangs
		time.Sleep(time.Millisecond)
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	for s.Live().InFlight != 0 { // until the server has noticed
		time.Sleep(time.Millisecond)
	}
	if rep := s.Report(); rep.Left != 1 {
		t.Errorf("%+v", rep)
	}
}

// Close ends what hangs.
func TestCloseEndsAHang(t *testing.T) {
	defer goleak.VerifyNone(t)
	s, err := Start("", Config{Timeline: []Trouble{{What: Hang}}})
	if err != nil {
		t.Fatal(err)
	}
	tr := &http.Transport{}
	defer tr.CloseIdleConnections()
	ended := make(chan error, 1)
	go func() { _, _, err := post(t.Context(), &http.Client{Transport: tr}, s.URL(), "a", ""); ended <- err }()
	for s.Live().InFlight == 0 {
		time.Sleep(time.Millisecond)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := <-ended; err == nil {
		t.Error("a hanging call was answered")
	}
}

// The report over HTTP is the report, and reset and trouble work from outside.
func TestAdminOverHTTP(t *testing.T) {
	s, c := startServer(t, Config{Limit: Rate{3, time.Hour}, Remember: 10})
	for _, key := range []string{"a", "b", "a", "c"} {
		if _, _, err := post(t.Context(), c, s.URL()+"/messages", key, strings.Repeat("x", 300_000)); err != nil {
			t.Fatal(err)
		}
	}
	get := func(path string) string {
		resp, err := c.Get(s.URL() + path)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	var rep Report
	if err := json.Unmarshal([]byte(get("/__report?series=1")), &rep); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(s.Series(), rep); diff != "" {
		t.Errorf("(-here +over HTTP):\n%s", diff)
	}
	if rep.SucceededTwice != 1 || rep.Refused != 1 || rep.Jobs != 3 {
		t.Errorf("%+v", rep)
	}
	if text := get("/__report?format=text"); !strings.Contains(text, "most in any 1h") {
		t.Error(text)
	}
	if n := strings.Count(get("/__calls"), "\n"); n != 4 {
		t.Errorf("%d calls remembered", n)
	}
	var live Live
	if err := json.Unmarshal([]byte(get("/__live")), &live); err != nil || live.Calls != 4 || live.Refused != 1 {
		t.Errorf("%+v, %v", live, err)
	}
	if status, _, err := post(t.Context(), c, s.URL()+"/__reset", "", ""); status != 204 || err != nil {
		t.Errorf("reset: %d, %v", status, err)
	}
	if status, text, _ := post(t.Context(), c, s.URL()+"/__trouble", "", "0s.. explode"); status != 400 || !strings.Contains(text, "explode") {
		t.Errorf("a bad trouble: %d %s", status, text)
	}
	if status, _, err := post(t.Context(), c, s.URL()+"/__trouble", "", "0s.. error 503\n"); status != 204 || err != nil {
		t.Errorf("trouble: %d, %v", status, err)
	}
	if status, _, _ := post(t.Context(), c, s.URL(), "a", ""); status != 503 {
		t.Errorf("after the trouble: %d", status)
	}
}

// The account agrees with what the callers counted, under many callers at once.
func TestManyCallers(t *testing.T) {
	s, c := startServer(t, Config{Limit: Rate{100, time.Hour}, InFlight: 4})
	var mu sync.Mutex
	counted := map[int]int{}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				status, _, err := post(t.Context(), c, s.URL(), "", "")
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				counted[status]++
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	rep := s.Report()
	if diff := cmp.Diff(counted, rep.ByStatus); diff != "" || rep.Calls != 400 || counted[200] != 100 || rep.PeakInFlight > 4 {
		t.Errorf("%+v\n%s", rep, diff)
	}
}

// Calls are told apart by a header, a thousand values at most.
func TestCountBy(t *testing.T) {
	p, err := New(Config{CountBy: "X-Worker"})
	if err != nil {
		t.Fatal(err)
	}
	for _, worker := range []string{"1", "2", "1", ""} {
		p.arrive(http.Header{"X-Worker": {worker}})
	}
	if diff := cmp.Diff(map[string]int{"1": 2, "2": 1, "": 1}, p.Report().By); diff != "" {
		t.Error(diff)
	}
	for i := range 2 * maxBy {
		p.arrive(http.Header{"X-Worker": {strconv.Itoa(i)}})
	}
	if n := len(p.Report().By); n != maxBy {
		t.Errorf("%d values", n)
	}
}

func TestRun(t *testing.T) {
	defer goleak.VerifyNone(t)
	ctx, cancel := context.WithCancel(t.Context())
	tr := &http.Transport{}
	defer tr.CloseIdleConnections()
	shown := 0
	rep, err := Run(ctx, Config{Name: "sms"}, Options{
		Every: time.Millisecond,
		Ready: func(url string) {
			if status, _, err := post(ctx, &http.Client{Transport: tr}, url, "a", ""); status != 200 {
				t.Errorf("%d, %v", status, err)
			}
		},
		Show: func(l Live) {
			if shown++; shown == 3 {
				cancel()
			}
			if l.Calls != 1 || !strings.HasPrefix(l.String(), "sms ") {
				t.Errorf("%+v", l)
			}
		},
	})
	if err != nil || rep.Calls != 1 || len(rep.Seconds) != 1 {
		t.Errorf("%+v, %v", rep, err)
	}
	if _, err := Run(t.Context(), Config{InFlight: -1}, Options{}); err == nil {
		t.Error("a bad configuration runs")
	}
	if _, err := Run(t.Context(), Config{}, Options{Listen: "256.0.0.1:1"}); err == nil {
		t.Error("a bad address is listened on")
	}
}

func BenchmarkCalls(b *testing.B) {
	s, err := Start("", Config{Limit: Rate{1_000_000, time.Second}})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	c := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, _, err := post(b.Context(), c, s.URL(), "k", "hello"); err != nil {
				b.Error(err)
				return
			}
		}
	})
}
