package config

import (
	"encoding/base64"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/penstock-io/penstock/internal/provider"
	"github.com/penstock-io/penstock/shaper"
)

var nameRE = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,62}$`)

// IsName reports whether s can name a provider or a namespace.
func IsName(s string) bool { return nameRE.MatchString(s) }

// providers reads every provider; there must be one.
func (r *reader) providers(root *object) []Provider {
	if !root.has("providers") {
		r.fault(0, "providers", "is missing; name at least one provider and its base_url")
		return nil
	}
	v := root.field("providers")
	if v.node == nil {
		return nil
	}
	before := len(r.faults)
	entries := r.entries(v)
	if len(entries) == 0 && len(r.faults) == before {
		root.fault("providers", "is empty; name at least one provider and its base_url")
	}
	var out []Provider
	for _, e := range entries {
		if !IsName(e.key) {
			r.fault(e.line, join("providers", e.key), "a provider's name must be [a-z0-9][a-z0-9._-]{0,62}")
			continue
		}
		if e.val.node == nil {
			r.fault(e.line, join("providers", e.key), "has no settings; it needs at least a base_url")
			continue
		}
		p := Provider{Name: e.key, Line: e.line}
		e.val.line = e.line
		r.provider(e.val, &p)
		out = append(out, p)
	}
	return out
}

func (r *reader) provider(v value, p *Provider) {
	before := len(r.faults)
	o := r.object(v, "providers.*", "base_url", "headers", "timeout", "max_body", "allow_private",
		"rate", "burst", "headroom", "concurrency", "retry", "keep", "sign", "when_store_away", "adaptive", "law", "budget")
	o.line = p.Line
	p.Timeout, p.MaxBody, p.Keep = DefaultTimeout, DefaultMaxBody, DefaultKeep
	p.Headers = r.headers(o)
	r.baseURL(o, p)
	o.duration("timeout", &p.Timeout, time.Millisecond, MaxTimeout)
	o.size("max_body", &p.MaxBody, 1, MaxMaxBody)
	o.duration("keep", &p.Keep, time.Minute, MaxKeep)
	r.limits(o, p)
	r.retry(o, p)
	r.sign(o, p)
	var word string
	o.word("when_store_away", &word, "stop", "local_share")
	r.adaptive(o, p)
	if len(r.faults) == before {
		r.relations(o, p)
		r.callable(o, p)
	}
}

// callable asks the room that makes the calls, whose word is the last.
func (r *reader) callable(o *object, p *Provider) {
	headers := make(map[string]string, len(p.Headers))
	for k, v := range p.Headers {
		headers[k] = v.Reveal()
	}
	call, err := provider.New(provider.Config{Name: p.Name, BaseURL: p.BaseURL, Headers: headers, Timeout: p.Timeout, AllowPrivate: p.AllowPrivate, Again: p.Retry.Again})
	if err != nil {
		o.fault("base_url", "%s", strings.TrimPrefix(strings.TrimPrefix(err.Error(), "provider "+p.Name+": "), "base_url: "))
		return
	}
	call.Close()
}

// baseURL reads base_url and allow_private.
func (r *reader) baseURL(o *object, p *Provider) {
	if !o.text("base_url", &p.BaseURL) {
		if !o.has("base_url") {
			o.fault("base_url", "is missing; it is where the calls go, like https://sms.example")
		}
		o.flag("allow_private", &p.AllowPrivate)
		return
	}
	host, why := checkBaseURL(p.BaseURL)
	if why != "" {
		o.fault("base_url", "%s", why)
		p.BaseURL = ""
	}
	r.moveLogin(o, p)
	o.flag("allow_private", &p.AllowPrivate)
	if isPrivateLiteral(host) && o.has("allow_private") && !p.AllowPrivate {
		o.fault("allow_private", "is false, but base_url names a private or loopback address; change one of the two")
	}
}

// moveLogin takes a user and password out of base_url, which is shown, and makes
// them the header Authorization, which is not.
func (r *reader) moveLogin(o *object, p *Provider) {
	u, err := url.Parse(p.BaseURL)
	if err != nil || u.User == nil {
		return
	}
	pw, _ := u.User.Password()
	if p.Headers["Authorization"] != "" {
		o.fault("base_url", "holds a user or password, and headers sets Authorization; keep one of the two")
	}
	if p.Headers == nil {
		p.Headers = map[string]Secret{}
	}
	login := base64.StdEncoding.EncodeToString([]byte(u.User.Username() + ":" + pw))
	p.Headers["Authorization"] = Secret("Basic " + login)
	u.User = nil
	p.BaseURL = u.String()
}

// checkBaseURL says what is wrong with a provider's address, or "". What it
// says never repeats the URL: it may hold a password.
func checkBaseURL(s string) (host, why string) {
	u, err := url.Parse(s)
	switch {
	case err != nil:
		return "", "is not a URL; write https://host/path"
	case u.Scheme != "http" && u.Scheme != "https":
		return "", "must begin with http:// or https://"
	case u.Opaque != "" || u.Hostname() == "":
		return "", "names no host; write https://host/path"
	case u.RawQuery != "" || u.ForceQuery:
		return "", "has a query (?…); a job's path may have one, base_url may not"
	case u.Fragment != "" || strings.HasSuffix(s, "#"):
		return "", "has a fragment (#…), which is never sent"
	case !validPort(u):
		return "", "its port must be a number from 1 to 65535"
	}
	host = u.Hostname()
	a, err := netip.ParseAddr(host)
	switch {
	case err != nil && !isHostname(host):
		return host, "its host is neither an address nor a name"
	case err == nil && (a.Unmap().IsLinkLocalUnicast() || a.IsMulticast() || a.IsUnspecified()):
		return host, "names an address that is never called: link-local (metadata services), multicast or unspecified"
	}
	return host, ""
}

// validPort accepts no port at all, or 1 to 65535.
func validPort(u *url.URL) bool {
	if !strings.HasSuffix(u.Host, ":") && u.Port() == "" {
		return true
	}
	n, err := strconv.Atoi(u.Port())
	return err == nil && n >= 1 && n <= 65535
}

func isPrivateLiteral(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	a, err := netip.ParseAddr(host)
	if err != nil {
		return false
	}
	a = a.Unmap()
	return a.IsLoopback() || a.IsPrivate()
}

// reserved headers are Penstock's own or the connection's.
var reserved = map[string]string{
	"Host":              "it is base_url's host",
	"Content-Length":    "it is counted for each call",
	"Transfer-Encoding": "it belongs to the connection",
	"Connection":        "it belongs to the connection",
	"Upgrade":           "it belongs to the connection",
	"Trailer":           "it belongs to the connection",
	"Te":                "it belongs to the connection",
	"Keep-Alive":        "it belongs to the connection",
	"Proxy-Connection":  "it belongs to the connection",
	"Idempotency-Key":   "it is each job's own",
}

func (r *reader) headers(o *object) map[string]Secret {
	var out map[string]Secret
	for _, e := range r.entries(o.field("headers")) {
		name, path := http.CanonicalHeaderKey(e.key), join(o.path, "headers."+e.key)
		s, ok := r.scalar(e.val)
		switch {
		case e.val.node == nil:
			r.fault(e.line, path, "has no value")
		case !ok:
		case !httpguts.ValidHeaderFieldName(e.key):
			r.fault(e.line, path, "is not the name of a header")
		case reserved[name] != "":
			r.fault(e.line, path, "cannot be set: %s", reserved[name])
		case out[name] != "":
			r.fault(e.line, path, "is set twice; case makes no difference in a header's name")
		case strings.TrimSpace(s.text) == "":
			r.fault(e.line, path, "is empty; set the variable it is read from, or take it out")
		case !httpguts.ValidHeaderFieldValue(s.text):
			r.fault(e.line, path, "its value holds a line break or another character that no header can carry")
		default:
			if out == nil {
				out = map[string]Secret{}
			}
			out[name] = Secret(s.text)
		}
	}
	return out
}

func (r *reader) limits(o *object, p *Provider) {
	l := &p.Limits
	o.rate("rate", &l.Rate)
	o.whole("burst", &l.Burst, 1, shaper.MaxBurst)
	o.whole("concurrency", &l.Concurrency, 1, shaper.MaxConcurrency)
	if o.has("headroom") {
		o.duration("headroom", &l.Headroom, 0, shaper.MaxHeadroom)
		if l.Headroom == 0 {
			l.Headroom = shaper.NoHeadroom
		}
	}
	*l = l.Normal()
	if err := l.Validate(); err != nil {
		o.fault("burst", "%s", strings.TrimPrefix(err.Error(), shaper.ErrBadLimit.Error()+": "))
	}
}

func (r *reader) retry(o *object, p *Provider) {
	p.Retry = Retry{Attempts: DefaultAttempts, Base: DefaultBase, Max: DefaultMax, MaxAge: DefaultMaxAge}
	if !o.has("retry") {
		return
	}
	t := r.object(o.field("retry"), "providers.*.retry", "attempts", "base", "max", "max_age", "again")
	before := len(r.faults)
	t.whole("attempts", &p.Retry.Attempts, 1, MaxAttempts)
	t.duration("base", &p.Retry.Base, time.Millisecond, 24*time.Hour)
	t.duration("max", &p.Retry.Max, time.Millisecond, 7*24*time.Hour)
	t.duration("max_age", &p.Retry.MaxAge, time.Second, MaxKeep)
	p.Retry.Again = r.again(t)
	if len(r.faults) > before {
		return
	}
	if p.Retry.Max < p.Retry.Base {
		if !t.has("max") {
			t.fault("base", "is %s, longer than max, which is %s where it is left out; set max", FormatDuration(p.Retry.Base), FormatDuration(p.Retry.Max))
			return
		}
		t.fault("max", "must be at least base (%s), not %s", FormatDuration(p.Retry.Base), FormatDuration(p.Retry.Max))
	}
}

// again reads the statuses after which a job is tried again where it would be dead.
func (r *reader) again(t *object) []int {
	var out []int
	for _, item := range r.items(t.field("again")) {
		s, ok := r.scalar(item)
		if !ok {
			continue
		}
		n, err := strconv.Atoi(s.text)
		switch {
		case err != nil || s.quoted || n < 400 || n > 499:
			r.fault(item.line, item.path, "must be a status from 400 to 499, not %s; others have a meaning of their own", s.shown)
		case slices.Contains(decided, n):
			r.fault(item.line, item.path, "%d has a meaning of its own and cannot be changed", n)
		default:
			out = append(out, n)
		}
	}
	return out
}

// decided statuses are acted on by what they mean; see internal/provider.
var decided = []int{401, 403, 407, 408, 425, 429}
