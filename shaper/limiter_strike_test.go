package shaper

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/penstock-io/penstock/internal/redistest"
)

// Each block is twice as long as the one before, up to the longest; keeping
// quiet takes the doublings back.
func TestEscalationGrows(t *testing.T) {
	onEachStore(t, func(t *testing.T, s LimitStore, clock *testClock) {
		e := Escalation{Strikes: 3, Within: 10 * time.Second, Block: 30 * time.Second, Longest: 100 * time.Second, Quiet: time.Minute}
		strike := func() (Offence, time.Duration) {
			t.Helper()
			o, now, err := s.(Striker).Strike(t.Context(), "r", "k", e)
			if err != nil || now != clock.us {
				t.Fatal(now, err)
			}
			return o, o.Blocked(now)
		}
		for round, want := range []time.Duration{30 * time.Second, 60 * time.Second, 100 * time.Second, 100 * time.Second} {
			for i := range 3 {
				o, blocked := strike()
				if i < 2 && blocked != 0 || i == 2 && blocked != want {
					t.Fatalf("round %d, strike %d: blocked %s (%+v), want %s at the third", round, i+1, blocked, o, want)
				}
			}
			if _, again := strike(); again != want {
				t.Fatalf("a strike while blocked makes it %s", again)
			}
			clock.sleep(want)
		}
		clock.sleep(2 * time.Minute) // two doublings back, of four
		for range 2 {
			strike()
		}
		if _, blocked := strike(); blocked != 100*time.Second {
			t.Fatalf("after two quiet minutes: %s", blocked)
		}
		clock.sleep(100*time.Second + 10*time.Minute)
		for i := range 5 { // slower than 3 in 10 s: never
			if _, blocked := strike(); blocked != 0 {
				t.Fatalf("slow strike %d: %s", i, blocked)
			}
			clock.sleep(5 * time.Second)
		}
		clock.sleep(10 * time.Minute)
		for range 2 {
			strike()
		}
		if _, blocked := strike(); blocked != 30*time.Second {
			t.Fatalf("all forgotten: %s", blocked)
		}
		clock.us -= time.Hour.Microseconds()
		if _, blocked := strike(); blocked > 100*time.Second {
			t.Fatalf("the clock went back: %s", blocked)
		}
	})
}

// Redis, memory and the pure function agree: a log of strikes replays.
func TestRapidStrikesReplay(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient, _ *redistest.Env) {
		run := 0
		rapid.Check(struct{ testing.TB }{t}, func(t *rapid.T) {
			run++
			stores, clock := testStores(rdb)
			e := Escalation{
				Strikes: rapid.Int64Range(1, 4).Draw(t, "strikes"),
				Within:  time.Duration(rapid.IntRange(1, 60).Draw(t, "within")) * time.Second,
				Block:   time.Duration(rapid.IntRange(1, 60).Draw(t, "block")) * time.Second,
				Longest: time.Duration(rapid.IntRange(60, 600).Draw(t, "longest")) * time.Second,
				Quiet:   time.Duration(rapid.IntRange(1, 100).Draw(t, "quiet")) * time.Second,
			}
			if err := e.Validate(); err != nil {
				t.Fatal(err)
			}
			key := string(rune('a' + run%26))
			limit := time.Duration(run).String()
			var replayed Offence
			for range rapid.IntRange(1, 30).Draw(t, "refusals") {
				clock.us += rapid.SampledFrom([]int64{0, 1, 999_999, 5_000_000, 31_000_000, 200_000_000}).Draw(t, "dt")
				replayed = e.Step(replayed, clock.us)
				for name, s := range stores {
					o, _, err := s.(Striker).Strike(t.Context(), limit, key, e)
					if err != nil {
						t.Fatal(err)
					}
					if name == "memory" && replayed.Level == 0 && o.Level == 0 && o.Until == 0 {
						continue // it forgets a clean past, Since and all
					}
					if d := cmp.Diff(replayed, o); d != "" {
						t.Fatalf("%s (-pure +store): %s", name, d)
					}
				}
			}
		})
	})
}

func TestEscalationRefused(t *testing.T) {
	for name, e := range map[string]Escalation{
		"no strikes": {Block: time.Minute}, "negative": {Strikes: -1}, "too short": {Strikes: 1, Block: time.Millisecond},
		"longest below block": {Strikes: 1, Block: time.Hour, Longest: time.Minute}, "too long": {Strikes: 1, Quiet: MaxPeriod + 1},
	} {
		if err := e.Validate(); !errors.Is(err, ErrBadLimit) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := (Escalation{}).Validate(); err != nil {
		t.Errorf("off: %v", err)
	}
	if err := (Escalation{Strikes: 5}).Validate(); err != nil {
		t.Errorf("defaults: %v", err)
	}
}
