package config

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"

	"github.com/penstock-io/penstock/queue"
	"github.com/penstock-io/penstock/webhooks"
)

// maxHookFaults bounds how many faults of one webhook are looked for.
const maxHookFaults = 16

// acceptable asks the room that takes the deliveries, whose word is the last.
// It names one fault at a time: what is faulty is replaced, and it is asked again.
func (r *hookReader) acceptable() {
	c := r.h.Config
	if r.secrets.faulty {
		c.Options.Secrets = goodSecrets(c.Options.Scheme) // noted before
	}
	if c.To.Provider == "" {
		c.To.Provider = "x" // noted before
	}
	c.Queue, c.Logger = nowhere{}, slog.New(slog.DiscardHandler)
	for range maxHookFaults {
		_, err := webhooks.New(c)
		if err == nil || !r.note(&c, err) {
			return
		}
	}
}

// note notes what webhooks.New refuses at the field that it names, puts
// something good in its place, and reports whether there was such a thing.
func (r *hookReader) note(c *webhooks.Config, err error) bool {
	if e, ok := errors.AsType[*queue.FieldError](err); ok && r.to != nil { // of the job that a delivery becomes
		text := e.Reason
		if e.Fix != "" {
			text += "; " + e.Fix
		}
		r.to.fault(e.Field, "%s", text)
		replaced := e.Field == "method" && c.To.Method != "" || e.Field == "path" && c.To.Path != ""
		c.To.Method, c.To.Path = "", ""
		return replaced
	}
	text := webhookText(err)
	field := text
	if i := strings.IndexAny(text, " :"); i > 0 {
		field = text[:i]
	}
	if !replace(c, field) {
		r.fault(r.o.line, r.o.path, "%s", text)
		return false
	}
	r.o.fault(field, "%s", strings.TrimLeft(strings.TrimPrefix(text, field), ": "))
	return true
}

// replace puts something good in a field's place.
func replace(c *webhooks.Config, field string) bool {
	o := &c.Options
	switch field {
	case "header":
		o.Header = ""
		if o.Scheme == webhooks.HMAC || o.Scheme == webhooks.SharedSecret {
			o.Header = "X-Signature"
		}
	case "prefix":
		o.Prefix = ""
	case "digest":
		o.Digest = ""
	case "encoding":
		o.Encoding = ""
	case "timestamp_header", "signed":
		o.TimestampHeader, o.Signed = "", ""
	case "tolerance":
		o.Tolerance = 0
	case "event_id":
		o.EventID = webhooks.EventID{Off: true}
	case "secrets":
		o.Secrets = goodSecrets(o.Scheme)
	case "public_url":
		c.PublicURL = ""
	case "methods":
		c.Methods = []string{http.MethodPost}
	case "content_types":
		c.ContentTypes = nil
	case "headers":
		c.Headers = []string{}
	default:
		return false
	}
	return true
}

// webhookText is an error of package webhooks from the field's name on.
func webhookText(err error) string {
	text := err.Error()
	if _, after, ok := strings.Cut(text, webhooks.ErrConfig.Error()+": "); ok {
		return after
	}
	return text
}

// nowhere is a queue for looking at a configuration.
type nowhere struct{}

func (nowhere) Enqueue(context.Context, queue.Job) (queue.Receipt, error) {
	return queue.Receipt{}, errors.ErrUnsupported
}
