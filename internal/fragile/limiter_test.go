package fragile

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

const ms = time.Millisecond

// step is one arrival and what the limiter must say to it.
type step struct {
	at   time.Duration
	wait time.Duration // 0: admitted
}

func TestLimiters(t *testing.T) {
	tests := []struct {
		name  string
		kind  Kind
		rate  Rate
		burst int
		steps []step
	}{
		{"sliding: the window is half open", Sliding, Rate{2, time.Second}, 0, []step{
			{0, 0}, {400 * ms, 0}, {500 * ms, 500 * ms}, {999 * ms, ms}, {1000 * ms, 0}, {1000 * ms, 400 * ms}, {1400 * ms, 0}, {1999 * ms, ms}, {2000 * ms, 0}}},
		{"sliding: a refusal does not count", Sliding, Rate{1, time.Second}, 0, []step{
			{0, 0}, {900 * ms, 100 * ms}, {950 * ms, 50 * ms}, {time.Second, 0}}},
		{"bucket: full at the start, exact refill", Bucket, Rate{3, time.Second}, 2, []step{
			{0, 0}, {0, 0}, {0, 333_333_334}, {333_333_333, 1}, {333_333_334, 0}, {333_333_334, 333_333_333}, {666_666_667, 0}, {time.Hour, 0}, {time.Hour, 0}, {time.Hour, 333_333_334}}},
		{"bucket: six a minute, one token (LIM-14's rate)", Bucket, Rate{6, time.Minute}, 1, []step{
			{0, 0}, {5 * time.Second, 5 * time.Second}, {10 * time.Second, 0}}},
		{"fixed: twice the limit round the edge", Fixed, Rate{2, time.Second}, 0, []step{
			{900 * ms, 0}, {950 * ms, 0}, {960 * ms, 40 * ms}, {1000 * ms, 0}, {1001 * ms, 0}, {1002 * ms, 998 * ms}, {5 * time.Second, 0}}},
		{"none", Sliding, Rate{}, 0, []step{{0, 0}, {0, 0}, {0, 0}}},
		{"no bucket", Bucket, Rate{}, 1, []step{{0, 0}, {0, 0}, {0, 0}}},
		{"no windows", Fixed, Rate{}, 0, []step{{0, 0}, {0, 0}, {0, 0}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l := newLimiter(tt.kind, tt.rate, tt.burst, 0)
			got := make([]step, len(tt.steps))
			for i, s := range tt.steps {
				wait, ok := l.admit(s.at)
				if ok != (wait == 0) {
					t.Fatalf("at %s: admitted %v with a wait of %s", s.at, ok, wait)
				}
				got[i] = step{s.at, wait}
			}
			if diff := cmp.Diff(tt.steps, got, cmp.AllowUnexported(step{})); diff != "" {
				t.Errorf("waits differ (-want +got):\n%s", diff)
			}
		})
	}
}

func TestLimiterChange(t *testing.T) {
	second := time.Second
	t.Run("sliding keeps what was admitted", func(t *testing.T) {
		l := newLimiter(Sliding, Rate{4, second}, 0, 6)
		for i := range 4 {
			if _, ok := l.admit(time.Duration(i) * 100 * ms); !ok {
				t.Fatal("refused under the limit")
			}
		}
		l.change(400*ms, Rate{2, second})
		if wait, _ := l.admit(400 * ms); wait != 800*ms {
			t.Errorf("halved: wait %s, want 800ms, when the last but one leaves the window", wait)
		}
		l.change(500*ms, Rate{6, second})
		for range 2 {
			if _, ok := l.admit(500 * ms); !ok {
				t.Error("raised: refused under the limit")
			}
		}
		if wait, _ := l.admit(500 * ms); wait != 500*ms {
			t.Errorf("raised: wait %s, want 500ms", wait)
		}
		l.change(600*ms, Rate{9, second}) // more than the history: grows
		for i := range 3 {
			if _, ok := l.admit(600 * ms); !ok {
				t.Errorf("grown: %d refused under the limit", i)
			}
		}
		if wait, _ := l.admit(600 * ms); wait != 400*ms {
			t.Errorf("grown: wait %s, want 400ms", wait)
		}
	})
	t.Run("bucket keeps its tokens", func(t *testing.T) {
		l := newLimiter(Bucket, Rate{10, second}, 4, 0)
		l.admit(0)
		l.change(0, Rate{60, time.Minute})
		for range 3 {
			if _, ok := l.admit(0); !ok {
				t.Error("a token was lost")
			}
		}
		if wait, _ := l.admit(0); wait != second {
			t.Errorf("wait %s, want 1s", wait)
		}
	})
	t.Run("fixed keeps its count", func(t *testing.T) {
		l := newLimiter(Fixed, Rate{2, second}, 0, 0)
		l.admit(0)
		l.admit(0)
		l.change(100*ms, Rate{3, second})
		if _, ok := l.admit(100 * ms); !ok {
			t.Error("the third of three was refused")
		}
		if wait, _ := l.admit(200 * ms); wait != 800*ms {
			t.Errorf("wait %s, want 800ms", wait)
		}
	})
}

// gaps draws arrivals that crowd round the limit: nothing, nanoseconds, about
// an interval, about a period.
func drawArrivals(t *rapid.T, r Rate) []time.Duration {
	n := rapid.IntRange(1, 300).Draw(t, "arrivals")
	now := time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "start"))
	list := make([]time.Duration, n)
	for i := range list {
		var most int64
		switch rapid.IntRange(0, 3).Draw(t, "gap kind") {
		case 1:
			most = 3
		case 2:
			most = 2 * int64(r.Per) / int64(r.N)
		case 3:
			most = 2 * int64(r.Per)
		}
		now += time.Duration(rapid.Int64Range(0, most).Draw(t, "gap"))
		list[i] = now
	}
	return list
}

func drawRate(t *rapid.T, label string) Rate {
	return Rate{rapid.IntRange(1, 20).Draw(t, label), time.Duration(rapid.Int64Range(int64(ms), int64(time.Minute)).Draw(t, label+" per"))}
}

// mostWithin counts by brute force the most times in any window (t-per, t].
func mostWithin(times []time.Duration, per time.Duration) int {
	most := 0
	for i, end := range times {
		n := 0
		for _, other := range times[:i+1] {
			if end-other < per {
				n++
			}
		}
		most = max(most, n)
	}
	return most
}

// Never more than N in any window, and never a refusal where one more would
// still have fitted.
func TestSlidingIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawRate(t, "n")
		l := newLimiter(Sliding, r, 0, 0)
		var admitted []time.Duration
		for _, at := range drawArrivals(t, r) {
			in := 0
			for _, a := range admitted {
				if at-a < r.Per {
					in++
				}
			}
			wait, ok := l.admit(at)
			if ok != (in < r.N) {
				t.Fatalf("at %s with %d of %d in the window: admitted %v", at, in, r.N, ok)
			}
			if ok {
				admitted = append(admitted, at)
			} else if oldest := admitted[len(admitted)-r.N]; at+wait != oldest+r.Per {
				t.Fatalf("at %s: wait %s leads to %s, the oldest leaves at %s", at, wait, at+wait, oldest+r.Per)
			}
		}
		if most := mostWithin(admitted, r.Per); most > r.N {
			t.Fatalf("%d in a window of %s", most, r)
		}
	})
}

// After any changes, no window is over the limit that was in force at its end.
func TestSlidingIsExactThroughChanges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rates := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Rate { return drawRate(t, "rate") }), 1, 5).Draw(t, "rates")
		history := 0
		for _, r := range rates {
			history = max(history, r.N)
		}
		l := newLimiter(Sliding, rates[0], 0, history)
		now := rates[0]
		var admitted []time.Duration
		for i, at := range drawArrivals(t, rates[0]) {
			if i%50 == 49 {
				now = rates[i/50%len(rates)]
				l.change(at, now)
			}
			in := 0
			for _, a := range admitted {
				if at-a < now.Per {
					in++
				}
			}
			if _, ok := l.admit(at); ok != (in < now.N) {
				t.Fatalf("at %s with %d in the window of %s: admitted %v", at, in, now, ok)
			} else if ok {
				admitted = append(admitted, at)
			}
		}
	})
}

// A bucket never admits more than burst + N·t/period in any time t, and a
// wait it tells is exact.
func TestBucketIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawRate(t, "n")
		burst := rapid.IntRange(1, 30).Draw(t, "burst")
		l := newLimiter(Bucket, r, burst, 0)
		var admitted []time.Duration
		for _, at := range drawArrivals(t, r) {
			wait, ok := l.admit(at)
			if ok {
				admitted = append(admitted, at)
				continue
			}
			probe := *l.(*bucket)
			if _, early := probe.admit(at + wait - 1); early {
				t.Fatalf("at %s: admitted before the wait of %s was over", at, wait)
			}
			probe = *l.(*bucket)
			if _, due := probe.admit(at + wait); !due {
				t.Fatalf("at %s: refused after the wait of %s", at, wait)
			}
		}
		for i, from := range admitted {
			for k, to := range admitted[i:] {
				// k+1 calls in to-from: k+1 <= burst + N·(to-from)/per, in integers.
				if int64(k+1-burst)*int64(r.Per) > int64(r.N)*int64(to-from) {
					t.Fatalf("%d calls in %s from a bucket of %d at %s", k+1, to-from, burst, r)
				}
			}
		}
	})
}

func TestMostInIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawRate(t, "n")
		times := drawArrivals(t, r)
		m := mostIn{window: r.Per}
		for _, at := range times {
			m.add(at)
		}
		if want := mostWithin(times, r.Per); m.most != want {
			t.Fatalf("most %d, want %d", m.most, want)
		}
	})
}
