package webhooks

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

const (
	// DefaultTolerance is how far the signed time may be off, either way, when
	// Options.Tolerance is 0.
	DefaultTolerance = 5 * time.Minute
	// MaxTolerance is the largest tolerance.
	MaxTolerance = 24 * time.Hour
	// maxSignatures bounds the signatures of one header that are looked at.
	maxSignatures = 32
)

// Options describe how deliveries of one webhook are proved. What does not
// belong to the scheme is refused, never ignored.
type Options struct {
	// Scheme is required.
	Scheme Scheme
	// Secrets, any of which may have signed: during a rotation the old one and
	// the new. Required, but for None, which has none.
	Secrets []Secret
	// Tolerance is how far the signed time may lie in the past or the future.
	// Zero: 5 minutes. Schemes without a signed time (github, shopify, twilio,
	// shared_secret, none) have no use for it and refuse another value.
	Tolerance time.Duration

	// Header holds the digest (hmac) or the secret (shared_secret). Required
	// by these two.
	Header string
	// Prefix stands before the digest or the secret and must be there, like
	// "sha256=" or "Bearer". White space after it does not matter. Empty: none.
	Prefix string
	// Digest of hmac: "sha256", "sha512", "sha384" or "sha1". Empty: sha256.
	Digest string
	// Encoding of hmac: "hex" in either case, "base64" with padding, or
	// "base64url" without. Empty: hex.
	Encoding string
	// TimestampHeader of hmac holds seconds since 1970 and is part of what is
	// signed. Empty: no timestamp, so a captured delivery can be sent again
	// for ever.
	TimestampHeader string
	// Signed is the text that hmac signs, with {body} once, and {timestamp}
	// where there is a TimestampHeader. Empty: "{body}", or
	// "{timestamp}.{body}".
	Signed string

	// EventID says where the event's id stands, instead of where the scheme
	// keeps it. Zero: the scheme's own; hmac, shared_secret and none have
	// none, so nothing is deduplicated unless it is said here.
	EventID EventID
}

// timed reports whether the scheme signs a time.
func (o Options) timed() bool {
	switch o.Scheme {
	case Stripe, Slack, Standard:
		return true
	case HMAC:
		return o.TimestampHeader != ""
	}
	return false
}

// onlyFor refuses options that mean nothing for o.Scheme.
func (o Options) onlyFor() error {
	digest, header := o.Scheme == HMAC, o.Scheme == HMAC || o.Scheme == SharedSecret
	for _, f := range []struct {
		name, value string
		ok          bool
	}{
		{"header", o.Header, header}, {"prefix", o.Prefix, header},
		{"digest", o.Digest, digest}, {"encoding", o.Encoding, digest},
		{"timestamp_header", o.TimestampHeader, digest}, {"signed", o.Signed, digest},
	} {
		if f.value != "" && !f.ok {
			return fmt.Errorf("%w: %s means nothing for scheme %s; remove it, or use scheme hmac", ErrConfig, f.name, o.Scheme)
		}
	}
	switch {
	case o.Tolerance < 0 || o.Tolerance > MaxTolerance:
		return fmt.Errorf("%w: tolerance must be from 1s to %s (0 means %s), not %s", ErrConfig, MaxTolerance, DefaultTolerance, o.Tolerance)
	case o.Tolerance > 0 && o.Tolerance < time.Second:
		return fmt.Errorf("%w: tolerance %s is below a second, the step in which senders count; use 1s or more", ErrConfig, o.Tolerance)
	case o.Tolerance > 0 && !o.timed():
		return fmt.Errorf("%w: tolerance means nothing here: scheme %s signs no time; remove it", ErrConfig, o.Scheme)
	}
	return nil
}

// Verifier decides whether deliveries are genuine. Safe for several
// goroutines; it keeps nothing between calls.
type Verifier struct {
	opts    Options
	scheme  scheme
	secrets []Secret
	keys    []key
	// forever says that no secret ever expires.
	forever bool
}

// NewVerifier returns a Verifier, or what is wrong with the options: an error
// that wraps ErrConfig, names the field and repeats no secret.
func NewVerifier(o Options) (*Verifier, error) {
	sch, secrets, keys, err := prepare(o, false)
	if err != nil {
		return nil, err
	}
	if err := o.EventID.check(); err != nil {
		return nil, err
	}
	if o.Tolerance == 0 {
		o.Tolerance = DefaultTolerance
	}
	v := &Verifier{opts: o, scheme: sch, secrets: secrets, keys: keys, forever: true}
	for _, s := range secrets {
		v.forever = v.forever && s.Expires.IsZero()
	}
	return v, nil
}

// prepare turns the options' secrets into keys.
func prepare(o Options, signing bool) (scheme, []Secret, []key, error) {
	sch, err := newScheme(o)
	if err != nil {
		return nil, nil, nil, err
	}
	switch {
	case o.Scheme == None && len(o.Secrets) > 0:
		return nil, nil, nil, fmt.Errorf("%w: secrets: scheme none proves nothing and has no secrets; remove them, or name the scheme", ErrConfig)
	case o.Scheme != None && len(o.Secrets) == 0:
		return nil, nil, nil, fmt.Errorf("%w: secrets: scheme %s needs at least one", ErrConfig, o.Scheme)
	}
	secrets, err := labelled(o.Secrets, o.Scheme)
	if err != nil {
		return nil, nil, nil, err
	}
	keys := make([]key, len(secrets))
	for i, s := range secrets {
		if keys[i], err = sch.key(s, signing); err != nil {
			return nil, nil, nil, fmt.Errorf("%w: secrets: secret %s %w", ErrConfig, s.Label, err)
		}
		keys[i].name = s.Key
	}
	return sch, secrets, keys, nil
}

// Proof is what was found out about a genuine delivery.
type Proof struct {
	// Label of the secret that matched; "" for None.
	Label string
	// At is the signed time; zero where the scheme has none.
	At time.Time
}

// Verify decides whether m was signed with one of the secrets, by the time
// now. Its error is a *Refusal. It says nothing of the event's id: see Open.
func (v *Verifier) Verify(m *Message, now time.Time) (Proof, error) {
	keys, secrets := v.live(now)
	if len(keys) == 0 && v.opts.Scheme != None {
		return Proof{}, refuse(NoKey, "every secret of this webhook has expired", "configure a secret that is still valid")
	}
	p, err := v.scheme.verify(m, keys)
	if err != nil {
		return Proof{}, err
	}
	var out Proof
	if len(secrets) > 0 {
		out.Label = secrets[p.key].Label
	}
	if !p.timed {
		return out, nil
	}
	out.At, err = v.time(p.timestamp, now)
	return out, err
}

// live returns the keys that have not expired at now.
func (v *Verifier) live(now time.Time) ([]key, []Secret) {
	if v.forever {
		return v.keys, v.secrets
	}
	var keys []key
	var secrets []Secret
	for i, s := range v.secrets {
		if s.Expires.IsZero() || now.Before(s.Expires) {
			keys, secrets = append(keys, v.keys[i]), append(secrets, s)
		}
	}
	return keys, secrets
}

// time reads a signed time and holds it against the tolerance, both ways, in
// whole seconds as senders count.
func (v *Verifier) time(text string, now time.Time) (time.Time, error) {
	genuine := func(r Reason, detail, fix string) error {
		return &Refusal{Reason: r, Genuine: true, Detail: detail, Fix: fix}
	}
	if !allDigits(text) {
		return time.Time{}, genuine(BadTimestamp, "the signed time is not a number of seconds", "")
	}
	sec, err := strconv.ParseInt(text, 10, 64)
	if err != nil { // digits beyond int64
		return time.Time{}, genuine(Future, "the signed time is beyond all time", "")
	}
	tol := int64(v.opts.Tolerance / time.Second)
	switch n := now.Unix(); {
	case sec < n-tol:
		return time.Time{}, genuine(Stale, fmt.Sprintf("signed %ds ago, more than the tolerance of %ds", n-sec, tol),
			"an old delivery was sent again, or this machine's clock is ahead: check it")
	case sec > n+tol:
		return time.Time{}, genuine(Future, fmt.Sprintf("signed for %ds ahead, more than the tolerance of %ds", sec-n, tol),
			"this machine's clock is behind, or the sender's ahead: check them")
	}
	return time.Unix(sec, 0), nil
}

// allDigits reports that s is digits and nothing else.
func allDigits(s string) bool {
	return s != "" && strings.IndexFunc(s, func(r rune) bool { return r < '0' || r > '9' }) < 0
}

// one returns the only value of a header that the scheme needs.
func one(h http.Header, name string) (string, error) {
	switch vs := h.Values(name); {
	case len(vs) == 0 || len(vs) == 1 && strings.TrimSpace(vs[0]) == "":
		return "", refuse(NoSignature, "the header "+name+" is missing or empty", "")
	case len(vs) > 1:
		return "", refuse(BadSignature, "the header "+name+" stands more than once", "")
	default:
		return strings.TrimSpace(vs[0]), nil
	}
}

// errWrong is the answer to a signature that no secret made.
func errWrong(fix string) error {
	if fix == "" {
		fix = "compare the configured secret with the sender's, and see that nothing on the way rewrites the body"
	}
	return refuse(WrongSignature, "no configured secret made this signature over these bytes", fix)
}
