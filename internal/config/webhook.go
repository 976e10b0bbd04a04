package config

import (
	"slices"
	"strings"
	"time"

	"github.com/penstock-io/penstock/queue"
	"github.com/penstock-io/penstock/webhooks"
)

// Webhook is one sender's deliveries, taken in at one path.
type Webhook struct {
	// Line of the file where it stands.
	Line int
	// Path of the requests, exactly.
	Path string
	// Config as package webhooks takes it, but for its Queue, Spool, Observer
	// and Logger.
	Config webhooks.Config
}

// Bounds of a webhook's times.
const (
	minWindow      = time.Minute
	maxBodyTimeout = 5 * time.Minute
	maxStoreWait   = time.Minute
	maxRetryAfter  = 24 * time.Hour
	// senderRepeats is how long the most patient senders repeat a delivery.
	senderRepeats = 24 * time.Hour
)

// hookReader reads one webhook.
type hookReader struct {
	*reader
	o  *object
	to *object // nil where it is missing
	h  *Webhook
	// provider is the destination; nil where there is none.
	provider *Provider
	secrets  secretList
}

// webhooks reads every webhook, after the providers.
func (r *reader) webhooks(root *object, c *Config) {
	if !root.has("webhooks") || root.field("webhooks").node == nil {
		return
	}
	before := len(r.faults)
	entries := r.entries(root.field("webhooks"))
	if len(entries) == 0 && len(r.faults) == before {
		root.fault("webhooks", "is empty; name a webhook with its path, scheme, secrets and to, or take it out")
	}
	for _, e := range entries {
		at := join("webhooks", e.key)
		switch {
		case !IsName(e.key):
			r.fault(e.line, at, "a webhook's name must be [a-z0-9][a-z0-9._-]{0,62}")
			continue
		case e.val.node == nil:
			r.fault(e.line, at, "has no settings; it needs path, scheme, secrets and to")
			continue
		}
		h := Webhook{Line: e.line}
		h.Config.Name = e.key
		e.val.line = e.line
		hr := &hookReader{reader: r, h: &h}
		hr.read(e.val, c.Providers)
		hr.ownPath(c.Webhooks)
		c.Webhooks = append(c.Webhooks, h)
	}
}

func (r *hookReader) read(v value, providers []Provider) {
	r.o = r.object(v, "webhooks.*", "path", "scheme", "secrets", "to", "header", "prefix", "digest", "encoding", "timestamp_header",
		"signed", "tolerance", "event_id", "window", "headers", "methods", "content_types", "max_body", "body_timeout", "store_timeout",
		"retry_after", "max_in_flight", "public_url")
	o, c := r.o, &r.h.Config
	o.line = r.h.Line
	r.path()
	r.destination(providers)
	known := r.scheme()
	for _, f := range []struct {
		name string
		into *string
	}{
		{"header", &c.Options.Header}, {"prefix", &c.Options.Prefix}, {"digest", &c.Options.Digest}, {"encoding", &c.Options.Encoding},
		{"timestamp_header", &c.Options.TimestampHeader}, {"signed", &c.Options.Signed}, {"public_url", &c.PublicURL},
	} {
		if o.text(f.name, f.into) && *f.into == "" {
			o.fault(f.name, "is empty; give it a value, or take it out")
		}
	}
	o.duration("tolerance", &c.Options.Tolerance, time.Second, webhooks.MaxTolerance)
	r.eventID()
	c.Window = webhooks.DefaultWindow
	o.duration("window", &c.Window, minWindow, MaxKeep)
	o.duration("body_timeout", &c.BodyTimeout, 100*time.Millisecond, maxBodyTimeout)
	o.duration("store_timeout", &c.StoreTimeout, 100*time.Millisecond, maxStoreWait)
	o.duration("retry_after", &c.RetryAfter, time.Second, maxRetryAfter)
	o.whole("max_in_flight", &c.MaxInFlight, 1, 1<<20)
	c.Headers, c.Methods, c.ContentTypes = o.list("headers"), o.list("methods"), o.list("content_types")
	r.maxBody()
	if known {
		r.secrets = r.secretsOf(o, c.Options.Scheme)
		c.Options.Secrets = r.secrets.all
		r.acceptable()
		r.relations()
	}
}

// scheme reads the scheme; false means that it is not known.
func (r *hookReader) scheme() bool {
	var names []string
	for _, s := range webhooks.Schemes() {
		names = append(names, string(s))
	}
	var text string
	if !r.o.text("scheme", &text) {
		if !r.o.has("scheme") {
			r.o.fault("scheme", "is missing; it says how the sender proves that a delivery is its own: %s", strings.Join(names, ", "))
		}
		return false
	}
	s, err := webhooks.ParseScheme(text)
	if err != nil {
		r.o.fault("scheme", "there is no %s; %s", r.shown(r.o.field("scheme")), didYouMean("webhooks.*.scheme", text, names))
		return false
	}
	r.h.Config.Options.Scheme = s
	return true
}

// destination reads to, whose provider must be one of the file's.
func (r *hookReader) destination(providers []Provider) {
	to, c := r.o.field("to"), &r.h.Config
	if !r.o.has("to") {
		r.o.fault("to", "is missing; it says where deliveries go, like {provider: billing, path: /events}")
	}
	if to.node == nil {
		return
	}
	r.to = r.object(to, "webhooks.*.to", "provider", "method", "path", "priority", "max_age", "attempts")
	t := r.to
	t.line = r.o.at("to")
	t.text("method", &c.To.Method)
	t.text("path", &c.To.Path)
	var priority string
	t.word("priority", &priority, string(queue.PriorityHigh), string(queue.PriorityDefault), string(queue.PriorityLow))
	c.To.Priority = queue.Priority(priority)
	t.duration("max_age", &c.To.MaxAge, time.Second, MaxKeep)
	t.whole("attempts", &c.To.Attempts, 1, MaxAttempts)
	if !t.text("provider", &c.To.Provider) {
		if !t.has("provider") {
			t.fault("provider", "is missing; it is the provider whose jobs the deliveries become")
		}
		return
	}
	i := slices.IndexFunc(providers, func(p Provider) bool { return p.Name == c.To.Provider })
	if i >= 0 {
		r.provider = &providers[i]
		return
	}
	var names []string
	for _, p := range providers {
		names = append(names, p.Name)
	}
	t.fault("provider", "there is no provider %s; %s", r.shown(t.field("provider")), didYouMean("webhooks.*.to.provider", c.To.Provider, names))
	c.To.Provider = ""
}

// maxBody reads max_body, which the provider's bounds.
func (r *hookReader) maxBody() {
	c, p := &r.h.Config, r.provider
	c.MaxBody = webhooks.DefaultMaxBody
	r.o.size("max_body", &c.MaxBody, 1, MaxMaxBody)
	switch {
	case p == nil || c.MaxBody <= p.MaxBody:
	case r.o.has("max_body"):
		r.o.fault("max_body", "%s is more than provider %s takes (%s): such a delivery could never be stored; raise the provider's max_body",
			FormatSize(c.MaxBody), p.Name, FormatSize(p.MaxBody))
	default:
		c.MaxBody = p.MaxBody
	}
}

// eventID reads where an event's id stands: {header: …}, {pointer: …} or off.
func (r *hookReader) eventID() {
	v, e := r.o.field("event_id"), &r.h.Config.Options.EventID
	if v.node == nil {
		return
	}
	if isScalar(v.node) {
		if s, ok := r.scalar(v); ok && s.text != "off" {
			r.o.fault("event_id", "must be {header: NAME}, {pointer: /PATH} or off, not %s", s.shown)
		}
		e.Off = true
		return
	}
	t := r.object(v, "webhooks.*.event_id", "header", "pointer")
	t.text("header", &e.Header)
	t.text("pointer", &e.Pointer)
}

// relations refuses and warns of what is fine by itself and is not together.
func (r *hookReader) relations() {
	o, c := r.o, &r.h.Config
	scheme, e := c.Options.Scheme, c.Options.EventID
	switch {
	case scheme == webhooks.Twilio && !o.has("public_url"):
		o.warn("public_url", "is missing: Twilio signs the URL that it calls, and behind a proxy that ends TLS that is not the one that arrives here")
	case scheme != webhooks.Twilio && o.has("public_url"):
		o.fault("public_url", "means nothing for scheme %s, which does not sign the URL; take it out", scheme)
	}
	if scheme == webhooks.None && r.h.Path != "" && c.To.Provider != "" {
		o.warn("scheme", "none proves nothing: whoever reaches %s makes jobs of provider %s", r.h.Path, c.To.Provider)
	}
	if scheme == webhooks.HMAC && !o.has("timestamp_header") {
		o.warn("scheme", "hmac without timestamp_header: a captured delivery can be sent again for ever; set it if the sender signs a time")
	}
	noID := e.Off || e.IsZero() && slices.Contains([]webhooks.Scheme{webhooks.HMAC, webhooks.SharedSecret, webhooks.None}, scheme)
	switch {
	case noID && o.has("window"):
		o.fault("window", "means nothing without an event id; set event_id, or take it out")
	case noID:
		o.warn(pick(o, "event_id", "scheme"), "repeats are not recognised: events have no id; set event_id to a header or a JSON pointer")
	case c.Window < senderRepeats:
		o.warn("window", "%s is shorter than senders repeat a delivery (up to 75 h): a late repeat makes a second job", FormatDuration(c.Window))
	}
}
