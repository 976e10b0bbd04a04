package webhooks

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"
)

const standardSecret = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="

// What SignCalls makes, a receiver takes: whatever the job is called, the id
// can travel and is the same each time.
func TestSignCalls(t *testing.T) {
	sign, err := SignCalls(Secrets(standardSecret)...)
	if err != nil {
		t.Fatal(err)
	}
	v, err := NewVerifier(Options{Scheme: Standard, Secrets: Secrets(standardSecret)})
	if err != nil {
		t.Fatal(err)
	}
	body := []byte("{\"n\": 1}\r\n")
	ids := map[string]string{}
	for _, key := range []string{"order-1", "stripe:evt_1", "01932f7e-1f1b-7000-8000-000000000000", "a.b", "a b", "é", "", strings.Repeat("x", 255)} {
		req := &http.Request{Header: http.Header{"Webhook-Id": {"a job's own"}}}
		if key != "" {
			req.Header.Set("Idempotency-Key", key)
		}
		sign(req, body)
		ev, err := v.Open(&Message{Method: "POST", Header: req.Header, Body: body}, time.Now())
		if err != nil {
			t.Errorf("%q: %v", key, err)
		}
		if other, twice := ids[ev.ID]; twice {
			t.Errorf("%q and %q are both %s", key, other, ev.ID)
		}
		ids[ev.ID] = key
		if strings.HasPrefix(key, "order") && ev.ID != key {
			t.Errorf("%q became %q", key, ev.ID)
		}
		again := &http.Request{Header: req.Header.Clone()}
		sign(again, body)
		if again.Header.Get("webhook-id") != ev.ID {
			t.Errorf("%q: the id is another one the second time", key)
		}
	}
	if len(ids) != 8 {
		t.Errorf("%d ids", len(ids))
	}
}

func TestSignCallsRefusesSecrets(t *testing.T) {
	for _, secret := range []string{"", "whsec_", "whsec_dG9wc2VjcmV0", "topsecret!", "v1," + standardSecret, "whpk_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="} {
		_, err := SignCalls(Secrets(secret)...)
		if !errors.Is(err, ErrConfig) || secret != "" && strings.Contains(err.Error(), strings.TrimPrefix(secret, "whsec_")) && len(secret) > 8 {
			t.Errorf("%q: %v", secret, err)
		}
	}
	if _, err := SignCalls(); !errors.Is(err, ErrConfig) {
		t.Errorf("no secret: %v", err)
	}
}
