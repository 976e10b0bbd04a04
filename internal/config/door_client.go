package config

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
)

// clients reads what is known of the holders of tokens.
func (r *doorReader) clients() {
	for _, item := range r.items(r.o.field("clients")) {
		o := r.object(item, "door.clients", "token", "organisation", "plan")
		var c DoorClient
		switch {
		case !o.text("token", &c.Token):
			if !o.has("token") {
				o.fault("token", "is missing; it is the name of a token in auth")
			}
			continue
		case !r.isToken(c.Token):
			o.fault("token", "there is no token %s in auth; %s", r.shown(o.field("token")), r.knownTokens(c.Token))
			continue
		case slices.ContainsFunc(r.d.Clients, func(x DoorClient) bool { return x.Token == c.Token }):
			o.fault("token", "%q stands here twice", clip(c.Token))
			continue
		}
		for _, f := range []struct {
			name string
			into *string
		}{{"organisation", &c.Organisation}, {"plan", &c.Plan}} {
			if o.text(f.name, f.into) && !IsName(*f.into) {
				o.fault(f.name, "must be [a-z0-9][a-z0-9._-]{0,62}")
			}
		}
		if !o.has("organisation") && !o.has("plan") {
			o.fault("token", "nothing is said of it; give it an organisation or a plan, or take it out")
		}
		r.d.Clients = append(r.d.Clients, c)
	}
}

func (r *doorReader) isToken(name string) bool { return slices.Contains(r.tokens, name) }

// knownTokens helps with a name that is none.
func (r *doorReader) knownTokens(given string) string {
	if len(r.tokens) == 0 {
		return "auth has none at all"
	}
	return didYouMean("door.tokens", given, r.tokens)
}

// doorPlans looks whether plans have clients, and clients' plans have rules.
func (r *doorReader) doorPlans() {
	used, said := map[string]bool{}, map[string]bool{}
	for _, c := range r.d.Clients {
		used[c.Plan] = c.Plan != ""
	}
	for i, rule := range r.d.Rules {
		for _, plan := range slices.Sorted(maps.Keys(rule.Plans)) {
			if !used[plan] {
				r.warn(rule.Line, fmt.Sprintf("door.rules[%d].plans.%s", i, clip(plan)), "no client has this plan; name one in door.clients")
			}
			said[plan] = true
		}
	}
	for _, c := range r.d.Clients {
		if c.Plan != "" && !said[c.Plan] && len(r.d.Rules) > 0 {
			r.o.warn("clients", "plan %s of %s changes nothing: no rule has such a plan", c.Plan, clip(c.Token))
		}
	}
}

// list reads who is denied, or allowed.
func (r *doorReader) list(name string) DoorList {
	var l DoorList
	if !r.o.has(name) || r.o.field(name).node == nil {
		return l
	}
	before := len(r.faults)
	o := r.object(r.o.field(name), "door.deny", "addresses", "tokens", "organisations")
	o.line = r.o.at(name)
	l.Addresses = r.prefixes(o, "addresses")
	for _, item := range r.items(o.field("tokens")) {
		s, ok := r.itemText(item)
		switch {
		case !ok:
		case !r.isToken(s):
			r.fault(item.line, item.path, "there is no token %s in auth; %s", r.shown(item), r.knownTokens(s))
		default:
			l.Tokens = append(l.Tokens, s)
		}
	}
	var known []string
	for _, c := range r.d.Clients {
		if c.Organisation != "" {
			known = append(known, c.Organisation)
		}
	}
	for _, item := range r.items(o.field("organisations")) {
		s, ok := r.itemText(item)
		switch {
		case !ok:
		case !slices.Contains(known, s):
			r.fault(item.line, item.path, "no client of door.clients belongs to %s", r.shown(item))
		default:
			l.Organisations = append(l.Organisations, s)
		}
	}
	if len(l.Addresses)+len(l.Tokens)+len(l.Organisations) == 0 && len(r.faults) == before {
		r.o.fault(name, "names nobody; give addresses, tokens or organisations, or take it out")
	}
	for _, p := range l.Addresses {
		if p.Bits() == 0 {
			o.warn("addresses", "%s is everybody", p)
		}
	}
	return l
}

// prefixes reads a list of addresses and networks.
func (r *doorReader) prefixes(o *object, name string) []netip.Prefix {
	var out []netip.Prefix
	for _, item := range r.items(o.field(name)) {
		s, ok := r.itemText(item)
		if !ok {
			continue
		}
		p, why := parsePrefix(s)
		if why != "" {
			r.fault(item.line, item.path, "%s, not %s", why, r.shown(item))
			continue
		}
		out = append(out, p)
	}
	return out
}

// parsePrefix reads 192.0.2.1, 192.0.2.0/24 or 2001:db8::/32.
func parsePrefix(s string) (netip.Prefix, string) {
	const form = "must be an address or a network, like 192.0.2.7, 10.0.0.0/8 or 2001:db8::/32"
	if a, err := netip.ParseAddr(s); err == nil {
		if a.Zone() != "" {
			return netip.Prefix{}, "must be without a zone (%…)"
		}
		a = a.Unmap()
		return netip.PrefixFrom(a, a.BitLen()), ""
	}
	p, err := netip.ParsePrefix(s)
	switch {
	case err != nil:
		return p, form
	case p.Addr().Is4In6():
		return p, "must be written as IPv4"
	case p != p.Masked():
		return p, "has bits beyond its length; write " + p.Masked().String()
	}
	return p, ""
}
