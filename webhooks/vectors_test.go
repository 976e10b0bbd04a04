package webhooks

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"os"
	"testing"
	"time"
)

// vector is one case of testdata/signature_vectors.json.
type vector struct {
	ID      string
	Scheme  string
	Secrets []string
	Now     int64
	Method  string
	URL     string
	Headers [][2]string
	Body    string `json:"body_b64"`
	Valid   bool   `json:"signature_valid"`
	Accept  bool
	Reason  string
}

func readVectors(t *testing.T) []vector {
	t.Helper()
	b, err := os.ReadFile("testdata/signature_vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	var vs []vector
	if err := json.Unmarshal(b, &vs); err != nil {
		t.Fatal(err)
	}
	if len(vs) < 70 {
		t.Fatalf("only %d vectors found; the file is not whole", len(vs))
	}
	return vs
}

func (v vector) message(t *testing.T) *Message {
	t.Helper()
	body, err := base64.StdEncoding.DecodeString(v.Body)
	if err != nil {
		t.Fatal(err)
	}
	m := &Message{Method: v.Method, URL: v.URL, Header: http.Header{}, Body: body}
	for _, h := range v.Headers {
		m.Header.Add(h[0], h[1])
	}
	return m
}

func (v vector) options(t *testing.T) Options {
	t.Helper()
	sch, err := ParseScheme(v.Scheme)
	if err != nil {
		t.Fatal(err)
	}
	return Options{Scheme: sch, Secrets: Secrets(v.Secrets...)}
}

// Every vector is decided as it says: the signature by Verify, the delivery by Open.
func TestVectors(t *testing.T) {
	seen := map[string]int{}
	for _, vec := range readVectors(t) {
		seen[vec.Scheme]++
		t.Run(vec.ID, func(t *testing.T) {
			now := time.Unix(vec.Now, 0)
			v, err := NewVerifier(vec.options(t))
			if err != nil {
				if vec.Valid || vec.Accept {
					t.Fatalf("%s: refused at configuration: %v", vec.Reason, err)
				}
				return
			}
			_, err = v.Verify(vec.message(t), now)
			r, _ := err.(*Refusal)
			if valid := err == nil || r.Genuine; valid != vec.Valid {
				t.Errorf("%s: signature valid = %v, want %v (%v)", vec.Reason, valid, vec.Valid, err)
			}
			_, err = v.Open(vec.message(t), now)
			if (err == nil) != vec.Accept {
				t.Errorf("%s: accepted = %v, want %v (%v)", vec.Reason, err == nil, vec.Accept, err)
			}
		})
	}
	for _, s := range []string{"stripe", "github", "slack", "shopify", "twilio", "standard"} {
		if seen[s] == 0 {
			t.Errorf("no vector of scheme %s", s)
		}
	}
}

// Whatever single bit of a genuine delivery's body or signature is flipped, it
// is not genuine any more.
func TestVectorsFlipped(t *testing.T) {
	for _, vec := range readVectors(t) {
		if !vec.Accept {
			continue
		}
		t.Run(vec.ID, func(t *testing.T) {
			v, err := NewVerifier(vec.options(t))
			if err != nil {
				t.Fatal(err)
			}
			now := time.Unix(vec.Now, 0)
			n := len(vec.message(t).Body)
			for i := range n {
				m := vec.message(t)
				m.Body[i] ^= 1 << (i % 8)
				if _, err := v.Open(m, now); err == nil {
					t.Fatalf("byte %d of the body changed and still accepted", i)
				}
			}
		})
	}
}

// reasons of vectors whose answer an operator will look for.
func TestVectorReasons(t *testing.T) {
	want := map[string]Reason{
		"SIG-STRIPE-05": BadSignature, "SIG-STRIPE-08": Future, "SIG-STRIPE-11": WrongSignature,
		"SIG-STRIPE-14": BadSignature, "SIG-STRIPE-19": NoEventID, "SIG-STRIPE-20": BadSignature,
		"SIG-GITHUB-09": WrongSignature, "SIG-GITHUB-11": NoSignature, "SIG-GITHUB-14": BadBody,
		"SIG-SLACK-03": Stale, "SIG-SLACK-04": Future, "SIG-SLACK-08": NoSignature,
		"SIG-SLACK-11": BadTimestamp, "SIG-SLACK-14": Future, "SIG-SHOPIFY-06": NoSignature,
		"SIG-STD-08": Future, "SIG-STD-19": NoEventID, "SIG-STD-10": NoSignature,
		"SIG-TWILIO-10": NotCovered, "SIG-TWILIO-16": Algorithm, "SIG-TWILIO-12": WrongSignature,
	}
	found := 0
	for _, vec := range readVectors(t) {
		reason, ok := want[vec.ID]
		if !ok {
			continue
		}
		found++
		t.Run(vec.ID, func(t *testing.T) {
			v, err := NewVerifier(vec.options(t))
			if err != nil {
				t.Fatal(err)
			}
			_, err = v.Open(vec.message(t), time.Unix(vec.Now, 0))
			if got := ReasonOf(err); got != reason {
				t.Errorf("reason %q, want %q", got, reason)
			}
		})
	}
	if found != len(want) {
		t.Errorf("%d of %d vectors found", found, len(want))
	}
}
