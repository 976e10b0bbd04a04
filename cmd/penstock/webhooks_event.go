package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/penstock-io/penstock/webhooks"
)

// event is one event on its way out; each delivery of it is signed anew.
type event struct {
	id      string
	signer  *webhooks.Signer
	target  *url.URL
	signed  string // the URL that is signed
	method  string
	header  http.Header
	body    []byte
	twoURLs bool
}

// newEvent makes an event with the scheme's test body.
func newEvent(s *sending, signer *webhooks.Signer, target *url.URL) (*event, error) {
	scheme := s.options.Scheme
	e := &event{id: s.eventID, signer: signer, target: target, signed: target.String(), method: s.method, header: http.Header{}}
	if e.method == "" {
		e.method = http.MethodPost
	}
	if e.id == "" {
		e.id = "evt_test_" + strings.ToLower(rand.Text()[:16])
	} else if err := idHasPlace(s); err != nil {
		return nil, err
	}
	if s.publicURL != "" {
		if scheme != webhooks.Twilio {
			return nil, wrongUse("--public-url means nothing for scheme %s, which does not sign the URL", scheme)
		}
		e.signed, e.twoURLs = strings.TrimSuffix(s.publicURL, "/")+target.RequestURI(), true
	}
	kind := testKind(scheme, e.id, s.options.EventID)
	e.body = kind.body
	e.header.Set("Content-Type", kind.contentType)
	if s.contentType != "" || s.hasType {
		e.header.Set("Content-Type", s.contentType)
	}
	for name, value := range kind.headers {
		e.header.Set(name, value)
	}
	if h := s.options.EventID.Header; h != "" {
		e.header.Set(h, e.id)
	}
	for _, line := range s.headers {
		name, value, ok := strings.Cut(line, ":")
		if !ok {
			return nil, wrongUse(`--headers must be "Name: value"`)
		}
		e.header.Add(name, strings.TrimSpace(value))
	}
	return e, nil
}

// idHasPlace refuses an --event-id that would be sent nowhere.
func idHasPlace(s *sending) error {
	at := s.options.EventID
	inBody := at.Header == "" && (at.Pointer != "" || s.options.Scheme == webhooks.Stripe || s.options.Scheme == webhooks.Slack)
	switch {
	case inBody && s.hasBody:
		return wrongUse("--event-id: the id stands in the body; write it into the body that is sent, or leave --body and --file out")
	case at.Header == "" && s.hasBody && testKind(s.options.Scheme, "x", at).idInBody:
		return wrongUse("--event-id: scheme %s has no place for it; give it by --headers", s.options.Scheme)
	}
	return nil
}

// kind is a scheme's test event.
type kind struct {
	contentType string
	headers     map[string]string
	body        []byte
	// idInBody: nothing but the body tells the id.
	idInBody bool
}

func testKind(scheme webhooks.Scheme, id string, at webhooks.EventID) kind {
	const js = "application/json"
	text := func(format string) []byte {
		quoted, _ := json.Marshal(id) // a string always is
		return fmt.Appendf(nil, format, quoted)
	}
	now := time.Now()
	switch {
	case at.Pointer != "":
		return kind{contentType: js, body: atPointer(at.Pointer, id), idInBody: true}
	case scheme == webhooks.Stripe:
		return kind{contentType: js, idInBody: true, body: text(fmt.Sprintf(
			`{"id":%%s,"object":"event","type":"penstock.test","created":%d,"livemode":false,"data":{"object":{}}}`, now.Unix()))}
	case scheme == webhooks.GitHub:
		return kind{contentType: js, headers: map[string]string{"X-GitHub-Event": "ping"}, body: []byte(`{"zen":"Keep it logically awesome.","hook_id":1}`)}
	case scheme == webhooks.Slack:
		return kind{contentType: js, idInBody: true, body: text(`{"type":"event_callback","event_id":%s,"event":{"type":"penstock_test"}}`)}
	case scheme == webhooks.Shopify:
		return kind{contentType: js, headers: map[string]string{"X-Shopify-Topic": "penstock/test"}, body: []byte(`{"test":true}`)}
	case scheme == webhooks.Twilio:
		return kind{contentType: "application/x-www-form-urlencoded", body: []byte(url.Values{"MessageSid": {id}, "Body": {"a test"}}.Encode())}
	case scheme == webhooks.Standard:
		return kind{contentType: js, body: fmt.Appendf(nil, `{"type":"penstock.test","timestamp":%q,"data":{}}`, now.UTC().Format(time.RFC3339))}
	}
	return kind{contentType: js, idInBody: true, body: text(`{"id":%s,"type":"penstock.test"}`)}
}

// atPointer is a JSON object with the id at a pointer (RFC 6901).
func atPointer(pointer, id string) []byte {
	var v any = id
	parts := strings.Split(strings.TrimPrefix(pointer, "/"), "/")
	for i := len(parts) - 1; i >= 0; i-- {
		v = map[string]any{strings.NewReplacer("~1", "/", "~0", "~").Replace(parts[i]): v}
	}
	b, _ := json.Marshal(v) // strings and maps always can be
	return b
}

// deliver signs and sends the event once.
func (e *event) deliver(ctx context.Context, client *http.Client, age time.Duration) (sent, error) {
	m := &webhooks.Message{Method: e.method, URL: e.signed, Header: e.header.Clone(), Body: e.body}
	if err := e.signer.Sign(m, e.id, time.Now().Add(-age)); err != nil {
		return sent{}, wrongUse("%s", strings.TrimPrefix(err.Error(), webhooks.ErrConfig.Error()+": "))
	}
	to := m.URL
	if e.twoURLs { // what signing added to the query is sent, too
		u := *e.target
		_, u.RawQuery, _ = strings.Cut(m.URL, "?")
		to = u.String()
	}
	req, err := http.NewRequestWithContext(ctx, e.method, to, strings.NewReader(string(e.body)))
	if err != nil {
		return sent{}, usageError{cause(err)}
	}
	req.Header = m.Header
	start := time.Now()
	resp, err := client.Do(req)
	if err != nil {
		return sent{}, fmt.Errorf("%s: %w", e.target.Host, cause(err))
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxShown))
	if err != nil {
		return sent{}, fmt.Errorf("%s: reading the answer: %w", e.target.Host, cause(err))
	}
	return sent{EventID: e.id, Status: resp.StatusCode, Result: resp.Header.Get(webhooks.ResultHeader), RetryAfter: resp.Header.Get("Retry-After"),
		TookMS: float64(time.Since(start).Microseconds()) / 1000, Body: string(body)}, nil
}
