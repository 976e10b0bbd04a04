package config

import (
	"net/http"

	"github.com/penstock-io/penstock/webhooks"
)

// sign reads how a provider's calls are signed.
func (r *reader) sign(o *object, p *Provider) {
	if !o.has("sign") || o.field("sign").node == nil {
		return
	}
	t := r.object(o.field("sign"), "providers.*.sign", "scheme", "secrets")
	t.line = o.at("sign")
	var scheme string
	if !t.has("scheme") {
		t.fault("scheme", "is missing; write scheme: %s", webhooks.Standard)
	}
	t.word("scheme", &scheme, string(webhooks.Standard))
	list := r.secretsFor(t, webhooks.Standard, func(s webhooks.Secret) error {
		_, err := webhooks.SignCalls(s)
		return err
	})
	if !list.faulty {
		if _, err := webhooks.SignCalls(list.all...); err != nil {
			t.fault("secrets", "%s", webhookText(err))
		}
	}
	for _, name := range []string{"Webhook-Id", "Webhook-Timestamp", "Webhook-Signature"} {
		if p.Headers[http.CanonicalHeaderKey(name)] != "" {
			o.fault("headers", "sets %s, which sign makes anew for each attempt; take it out", name)
		}
	}
	p.Sign = list.all
}
