package webhooks

import (
	"crypto/hmac"
	"encoding/hex"
	"hash"
)

// mac returns the HMAC of the parts, one after the other.
func mac(h func() hash.Hash, key []byte, parts ...[]byte) []byte {
	m := hmac.New(h, key)
	for _, p := range parts {
		m.Write(p)
	}
	return m.Sum(nil)
}

// unhex decodes a digest of exactly n bytes, nil where it is none.
func unhex(s string, n int) []byte {
	if len(s) != hex.EncodedLen(n) {
		return nil
	}
	b, err := hex.DecodeString(s)
	if err != nil {
		return nil
	}
	return b
}

// same compares in constant time. Nothing equals nothing.
func same(a, b []byte) bool { return len(a) > 0 && hmac.Equal(a, b) }

// plainKey is the key of schemes that use the secret's own bytes.
func plainKey(s Secret) (key, error) { return key{bytes: []byte(s.Value)}, nil }
