package webhooks

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strings"
	"time"
)

// SignCalls returns a function that signs outgoing calls by Standard Webhooks,
// for worker.HTTP.Prepare, or the fault in the secrets: an error that wraps
// ErrConfig and repeats none of them. Every secret signs, as during a rotation;
// a whsk_ key signs with ed25519.
//
// The function is called for each attempt. webhook-timestamp and
// webhook-signature are that attempt's own; webhook-id is the same for all of
// them: the call's Idempotency-Key, which is the job's id unless the job sets
// one, or a digest of it where it could not travel as it is (the specification
// forbids full stops). It is safe for several goroutines.
func SignCalls(secrets ...Secret) (func(req *http.Request, body []byte), error) {
	s, err := NewSigner(Options{Scheme: Standard, Secrets: secrets})
	if err != nil {
		return nil, err
	}
	return func(req *http.Request, body []byte) {
		m := &Message{Header: req.Header, Body: body}
		// It fails for an id with a full stop or none at all, which callID never returns.
		_ = s.Sign(m, callID(req.Header.Get("Idempotency-Key"), body), time.Now())
	}, nil
}

// callID makes a webhook-id of a call's idempotency key.
func callID(key string, body []byte) string {
	plain := key != "" && !strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' || r == '.' })
	switch {
	case plain:
		return key
	case key == "":
		return contentID(body)
	}
	sum := sha256.Sum256([]byte(key))
	return "msg_" + hex.EncodeToString(sum[:16])
}
