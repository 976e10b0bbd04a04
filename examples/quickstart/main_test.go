package main

import (
	"strings"
	"testing"

	"github.com/penstock-io/penstock/internal/redistest"
)

func TestQuickstart(t *testing.T) {
	for _, backend := range []string{"embedded", "redis"} {
		t.Run(backend, func(t *testing.T) {
			url := ""
			if backend == "redis" {
				url = "redis://" + redistest.Start(t).Addr + "/0"
			}
			var out strings.Builder
			if err := run(t.Context(), url, &out); err != nil {
				t.Fatalf("%v\n%s", err, &out)
			}
			for _, want := range []string{"enqueued 100 jobs", "100 jobs succeeded", "with 110 attempts", "the provider saw 110 calls"} {
				if !strings.Contains(out.String(), want) {
					t.Errorf("it does not say %q:\n%s", want, &out)
				}
			}
		})
	}
}
