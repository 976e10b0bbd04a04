package webhooks

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
	"time"
)

// stripe is Stripe's scheme: HMAC-SHA256 over "t.body", hex, in
//
//	Stripe-Signature: t=1796039988,v1=<hex>,v1=<hex>
//
// Entries of other versions are ignored, never used (v0 would be a downgrade).
// The event's id is /id of the body, so it is covered by the signature.
// https://docs.stripe.com/webhooks#verify-manually
type stripe struct{}

const stripeHeader = "Stripe-Signature"

func (stripe) key(s Secret, _ bool) (key, error) { return plainKey(s) }

func (stripe) verify(m *Message, keys []key) (proof, error) {
	h, err := one(m.Header, stripeHeader)
	if err != nil {
		return proof{}, err
	}
	t, sigs, err := stripeFields(h)
	if err != nil {
		return proof{}, err
	}
	for i, k := range keys {
		want := mac(sha256.New, k.bytes, []byte(t), []byte("."), m.Body)
		for _, got := range sigs {
			if same(got, want) {
				return proof{key: i, timestamp: t, timed: true}, nil
			}
		}
	}
	return proof{}, errWrong("")
}

// stripeFields splits the header into the time's text and the v1 digests.
func stripeFields(h string) (t string, sigs [][]byte, err error) {
	times := 0
	for n, part := range strings.Split(h, ",") {
		if n >= maxSignatures {
			return "", nil, refuse(BadSignature, stripeHeader+" has too many entries", "")
		}
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		switch name {
		case "t":
			t = value
			times++
		case "v1":
			if d := unhex(value, sha256.Size); d != nil {
				sigs = append(sigs, d)
			}
		}
	}
	switch {
	case times != 1 || t == "":
		return "", nil, refuse(BadSignature, stripeHeader+" has no t=, or more than one", "")
	case len(sigs) == 0:
		return "", nil, refuse(BadSignature, stripeHeader+" has no whole v1= digest", "")
	}
	return t, sigs, nil
}

func (stripe) sign(m *Message, keys []key, _ string, at time.Time) error {
	t := strconv.FormatInt(at.Unix(), 10)
	h := "t=" + t
	for _, k := range keys {
		h += ",v1=" + hex.EncodeToString(mac(sha256.New, k.bytes, []byte(t), []byte("."), m.Body))
	}
	m.Header.Set(stripeHeader, h)
	return nil
}

func (stripe) eventID(m *Message) (string, error) { return pointerID(m.Body, "/id") }

func (stripe) headers() []string { return nil }
func (stripe) private() []string { return nil }
