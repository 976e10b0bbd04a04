package webhooks

import (
	"crypto/sha1"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"hash"
	"net/url"
	"slices"
	"strings"
	"time"
)

// twilio is Twilio's scheme: a base64 HMAC in X-Twilio-Signature over the URL
// exactly as Twilio calls it, followed, for a form, by every parameter's name
// and value, sorted by name. Any other body is bound by its SHA-256 in the
// URL's bodySHA256; without it the body is not covered, and refused.
//
// The digest is SHA-1 with the account's auth token, or SHA-256 with a shared
// key where X-Twilio-Webhooks-Signature-Settings says so.
//
// The URL is signed with or without its port, so both are tried. The event's
// id is I-Twilio-Idempotency-Token, which is not signed; without one it is a
// digest of URL and body.
// https://www.twilio.com/docs/usage/security#validating-requests
type twilio struct{}

const (
	twilioHeader   = "X-Twilio-Signature"
	twilioSettings = "X-Twilio-Webhooks-Signature-Settings"
	twilioToken    = "I-Twilio-Idempotency-Token"
	// fixTwilio goes with a signature that does not fit: it is nearly always the URL.
	fixTwilio = "compare the auth token, and set public_url to the scheme and host that Twilio calls: where TLS ends at a proxy they are not what arrives here"
)

func (twilio) key(s Secret, _ bool) (key, error) { return plainKey(s) }

func (twilio) verify(m *Message, keys []key) (proof, error) {
	got, err := one(m.Header, twilioHeader)
	if err != nil {
		return proof{}, err
	}
	digest, usable, err := twilioKeys(m, keys)
	if err != nil {
		return proof{}, err
	}
	tails, err := twilioTails(m)
	if err != nil {
		return proof{}, err
	}
	urls := withAndWithoutPort(m.URL)
	for i, k := range keys {
		if !usable(k) {
			continue
		}
		for _, u := range urls {
			for _, tail := range tails {
				want := base64.StdEncoding.EncodeToString(mac(digest, k.bytes, []byte(u), []byte(tail)))
				if same([]byte(got), []byte(want)) {
					return proof{key: i}, nil
				}
			}
		}
	}
	return proof{}, errWrong(fixTwilio)
}

// twilioKeys returns the digest and which keys may be used, by what the
// settings header announces.
func twilioKeys(m *Message, keys []key) (func() hash.Hash, func(key) bool, error) {
	named := slices.ContainsFunc(keys, func(k key) bool { return k.name != "" })
	settings := m.Header.Values(twilioSettings)
	if len(settings) == 0 {
		return sha1.New, func(k key) bool { return k.name == "" }, nil
	}
	if len(settings) > 1 {
		return nil, nil, refuse(BadSignature, "the header "+twilioSettings+" stands more than once", "")
	}
	var name, algorithm string
	for _, part := range strings.Split(settings[0], ",") {
		switch k, v, _ := strings.Cut(strings.TrimSpace(part), "="); k {
		case "key":
			name = v
		case "algorithm":
			algorithm = v
		}
	}
	if algorithm != "HMAC_SHA256" {
		return nil, nil, refuse(Algorithm, twilioSettings+" names an algorithm that is not accepted", "only HMAC_SHA256 is")
	}
	if !named {
		return sha256.New, func(key) bool { return true }, nil
	}
	fits := func(k key) bool { return k.name != "" && k.name == name }
	if !slices.ContainsFunc(keys, fits) {
		return nil, nil, refuse(NoKey, "the sender used a shared key that is not configured here", "configure the shared key with its key name")
	}
	return sha256.New, fits, nil
}

// twilioTails returns what may follow the URL in the signed text.
func twilioTails(m *Message) ([]string, error) {
	var tails []string
	form := isForm(m.Header)
	if form || len(m.Body) == 0 {
		t, err := twilioForm(string(m.Body))
		if err != nil {
			return nil, refuse(BadBody, "the body is not the form that its content type says", "")
		}
		tails = append(tails, t)
	}
	_, query, _ := strings.Cut(m.URL, "?")
	switch digest := bodySHA256(query); {
	case digest == nil && len(tails) == 0:
		return nil, refuse(NotCovered, "the body is not a form, and the URL has no bodySHA256 to bind it", "")
	case digest == nil:
		return tails, nil
	default:
		sum := sha256.Sum256(m.Body)
		if same(digest, sum[:]) {
			return append(tails, ""), nil
		}
		if len(tails) == 0 {
			return nil, refuse(WrongSignature, "the body is not the one whose bodySHA256 is in the URL", "see that nothing on the way rewrites the body")
		}
		return tails, nil
	}
}

// bodySHA256 returns the digest in the query, nil unless there is just one.
func bodySHA256(query string) []byte {
	q, err := url.ParseQuery(query)
	if err != nil {
		return nil
	}
	vs := q["bodySHA256"]
	if len(vs) != 1 {
		return nil
	}
	return unhex(vs[0], sha256.Size)
}

// twilioForm writes a form's parameters as Twilio signs them: names sorted,
// each followed by its value; several values of a name once each, sorted.
func twilioForm(body string) (string, error) {
	form, err := url.ParseQuery(body)
	if err != nil {
		return "", err
	}
	names := make([]string, 0, len(form))
	for n := range form {
		names = append(names, n)
	}
	slices.Sort(names)
	var b strings.Builder
	for _, n := range names {
		vs := slices.Clone(form[n])
		slices.Sort(vs)
		for _, v := range slices.Compact(vs) {
			b.WriteString(n)
			b.WriteString(v)
		}
	}
	return b.String(), nil
}

// withAndWithoutPort returns raw, and raw with its scheme's own port added or
// its port removed. All else stays as it is, byte for byte.
func withAndWithoutPort(raw string) []string {
	sch, rest, ok := strings.Cut(raw, "://")
	if !ok {
		return []string{raw}
	}
	end := strings.IndexAny(rest, "/?#")
	if end < 0 {
		end = len(rest)
	}
	host, tail := rest[:end], rest[end:]
	colon := strings.LastIndexByte(host, ':')
	if colon > strings.LastIndexAny(host, "]@") && allDigits(host[colon+1:]) {
		return []string{raw, sch + "://" + host[:colon] + tail}
	}
	port := map[string]string{"https": ":443", "http": ":80"}[sch]
	return []string{raw, sch + "://" + host + port + tail}
}

func (twilio) sign(m *Message, keys []key, id string, _ time.Time) error {
	tail := ""
	if isForm(m.Header) || len(m.Body) == 0 {
		var err error
		if tail, err = twilioForm(string(m.Body)); err != nil {
			return refuse(BadBody, "the body is not the form that its content type says", "")
		}
	} else if _, query, _ := strings.Cut(m.URL, "?"); bodySHA256(query) == nil {
		sum := sha256.Sum256(m.Body)
		sep := "?"
		if strings.Contains(m.URL, "?") {
			sep = "&"
		}
		m.URL += sep + "bodySHA256=" + hex.EncodeToString(sum[:])
	}
	digest := sha1.New
	if keys[0].name != "" {
		digest = sha256.New
		m.Header.Set(twilioSettings, "key="+keys[0].name+",algorithm=HMAC_SHA256")
	}
	m.Header.Set(twilioHeader, base64.StdEncoding.EncodeToString(mac(digest, keys[0].bytes, []byte(m.URL), []byte(tail))))
	setID(m.Header, twilioToken, id)
	return nil
}

func (twilio) eventID(m *Message) (string, error) {
	if len(m.Header.Values(twilioToken)) > 0 {
		return headerID(m.Header, twilioToken)
	}
	return contentID([]byte(m.URL), m.Body), nil
}

func (twilio) headers() []string { return []string{twilioToken} }
func (twilio) private() []string { return nil }
