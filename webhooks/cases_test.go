package webhooks

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// Cases that are told by vectors: each vector of a case is decided as it says.
func TestCasesByVector(t *testing.T) {
	vectors := map[string]vector{}
	for _, v := range readVectors(t) {
		vectors[v.ID] = v
	}
	for id, prefixes := range map[string][]string{
		"WHK-08": {"SIG-STRIPE-09", "SIG-STRIPE-10", "SIG-SHOPIFY-02", "SIG-SHOPIFY-10", "SIG-GITHUB-08", "SIG-SLACK-02"},
		"WHK-16": {"SIG-GITHUB-03", "SIG-GITHUB-04"},
		"WHK-17": {"SIG-TWILIO-03", "SIG-TWILIO-04", "SIG-TWILIO-05", "SIG-TWILIO-07"},
		"WHK-18": {"SIG-TWILIO-15", "SIG-TWILIO-16"},
		"WHK-19": {"SIG-TWILIO-08", "SIG-TWILIO-10"},
		"WHK-20": {"SIG-STRIPE-02", "SIG-STRIPE-03", "SIG-GITHUB-10", "SIG-SHOPIFY-04"},
		"WHK-21": {"SIG-STD-13", "SIG-STD-15", "SIG-STD-17"},
	} {
		for _, name := range prefixes {
			vec, ok := vectors[name]
			if !ok {
				t.Errorf("%s: no vector %s", id, name)
				continue
			}
			t.Run(id+" "+name, func(t *testing.T) {
				v, err := NewVerifier(vec.options(t))
				if err == nil {
					_, err = v.Open(vec.message(t), time.Unix(vec.Now, 0))
				}
				if (err == nil) != vec.Accept {
					t.Errorf("accepted = %v, want %v: %s (%v)", err == nil, vec.Accept, vec.Reason, err)
				}
				if err != nil && slices.ContainsFunc(vec.Secrets, func(s string) bool { return strings.Contains(err.Error(), s) }) {
					t.Errorf("a secret shows: %v", err)
				}
			})
		}
	}
}
