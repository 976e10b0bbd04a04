package api

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// Token is a caller's bearer token.
type Token struct {
	// Name is what the log calls the caller.
	Name string
	// Secret is what the caller sends. Must not be empty.
	Secret string
	// Operator may do everything; others may use jobs only.
	Operator bool
}

// role is what a caller may do.
type role int

const (
	anyone   role = iota // not even a token
	producer             // jobs
	operator             // everything
)

// caller is who sent a request.
type caller struct {
	name string
	role role
}

type callerKey struct{}

// callerOf is who the guard let through.
func callerOf(ctx context.Context) caller {
	c, _ := ctx.Value(callerKey{}).(caller)
	return c
}

// door decides who may pass. The zero value lets everyone be an operator.
type door struct {
	known []knownToken
	cross *http.CrossOriginProtection
}

// knownToken is a token's hash: equal lengths make the comparison constant.
type knownToken struct {
	hash [sha256.Size]byte
	caller
	// sessions signs this operator's sessions.
	sessions [sha256.Size]byte
}

func newDoor(tokens []Token) *door {
	d := &door{cross: http.NewCrossOriginProtection()}
	for _, t := range tokens {
		k := knownToken{
			hash:     sha256.Sum256([]byte(t.Secret)),
			caller:   caller{name: t.Name, role: producer},
			sessions: sha256.Sum256([]byte("penstock session\x00" + t.Secret)),
		}
		if t.Operator {
			k.role = operator
		}
		d.known = append(d.known, k)
	}
	return d
}

// open says that there are no tokens.
func (d *door) open() bool { return len(d.known) == 0 }

// token finds who has this secret, or nil. It compares with every known one,
// each in constant time.
func (d *door) token(secret string) *knownToken {
	h := sha256.Sum256([]byte(secret))
	var found *knownToken
	for i := range d.known {
		if subtle.ConstantTimeCompare(h[:], d.known[i].hash[:]) == 1 {
			found = &d.known[i]
		}
	}
	return found
}

// identify finds who sends a request.
func (d *door) identify(r *http.Request) (caller, *Problem) {
	if d.open() {
		return d.loopback(r)
	}
	auth := r.Header.Values("Authorization")
	if len(auth) > 0 {
		scheme, secret, _ := strings.Cut(auth[0], " ")
		if len(auth) == 1 && strings.EqualFold(scheme, "Bearer") {
			if k := d.token(strings.TrimSpace(secret)); k != nil {
				return k.caller, nil
			}
		}
		return caller{}, problem(CodeUnauthorized, "send Authorization: Bearer TOKEN, with a token of the server's auth section", "the token is not known")
	}
	if c, ok := d.session(r); ok {
		if err := d.cross.Check(r); err != nil {
			return caller{}, problem(CodeForbidden, "use the server's own pages, or a token", "another site's page sent this request")
		}
		return c, nil
	}
	return caller{}, problem(CodeUnauthorized, "send Authorization: Bearer TOKEN, with a token of the server's auth section", "no token was sent")
}

// loopback is the rule without tokens: only a loopback name in Host (another
// name that resolves to this machine is how a foreign page gets here), and no
// request that another site's page sends.
func (d *door) loopback(r *http.Request) (caller, *Problem) {
	if !loopbackHost(r.Host) {
		return caller{}, problem(CodeForbidden, "use localhost or 127.0.0.1, or configure tokens", "the server has no tokens and serves only loopback names, not this Host")
	}
	if err := d.cross.Check(r); err != nil {
		return caller{}, problem(CodeForbidden, "call the server from its own pages or from a program", "another site's page sent this request")
	}
	return caller{name: "local", role: operator}, nil
}

// loopbackHost reports whether a Host header names this machine only.
func loopbackHost(host string) bool {
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	name = strings.TrimSuffix(strings.TrimPrefix(strings.TrimSuffix(name, "]"), "["), ".")
	if strings.EqualFold(name, "localhost") {
		return true
	}
	a, err := netip.ParseAddr(name)
	return err == nil && a.Unmap().IsLoopback()
}

// require wraps a handler that needs a role.
func (s *Server) require(need role, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, p := s.door.identify(r)
		if p == nil && c.role < need {
			p = problem(CodeForbidden, "use an operator's token", "%s is a producer and may use jobs only", c.name)
		}
		if p != nil {
			p.write(w)
			return
		}
		h.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), callerKey{}, c)))
	})
}
