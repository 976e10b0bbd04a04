package fragile

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// call makes a call without a network, as time in a bubble needs it.
func call(t *testing.T, p *Provider, key string) *httptest.ResponseRecorder {
	t.Helper()
	req := httptest.NewRequest("POST", "/messages", strings.NewReader("hello"))
	req = req.WithContext(t.Context())
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	w := httptest.NewRecorder()
	p.ServeHTTP(w, req)
	return w
}

func start(t *testing.T, cfg Config) *Provider {
	t.Helper()
	p, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Every kind of limit, exactly, in virtual time: one call each 5 ms for 3 s.
func TestKindsInVirtualTime(t *testing.T) {
	for _, tt := range []struct {
		kind     Kind
		burst    int
		accepted []int // in each second
		most     int
	}{
		{Sliding, 0, []int{20, 20, 20}, 20},
		{Fixed, 0, []int{20, 20, 20}, 20},
		{Bucket, 5, []int{24, 20, 20}, 24},
		{Bucket, 0, []int{39, 20, 20}, 39},
	} {
		t.Run(tt.kind.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := start(t, Config{Limit: Rate{20, time.Second}, Kind: tt.kind, Burst: tt.burst})
				for range 600 {
					call(t, p, "")
					time.Sleep(5 * ms)
				}
				rep := p.Series()
				var got []int
				for _, s := range rep.Seconds {
					got = append(got, s.Accepted)
				}
				if diff := cmp.Diff(tt.accepted, got); diff != "" {
					t.Errorf("accepted by second (-want +got):\n%s", diff)
				}
				if rep.MostArrived != 200 || rep.MostAccepted != tt.most {
					t.Errorf("most arrived %d, accepted %d; want 200, %d", rep.MostArrived, rep.MostAccepted, tt.most)
				}
			})
		})
	}
}

func TestLatencyInFlightAndServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(t, Config{Latency: Latency{Mean: 100 * ms}, InFlight: 3})
		var wg sync.WaitGroup
		statuses := make([]int, 5)
		for i := range statuses {
			wg.Go(func() { statuses[i] = call(t, p, "").Code })
			synctest.Wait()
		}
		if l := p.Live(); l.InFlight != 3 || l.Refused != 2 {
			t.Errorf("in flight %d, refused %d; want 3, 2", l.InFlight, l.Refused)
		}
		begun := time.Now()
		wg.Wait()
		if took := time.Since(begun); took != 100*ms {
			t.Errorf("took %s, want 100ms", took)
		}
		if diff := cmp.Diff([]int{200, 200, 200, 429, 429}, statuses); diff != "" {
			t.Error(diff)
		}
		if l := p.Live(); l.InFlight != 0 {
			t.Errorf("%d in flight at the end", l.InFlight)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		p := start(t, Config{Latency: Latency{Mean: 100 * ms}, Servers: 2, Remember: 10,
			Timeline: []Trouble{{From: time.Second, What: Servers, N: 1}}})
		fire := func() {
			var wg sync.WaitGroup
			for range 5 {
				wg.Go(func() { call(t, p, "") })
				synctest.Wait()
			}
			wg.Wait()
		}
		fire()
		time.Sleep(time.Second)
		fire()
		var took []time.Duration
		for _, c := range p.Calls() {
			took = append(took, c.Took/ms)
		}
		want := []time.Duration{100, 100, 200, 200, 300, 100, 200, 300, 400, 500}
		if diff := cmp.Diff(want, took); diff != "" {
			t.Errorf("times with two servers, then one (-want +got):\n%s", diff)
		}
	})
}

func TestRetryAfterForms(t *testing.T) {
	for form, want := range map[RetryAfter]string{
		"":             "2",
		ReplySeconds:   "2",
		ReplyFraction:  "1.250",
		ReplyDate:      "Sat, 01 Jan 2000 00:00:02 GMT", // a bubble begins in 2000
		ReplyAbsent:    "",
		ReplyNonsense:  "soon",
		ReplyHuge:      "31557600000",
		ReplyNegative:  "-5",
		ReplyEpoch:     "946684802",
		"=30":          "30",
		"=tomorrow ok": "tomorrow ok",
	} {
		t.Run(string(form), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := start(t, Config{Limit: Rate{1, 2 * time.Second}, RetryAfter: form})
				call(t, p, "")
				time.Sleep(750 * ms)
				w := call(t, p, "")
				if w.Code != 429 {
					t.Fatalf("status %d", w.Code)
				}
				if got := w.Header().Get("Retry-After"); got != want {
					t.Errorf("Retry-After %q, want %q", got, want)
				}
			})
		})
	}
}

// The script, minute by minute.
func TestTimeline(t *testing.T) {
	timeline, err := ParseTimeline(strings.NewReader(`
		# the usual bad day
		1s..2s error 503 retry-after==30
		2s..3s error 429
		3s..4s error 502 x2   # and then well again
		4s..5s slow 300ms
		4s..5s slow 200ms
		5s..6s limit 1/s
		6s..7s in-flight 1
		7s.. error 500 50%
	`))
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		p := start(t, Config{Timeline: timeline, Seed: 7})
		begun := time.Now()
		at := func(d time.Duration) { time.Sleep(time.Until(begun.Add(d))) }
		expect := func(status int, retryAfter string, took time.Duration) {
			t.Helper()
			from := time.Now()
			w := call(t, p, "")
			if got := w.Header().Get("Retry-After"); w.Code != status || got != retryAfter || time.Since(from) != took {
				t.Errorf("at %s: %d, Retry-After %q in %s; want %d, %q in %s", from.Sub(begun), w.Code, got, time.Since(from), status, retryAfter, took)
			}
		}
		expect(200, "", 0)
		at(time.Second)
		expect(503, "30", 0)
		at(2 * time.Second)
		expect(429, "1", 0)
		at(3 * time.Second)
		expect(502, "", 0)
		expect(502, "", 0)
		expect(200, "", 0)
		at(4 * time.Second)
		expect(200, "", 500*ms)
		at(5 * time.Second)
		expect(200, "", 0) // nothing was accepted in the last second but the one at 4 s
		expect(429, "1", 0)
		at(6 * time.Second)
		expect(200, "", 0)
		at(7 * time.Second)
		failed := 0
		for range 1000 {
			if call(t, p, "").Code == 500 {
				failed++
			}
		}
		if failed < 400 || failed > 600 {
			t.Errorf("%d of 1000 failed, want about half", failed)
		}
		if err := p.Inject(Trouble{From: time.Second, To: 2 * time.Second, What: Limit, Rate: Rate{1, time.Hour}}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if l := p.Live(); l.Limit != 1./3600 {
			t.Errorf("limit in force %v", l.Limit)
		}
		if w := call(t, p, ""); w.Code != 429 {
			t.Errorf("injected limit: %d", w.Code)
		}
		p.Reset()
		if rep := p.Report(); rep.Calls != 0 {
			t.Errorf("%d calls after a reset", rep.Calls)
		}
		expect(200, "", 0)
		time.Sleep(time.Second)
		expect(503, "30", 0) // the script began anew
	})
}

// The same seed and arrivals give the same answers.
func TestDeterministic(t *testing.T) {
	run := func(seed uint64) (calls []Call) {
		synctest.Test(t, func(t *testing.T) {
			p := start(t, Config{Seed: seed, Remember: 1000, Latency: Latency{20 * ms, 10 * ms, Normal},
				Timeline: []Trouble{{What: Fail, Share: 0.3}, {What: Cut, Share: 0.1}}})
			var wg sync.WaitGroup
			for range 500 {
				wg.Go(func() {
					defer func() { _ = recover() }() // a cut aborts the handler
					call(t, p, "")
				})
				time.Sleep(ms + 1)
			}
			wg.Wait()
			calls = p.Calls()
		})
		return calls
	}
	one, same, other := run(1), run(1), run(2)
	if len(one) != 500 {
		t.Fatalf("%d calls", len(one))
	}
	if diff := cmp.Diff(one, same); diff != "" {
		t.Errorf("the same seed differs:\n%s", diff)
	}
	if cmp.Equal(one, other) {
		t.Error("another seed does not differ")
	}
}

func TestLiveRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(t, Config{Limit: Rate{100, time.Second}})
		for range 200 {
			call(t, p, "")
			time.Sleep(10 * ms)
		}
		l := p.Live()
		if l.Rate != 100 || l.Calls != 200 || l.Refused != 0 || l.Used != 1 {
			t.Errorf("%+v", l)
		}
		time.Sleep(2 * time.Second)
		if l := p.Live(); l.Rate != 0 {
			t.Errorf("rate %d after two quiet seconds", l.Rate)
		}
	})
}

func TestAdminOtherPaths(t *testing.T) {
	p := start(t, Config{})
	w := httptest.NewRecorder()
	p.ServeHTTP(w, httptest.NewRequest("GET", "/__nothing", nil))
	if w.Code != http.StatusNotFound || p.Report().Calls != 0 {
		t.Errorf("%d, %d calls", w.Code, p.Report().Calls)
	}
}
