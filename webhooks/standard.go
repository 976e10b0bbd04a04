package webhooks

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// standard is Standard Webhooks, which began as Svix's scheme: a signature
// over "id.timestamp.body" in
//
//	webhook-id: msg_1
//	webhook-timestamp: 1796039940
//	webhook-signature: v1,<base64 HMAC-SHA256> v1a,<base64 ed25519>
//
// or in the older svix-id, svix-timestamp and svix-signature; never a mixture.
// Secrets are whsec_<base64 of 24 bytes or more> for v1, and whpk_<base64> of
// a public key for v1a.
// https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
//
// The library of the same name (v0.0.1) signs the same bytes, which a test
// holds against ours, but cannot decide here: it has no v1a, it takes empty
// keys, it reads the clock itself, and it verifies a re-formatted timestamp
// instead of the one that was sent.
type standard struct{}

// minStandardKey is the least number of bytes of an HMAC key, by the spec.
const minStandardKey = 24

func (standard) key(s Secret, signing bool) (key, error) {
	v := s.Value
	if strings.HasPrefix(v, "v1,") || strings.HasPrefix(v, "v1a,") {
		return key{}, errors.New("begins with a signature's version; remove what stands before whsec_")
	}
	kind, text := "whsec_", v
	for _, p := range []string{"whsec_", "whpk_", "whsk_"} {
		if rest, ok := strings.CutPrefix(v, p); ok {
			kind, text = p, rest
		}
	}
	b, err := base64.StdEncoding.Strict().DecodeString(text)
	if err != nil || strings.ContainsAny(text, "\r\n") {
		return key{}, fmt.Errorf("is not %s and standard base64 with padding; copy it as the sender shows it", kind)
	}
	switch {
	case kind == "whpk_" && signing:
		return key{}, errors.New("is a public key, which cannot sign; use the whsk_ key")
	case kind == "whpk_" && len(b) == ed25519.PublicKeySize:
		return key{bytes: b, public: true}, nil
	case kind == "whsk_" && !signing:
		return key{}, errors.New("is the sender's private key; a receiver needs only the whpk_ key: use that, and keep the private one away from here")
	case kind == "whsk_" && len(b) == ed25519.SeedSize:
		return key{bytes: ed25519.NewKeyFromSeed(b), private: true}, nil
	case kind == "whsk_" && len(b) == ed25519.PrivateKeySize:
		return key{bytes: b, private: true}, nil
	case kind != "whsec_":
		return key{}, fmt.Errorf("is not a whole ed25519 key: %d bytes after decoding", len(b))
	case len(b) < minStandardKey:
		return key{}, fmt.Errorf("has %d bytes after decoding, fewer than the %d that the specification demands", len(b), minStandardKey)
	}
	return key{bytes: b}, nil
}

// standardNames returns the header names in use: the older family only where
// the sender uses nothing else.
func standardNames(h http.Header) (id, at, sig string) {
	p := "webhook-"
	if len(h.Values("webhook-signature")) == 0 && len(h.Values("svix-signature")) > 0 {
		p = "svix-"
	}
	return p + "id", p + "timestamp", p + "signature"
}

func (standard) verify(m *Message, keys []key) (proof, error) {
	idName, atName, sigName := standardNames(m.Header)
	sig, err := one(m.Header, sigName)
	if err != nil {
		return proof{}, err
	}
	id, err := one(m.Header, idName)
	if err != nil {
		return proof{}, err
	}
	t, err := one(m.Header, atName)
	if err != nil {
		return proof{}, err
	}
	entries := strings.Fields(sig)
	if len(entries) > maxSignatures {
		return proof{}, refuse(BadSignature, sigName+" has too many entries", "")
	}
	head := []byte(id + "." + t + ".")
	for i, k := range keys {
		if k.matches(head, m.Body, entries) {
			return proof{key: i, timestamp: t, timed: true}, nil
		}
	}
	return proof{}, errWrong("")
}

// matches reports whether one of the entries of k's version is k's signature.
func (k key) matches(head, body []byte, entries []string) bool {
	var want []byte
	if !k.public {
		want = []byte(base64.StdEncoding.EncodeToString(mac(sha256.New, k.bytes, head, body)))
	}
	for _, e := range entries {
		version, text, _ := strings.Cut(e, ",")
		switch {
		case version == "v1" && !k.public:
			if same([]byte(text), want) {
				return true
			}
		case version == "v1a" && k.public:
			sig, err := base64.StdEncoding.Strict().DecodeString(text)
			if err == nil && ed25519.Verify(k.bytes, append(head[:len(head):len(head)], body...), sig) {
				return true
			}
		}
	}
	return false
}

func (standard) sign(m *Message, keys []key, id string, at time.Time) error {
	if id == "" || strings.Contains(id, ".") {
		return fmt.Errorf("%w: scheme standard needs an event id without a full stop", ErrConfig)
	}
	t := strconv.FormatInt(at.Unix(), 10)
	head := []byte(id + "." + t + ".")
	sigs := make([]string, len(keys))
	for i, k := range keys {
		if k.private {
			sig := ed25519.Sign(k.bytes, append(head[:len(head):len(head)], m.Body...))
			sigs[i] = "v1a," + base64.StdEncoding.EncodeToString(sig)
			continue
		}
		sigs[i] = "v1," + base64.StdEncoding.EncodeToString(mac(sha256.New, k.bytes, head, m.Body))
	}
	m.Header.Set("webhook-id", id)
	m.Header.Set("webhook-timestamp", t)
	m.Header.Set("webhook-signature", strings.Join(sigs, " "))
	return nil
}

func (standard) eventID(m *Message) (string, error) {
	name, _, _ := standardNames(m.Header)
	id, err := headerID(m.Header, name)
	if err == nil && strings.Contains(id, ".") {
		return "", refuse(NoEventID, "the "+name+" holds a full stop, which makes the signed text ambiguous",
			"the specification forbids it; the sender must change its ids")
	}
	return id, err
}

func (standard) headers() []string {
	return []string{"webhook-id", "webhook-timestamp", "svix-id", "svix-timestamp"}
}
func (standard) private() []string { return nil }
