package webhooks

import (
	"net/http"
	"time"
)

// Signer makes what a sender would send: test events, and deliveries of one's
// own. Safe for several goroutines; it keeps nothing between calls.
type Signer struct {
	scheme scheme
	keys   []key
}

// NewSigner returns a Signer for o; its error wraps ErrConfig. Stripe and
// Standard sign with every secret, as during a rotation; the other schemes
// with the first. Tolerance and EventID do not matter here. For Standard a
// whsk_ key signs with ed25519.
func NewSigner(o Options) (*Signer, error) {
	o.Tolerance, o.EventID = 0, EventID{}
	sch, _, keys, err := prepare(o, true)
	if err != nil {
		return nil, err
	}
	return &Signer{scheme: sch, keys: keys}, nil
}

// Sign adds the headers that prove m, made by secret at the time at. id is the
// event's id: the same for every delivery of the event, while at is new for
// each attempt. Schemes whose id is in the body (stripe, slack) or that have
// none take no notice of it; Standard needs one without a full stop.
//
// Body, URL and Content-Type must be as they will be sent. For Twilio, a body
// that is not a form adds bodySHA256 to m.URL.
func (s *Signer) Sign(m *Message, id string, at time.Time) error {
	if m.Header == nil {
		m.Header = http.Header{}
	}
	return s.scheme.sign(m, s.keys, id, at)
}
