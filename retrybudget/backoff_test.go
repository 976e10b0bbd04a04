package retrybudget

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// TestCeiling is case BCK-01: a schedule of any length stays in its bounds.
func TestCeiling(t *testing.T) {
	b := Backoff{Base: time.Second, Max: time.Hour}
	for _, test := range []struct {
		n    int
		want time.Duration
	}{
		{0, time.Second}, {1, 2 * time.Second}, {10, 1024 * time.Second}, {11, 2048 * time.Second},
		{12, time.Hour}, {33, time.Hour}, {34, time.Hour}, {37, time.Hour}, {62, time.Hour}, {63, time.Hour},
		{64, time.Hour}, {100, time.Hour}, {1100, time.Hour}, {math.MaxInt64, time.Hour},
		{-1, time.Second}, {math.MinInt64, time.Second},
	} {
		if got := b.Ceiling(test.n); got != test.want {
			t.Errorf("BCK-01: Ceiling(%d) = %v, want %v", test.n, got, test.want)
		}
		for range 100 {
			if got := b.Delay(test.n); got <= 0 || got > test.want {
				t.Errorf("BCK-01: Delay(%d) = %v, want above 0 and at most %v", test.n, got, test.want)
			}
		}
	}
}

// TestDelayStaysInBounds tries every kind of configuration, refused ones too
// (BCK-01, BCK-02, BCK-03).
func TestDelayStaysInBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := Backoff{
			Base: time.Duration(rapid.Int64().Draw(t, "base")),
			Max:  time.Duration(rapid.Int64().Draw(t, "max")),
		}
		n := rapid.Int().Draw(t, "n")
		base, limit := b.limits()
		ceiling := b.Ceiling(n)
		if ceiling <= 0 || ceiling > limit {
			t.Fatalf("Ceiling(%d) = %d, outside (0, %d]", n, ceiling, limit)
		}
		if next := b.Ceiling(max(n, 0)/2 + 1); n > 1 && next > ceiling {
			t.Fatalf("ceiling falls from %v to %v", next, ceiling)
		}
		if want := math.Min(float64(base)*math.Exp2(float64(max(n, 0))), float64(limit)); math.Abs(float64(ceiling)-want) > want*1e-9 {
			t.Fatalf("Ceiling(%d) = %d, in floating point %v", n, ceiling, want)
		}
		if d := b.Delay(n); d <= 0 || d > ceiling {
			t.Fatalf("Delay(%d) = %d, outside (0, %d]", n, d, ceiling)
		}
	})
}

// TestSameScheduleAsTheLibrary steps through the library's own schedule and
// compares each step with the one computed from its number alone.
func TestSameScheduleAsTheLibrary(t *testing.T) {
	b := Backoff{Base: 2 * time.Second, Max: 10 * time.Minute}
	steps := backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(b.Base/2), backoff.WithMaxInterval(b.Max/2),
		backoff.WithMultiplier(2), backoff.WithRandomizationFactor(0), backoff.WithMaxElapsedTime(0))
	for n := range 80 {
		if got, want := b.Ceiling(n), 2*steps.NextBackOff(); got != want {
			t.Errorf("Ceiling(%d) = %v, the library's interval doubled is %v", n, got, want)
		}
	}
}

// TestSmallRanges is the first half of case BCK-03.
func TestSmallRanges(t *testing.T) {
	for name, b := range map[string]Backoff{
		"zero":         {},
		"1ns":          {Base: 1, Max: 1},
		"2ns":          {Base: 1, Max: 2},
		"negative":     {Base: -1, Max: -1},
		"smallest":     {Base: math.MinInt64, Max: math.MinInt64},
		"largest":      {Base: math.MaxInt64, Max: math.MaxInt64},
		"base above":   {Base: time.Hour, Max: time.Second},
		"milliseconds": {Base: time.Millisecond, Max: time.Millisecond},
	} {
		t.Run("BCK-03/"+name, func(t *testing.T) {
			_, limit := b.limits()
			for _, n := range []int{math.MinInt64, -1, 0, 1, 62, 63, math.MaxInt64} {
				for range 200 {
					if d := b.Delay(n); d <= 0 || d > limit {
						t.Fatalf("Delay(%d) = %v", n, d)
					}
					if d := b.Next(n, -1); d <= 0 || d > limit {
						t.Fatalf("Next(%d, -1) = %v", n, d)
					}
				}
			}
		})
	}
}

// TestSpread is the second half of case BCK-03: jitter also on the first retry
// and at the cap; no bucket of 1 % of the range holds over 5 % of 1,000 jobs.
func TestSpread(t *testing.T) {
	b := Backoff{Base: time.Second, Max: time.Hour}
	for _, n := range []int{0, 1, 5, 12, 1000, math.MaxInt64} {
		const jobs = 1000
		ceiling := b.Ceiling(n)
		var buckets [101]int
		for range jobs {
			buckets[b.Delay(n)*100/ceiling]++
		}
		halves := 0
		for i, count := range buckets {
			if count > jobs/20 {
				t.Errorf("BCK-03: retry %d: bucket %d holds %d of %d", n, i, count, jobs)
			}
			if i < 50 {
				halves += count
			}
		}
		if halves < jobs/3 || halves > jobs*2/3 {
			t.Errorf("retry %d: %d of %d in the lower half", n, halves, jobs)
		}
	}
}

// TestNextNeverShortensTheProvidersWait is case BCK-05.
func TestNextNeverShortensTheProvidersWait(t *testing.T) {
	b := Backoff{Base: 2 * time.Second, Max: 10 * time.Minute}
	seconds := map[time.Duration]int{}
	for range 500 {
		d := b.Next(0, time.Minute)
		if d < time.Minute || d > time.Minute+maxSpread {
			t.Fatalf("BCK-05: Next(0, 1m) = %v", d)
		}
		seconds[d.Truncate(time.Second)]++
	}
	if len(seconds) < 8 {
		t.Errorf("BCK-05: 500 jobs leave in %d different seconds: %v", len(seconds), seconds)
	}
}

func TestNext(t *testing.T) {
	b := Backoff{Base: time.Second, Max: time.Hour}
	for _, wait := range []time.Duration{1, 2, 3, 4, time.Millisecond, time.Second, 24 * time.Hour, math.MaxInt64 - 1, math.MaxInt64} {
		for range 100 {
			if d := b.Next(3, wait); d < wait {
				t.Fatalf("Next(3, %v) = %v, shorter than asked for", wait, d)
			}
		}
	}
	longer := false
	for range 1000 {
		d := b.Next(20, time.Second)
		if d < time.Second || d > time.Hour {
			t.Fatalf("Next(20, 1s) = %v", d)
		}
		longer = longer || d > 10*time.Minute
	}
	if !longer {
		t.Error("a short wait of the provider's replaced the back-off")
	}
}

func TestValidate(t *testing.T) {
	for _, b := range []Backoff{{}, {Base: time.Millisecond}, {Base: time.Minute, Max: time.Minute}, {Max: LongestMax}} {
		if err := b.Validate(); err != nil {
			t.Errorf("%+v refused: %v", b, err)
		}
	}
	for want, b := range map[string]Backoff{
		"base -1s is negative": {Base: -time.Second},
		"max -1s is negative":  {Max: -time.Second},
		"base 1ns is below":    {Base: 1},
		"max 744h0m0.0":        {Max: LongestMax + time.Millisecond},
		"base 1h0m0s is above": {Base: time.Hour},
		"base 2s is above max": {Max: time.Second},
	} {
		err := b.Validate()
		if !errors.Is(err, ErrBadBackoff) || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", b, err, want)
		}
	}
}

func TestWriteSchedule(t *testing.T) {
	var out strings.Builder
	if err := (Backoff{Base: 2 * time.Second, Max: 10 * time.Minute}).WriteSchedule(&out, 11); err != nil {
		t.Fatal(err)
	}
	want := `attempt   delay at most   mean    at the latest after
2         2s              1s      2s
3         4s              2s      6s
4         8s              4s      14s
5         16s             8s      30s
6         32s             16s     1m2s
7         1m4s            32s     2m6s
8         2m8s            1m4s    4m14s
9         4m16s           2m8s    8m30s
10        8m32s           4m16s   17m2s
11        10m             5m      27m2s
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Error(diff)
	}
}

func TestHuman(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", time.Nanosecond: "1ns", 250 * time.Millisecond: "250ms", 1500 * time.Millisecond: "1.5s",
		time.Hour: "1h", 25*time.Hour + time.Second: "1d1h1s", math.MaxInt64: "106751d23h47m16.855s",
	} {
		if got := human(d); got != want {
			t.Errorf("human(%d) = %q, want %q", d, got, want)
		}
	}
}
