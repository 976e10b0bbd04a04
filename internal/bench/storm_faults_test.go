//go:build faults

package bench

import "testing"

// Storms with trouble in the middle: the receiver killed, Redis killed, Redis
// away for a quarter of a minute. Every delivery is acknowledged, none is lost,
// and what came twice was in flight.
func TestFaultStorms(t *testing.T) {
	ran := 0
	for _, s := range storms() {
		if s.trouble == nil {
			continue
		}
		ran++
		t.Run(s.name, func(t *testing.T) {
			r := testRig(t)
			r.opt.Scale = 0.25 // of the minute, too
			res, err := r.storm(s, 1)
			if err != nil {
				t.Fatal(err)
			}
			judgeStorm(t, res)
		})
	}
	if ran < 3 {
		t.Fatalf("%d storms with trouble", ran)
	}
}
