package config

import (
	"net"
	"net/netip"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

// root reads the whole file into c.
func (r *reader) root(v value, c *Config) {
	if _, ok := v.node.(*ast.MappingNode); !ok {
		r.fault(v.line, "", "must be a mapping with redis, listen, auth and providers, not %s", kindOf(v.node))
		return
	}
	o := r.object(v, "", "redis", "listen", "auth", "log_keys", "providers", "webhooks", "spool", "door")
	c.Redis = r.redis(o)
	c.Listen = DefaultListen
	if o.text("listen", &c.Listen) {
		if why := checkListen(c.Listen); why != "" {
			o.fault("listen", "%s", why)
		}
	}
	c.Auth = r.auth(o)
	if o.has("listen") && !c.Auth.Any() && checkListen(c.Listen) == "" && !IsLoopback(c.Listen) && !o.has("auth") {
		o.fault("listen", "%s can be reached from other machines, and there is no token; add auth.operators, or listen on 127.0.0.1", c.Listen)
	}
	o.flag("log_keys", &c.LogKeys)
	c.Providers = r.providers(o)
	r.webhooks(o, c)
	r.spool(o, c)
	r.door(o, c)
}

// checkListen says what is wrong with an address to listen on, or "".
func checkListen(s string) string {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return "must be host:port, like 127.0.0.1:8080"
	}
	if n, err := strconv.Atoi(port); err != nil || n < 0 || n > 65535 {
		return "the port must be a number from 0 to 65535"
	}
	if host == "" || host == "localhost" {
		return ""
	}
	if _, err := netip.ParseAddr(host); err != nil && !isHostname(host) {
		return "the host is neither an address nor a name"
	}
	return ""
}

// IsLoopback reports whether only this machine can reach the address host:port.
// A name other than localhost may resolve to anything and counts as no.
func IsLoopback(listen string) bool {
	host, _, err := net.SplitHostPort(listen)
	if err != nil {
		return false
	}
	if strings.EqualFold(host, "localhost") {
		return true
	}
	a, err := netip.ParseAddr(host)
	return err == nil && a.IsLoopback()
}

func isHostname(s string) bool {
	if s == "" || len(s) > 253 {
		return false
	}
	for label := range strings.SplitSeq(strings.TrimSuffix(s, "."), ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
		for _, c := range label {
			if c != '-' && c != '_' && (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') {
				return false
			}
		}
	}
	return true
}

// minToken is the length below which a token is warned of: 16 random
// characters of base64 are 96 bits.
const minToken = 16

// auth reads the tokens.
func (r *reader) auth(root *object) Auth {
	var a Auth
	if !root.has("auth") {
		return a
	}
	o := r.object(root.field("auth"), "auth", "producers", "operators")
	seen := map[Secret]string{}
	before := len(r.faults)
	a.Producers = r.tokens(o.field("producers"), seen)
	a.Operators = r.tokens(o.field("operators"), seen)
	switch {
	case len(r.faults) > before:
	case !a.Any():
		root.fault("auth", "holds no token; add operators, or take auth out and listen on loopback only")
	case len(a.Operators) == 0:
		root.warn("auth", "there are no operators: nobody may see the queues or change a limit")
	}
	return a
}

func (r *reader) tokens(list value, seen map[Secret]string) []Token {
	var out []Token
	names := map[string]bool{}
	for _, item := range r.items(list) {
		o := r.object(item, "auth.*", "name", "token")
		var t Token
		if !o.text("name", &t.Name) && !o.has("name") {
			o.fault("name", "is missing; the log names the caller by it")
		}
		if names[t.Name] && t.Name != "" {
			o.fault("name", "%q stands here twice", clip(t.Name))
		}
		names[t.Name] = true
		if !o.secret("token", &t.Secret) {
			if !o.has("token") {
				o.fault("token", `is missing; write token: "${NAME}" and set the variable`)
			}
			continue
		}
		r.checkToken(o, t, seen)
		out = append(out, t)
	}
	return out
}

func (r *reader) checkToken(o *object, t Token, seen map[Secret]string) {
	s := t.Secret.Reveal()
	if s == "" {
		o.fault("token", "is empty; set the variable it is read from")
		return
	}
	for _, c := range []byte(s) {
		if c <= ' ' || c > '~' {
			o.fault("token", "holds a space or a character that no HTTP header can carry; use letters, digits and punctuation")
			return
		}
	}
	if other, ok := seen[t.Secret]; ok {
		o.fault("token", "is the same as that of %q; every caller needs its own", other)
	}
	seen[t.Secret] = clip(t.Name)
	if len(s) < minToken {
		o.warn("token", "is shorter than %d characters and can be guessed; openssl rand -base64 24 makes a good one", minToken)
	}
}
