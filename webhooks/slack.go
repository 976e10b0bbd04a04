package webhooks

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// slack is Slack's scheme: HMAC-SHA256 over "v0:timestamp:body", hex, in
// X-Slack-Signature after "v0=".
//
// The event's id is /event_id of the Events API, or trigger_id of a command or
// an interaction, all covered by the signature. What has neither is known by a
// digest of its time and body.
// https://docs.slack.dev/authentication/verifying-requests-from-slack
type slack struct{}

const (
	slackHeader = "X-Slack-Signature"
	slackTime   = "X-Slack-Request-Timestamp"
)

func (slack) key(s Secret, _ bool) (key, error) { return plainKey(s) }

func (slack) verify(m *Message, keys []key) (proof, error) {
	h, err := one(m.Header, slackHeader)
	if err != nil {
		return proof{}, err
	}
	t, err := one(m.Header, slackTime)
	if err != nil {
		return proof{}, err
	}
	got, ok := strings.CutPrefix(h, "v0=")
	if !ok {
		return proof{}, refuse(BadSignature, slackHeader+" does not begin with v0=", "")
	}
	p, err := hexProof(keys, got, []byte("v0:"+t+":"), m.Body)
	p.timestamp, p.timed = t, true
	return p, err
}

func (slack) sign(m *Message, keys []key, _ string, at time.Time) error {
	t := strconv.FormatInt(at.Unix(), 10)
	m.Header.Set(slackTime, t)
	m.Header.Set(slackHeader, "v0="+hex.EncodeToString(mac(sha256.New, keys[0].bytes, []byte("v0:"+t+":"), m.Body)))
	return nil
}

func (slack) eventID(m *Message) (string, error) {
	var body struct {
		EventID   string `json:"event_id"`
		TriggerID string `json:"trigger_id"`
	}
	if isForm(m.Header) {
		form, err := url.ParseQuery(string(m.Body))
		if err != nil {
			return "", refuse(BadBody, "the body is not the form that its content type says", "")
		}
		body.TriggerID = form.Get("trigger_id")
		if p := form.Get("payload"); p != "" {
			_ = json.Unmarshal([]byte(p), &body) // an odd payload has a digest, too
		}
	} else {
		_ = json.Unmarshal(m.Body, &body)
	}
	switch {
	case body.EventID != "":
		return body.EventID, nil
	case body.TriggerID != "":
		return body.TriggerID, nil
	}
	return contentID([]byte(m.Header.Get(slackTime)), m.Body), nil
}

func (slack) headers() []string {
	return []string{"X-Slack-Retry-Num", "X-Slack-Retry-Reason"}
}
func (slack) private() []string { return nil }

// challenge returns what Slack wants to read back when a URL is set up.
func (slack) challenge(m *Message) (string, bool) {
	if isForm(m.Header) {
		return "", false
	}
	var body struct {
		Type      string `json:"type"`
		Challenge string `json:"challenge"`
	}
	if json.Unmarshal(m.Body, &body) != nil || body.Type != "url_verification" || body.Challenge == "" {
		return "", false
	}
	return body.Challenge, true
}
