package config

import (
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"github.com/penstock-io/penstock/webhooks"
)

// secretList are the secrets of a webhook, or of a provider's signature.
type secretList struct {
	all []webhooks.Secret
	// faulty: some fault of them is noted.
	faulty bool
}

// minSecret is the length below which a secret is warned of.
const minSecret = 16

// secretsOf reads o's secrets: a list of texts, or of {value, label, expires, key}.
func (r *reader) secretsOf(o *object, scheme webhooks.Scheme) secretList {
	return r.secretsFor(o, scheme, func(s webhooks.Secret) error {
		opt := webhooks.Options{Scheme: scheme, Secrets: []webhooks.Secret{s}}
		if scheme == webhooks.HMAC || scheme == webhooks.SharedSecret {
			opt.Header = "X-Signature"
		}
		_, err := webhooks.NewVerifier(opt)
		return err
	})
}

// secretsFor looks at each secret by itself, so that its fault has its line.
func (r *reader) secretsFor(o *object, scheme webhooks.Scheme, check func(webhooks.Secret) error) secretList {
	var list secretList
	before := len(r.faults)
	for i, item := range r.items(o.field("secrets")) {
		var s webhooks.Secret
		var ok bool
		if _, long := item.node.(*ast.MappingNode); long {
			s, ok = r.longSecret(item)
		} else {
			s.Value, ok = r.itemText(item)
		}
		if ok && scheme != webhooks.None { // that none has none at all is said of the list
			r.checkSecret(item, s, strconv.Itoa(i+1), check)
		}
		list.all = append(list.all, s)
	}
	switch {
	case len(list.all) > 0 || len(r.faults) > before || scheme == webhooks.None:
	case o.has("secrets"):
		o.fault("secrets", `holds none: anybody could sign; write secrets: ["${NAME}"] and set the variable`)
	default:
		o.fault("secrets", `is missing; write secrets: ["${NAME}"] and set the variable to what the sender's console shows`)
	}
	list.faulty = r.failedSince(before)
	return list
}

func (r *reader) checkSecret(item value, s webhooks.Secret, place string, check func(webhooks.Secret) error) {
	if s.Label == "" {
		s.Label = place
	}
	if err := check(s); err != nil {
		r.fault(item.line, item.path, "%s", strings.TrimPrefix(webhookText(err), "secrets: secret "+s.Label+" "))
		return
	}
	if len(s.Value) < minSecret {
		r.warn(item.line, item.path, "is shorter than %d characters and can be guessed; openssl rand -base64 32 makes a good one", minSecret)
	}
}

func (r *reader) longSecret(v value) (webhooks.Secret, bool) {
	before := len(r.faults)
	o := r.object(v, "webhooks.*.secrets", "value", "label", "expires", "key")
	var s webhooks.Secret
	if !o.text("value", &s.Value) && !o.has("value") {
		o.fault("value", `is missing; write value: "${NAME}" and set the variable`)
	}
	o.text("label", &s.Label)
	o.text("key", &s.Key)
	var at string
	if o.text("expires", &at) {
		t, err := time.Parse(time.RFC3339, at)
		if err != nil {
			t, err = time.Parse(time.DateOnly, at)
		}
		switch {
		case err != nil:
			o.fault("expires", "must be a time like 2027-01-31 or 2027-01-31T12:00:00Z, not %s", r.shown(o.field("expires")))
		case time.Now().After(t):
			o.warn("expires", "is over: this secret is no longer accepted; take it out")
		}
		s.Expires = t
	}
	return s, !r.failedSince(before)
}

// failedSince reports whether a fault was noted after the first n entries.
func (r *reader) failedSince(n int) bool { return r.faults[n:].Failed() }

// goodSecrets are such that a scheme takes, to look at the rest of a webhook with.
func goodSecrets(s webhooks.Scheme) []webhooks.Secret {
	switch s {
	case webhooks.None:
		return nil
	case webhooks.Standard:
		return webhooks.Secrets("whsec_" + strings.Repeat("A", 32))
	}
	return webhooks.Secrets(strings.Repeat("x", minSecret))
}

// itemText reads an item of a list as text, as object.text does a field.
func (r *reader) itemText(v value) (string, bool) {
	s, ok := r.scalar(v)
	if !ok {
		return "", false
	}
	if _, isBool := v.node.(*ast.BoolNode); isBool || !s.quoted && strings.HasPrefix(s.shown, `"`) {
		r.fault(v.line, v.path, "must be text, not %s; put it in quotes", kindOf(v.node))
		return "", false
	}
	return s.text, true
}

// list reads a list of texts; nil where it is not there, empty where it is.
func (o *object) list(name string) []string {
	if !o.has(name) {
		return nil
	}
	out := []string{}
	for _, item := range o.r.items(o.field(name)) {
		if s, ok := o.r.itemText(item); ok {
			out = append(out, s)
		}
	}
	return out
}

// shown is how a message names a value that was read without a fault.
func (r *reader) shown(v value) string {
	s, _ := r.scalar(v)
	return s.shown
}

func isScalar(n ast.Node) bool {
	switch n.(type) {
	case *ast.MappingNode, *ast.SequenceNode:
		return false
	}
	return true
}
