package metrics

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/penstock-io/penstock/webhooks"
)

var _ webhooks.Observer = (*Metrics)(nil)

func TestWebhooks(t *testing.T) {
	m := New()
	m.WatchWebhook("stripe")
	m.WatchSpool(1 << 20)
	m.WebhookDelivery("stripe", webhooks.Delivery{Result: webhooks.Accepted, Secret: "new", Bytes: 100, Took: 2 * time.Millisecond})
	m.WebhookDelivery("stripe", webhooks.Delivery{Result: webhooks.Duplicate, Secret: "old", Bytes: 100, Took: 2 * time.Millisecond})
	m.WebhookDelivery("stripe", webhooks.Delivery{Result: webhooks.Refused, Reason: webhooks.Stale, Bytes: 50, Took: time.Millisecond})
	m.WebhookSpool(3, 4096)
	m.WebhookReplayed("stripe", webhooks.Accepted)
	lines := scrape(t, m)
	for name, want := range map[string]string{
		`penstock_webhook_deliveries_total{result="accepted",webhook="stripe"}`:                           "1",
		`penstock_webhook_deliveries_total{result="duplicate",webhook="stripe"}`:                          "1",
		`penstock_webhook_deliveries_total{result="spooled",webhook="stripe"}`:                            "0",
		`penstock_webhook_refusals_total{reason="stale",webhook="stripe"}`:                                "1",
		`penstock_webhook_refusals_total{reason="wrong_signature",webhook="stripe"}`:                      "0",
		`penstock_webhook_refusals_total{reason="",webhook="stripe"}`:                                     "",
		`penstock_webhook_signatures_total{secret="new",webhook="stripe"}`:                                "1",
		`penstock_webhook_signatures_total{secret="old",webhook="stripe"}`:                                "1",
		`penstock_webhook_received_bytes_total{webhook="stripe"}`:                                         "250",
		`penstock_webhook_replayed_total{result="accepted",webhook="stripe"}`:                             "1",
		`penstock_webhook_answer_duration_seconds_bucket{result="accepted",webhook="stripe",le="0.0025"}`: "1",
		`penstock_webhook_spool_deliveries`:                                                               "3",
		`penstock_webhook_spool_bytes`:                                                                    "4096",
		`penstock_webhook_spool_max_bytes`:                                                                "1.048576e+06",
	} {
		if got := lines[name]; got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	problems, err := testutil.GatherAndLint(m.registry)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

// Whatever a handler might say, the words are ours; without a spool there are
// no figures of one.
func TestWebhookLabelsAreBounded(t *testing.T) {
	m := New()
	m.WatchWebhook("stripe")
	say := func(word string) {
		m.WebhookDelivery("stripe", webhooks.Delivery{Result: webhooks.Result(word), Bytes: -1})
		m.WebhookDelivery("stripe", webhooks.Delivery{Result: webhooks.Refused, Reason: webhooks.Reason(word)})
		m.WebhookReplayed("stripe", webhooks.Result(word))
	}
	say("a word")
	before := len(scrape(t, m))
	for i := range 100 {
		say(fmt.Sprint(i))
	}
	lines := scrape(t, m)
	if len(lines) != before {
		t.Errorf("%d lines became %d", before, len(lines))
	}
	if _, there := lines["penstock_webhook_spool_bytes"]; there {
		t.Error("there is no spool, but its size")
	}
}
