package config

import (
	"net/netip"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/penstock-io/penstock/shaper"
	"github.com/penstock-io/penstock/shaper/limithttp"
)

// Door is what callers of the HTTP API and senders of webhooks are held
// against before anything else looks at their requests. The zero value is no
// door.
type Door struct {
	// Rules in the order of the file. Empty: there is no door.
	Rules []DoorRule
	// Clients say what the door knows of a token's holder.
	Clients []DoorClient `json:",omitzero"`
	// Deny is looked at first, Allow second.
	Deny, Allow DoorList `json:",omitzero"`
	// TrustedProxies whose ProxyHeader is believed.
	TrustedProxies []netip.Prefix `json:",omitzero"`
	// ProxyHeader is X-Forwarded-For where it is left out.
	ProxyHeader string `json:",omitzero"`
	// IPv6Prefix is how many bits of an IPv6 address make a client.
	IPv6Prefix int
	// Fields of every answer.
	Fields []limithttp.Dialect
	// Documentation of the limits, a URL.
	Documentation string `json:",omitzero"`
	// StoreTimeout is how long a decision may take.
	StoreTimeout time.Duration
	// Sample is the share of decisions, from 0 to 1, that are logged.
	Sample float64 `json:",omitzero"`
	// AuditFile gets the decisions of rules with Audit; empty: the log does.
	AuditFile string `json:",omitzero"`
}

// On reports whether there is a door.
func (d Door) On() bool { return len(d.Rules) > 0 }

// DoorClient is what is known of the holder of a token.
type DoorClient struct {
	// Token is its name in auth.
	Token string
	// Organisation and Plan; empty: none.
	Organisation, Plan string `json:",omitzero"`
}

// DoorList names clients.
type DoorList struct {
	Addresses []netip.Prefix `json:",omitzero"`
	// Tokens by their names in auth.
	Tokens        []string `json:",omitzero"`
	Organisations []string `json:",omitzero"`
}

const (
	defaultIPv6Prefix = 64
	// DefaultDoorTimeout is how long a decision may take where store_timeout is
	// left out.
	DefaultDoorTimeout = shaper.DefaultLimitTimeout
)

// doorReader reads the door.
type doorReader struct {
	*reader
	o      *object
	d      *Door
	tokens []string // names of auth
	// paths of the webhooks.
	paths     []string
	providers []string
}

// door reads the door, after everything that it speaks of.
func (r *reader) door(root *object, c *Config) {
	if !root.has("door") || root.field("door").node == nil {
		return
	}
	d := &doorReader{reader: r, d: &c.Door}
	for _, t := range slices.Concat(c.Auth.Producers, c.Auth.Operators) {
		d.tokens = append(d.tokens, t.Name)
	}
	for _, h := range c.Webhooks {
		d.paths = append(d.paths, h.Path)
	}
	for _, p := range c.Providers {
		d.providers = append(d.providers, p.Name)
	}
	d.o = r.object(root.field("door"), "door", "rules", "clients", "deny", "allow", "trusted_proxies", "proxy_header", "ipv6_prefix",
		"fields", "documentation", "store_timeout", "sample", "audit_file")
	d.o.line = root.at("door")
	d.read()
}

func (r *doorReader) read() {
	o, d := r.o, r.d
	d.IPv6Prefix, d.StoreTimeout = defaultIPv6Prefix, DefaultDoorTimeout
	o.whole("ipv6_prefix", &d.IPv6Prefix, 16, 128)
	o.duration("store_timeout", &d.StoreTimeout, time.Millisecond, 10*time.Second)
	if s, ok := o.share("sample", 0); ok {
		d.Sample = s / 100
	}
	d.TrustedProxies = r.prefixes(o, "trusted_proxies")
	if o.text("proxy_header", &d.ProxyHeader) && !httpguts.ValidHeaderFieldName(d.ProxyHeader) {
		o.fault("proxy_header", "is not the name of a header; write X-Forwarded-For or Forwarded")
	}
	if o.has("proxy_header") && !o.has("trusted_proxies") {
		o.fault("proxy_header", "means nothing without trusted_proxies: whoever sends it could be anybody")
	}
	r.fields()
	o.documentation(&d.Documentation)
	if o.text("audit_file", &d.AuditFile) && !filepath.IsAbs(d.AuditFile) {
		o.fault("audit_file", "must begin with a slash: where another path leads depends on where penstock was started")
	}
	r.clients()
	r.rules()
	r.doorPlans()
	d.Deny, d.Allow = r.list("deny"), r.list("allow")
	if o.has("audit_file") && len(d.Rules) > 0 && !slices.ContainsFunc(d.Rules, func(x DoorRule) bool { return x.Audit }) {
		o.warn("audit_file", "stays empty: no rule says audit: true")
	}
}

// fields reads the families of header fields.
func (r *doorReader) fields() {
	r.d.Fields = []limithttp.Dialect{limithttp.FieldsIETF}
	if !r.o.has("fields") {
		return
	}
	r.d.Fields = []limithttp.Dialect{}
	var names []string
	for _, f := range limithttp.Dialects() {
		names = append(names, string(f))
	}
	for _, item := range r.items(r.o.field("fields")) {
		s, ok := r.itemText(item)
		switch f := limithttp.Dialect(s); {
		case !ok:
		case !slices.Contains(limithttp.Dialects(), f):
			r.fault(item.line, item.path, "%s is unknown; use some of %s", r.shown(item), strings.Join(names, ", "))
		case slices.Contains(r.d.Fields, f):
			r.fault(item.line, item.path, "%s stands here twice", f)
		case f == limithttp.FieldsX && slices.Contains(r.d.Fields, limithttp.FieldsXDelta), f == limithttp.FieldsXDelta && slices.Contains(r.d.Fields, limithttp.FieldsX):
			r.fault(item.line, item.path, "%s and %s are the same fields with another Reset; choose one", limithttp.FieldsX, limithttp.FieldsXDelta)
		default:
			r.d.Fields = append(r.d.Fields, f)
		}
	}
}

// documentation reads a URL that people are sent to.
func (o *object) documentation(into *string) {
	if !o.text("documentation", into) {
		return
	}
	if u, err := url.Parse(*into); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil {
		o.fault("documentation", "must be a URL like https://docs.example/limits, without a user or password")
	}
}

// share reads a percentage above lo, written with its sign.
func (o *object) share(name string, lo float64) (percent float64, ok bool) {
	s, ok := o.r.scalar(o.field(name))
	if !ok {
		return 0, false
	}
	percent, ok = parseShare(s.text, lo)
	if !ok {
		o.fault(name, "must be a share like 10%%, above %g%% and at most 100%%, not %s", lo, s.shown)
	}
	return percent, ok
}

// parseShare reads "10%".
func parseShare(s string, lo float64) (float64, bool) {
	num, ok := strings.CutSuffix(strings.TrimSpace(s), "%")
	if !ok || num == "" || strings.Trim(num, "0123456789.") != "" {
		return 0, false
	}
	f, err := strconv.ParseFloat(num, 64)
	return f, err == nil && f > lo && f <= 100
}
