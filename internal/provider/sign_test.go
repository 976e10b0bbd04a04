package provider

import (
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/webhooks"
)

// OUT-03: an attempt has its own time and signature, made anew for each; the
// event's id stays. OUT-05: each sends the same body.
func TestSignedAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		secrets := webhooks.Secrets("whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=")
		sign, err := webhooks.SignCalls(secrets...)
		if err != nil {
			t.Fatal(err)
		}
		v, err := webhooks.NewVerifier(webhooks.Options{Scheme: webhooks.Standard, Secrets: secrets})
		if err != nil {
			t.Fatal(err)
		}
		var got []webhooks.Event
		p, stop := inBubble(t, Config{Prepare: sign}, func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			ev, err := v.Open(&webhooks.Message{Method: r.Method, Header: r.Header, Body: body}, time.Now())
			if err != nil {
				t.Errorf("attempt %d: %v", len(got)+1, err)
			}
			if string(body) != `{"n": 1}` {
				t.Errorf("attempt %d: body %q", len(got)+1, body)
			}
			got = append(got, ev)
			if len(got) == 1 {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
		})
		defer stop()
		call := Call{Path: "/events", Body: []byte(`{"n": 1}`), IdempotencyKey: "order-1"}
		if res := p.Call(t.Context(), call); res.Fate != Again {
			t.Errorf("the first attempt: %+v", res)
		}
		time.Sleep(10 * time.Minute)
		if res := p.Call(t.Context(), call); res.Fate != Succeeded {
			t.Errorf("the second attempt: %+v", res)
		}
		if len(got) != 2 || got[0].ID != "order-1" || got[1].ID != "order-1" || got[1].At.Sub(got[0].At) != 10*time.Minute {
			t.Errorf("seen %+v", got)
		}
	})
}
