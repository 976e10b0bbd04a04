package webhooks

import (
	"crypto/sha256"
	"encoding/base64"
	"time"
)

// shopify is Shopify's scheme: HMAC-SHA256 over the body, in standard base64
// with padding, in X-Shopify-Hmac-Sha256.
//
// The event's id is X-Shopify-Event-Id, together with the topic (one event can
// be told under several topics), or X-Shopify-Webhook-Id where that is all
// there is. Neither they nor a time are signed: whoever captured a delivery
// can send it again under another id.
// https://shopify.dev/docs/apps/build/webhooks/ignore-duplicates
type shopify struct{}

const (
	shopifyHeader  = "X-Shopify-Hmac-Sha256"
	shopifyTopic   = "X-Shopify-Topic"
	shopifyEvent   = "X-Shopify-Event-Id"
	shopifyWebhook = "X-Shopify-Webhook-Id"
)

func (shopify) key(s Secret, _ bool) (key, error) { return plainKey(s) }

func (shopify) verify(m *Message, keys []key) (proof, error) {
	h, err := one(m.Header, shopifyHeader)
	if err != nil {
		return proof{}, err
	}
	for i, k := range keys {
		if same([]byte(h), []byte(base64.StdEncoding.EncodeToString(mac(sha256.New, k.bytes, m.Body)))) {
			return proof{key: i}, nil
		}
	}
	return proof{}, errWrong("")
}

func (shopify) sign(m *Message, keys []key, id string, _ time.Time) error {
	m.Header.Set(shopifyHeader, base64.StdEncoding.EncodeToString(mac(sha256.New, keys[0].bytes, m.Body)))
	setID(m.Header, shopifyWebhook, id)
	return nil
}

func (shopify) eventID(m *Message) (string, error) {
	if len(m.Header.Values(shopifyEvent)) == 0 {
		return headerID(m.Header, shopifyWebhook)
	}
	id, err := headerID(m.Header, shopifyEvent)
	if topic := m.Header.Get(shopifyTopic); err == nil && topic != "" {
		id = topic + ":" + id
	}
	return id, err
}

func (shopify) headers() []string {
	return []string{shopifyTopic, shopifyEvent, shopifyWebhook, "X-Shopify-Shop-Domain",
		"X-Shopify-API-Version", "X-Shopify-Triggered-At"}
}
func (shopify) private() []string { return nil }
