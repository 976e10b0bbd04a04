package main

import (
	"strings"
	"testing"

	"github.com/penstock-io/penstock/internal/redistest"
)

func TestWebhooks(t *testing.T) {
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
			for _, want := range []string{"180 deliveries", "150 accepted, 30 known before", "another secret was answered 401",
				"an hour ago was answered 401", "saw 150 events with 150 calls"} {
				if !strings.Contains(out.String(), want) {
					t.Errorf("it does not say %q:\n%s", want, &out)
				}
			}
		})
	}
}
