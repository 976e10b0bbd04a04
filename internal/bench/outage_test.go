package bench

import (
	"testing"
	"time"

	"github.com/penstock-io/penstock/internal/fragile"
)

func TestOutageJudged(t *testing.T) {
	times := outageTimes{before: 10 * time.Second, down: time.Minute, after: time.Minute}
	over := times.before + times.down
	at := func(from time.Duration, n int, apart time.Duration, status int, prefix string) (calls []fragile.Call) {
		for i := range n {
			calls = append(calls, fragile.Call{At: from + time.Duration(i)*apart, Took: 20 * ms, Status: status, Key: prefix + jobID(i), End: fragile.Answered})
		}
		return calls
	}
	for _, c := range []struct {
		name           string
		jobs           int
		calls          []fragile.Call
		in, peak       int
		recovery, done time.Duration
	}{
		{name: "nothing came", jobs: 1, recovery: never, done: never},
		{name: "calls in it are counted, those before it are not", jobs: 500, recovery: never, done: never, in: 3,
			calls: append(at(0, 500, 20*ms, 200, "a"), at(times.before, 3, 20*time.Second, 503, "b")...)},
		{name: "back at once", jobs: 100, peak: 50, recovery: 44*20*ms + 20*ms, done: 99*20*ms + 20*ms,
			calls: at(over, 100, 20*ms, 200, "a")},
		{name: "slowly, and never at the rate", jobs: 100, peak: 10, recovery: never, done: 9920 * ms,
			calls: at(over, 100, 100*ms, 200, "a")},
		{name: "a burst", jobs: 200, peak: 200, recovery: 5*time.Second + 44*ms + 20*ms, done: 5*time.Second + 199*ms + 20*ms,
			calls: at(over+5*time.Second, 200, ms, 200, "a")},
		{name: "one is missing", jobs: 101, peak: 50, recovery: 900 * ms, done: never,
			calls: at(over, 100, 20*ms, 200, "a")},
		{name: "what failed is no recovery", jobs: 100, peak: 50, recovery: never, done: never,
			calls: at(over, 100, 20*ms, 503, "a")},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := throughOutage{jobs: c.jobs}
			got.judge(c.calls, times)
			if got.calls != c.in || got.peak != c.peak || got.recovery != c.recovery || got.done != c.done {
				t.Errorf("in it %d, peak %d, recovery %s, done %s; want %d, %d, %s, %s",
					got.calls, got.peak, got.recovery, got.done, c.in, c.peak, c.recovery, c.done)
			}
		})
	}
}
