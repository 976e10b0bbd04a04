package webhooks

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"pgregory.net/rapid"
)

var testNow = time.Unix(1796040000, 0)

const (
	stdSecret  = "whsec_bWFkZS11cC1zdGFuZGFyZC1rZXktMzItYnl0ZXMtMDE="
	jsonType   = "application/json"
	formType   = "application/x-www-form-urlencoded"
	stripeBody = `{"id":"evt_1","type":"charge.succeeded"}`
)

func mustVerifier(t testing.TB, o Options) *Verifier {
	t.Helper()
	v, err := NewVerifier(o)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func mustSigned(t testing.TB, o Options, m *Message, id string, at time.Time) *Message {
	t.Helper()
	s, err := NewSigner(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Sign(m, id, at); err != nil {
		t.Fatal(err)
	}
	return m
}

// schemesForTest is one usable configuration of each scheme that proves something.
func schemesForTest() map[string]Options {
	return map[string]Options{
		"stripe":   {Scheme: Stripe, Secrets: Secrets("whsec_a")},
		"github":   {Scheme: GitHub, Secrets: Secrets("a secret")},
		"slack":    {Scheme: Slack, Secrets: Secrets("0123456789abcdef")},
		"shopify":  {Scheme: Shopify, Secrets: Secrets("shpss_a")},
		"twilio":   {Scheme: Twilio, Secrets: Secrets("token")},
		"standard": {Scheme: Standard, Secrets: Secrets(stdSecret)},
		"hmac": {Scheme: HMAC, Secrets: Secrets("k"), Header: "X-Sig", Prefix: "v1,", Encoding: "base64",
			TimestampHeader: "X-Time", EventID: EventID{Header: "X-Id"}},
		"shared_secret": {Scheme: SharedSecret, Secrets: Secrets("tok"), Header: "Authorization", Prefix: "Bearer",
			EventID: EventID{Pointer: "/id"}},
	}
}

func messageFor(name string) *Message {
	m := &Message{Method: "POST", URL: "https://hooks.example.test/" + name, Header: http.Header{}, Body: []byte(`{"id":"evt_1","event_id":"evt_1"}`)}
	m.Header.Set("Content-Type", jsonType)
	m.Header.Set("X-Id", "evt_1")
	return m
}

// What a Signer makes, a Verifier takes, and knows the event by its id.
func TestSignedIsAccepted(t *testing.T) {
	for name, o := range schemesForTest() {
		t.Run(name, func(t *testing.T) {
			m := mustSigned(t, o, messageFor(name), "evt_1", testNow)
			ev, err := mustVerifier(t, o).Open(m, testNow)
			if err != nil {
				t.Fatal(err)
			}
			if ev.ID != "evt_1" || ev.Label != "1" {
				t.Errorf("event %+v, want id evt_1 by secret 1", ev)
			}
			other := o
			other.Secrets = Secrets("another-secret-of-enough-length")
			if o.Scheme == Standard {
				other.Secrets = Secrets("whsec_" + base64.StdEncoding.EncodeToString(make([]byte, 24)))
			}
			if _, err := mustVerifier(t, other).Open(m, testNow); ReasonOf(err) != WrongSignature {
				t.Errorf("another secret: %v, want wrong_signature", err)
			}
		})
	}
}

func TestRapidSignedIsAccepted(t *testing.T) {
	all := schemesForTest()
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.SampledFrom([]string{"stripe", "github", "slack", "shopify", "twilio", "standard", "hmac"}).Draw(t, "scheme")
		o := all[name]
		m := messageFor(name)
		m.Header.Set("Content-Type", "application/octet-stream")
		m.Body = rapid.SliceOf(rapid.Byte()).Draw(t, "body")
		s, err := NewSigner(o)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Sign(m, "id1", testNow); err != nil {
			t.Fatal(err)
		}
		v, err := NewVerifier(o)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := v.Verify(m, testNow); err != nil {
			t.Fatal(err)
		}
		m.Body = append(m.Body, 0)
		if _, err := v.Verify(m, testNow); err == nil {
			t.Fatal("a byte more and still genuine")
		}
	})
}

func TestEd25519(t *testing.T) {
	priv := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{7}, 32))
	pub := "whpk_" + base64.StdEncoding.EncodeToString(priv.Public().(ed25519.PublicKey))
	for name, sk := range map[string]string{
		"64 bytes": "whsk_" + base64.StdEncoding.EncodeToString(priv),
		"seed":     "whsk_" + base64.StdEncoding.EncodeToString(priv.Seed()),
	} {
		t.Run(name, func(t *testing.T) {
			m := mustSigned(t, Options{Scheme: Standard, Secrets: Secrets(sk, stdSecret)}, messageFor("std"), "msg_1", testNow)
			if sig := m.Header.Get("webhook-signature"); !strings.HasPrefix(sig, "v1a,") || !strings.Contains(sig, " v1,") {
				t.Fatalf("signature %q", sig)
			}
			for _, secret := range []string{pub, stdSecret} {
				v := mustVerifier(t, Options{Scheme: Standard, Secrets: Secrets(secret)})
				if _, err := v.Open(m, testNow); err != nil {
					t.Error(err)
				}
				bad := &Message{Header: m.Header.Clone(), Body: append([]byte{}, m.Body...)}
				bad.Body[3] ^= 1
				if _, err := v.Open(bad, testNow); ReasonOf(err) != WrongSignature {
					t.Errorf("changed body: %v", err)
				}
			}
		})
	}
	for secret, want := range map[string]string{
		"whsk_" + base64.StdEncoding.EncodeToString(priv): "private key",
		"whpk_AAAA": "not a whole ed25519 key",
	} {
		if _, err := NewVerifier(Options{Scheme: Standard, Secrets: Secrets(secret)}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q in it", err, want)
		}
	}
	if _, err := NewSigner(Options{Scheme: Standard, Secrets: Secrets(pub)}); err == nil {
		t.Error("a public key signs")
	}
}

// Our signature is the library's, and what it signs we accept.
func TestStandardLibraryAgrees(t *testing.T) {
	lib, err := standardwebhooks.NewWebhook(stdSecret)
	if err != nil {
		t.Fatal(err)
	}
	m := mustSigned(t, Options{Scheme: Standard, Secrets: Secrets(stdSecret)}, messageFor("std"), "msg_1", testNow)
	sig, err := lib.Sign("msg_1", testNow, m.Body)
	if err != nil {
		t.Fatal(err)
	}
	if got := m.Header.Get("webhook-signature"); got != sig {
		t.Errorf("ours %s, the library's %s", got, sig)
	}
	if err := lib.VerifyIgnoringTimestamp(m.Body, m.Header); err != nil {
		t.Error(err)
	}
}

// WHK-08, WHK-16 (and WHK-17, WHK-19) are vectors as well; here is what they leave open.
func TestTolerance(t *testing.T) {
	for _, c := range []struct {
		name string
		off  time.Duration
		now  time.Time
		want Reason
	}{
		{"WHK-10 exactly", 300 * time.Second, testNow, ""},
		{"WHK-10 future", 301 * time.Second, testNow, Future},
		{"WHK-10 a year ahead", 365 * 24 * time.Hour, testNow, Future},
		{"WHK-10 past", -301 * time.Second, testNow, Stale},
		{"WHK-10 a year ago", -365 * 24 * time.Hour, testNow, Stale},
		{"WHK-11 t=2147483648", 0, time.Unix(2147483648, 0), ""},
		{"WHK-11 2039", -5 * time.Second, time.Date(2039, 6, 1, 0, 0, 0, 0, time.UTC), ""},
	} {
		for name, o := range schemesForTest() {
			if !o.timed() {
				continue
			}
			t.Run(c.name+" "+name, func(t *testing.T) {
				m := mustSigned(t, o, messageFor(name), "evt_1", c.now.Add(c.off))
				_, err := mustVerifier(t, o).Open(m, c.now)
				if got := ReasonOf(err); got != c.want {
					t.Errorf("reason %q, want %q (%v)", got, c.want, err)
				}
				if r, ok := errors.AsType[*Refusal](err); ok && !r.Genuine {
					t.Error("the signature was right, and the refusal does not say so")
				}
			})
		}
	}
}

func TestToleranceConfigured(t *testing.T) {
	o := Options{Scheme: Stripe, Secrets: Secrets("s"), Tolerance: 10 * time.Second}
	v := mustVerifier(t, o)
	m := mustSigned(t, o, messageFor("stripe"), "", testNow)
	for off, want := range map[int]Reason{10: "", 11: Stale, -10: "", -11: Future} {
		if _, err := v.Open(m, testNow.Add(time.Duration(off)*time.Second)); ReasonOf(err) != want {
			t.Errorf("%ds: %v, want %q", off, err, want)
		}
	}
	for _, d := range []time.Duration{-1, time.Millisecond, MaxTolerance + 1} {
		o.Tolerance = d
		if _, err := NewVerifier(o); !errors.Is(err, ErrConfig) {
			t.Errorf("tolerance %s: %v", d, err)
		}
	}
	if _, err := NewVerifier(Options{Scheme: GitHub, Secrets: Secrets("s"), Tolerance: time.Minute}); !errors.Is(err, ErrConfig) {
		t.Errorf("a tolerance without a signed time: %v", err)
	}
}

// WHK-12: no header, an empty one, two: a clear refusal, never a panic.
func TestSignatureHeaders(t *testing.T) {
	headers := map[string][]string{
		"stripe": {"Stripe-Signature"}, "github": {"X-Hub-Signature-256"},
		"slack":   {"X-Slack-Signature", "X-Slack-Request-Timestamp"},
		"shopify": {"X-Shopify-Hmac-Sha256"}, "twilio": {"X-Twilio-Signature"},
		"standard": {"Webhook-Signature", "Webhook-Id", "Webhook-Timestamp"},
		"hmac":     {"X-Sig", "X-Time"}, "shared_secret": {"Authorization"},
	}
	for name, o := range schemesForTest() {
		if len(headers[name]) == 0 {
			t.Fatalf("no headers known of %s", name)
		}
		for _, h := range headers[name] {
			for kind, c := range map[string]struct {
				change func(http.Header)
				want   Reason
			}{
				"missing": {func(x http.Header) { x.Del(h) }, NoSignature},
				"empty":   {func(x http.Header) { x.Set(h, "") }, NoSignature},
				"blank":   {func(x http.Header) { x.Set(h, "  ") }, NoSignature},
				"two":     {func(x http.Header) { x.Add(h, x.Get(h)) }, BadSignature},
				"nil":     {func(x http.Header) { x[h] = nil }, NoSignature},
			} {
				t.Run("WHK-12 "+name+" "+h+" "+kind, func(t *testing.T) {
					m := mustSigned(t, o, messageFor(name), "evt_1", testNow)
					c.change(m.Header)
					_, err := mustVerifier(t, o).Open(m, testNow)
					if got := ReasonOf(err); got != c.want || got.Status() != 401 {
						t.Errorf("reason %q (%d), want %q", got, got.Status(), c.want)
					}
				})
			}
		}
	}
}

// WHK-13 and WHK-21: what is no secret is refused at start, and not repeated.
func TestSecretsRefused(t *testing.T) {
	b64 := base64.StdEncoding.EncodeToString
	for _, c := range []struct {
		name   string
		o      Options
		secret string
		want   string
	}{
		{"WHK-13 empty", Options{Scheme: Stripe}, "", "is empty"},
		{"WHK-13 blank", Options{Scheme: GitHub}, " \t", "is empty"},
		{"WHK-13 newline", Options{Scheme: GitHub}, "secretvalue\n", "white space"},
		{"WHK-13 unset variable", Options{Scheme: Slack}, "${SLACK_SECRET}", "unexpanded variable"},
		{"WHK-21 only a prefix", Options{Scheme: Standard}, "whsec_", "fewer than the 24"},
		{"WHK-21 v1 prefix", Options{Scheme: Standard}, "v1," + stdSecret, "remove what stands before whsec_"},
		{"WHK-21 bad base64", Options{Scheme: Standard}, "whsec_!!!!", "standard base64"},
		{"WHK-21 url alphabet", Options{Scheme: Standard}, "whsec_" + strings.Repeat("-_", 16), "standard base64"},
		{"WHK-21 no padding", Options{Scheme: Standard}, strings.TrimRight(stdSecret, "="), "standard base64"},
		{"WHK-21 newline inside", Options{Scheme: Standard}, stdSecret[:20] + "\n" + stdSecret[20:], "standard base64"},
		{"WHK-21 23 bytes", Options{Scheme: Standard}, "whsec_" + b64(make([]byte, 23)), "fewer than the 24"},
		{"no value for shared", Options{Scheme: SharedSecret, Header: "X-Key"}, "", "is empty"},
		{"no value for hmac", Options{Scheme: HMAC, Header: "X-Key"}, "", "is empty"},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.o.Secrets = Secrets(c.secret)
			for _, f := range []func(Options) error{
				func(o Options) error { _, err := NewVerifier(o); return err },
				func(o Options) error { _, err := NewSigner(o); return err },
			} {
				err := f(c.o)
				if !errors.Is(err, ErrConfig) || !strings.Contains(fmt.Sprint(err), c.want) {
					t.Fatalf("%v, want %q in it", err, c.want)
				}
				if s := strings.TrimSpace(c.secret); len(s) > 7 && !strings.HasPrefix(s, "$") && strings.Contains(err.Error(), s) {
					t.Errorf("the error repeats the secret: %v", err)
				}
			}
		})
	}
	for name, o := range map[string]Options{
		"none at all":       {Scheme: Stripe},
		"none with secrets": {Scheme: None, Secrets: Secrets("x")},
		"labels twice":      {Scheme: Stripe, Secrets: []Secret{{Value: "a", Label: "x"}, {Value: "b", Label: "x"}}},
		"key name":          {Scheme: Stripe, Secrets: []Secret{{Value: "a", Key: "K1"}}},
		"unknown scheme":    {Scheme: "strip", Secrets: Secrets("a")},
		"no scheme":         {Secrets: Secrets("a")},
		"header of stripe":  {Scheme: Stripe, Secrets: Secrets("a"), Header: "X"},
		"digest of shared":  {Scheme: SharedSecret, Secrets: Secrets("a"), Header: "X", Digest: "sha1"},
		"hmac, no header":   {Scheme: HMAC, Secrets: Secrets("a")},
		"hmac, md5":         {Scheme: HMAC, Secrets: Secrets("a"), Header: "X", Digest: "md5"},
		"hmac, base32":      {Scheme: HMAC, Secrets: Secrets("a"), Header: "X", Encoding: "base32"},
		"hmac, bad header":  {Scheme: HMAC, Secrets: Secrets("a"), Header: "X Y"},
		"hmac, no body":     {Scheme: HMAC, Secrets: Secrets("a"), Header: "X", Signed: "x"},
		"hmac, time only":   {Scheme: HMAC, Secrets: Secrets("a"), Header: "X", Signed: "{timestamp}{body}"},
		"hmac, no time":     {Scheme: HMAC, Secrets: Secrets("a"), Header: "X", TimestampHeader: "T", Signed: "{body}"},
		"two ids":           {Scheme: GitHub, Secrets: Secrets("a"), EventID: EventID{Header: "X", Off: true}},
		"bad pointer":       {Scheme: GitHub, Secrets: Secrets("a"), EventID: EventID{Pointer: "id"}},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := NewVerifier(o); !errors.Is(err, ErrConfig) {
				t.Errorf("accepted, or another error: %v", err)
			}
		})
	}
}

// WHK-14: prefix, white space and encoding of a generic sender.
func TestGeneric(t *testing.T) {
	body := []byte("hello")
	sign := func(o Options) string {
		o.Scheme, o.Secrets, o.Header = HMAC, Secrets("key"), "X-Sig"
		return mustSigned(t, o, &Message{Body: body}, "", testNow).Header.Get("X-Sig")
	}
	hex, b64, url := sign(Options{}), sign(Options{Encoding: "base64"}), sign(Options{Encoding: "base64url"})
	for _, c := range []struct {
		name, value string
		o           Options
		want        Reason
	}{
		{"plain hex", hex, Options{}, ""},
		{"upper hex", strings.ToUpper(hex), Options{}, ""},
		{"prefix", "sha256=" + hex, Options{Prefix: "sha256="}, ""},
		{"space after the prefix", "sha256= " + hex, Options{Prefix: "sha256="}, ""},
		{"space round it", "  sha256=" + hex + " ", Options{Prefix: "sha256="}, ""},
		{"no prefix where one must be", hex, Options{Prefix: "sha256="}, BadSignature},
		{"prefix where none is said", "sha256=" + hex, Options{}, BadSignature},
		{"v1, as part of the digest", "v1," + b64, Options{Encoding: "base64"}, BadSignature},
		{"v1, as prefix", "v1," + b64, Options{Encoding: "base64", Prefix: "v1,"}, ""},
		{"base64 in place of hex", b64, Options{}, BadSignature},
		{"hex in place of base64", hex, Options{Encoding: "base64"}, BadSignature},
		{"base64 without padding", strings.TrimRight(b64, "="), Options{Encoding: "base64"}, BadSignature},
		{"base64url", url, Options{Encoding: "base64url"}, ""},
		{"sha1 digest for sha256", sign(Options{Digest: "sha1"}), Options{}, BadSignature},
		{"sha512", sign(Options{Digest: "sha512"}), Options{Digest: "sha512"}, ""},
		{"sha384", sign(Options{Digest: "sha384"}), Options{Digest: "sha384"}, ""},
		{"sha1", sign(Options{Digest: "sha1"}), Options{Digest: "sha1"}, ""},
		{"cut", hex[:62], Options{}, BadSignature},
		{"of another text", sign(Options{Signed: "x{body}"}), Options{}, WrongSignature},
		{"of its template", sign(Options{Signed: "x{body}"}), Options{Signed: "x{body}"}, ""},
	} {
		t.Run("WHK-14 "+c.name, func(t *testing.T) {
			c.o.Scheme, c.o.Secrets, c.o.Header = HMAC, Secrets("key"), "x-sig"
			m := &Message{Header: http.Header{"X-Sig": {c.value}}, Body: body}
			_, err := mustVerifier(t, c.o).Open(m, testNow)
			if got := ReasonOf(err); got != c.want {
				t.Errorf("reason %q, want %q", got, c.want)
			}
		})
	}
}

// WHK-18: Twilio's shared keys.
func TestTwilioKeys(t *testing.T) {
	form := func() *Message {
		return &Message{URL: "https://h.test/t", Header: http.Header{"Content-Type": {formType}}, Body: []byte("A=1&B=2&A=0&A=1")}
	}
	token, k1 := Secret{Value: "token", Label: "token"}, Secret{Value: "shared", Label: "k1", Key: "K1"}
	both := mustVerifier(t, Options{Scheme: Twilio, Secrets: []Secret{token, k1}})
	byToken := mustSigned(t, Options{Scheme: Twilio, Secrets: []Secret{token}}, form(), "", testNow)
	byKey := mustSigned(t, Options{Scheme: Twilio, Secrets: []Secret{k1}}, form(), "", testNow)
	for name, c := range map[string]struct {
		m    *Message
		want Reason
	}{"token": {byToken, ""}, "k1": {byKey, ""}} {
		p, err := both.Verify(c.m, testNow)
		if err != nil || p.Label != name {
			t.Errorf("%s: %+v, %v", name, p, err)
		}
	}
	for _, c := range []struct {
		name, settings string
		want           Reason
		status         int
	}{
		{"WHK-18 another key", "key=K2,algorithm=HMAC_SHA256", NoKey, 500},
		{"WHK-18 unknown algorithm", "key=K1,algorithm=HMAC_MD5", Algorithm, 403},
		{"WHK-18 no algorithm", "key=K1", Algorithm, 403},
		{"WHK-18 empty", "", Algorithm, 403},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := &Message{URL: byKey.URL, Header: byKey.Header.Clone(), Body: byKey.Body}
			m.Header.Set(twilioSettings, c.settings)
			_, err := both.Verify(m, testNow)
			if got := ReasonOf(err); got != c.want || got.Status() != c.status {
				t.Errorf("reason %q (%d), want %q (%d)", got, got.Status(), c.want, c.status)
			}
		})
	}
	// A shared key never makes the weaker signature good.
	byKey.Header.Del(twilioSettings)
	if _, err := both.Verify(byKey, testNow); ReasonOf(err) != WrongSignature {
		t.Errorf("settings removed: %v", err)
	}
	// The text is the URL and the sorted parameters, once each.
	if got, _ := twilioForm("A=1&B=2&A=0&A=1"); got != "A0A1B2" {
		t.Errorf("form text %q", got)
	}
}

// WHK-17: with and without the port, all else untouched; WHK-19: a body that
// the URL does not bind.
func TestTwilioURL(t *testing.T) {
	for raw, other := range map[string]string{
		"https://h.test/a?b=2&a=1":       "https://h.test:443/a?b=2&a=1",
		"http://h.test":                  "http://h.test:80",
		"https://h.test:8443/x?y=%27+z":  "https://h.test/x?y=%27+z",
		"https://u:p@h.test/":            "https://u:p@h.test:443/",
		"https://[::1]/x":                "https://[::1]:443/x",
		"https://[::1]:443/x":            "https://[::1]/x",
		"https://h.test?to=a@b:1/c":      "https://h.test:443?to=a@b:1/c",
		"https://h.test/@:80/?next=a:80": "https://h.test:443/@:80/?next=a:80",
	} {
		got := withAndWithoutPort(raw)
		if len(got) != 2 || got[0] != raw || got[1] != other {
			t.Errorf("WHK-17 %s: %q, want %q", raw, got, other)
		}
	}
	o := Options{Scheme: Twilio, Secrets: Secrets("t")}
	m := mustSigned(t, o, messageFor("twilio"), "", testNow)
	if !strings.Contains(m.URL, "bodySHA256=") {
		t.Fatalf("URL %s", m.URL)
	}
	swapped := &Message{URL: m.URL, Header: m.Header, Body: []byte(`{"id":"other"}`)}
	if _, err := mustVerifier(t, o).Verify(swapped, testNow); ReasonOf(err) != WrongSignature {
		t.Errorf("another body under the signed URL: %v", err)
	}
	get := mustSigned(t, o, &Message{Method: "GET", URL: "https://h.test/x?A=1"}, "", testNow)
	if _, err := mustVerifier(t, o).Verify(get, testNow); err != nil {
		t.Errorf("without a body: %v", err)
	}
}

// WHK-20: any secret, its label, its end.
func TestRotation(t *testing.T) {
	for name, o := range schemesForTest() {
		t.Run("WHK-20 "+name, func(t *testing.T) {
			m := mustSigned(t, o, messageFor(name), "evt_1", testNow)
			other := "another-secret-of-enough-length"
			if o.Scheme == Standard {
				other = "whsec_" + base64.StdEncoding.EncodeToString(make([]byte, 24))
			}
			o.Secrets = []Secret{{Value: other, Label: "new"}, {Value: o.Secrets[0].Value, Label: "old", Expires: testNow.Add(time.Second)}}
			v := mustVerifier(t, o)
			if p, err := v.Verify(m, testNow); err != nil || p.Label != "old" {
				t.Errorf("before its end: %+v, %v", p, err)
			}
			if _, err := v.Verify(m, testNow.Add(time.Second)); ReasonOf(err) != WrongSignature {
				t.Errorf("after its end: %v", err)
			}
			o.Secrets = o.Secrets[1:]
			if _, err := mustVerifier(t, o).Verify(m, testNow.Add(time.Second)); ReasonOf(err) != NoKey {
				t.Errorf("none left: %v", err)
			}
		})
	}
}

// OUT-03: a retry is signed anew, and the id stays.
func TestSignedAnewPerAttempt(t *testing.T) {
	o := Options{Scheme: Standard, Secrets: Secrets(stdSecret)}
	m := mustSigned(t, o, messageFor("std"), "msg_1", testNow)
	first := m.Header.Clone()
	later := testNow.Add(10 * time.Minute)
	mustSigned(t, o, m, "msg_1", later)
	if m.Header.Get("webhook-id") != first.Get("webhook-id") {
		t.Error("the id changed")
	}
	if got := m.Header.Get("webhook-timestamp"); got != strconv.FormatInt(later.Unix(), 10) {
		t.Errorf("timestamp %s", got)
	}
	if m.Header.Get("webhook-signature") == first.Get("webhook-signature") || len(m.Header.Values("webhook-signature")) != 1 {
		t.Error("the signature is not new, or not alone")
	}
	if _, err := mustVerifier(t, o).Open(m, later); err != nil {
		t.Error(err)
	}
	s, _ := NewSigner(o)
	for _, id := range []string{"", "a.b"} {
		if err := s.Sign(m, id, later); !errors.Is(err, ErrConfig) {
			t.Errorf("id %q: %v", id, err)
		}
	}
}

// OUT-06: no way of printing shows a secret.
func TestSecretNotPrinted(t *testing.T) {
	o := Options{Scheme: Stripe, Secrets: Secrets("whsec_hush")}
	v := mustVerifier(t, o)
	var log bytes.Buffer
	l := slog.New(slog.NewJSONHandler(&log, nil))
	l.Info("x", "options", o, "secret", o.Secrets[0], "secrets", o.Secrets)
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "options", o, "secret", o.Secrets[0])
	s := fmt.Sprintf("%v %+v %#v %s %q %x %d", o, o, o, o.Secrets, o.Secrets[0], o.Secrets[0], o.Secrets[0])
	_, err := v.Verify(&Message{Header: http.Header{"Stripe-Signature": {"t=1,v1=" + strings.Repeat("a", 64)}}}, testNow)
	for _, text := range []string{s, log.String(), err.Error()} {
		if strings.Contains(text, "hush") || strings.Contains(text, "aaaa") {
			t.Errorf("shown: %s", text)
		}
	}
}

func TestEventIDs(t *testing.T) {
	form := func(s string) *Message {
		return &Message{Header: http.Header{"Content-Type": {formType}}, Body: []byte(s)}
	}
	js := func(s string, h ...string) *Message {
		m := &Message{URL: "https://h.test/", Header: http.Header{"Content-Type": {jsonType}}, Body: []byte(s)}
		for i := 0; i < len(h); i += 2 {
			m.Header.Add(h[i], h[i+1])
		}
		return m
	}
	for _, c := range []struct {
		name string
		sch  scheme
		id   EventID
		m    *Message
		want string
	}{
		{"stripe", stripe{}, EventID{}, js(stripeBody), "evt_1"},
		{"stripe, none", stripe{}, EventID{}, js(`{"object":"event"}`), ""},
		{"stripe, array", stripe{}, EventID{}, js(`[1]`), ""},
		{"stripe, text", stripe{}, EventID{}, js(`hello`), ""},
		{"stripe, null", stripe{}, EventID{}, js(`{"id":null}`), ""},
		{"stripe, object", stripe{}, EventID{}, js(`{"id":{}}`), ""},
		{"slack event", slack{}, EventID{}, js(`{"event_id":"Ev1","trigger_id":"t"}`), "Ev1"},
		{"slack command", slack{}, EventID{}, form("command=%2Fx&trigger_id=13.7"), "13.7"},
		{"slack interaction", slack{}, EventID{}, form("payload=%7B%22trigger_id%22%3A%229.1%22%7D"), "9.1"},
		{"shopify event", shopify{}, EventID{}, js(`{}`, "X-Shopify-Event-Id", "e", "X-Shopify-Webhook-Id", "w", "X-Shopify-Topic", "orders/create"), "orders/create:e"},
		{"shopify webhook", shopify{}, EventID{}, js(`{}`, "X-Shopify-Webhook-Id", "w", "X-Shopify-Topic", "orders/create"), "w"},
		{"twilio token", twilio{}, EventID{}, js(`{}`, "I-Twilio-Idempotency-Token", "tok"), "tok"},
		{"standard", standard{}, EventID{}, js(`{}`, "webhook-id", "m1", "svix-id", "m2"), "m1"},
		{"svix", standard{}, EventID{}, js(`{}`, "svix-id", "m2", "svix-signature", "x"), "m2"},
		{"header", none{}, EventID{Header: "x-delivery"}, js(`{}`, "X-Delivery", "d1"), "d1"},
		{"header twice", none{}, EventID{Header: "x-delivery"}, js(`{}`, "X-Delivery", "d1", "X-Delivery", "d2"), ""},
		{"pointer", none{}, EventID{Pointer: "/data/0/a~1b~0"}, js(`{"data":[{"a/b~":"deep"}]}`), "deep"},
		{"pointer to a number", none{}, EventID{Pointer: "/id"}, js(`{"id":820982911946154508}`), "820982911946154508"},
		{"pointer past the end", none{}, EventID{Pointer: "/data/2"}, js(`{"data":[1,2]}`), ""},
		{"pointer with a leading zero", none{}, EventID{Pointer: "/data/01"}, js(`{"data":[1,2]}`), ""},
		{"off", stripe{}, EventID{Off: true}, js(stripeBody), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := &Verifier{opts: Options{EventID: c.id}, scheme: c.sch}
			got, err := v.eventID(c.m)
			if got != c.want || (got == "" && !c.id.Off && ReasonOf(err) != NoEventID) {
				t.Errorf("%q, %v; want %q", got, err, c.want)
			}
		})
	}
	// What has no id is known by its content, and only by all of it.
	a, _ := twilio{}.eventID(js("{}"))
	b, _ := twilio{}.eventID(js("{} "))
	if a == b || !strings.HasPrefix(a, "sha256-") {
		t.Errorf("%s and %s", a, b)
	}
}

func TestSlackChallenge(t *testing.T) {
	o := schemesForTest()["slack"]
	m := messageFor("slack")
	m.Body = []byte(`{"token":"x","challenge":"3eZbrw1aB","type":"url_verification"}`)
	if _, err := mustVerifier(t, o).Open(m, testNow); ReasonOf(err) != NoSignature {
		t.Errorf("an unsigned challenge: %v", err)
	}
	mustSigned(t, o, m, "", testNow)
	ev, err := mustVerifier(t, o).Open(m, testNow)
	if err != nil || ev.Challenge != "3eZbrw1aB" {
		t.Errorf("%+v, %v", ev, err)
	}
}

// However many signatures are offered, the work stays bounded.
func TestManySignatures(t *testing.T) {
	m := messageFor("x")
	m.Header.Set("Stripe-Signature", "t=1"+strings.Repeat(",v1="+strings.Repeat("0", 64), 1000))
	m.Header.Set("webhook-id", "a")
	m.Header.Set("webhook-timestamp", "1")
	m.Header.Set("webhook-signature", strings.Repeat("v1a,AAAA ", 1000))
	for _, name := range []string{"stripe", "standard"} {
		if _, err := mustVerifier(t, schemesForTest()[name]).Verify(m, testNow); ReasonOf(err) != BadSignature {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestParseScheme(t *testing.T) {
	for in, want := range map[string]Scheme{"svix": Standard, "standard-webhooks": Standard, "stripe": Stripe, "none": None} {
		if got, err := ParseScheme(in); got != want || err != nil {
			t.Errorf("%s: %s, %v", in, got, err)
		}
	}
	if _, err := ParseScheme("stipe"); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), "stripe") {
		t.Errorf("%v", err)
	}
	for _, s := range Schemes() {
		if got, err := ParseScheme(string(s)); got != s || err != nil {
			t.Errorf("%s: %v", s, err)
		}
	}
	for _, r := range Reasons() {
		if s := r.Status(); s < 400 || s > 503 {
			t.Errorf("%s: %d", r, s)
		}
	}
}

func FuzzOpen(f *testing.F) {
	f.Add("t=1796040000,v1="+strings.Repeat("0", 64), []byte(stripeBody))
	f.Add("v1,AAAA v1a,BBBB", []byte("{}"))
	f.Add("", []byte{0xff})
	vs := []*Verifier{}
	for _, o := range schemesForTest() {
		vs = append(vs, mustVerifier(f, o))
	}
	f.Fuzz(func(t *testing.T, sig string, body []byte) {
		h := http.Header{}
		for _, n := range []string{"Stripe-Signature", "X-Hub-Signature-256", "X-Slack-Signature", "X-Slack-Request-Timestamp",
			"X-Shopify-Hmac-Sha256", "X-Twilio-Signature", "Webhook-Id", "Webhook-Timestamp", "Webhook-Signature", "X-Sig", "X-Time", "Content-Type"} {
			h.Set(n, sig)
		}
		for _, v := range vs {
			if _, err := v.Open(&Message{URL: sig, Header: h, Body: body}, testNow); err == nil {
				t.Fatalf("%s accepted %q", v.opts.Scheme, sig)
			}
		}
	})
}

func BenchmarkVerify(b *testing.B) {
	o := schemesForTest()["stripe"]
	m := messageFor("stripe")
	m.Body = []byte(`{"id":"evt_1","data":"` + strings.Repeat("x", 1000) + `"}`)
	mustSigned(b, o, m, "", testNow)
	v := mustVerifier(b, o)
	for b.Loop() {
		if _, err := v.Open(m, testNow); err != nil {
			b.Fatal(err)
		}
	}
}
