package limithttp

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// Client is who sends a request.
type Client struct {
	// APIKey, or whatever names the caller. It is hashed wherever it is stored
	// or logged.
	APIKey string
	// Organisation the caller belongs to.
	Organisation string
	// Plan of the caller, for Rule.Plans.
	Plan string
	// Address of the caller; an IPv6 one with the bits beyond the prefix length
	// set to 0.
	Address netip.Addr
}

// addresses finds a request's address behind trusted proxies.
type addresses struct {
	trusted []netip.Prefix
	header  string
	v6      int
}

func newAddresses(cfg Config) (addresses, error) {
	a := addresses{trusted: cfg.TrustedProxies, header: cfg.ProxyHeader, v6: cfg.IPv6Prefix}
	if a.v6 == 0 {
		a.v6 = 64
	}
	if a.header == "" {
		a.header = "X-Forwarded-For"
	}
	a.header = http.CanonicalHeaderKey(a.header)
	switch {
	case a.v6 < 16 || a.v6 > 128:
		return a, fmt.Errorf("ipv6_prefix must be from 16 to 128 (0 means 64), not %d", cfg.IPv6Prefix)
	case a.header != "X-Forwarded-For" && a.header != "Forwarded" && len(strings.Fields(a.header)) != 1:
		return a, fmt.Errorf("proxy_header %q is not a header name", cfg.ProxyHeader)
	}
	for _, p := range a.trusted {
		if !p.IsValid() {
			return a, fmt.Errorf("trusted_proxies holds an invalid prefix")
		}
	}
	return a, nil
}

// of returns the client's address: of the connection, or, where that is a
// trusted proxy, the last one in the proxies' header that is not. What cannot
// be read ends the search: a client writes what it likes to the left of it.
func (a addresses) of(r *http.Request) netip.Addr {
	at := parseAddr(r.RemoteAddr)
	if !a.trusts(at) {
		return at
	}
	hops := a.hops(r.Header)
	for _, h := range slices.Backward(hops) {
		next := parseAddr(h)
		if !next.IsValid() {
			break
		}
		at = next
		if !a.trusts(at) {
			break
		}
	}
	return at
}

func (a addresses) trusts(at netip.Addr) bool {
	return at.IsValid() && slices.ContainsFunc(a.trusted, func(p netip.Prefix) bool { return p.Contains(at) })
}

// hops lists the addresses of the proxies' header, the nearest last.
func (a addresses) hops(h http.Header) []string {
	var out []string
	for _, item := range strings.Split(strings.Join(h.Values(a.header), ","), ",") {
		if a.header == "Forwarded" {
			item = forwardedFor(item)
		}
		out = append(out, strings.TrimSpace(item))
	}
	return out
}

// forwardedFor returns for= of one element of Forwarded (RFC 7239).
func forwardedFor(element string) string {
	for _, pair := range strings.Split(element, ";") {
		name, v, _ := strings.Cut(strings.TrimSpace(pair), "=")
		if strings.EqualFold(name, "for") {
			return strings.Trim(v, `"`)
		}
	}
	return ""
}

// parseAddr reads an address with or without a port; invalid if it is none.
func parseAddr(s string) netip.Addr {
	if ap, err := netip.ParseAddrPort(s); err == nil {
		return ap.Addr().Unmap().WithZone("")
	}
	if host, _, err := net.SplitHostPort(s); err == nil {
		s = host
	}
	at, err := netip.ParseAddr(strings.Trim(s, "[]"))
	if err != nil {
		return netip.Addr{}
	}
	return at.Unmap().WithZone("")
}

// mask keeps of an IPv6 address what its network is: whoever has a /64 has
// 2^64 addresses.
func (a addresses) mask(at netip.Addr) netip.Addr {
	if !at.Is6() {
		return at
	}
	p, err := at.Prefix(a.v6)
	if err != nil {
		return at
	}
	return p.Addr()
}

// keyOf reads an API key: a bearer token, or the header X-Api-Key. It is not
// verified here.
func keyOf(r *http.Request) string {
	if k := r.Header.Get("X-Api-Key"); k != "" {
		return k
	}
	kind, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if strings.EqualFold(kind, "Bearer") {
		return strings.TrimSpace(token)
	}
	return ""
}

// List names clients. The zero value names none.
type List struct {
	// Addresses, as prefixes.
	Addresses []netip.Prefix
	// APIKeys and Organisations, exactly.
	APIKeys, Organisations []string
	// Match, if set, names more of them, e.g. who has passed a challenge.
	Match func(*http.Request, Client) bool
}

// has reports whether the list names the client. full is the address before
// its IPv6 bits are dropped.
func (l List) has(r *http.Request, c Client, full netip.Addr) bool {
	return slices.ContainsFunc(l.Addresses, func(p netip.Prefix) bool { return full.IsValid() && p.Contains(full) }) ||
		c.APIKey != "" && slices.Contains(l.APIKeys, c.APIKey) ||
		c.Organisation != "" && slices.Contains(l.Organisations, c.Organisation) ||
		l.Match != nil && l.Match(r, c)
}
