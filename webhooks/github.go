package webhooks

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"time"
)

// github is GitHub's scheme: HMAC-SHA256 over the body, hex, in
// X-Hub-Signature-256 after "sha256=". The older X-Hub-Signature (SHA-1) is
// not looked at. A form delivery is signed as the raw form text.
//
// Neither a time nor the delivery's id (X-GitHub-Delivery) is signed: whoever
// captured a delivery can send it again under another id.
// https://docs.github.com/webhooks/using-webhooks/validating-webhook-deliveries
type github struct{}

const githubHeader = "X-Hub-Signature-256"

func (github) key(s Secret, _ bool) (key, error) { return plainKey(s) }

func (github) verify(m *Message, keys []key) (proof, error) {
	h, err := one(m.Header, githubHeader)
	if err != nil {
		return proof{}, err
	}
	got, ok := strings.CutPrefix(h, "sha256=")
	if !ok {
		return proof{}, refuse(BadSignature, githubHeader+" does not begin with sha256=", "")
	}
	return hexProof(keys, strings.TrimSpace(got), m.Body)
}

// hexProof looks for the key whose HMAC-SHA256 over parts is the hex text got.
func hexProof(keys []key, got string, parts ...[]byte) (proof, error) {
	digest := unhex(got, sha256.Size)
	if digest == nil {
		return proof{}, refuse(BadSignature, "the signature is not a whole SHA-256 digest in hex", "")
	}
	for i, k := range keys {
		if same(digest, mac(sha256.New, k.bytes, parts...)) {
			return proof{key: i}, nil
		}
	}
	return proof{}, errWrong("")
}

func (github) sign(m *Message, keys []key, id string, _ time.Time) error {
	m.Header.Set(githubHeader, "sha256="+hex.EncodeToString(mac(sha256.New, keys[0].bytes, m.Body)))
	setID(m.Header, "X-GitHub-Delivery", id)
	return nil
}

func (github) eventID(m *Message) (string, error) { return headerID(m.Header, "X-GitHub-Delivery") }

func (github) headers() []string {
	return []string{"X-GitHub-Event", "X-GitHub-Delivery", "X-GitHub-Hook-ID",
		"X-GitHub-Hook-Installation-Target-ID", "X-GitHub-Hook-Installation-Target-Type"}
}
func (github) private() []string { return nil }
