package main

import (
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/penstock-io/penstock/internal/redistest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestDoor(t *testing.T) {
	for _, store := range []string{"memory", "redis"} {
		t.Run(store, func(t *testing.T) {
			url := ""
			if store == "redis" {
				url = redistest.Start(t).URL()
			}
			var out strings.Builder
			if err := run(t.Context(), url, &out); err != nil {
				t.Fatalf("%v\n%s", err, &out)
			}
			for _, want := range []string{
				"4 rule per-key: 10/h sliding_counter, by api_key|address, for all requests; plan gold: 100/h sliding_counter; store away: fail_open",
				"key-of-acme POST /reports: 200, 95 left\n", "key-of-acme GET /: 200, 94 left\n", "key-of-acme POST /reports: 200, 89 left\n",
				"key-of-other POST /reports: 200, 5 left\n", "key-of-other GET /: 200, 4 left\n", "key-of-other POST /reports: 429, 4 left, come back in ",
				`"documentation":"https://docs.example/limits#per-key"`,
			} {
				if !strings.Contains(out.String(), want) {
					t.Errorf("it does not say %q:\n%s", want, &out)
				}
			}
		})
	}
}
