package api

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"
)

// A job without an id that may have been stored is named in the answer: sent
// again without one, it would be done twice.
func TestStoreAwayNamesTheID(t *testing.T) {
	f := start(t, nil)
	if resp, body := f.do("POST", "/v1/jobs", `{"provider":"sms","delay":"1h"}`); resp.StatusCode != 202 {
		t.Fatalf("%d %s", resp.StatusCode, body)
	}
	if err := f.store.Close(); err != nil {
		t.Fatal(err)
	}
	for job, named := range map[string]string{
		`{"provider":"sms"}`:              `with the id [0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f-]{17}:`,
		`{"provider":"sms","id":"order"}`: `with the same id`,
	} {
		resp, body := f.do("POST", "/v1/jobs", job)
		f.refused(resp, body, CodeStoreAway)
		var p Problem
		if err := json.NewDecoder(strings.NewReader(string(body))).Decode(&p); err != nil {
			t.Fatal(err)
		}
		if !regexp.MustCompile(named).MatchString(p.Fix) {
			t.Errorf("%s: %q", job, p.Fix)
		}
	}
}
