package config

import (
	"path"
	"slices"
	"strings"
)

// path reads the path of the requests.
func (r *hookReader) path() {
	h := r.h
	if !r.o.text("path", &h.Path) {
		if !r.o.has("path") {
			r.o.fault("path", "is missing; it is where the sender posts to, like /hooks/%s", h.Config.Name)
		}
		return
	}
	if why := checkWebhookPath(h.Path); why != "" {
		r.o.fault("path", "%s", why)
		h.Path = ""
	}
}

// ownPath refuses the path of another webhook.
func (r *hookReader) ownPath(others []Webhook) {
	for _, other := range others {
		if r.h.Path != "" && other.Path == r.h.Path {
			r.o.fault("path", "%s is the path of webhook %s on line %d; each needs its own", r.h.Path, other.Config.Name, other.Line)
		}
	}
}

// checkWebhookPath says what is wrong with a path, or "".
func checkWebhookPath(p string) string {
	odd := func(c rune) bool { return c <= ' ' || c > '~' || strings.ContainsRune(`?#%\`, c) }
	switch {
	case !strings.HasPrefix(p, "/"):
		return "must begin with a slash, like /hooks/stripe"
	case len(p) > 1024:
		return "is longer than 1024 characters"
	case strings.ContainsFunc(p, odd):
		return `must be a plain path in ASCII: without a space, a query, or one of # % \`
	case path.Clean(p) != p && path.Clean(p)+"/" != p:
		return "must not have // or the segments . and .."
	case IsReservedPath(p):
		return "is a path of Penstock's own API; take another, like /hooks/stripe"
	}
	return ""
}

// reservedPaths are the HTTP API's own. Those that end with a slash stand for
// all below them, too, but for the root.
var reservedPaths = []string{"/", "/healthz", "/readyz", "/metrics", "/login", "/logout", "/v1/", "/queues/", "/assets/", "/static/", "/debug/"}

// IsReservedPath reports whether the HTTP API keeps a path for itself.
func IsReservedPath(p string) bool {
	return slices.ContainsFunc(reservedPaths, func(own string) bool {
		bare := strings.TrimSuffix(own, "/")
		return p == own || p == bare || p == own+"/" || bare != own && bare != "" && strings.HasPrefix(p, own)
	})
}
