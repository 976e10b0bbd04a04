package config

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// by reads what clients are told apart by: one part, or a list that makes one key.
func (r *doorReader) by(o *object, rule *DoorRule) {
	v := o.field("by")
	if v.node == nil {
		return
	}
	items := []value{v}
	if !isScalar(v.node) {
		items = r.items(v)
	}
	for _, item := range items {
		s, ok := r.itemText(item)
		if !ok {
			continue
		}
		for alt := range strings.SplitSeq(s, "|") {
			if why := checkBy(alt); why != "" {
				r.fault(item.line, item.path, "%s", why)
				ok = false
			}
		}
		if ok && slices.Contains(rule.By, s) {
			r.fault(item.line, item.path, "%s stands here twice", clip(s))
			continue
		}
		if ok {
			rule.By = append(rule.By, s)
		}
	}
}

var bySources = []string{"token", "organisation", "address", "route"}

// checkBy says what is wrong with one source of a key, or "".
func checkBy(s string) string {
	if name, ok := strings.CutPrefix(s, "header:"); ok {
		if !httpguts.ValidHeaderFieldName(name) {
			return "header: must be followed by the name of a header, like header:X-Tenant"
		}
		if strings.EqualFold(name, "Authorization") || strings.EqualFold(name, "Cookie") {
			return "header:" + http.CanonicalHeaderKey(name) + " holds a secret; use token"
		}
		return ""
	}
	if slices.Contains(bySources, s) {
		return ""
	}
	hint := didYouMean("door.by", s, bySources)
	switch s {
	case "key", "api_key", "apikey", "producer", "operator":
		hint = "did you mean token?"
	case "ip", "addr", "remote_addr":
		hint = "did you mean address?"
	case "organization", "org":
		hint = "did you mean organisation?"
	case "path", "url":
		hint = "did you mean route?"
	}
	return fmt.Sprintf("%q is unknown (token, organisation, address, route, header:NAME, or several with | between); %s", clip(s), hint)
}

// routes reads the patterns that a rule is for.
func (r *doorReader) routes(o *object, rule *DoorRule) {
	for _, item := range r.items(o.field("routes")) {
		s, ok := r.itemText(item)
		switch why := r.checkRoute(s); {
		case !ok:
		case why != "":
			r.fault(item.line, item.path, "%s", why)
		case slices.Contains(rule.Routes, s):
			r.fault(item.line, item.path, "%s stands here twice", clip(s))
		default:
			rule.Routes = append(rule.Routes, s)
		}
	}
	if slices.ContainsFunc(rule.By, func(b string) bool { return slices.Contains(strings.Split(b, "|"), "route") }) && !o.has("routes") {
		o.fault("by", `route needs routes: the patterns that tell them apart, like ["POST /v1/jobs", "GET /v1/"]`)
	}
	if o.has("routes") && len(rule.Routes) == 0 && len(r.items(o.field("routes"))) == 0 {
		o.fault("routes", "is empty; name some, or take it out for all")
	}
}

// apiPaths are paths of the HTTP API, one of each kind, beside those of the
// webhooks. {provider} stands for each provider's name.
var apiPaths = []string{
	"/v1/jobs", "/v1/jobs:batch", "/v1/jobs/{provider}/1", "/v1/jobs/{provider}/1/why", "/v1/jobs/{provider}/1/replay",
	"/v1/providers", "/v1/providers/{provider}", "/v1/providers/{provider}/pause", "/v1/providers/{provider}/resume", "/v1/events",
	"/", "/login", "/logout", "/queues", "/queues/", "/queues/x", "/assets/x", "/static/x",
}

var routeMethods = []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions}

// checkRoute says what is wrong with a pattern, or "": a rule for requests that
// never come would look like a limit and be none.
func (r *doorReader) checkRoute(pattern string) (why string) {
	method, path, ok := strings.Cut(strings.TrimSpace(pattern), " ")
	if !ok {
		method, path = "", method
	}
	path = strings.TrimSpace(path)
	if method != "" && !slices.Contains(routeMethods, method) {
		return fmt.Sprintf("%q is not a method in capitals; write it like POST /v1/jobs", clip(method))
	}
	host, rest, ok := strings.Cut(path, "/")
	if !ok {
		return "must be a method and a path, like POST /v1/jobs, or a path"
	}
	if slices.Contains([]string{"/healthz", "/readyz", "/metrics"}, "/"+rest) {
		return "is never limited: whoever watches must see, most of all in a storm"
	}
	mux := http.NewServeMux()
	defer func() { // ServeMux has no other way to refuse a pattern
		if v := recover(); v != nil {
			why = "is not a pattern of http.ServeMux; write it like POST /v1/jobs or GET /v1/jobs/{provider}/{id}"
		}
	}()
	mux.Handle(pattern, http.NotFoundHandler())
	if method == "" {
		method = http.MethodPost
	}
	for _, p := range r.samples() {
		req := &http.Request{Method: method, Host: host, URL: &url.URL{Path: p}}
		if _, got := mux.Handler(req); got != "" {
			return ""
		}
	}
	return "matches no path that this server has; see the HTTP API, and the paths of webhooks"
}

// samples are paths that the server answers.
func (r *doorReader) samples() []string {
	out := slices.Clone(r.paths)
	for _, p := range apiPaths {
		if !strings.Contains(p, "{provider}") {
			out = append(out, p)
			continue
		}
		for _, name := range r.providers {
			out = append(out, strings.ReplaceAll(p, "{provider}", name))
		}
	}
	return out
}
