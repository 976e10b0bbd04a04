package webhooks

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Scheme names how a sender proves that a delivery is its own.
type Scheme string

// The schemes. What each one signs is said in its file.
const (
	// Stripe: Stripe-Signature with t= and v1= (HMAC-SHA256 of "t.body").
	Stripe Scheme = "stripe"
	// GitHub: X-Hub-Signature-256 (HMAC-SHA256 of the body). No timestamp.
	GitHub Scheme = "github"
	// Slack: X-Slack-Signature (HMAC-SHA256 of "v0:timestamp:body").
	Slack Scheme = "slack"
	// Shopify: X-Shopify-Hmac-Sha256 (base64 HMAC-SHA256 of the body). No timestamp.
	Shopify Scheme = "shopify"
	// Twilio: X-Twilio-Signature over the URL and the form, or the URL with bodySHA256.
	Twilio Scheme = "twilio"
	// Standard: Standard Webhooks, which is Svix's scheme (v1: HMAC, v1a: ed25519).
	Standard Scheme = "standard"
	// HMAC: a digest in a header, described by Options.
	HMAC Scheme = "hmac"
	// SharedSecret: the secret itself in a header. Whoever sees one request can
	// make another; only for senders that can do no better, and only over TLS.
	SharedSecret Scheme = "shared_secret"
	// None: nothing is proved. Said loudly at start.
	None Scheme = "none"
)

// Schemes lists every scheme, in the order of the documentation.
func Schemes() []Scheme {
	return []Scheme{Stripe, GitHub, Slack, Shopify, Twilio, Standard, HMAC, SharedSecret, None}
}

// ParseScheme reads a scheme's name. "svix", "standard-webhooks" and
// "standard_webhooks" mean Standard.
func ParseScheme(s string) (Scheme, error) {
	switch s {
	case "svix", "standard-webhooks", "standard_webhooks":
		return Standard, nil
	}
	if slices.Contains(Schemes(), Scheme(s)) {
		return Scheme(s), nil
	}
	names := make([]string, 0, len(Schemes()))
	for _, k := range Schemes() {
		names = append(names, string(k))
	}
	return "", fmt.Errorf("%w: scheme %q is unknown; use one of %s", ErrConfig, s, strings.Join(names, ", "))
}

// Message is one delivery as it came over the wire.
type Message struct {
	// Method of the request.
	Method string
	// URL as the sender wrote it, scheme, host and raw query included. Only
	// Twilio signs it.
	URL string
	// Header of the request.
	Header http.Header
	// Body is every byte as it was received: never decoded and encoded again.
	Body []byte
}

// proof is what a scheme found.
type proof struct {
	// key is the index of the key that matched.
	key int
	// timestamp is the signed text of the time, where the scheme has one.
	timestamp string
	timed     bool
}

// scheme is what differs between senders. Implementations hold no state that
// changes and are safe for several goroutines.
type scheme interface {
	// key reads a configured secret; its error says what is wrong with it and
	// never repeats it. signing says that the key is to sign with.
	key(s Secret, signing bool) (key, error)
	// verify finds the first of the keys that made m's signature. It does not
	// look at the clock.
	verify(m *Message, keys []key) (proof, error)
	// sign adds what the sender would add.
	sign(m *Message, keys []key, id string, at time.Time) error
	// eventID returns what the sender calls this event, "" where the scheme has
	// no such thing.
	eventID(m *Message) (string, error)
	// headers lists request headers that belong to the event and are passed on.
	headers() []string
	// private lists the headers that must never be passed on or stored.
	private() []string
}

// key is a secret made ready.
type key struct {
	bytes   []byte
	name    string // Secret.Key
	public  bool   // bytes is an ed25519 public key
	private bool   // bytes is an ed25519 private key
}

// newScheme returns the scheme that o describes, after refusing every option
// that means nothing for it.
func newScheme(o Options) (scheme, error) {
	if err := o.onlyFor(); err != nil {
		return nil, err
	}
	switch o.Scheme {
	case Stripe:
		return stripe{}, nil
	case GitHub:
		return github{}, nil
	case Slack:
		return slack{}, nil
	case Shopify:
		return shopify{}, nil
	case Twilio:
		return twilio{}, nil
	case Standard:
		return standard{}, nil
	case HMAC:
		return newGeneric(o)
	case SharedSecret:
		return newShared(o)
	case None:
		return none{}, nil
	}
	_, err := ParseScheme(string(o.Scheme))
	if err == nil {
		err = fmt.Errorf("%w: scheme %q is written %q here", ErrConfig, o.Scheme, Standard)
	}
	return nil, err
}
