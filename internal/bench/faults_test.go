//go:build faults

package bench

import "testing"

// kill -9 of one of two workers: every figure that the issue asks for.
func TestFaultKill(t *testing.T) {
	r := testRig(t)
	r.opt.Scale = 0.5
	if err := r.kill(1); err != nil {
		t.Fatal(err)
	}
	if len(r.results.Results) != 1 {
		t.Fatalf("%d results", len(r.results.Results))
	}
	for _, m := range r.results.Results[0].Metrics {
		t.Logf("%s: %s", m.Name, m.format(m.Value))
		if !m.Met() {
			t.Errorf("%s is %s, wanted %s", m.Name, m.format(m.Value), m.wanted())
		}
	}
}
