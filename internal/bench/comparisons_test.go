package bench

import (
	"slices"
	"testing"
)

// Every comparison at the smallest scale, but kill, which takes its half
// minute, and webhooks, whose kills do: see faults_test.go and storm_test.go. No figure is judged that depends on the machine;
// but every job is done, none twice, and never more in flight than allowed.
func TestComparisons(t *testing.T) {
	tested := 0
	for _, c := range comparisons() {
		if c.name == "kill" || c.name == "webhooks" {
			continue
		}
		tested++
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := testRig(t)
			if err := c.run(r, 1); err != nil {
				t.Fatal(err)
			}
			if len(r.results.Results) == 0 {
				t.Fatal("no results")
			}
			for _, res := range r.results.Results {
				if len(res.Metrics) == 0 || res.Bench != c.name {
					t.Errorf("%+v", res)
				}
				for _, m := range res.Metrics {
					if !m.Met() && slices.Contains([]string{"succeeded", "twice", "peak"}, m.Name) {
						t.Errorf("%s %s: %s is %s, wanted %s", res.Case, res.Side, m.Name, m.format(m.Value), m.wanted())
					}
				}
			}
		})
	}
	if tested == 0 {
		t.Fatal("nothing was tested")
	}
}
