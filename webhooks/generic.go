package webhooks

import (
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"hash"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// generic is an HMAC in a header, as Options describe it.
type generic struct {
	header, prefix, timeHeader string
	digest                     func() hash.Hash
	size                       int
	encoding                   string
	// before and after stand round the body; {timestamp} is still in them.
	before, after string
}

func newGeneric(o Options) (scheme, error) {
	if err := headerName("header", o.Header); err != nil {
		return nil, err
	}
	g := generic{header: o.Header, prefix: strings.TrimSpace(o.Prefix), timeHeader: o.TimestampHeader, encoding: o.Encoding}
	if g.timeHeader != "" {
		if err := headerName("timestamp_header", g.timeHeader); err != nil {
			return nil, err
		}
	}
	switch o.Digest {
	case "", "sha256":
		g.digest, g.size = sha256.New, sha256.Size
	case "sha512":
		g.digest, g.size = sha512.New, sha512.Size
	case "sha384":
		g.digest, g.size = sha512.New384, sha512.Size384
	case "sha1":
		g.digest, g.size = sha1.New, sha1.Size
	default:
		return nil, fmt.Errorf("%w: digest %q is unknown; use sha256, sha512, sha384 or sha1", ErrConfig, o.Digest)
	}
	switch g.encoding {
	case "":
		g.encoding = "hex"
	case "hex", "base64", "base64url":
	default:
		return nil, fmt.Errorf("%w: encoding %q is unknown; use hex, base64 or base64url", ErrConfig, o.Encoding)
	}
	return g.signed(o.Signed)
}

// signed reads the template of the signed text.
func (g generic) signed(t string) (scheme, error) {
	const stamp, body = "{timestamp}", "{body}"
	if t == "" {
		t = body
		if g.timeHeader != "" {
			t = stamp + "." + body
		}
	}
	switch {
	case strings.Count(t, body) != 1:
		return nil, fmt.Errorf("%w: signed must hold {body} exactly once: what is not signed can be changed by anybody", ErrConfig)
	case strings.Contains(t, stamp) != (g.timeHeader != ""):
		return nil, fmt.Errorf("%w: signed must hold {timestamp} where timestamp_header is set, and only there", ErrConfig)
	}
	g.before, g.after, _ = strings.Cut(t, body)
	return g, nil
}

// headerName refuses what cannot be the name of a request header.
func headerName(field, name string) error {
	if name == "" {
		return fmt.Errorf("%w: %s is missing: name the request header that holds it", ErrConfig, field)
	}
	if strings.ContainsFunc(name, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("!#$%&'*+-.^_`|~", r))
	}) {
		return fmt.Errorf("%w: %s %q is not a header name", ErrConfig, field, name)
	}
	return nil
}

func (generic) key(s Secret, _ bool) (key, error) { return plainKey(s) }

// cutPrefix removes the prefix that must stand before a value, and white space.
func cutPrefix(header, prefix, value string) (string, error) {
	rest, ok := strings.CutPrefix(value, prefix)
	if !ok {
		return "", refuse(BadSignature, "the header "+header+" does not begin with the configured prefix", "")
	}
	return strings.TrimSpace(rest), nil
}

func (g generic) verify(m *Message, keys []key) (proof, error) {
	h, err := one(m.Header, g.header)
	if err != nil {
		return proof{}, err
	}
	text, err := cutPrefix(g.header, g.prefix, h)
	if err != nil {
		return proof{}, err
	}
	var p proof
	if g.timeHeader != "" {
		p.timed = true
		if p.timestamp, err = one(m.Header, g.timeHeader); err != nil {
			return proof{}, err
		}
	}
	got := g.decode(text)
	if got == nil {
		return proof{}, refuse(BadSignature, "the signature is not a whole digest in "+g.encoding, "compare digest, encoding and prefix with the sender's documentation")
	}
	for i, k := range keys {
		if same(got, g.mac(k, p.timestamp, m.Body)) {
			p.key = i
			return p, nil
		}
	}
	return proof{}, errWrong("compare the secret, and digest, encoding and signed with the sender's documentation")
}

// decode returns the digest's bytes; nil unless they are exactly as many as
// the digest has.
func (g generic) decode(text string) []byte {
	if g.encoding == "hex" {
		return unhex(text, g.size)
	}
	enc := base64.StdEncoding.Strict()
	if g.encoding == "base64url" {
		enc = base64.RawURLEncoding.Strict()
	}
	b, err := enc.DecodeString(text)
	if err != nil || len(b) != g.size {
		return nil
	}
	return b
}

func (g generic) mac(k key, stamp string, body []byte) []byte {
	fill := func(s string) []byte { return []byte(strings.ReplaceAll(s, "{timestamp}", stamp)) }
	return mac(g.digest, k.bytes, fill(g.before), body, fill(g.after))
}

func (g generic) sign(m *Message, keys []key, _ string, at time.Time) error {
	stamp := ""
	if g.timeHeader != "" {
		stamp = strconv.FormatInt(at.Unix(), 10)
		m.Header.Set(g.timeHeader, stamp)
	}
	d := g.mac(keys[0], stamp, m.Body)
	text := hex.EncodeToString(d)
	switch g.encoding {
	case "base64":
		text = base64.StdEncoding.EncodeToString(d)
	case "base64url":
		text = base64.RawURLEncoding.EncodeToString(d)
	}
	m.Header.Set(g.header, g.prefix+text)
	return nil
}

func (generic) eventID(*Message) (string, error) { return "", nil }
func (generic) headers() []string                { return nil }
func (generic) private() []string                { return nil }

// shared is the secret itself in a header.
type shared struct{ header, prefix string }

func newShared(o Options) (scheme, error) {
	if err := headerName("header", o.Header); err != nil {
		return nil, err
	}
	return shared{header: http.CanonicalHeaderKey(o.Header), prefix: strings.TrimSpace(o.Prefix)}, nil
}

func (shared) key(s Secret, _ bool) (key, error) { return plainKey(s) }

func (s shared) verify(m *Message, keys []key) (proof, error) {
	h, err := one(m.Header, s.header)
	if err != nil {
		return proof{}, err
	}
	text, err := cutPrefix(s.header, s.prefix, h)
	if err != nil {
		return proof{}, err
	}
	got := sha256.Sum256([]byte(text))
	for i, k := range keys {
		// Digests, so that not even the secret's length shows in the time taken.
		if want := sha256.Sum256(k.bytes); same(got[:], want[:]) {
			return proof{key: i}, nil
		}
	}
	return proof{}, refuse(WrongSignature, "the header "+s.header+" holds none of the configured secrets", "compare the configured secret with the sender's")
}

func (s shared) sign(m *Message, keys []key, _ string, _ time.Time) error {
	v := string(keys[0].bytes)
	if s.prefix != "" {
		v = s.prefix + " " + v
	}
	m.Header.Set(s.header, v)
	return nil
}

func (shared) eventID(*Message) (string, error) { return "", nil }
func (shared) headers() []string                { return nil }
func (s shared) private() []string              { return []string{s.header} }

// none proves nothing.
type none struct{}

func (none) key(Secret, bool) (key, error)                 { return key{}, nil }
func (none) verify(*Message, []key) (proof, error)         { return proof{}, nil }
func (none) sign(*Message, []key, string, time.Time) error { return nil }
func (none) eventID(*Message) (string, error)              { return "", nil }
func (none) headers() []string                             { return nil }
func (none) private() []string                             { return nil }
