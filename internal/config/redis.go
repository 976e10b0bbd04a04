package config

import (
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
)

// Redis is where the jobs are kept.
type Redis struct {
	// Embedded: a store in this process's memory, gone when it ends.
	Embedded bool
	// Addrs are one server's address, a cluster's seeds, or the sentinels'.
	Addrs []string
	// Cluster says that Addrs are a cluster's.
	Cluster bool
	// Master is the name the sentinels know the primary by. Set: Addrs are
	// sentinels.
	Master string
	// Username (ACL) and Password of the data nodes. Empty: none.
	Username string
	Password Secret
	// SentinelUsername and SentinelPassword are the sentinels' own.
	SentinelUsername string
	SentinelPassword Secret
	// DB is the database's number. Always 0 in a cluster.
	DB int
	// TLS is nil for a plain connection.
	TLS *TLS
	// Namespace keeps several installations on one Redis apart.
	Namespace string
}

// TLS says how a server is verified. The zero value verifies it by its host's
// name against the system's authorities. Verification cannot be turned off.
type TLS struct {
	// CA, Cert and Key are PEM files. Cert and Key go together.
	CA, Cert, Key string
	// ServerName is the name in the server's certificate, where it is not the
	// host's.
	ServerName string
}

// maxDB bounds a database's number; Redis has 16 unless told otherwise.
const maxDB = 1<<20 - 1

// redis reads the redis section, or gives its default.
func (r *reader) redis(root *object) Redis {
	if !root.has("redis") {
		red, _ := ParseRedisURL(DefaultRedis)
		return red
	}
	v := root.field("redis")
	if s, ok := r.plainText(v); ok {
		red, why := ParseRedisURL(s)
		if why != "" {
			r.fault(v.line, v.path, "%s", why)
		}
		return red
	}
	o := r.object(v, "redis", "url", "cluster", "sentinel", "username", "password", "db", "tls", "namespace")
	red := r.redisServers(o)
	r.redisLogin(o, &red)
	red.TLS = r.redisTLS(o, &red)
	if o.text("namespace", &red.Namespace) && !IsName(red.Namespace) {
		o.fault("namespace", "must be [a-z0-9][a-z0-9._-]{0,62}, not %q", clip(red.Namespace))
	}
	return red
}

// plainText reads `redis: embedded` and `redis: redis://…`.
func (r *reader) plainText(v value) (string, bool) {
	switch kindOf(v.node) {
	case "a mapping", "a list":
		return "", false
	}
	s, _ := r.scalar(v)
	return s.text, true
}

// redisServers reads url, cluster or sentinel: exactly one of them.
func (r *reader) redisServers(o *object) Redis {
	var red Redis
	var kinds []string
	for _, k := range []string{"url", "cluster", "sentinel"} {
		if o.has(k) {
			kinds = append(kinds, k)
		}
	}
	if len(kinds) > 1 {
		o.fault(kinds[1], "%s and %s exclude each other; keep one", kinds[0], kinds[1])
	}
	switch {
	case len(kinds) == 0:
		red, _ = ParseRedisURL(DefaultRedis)
	case kinds[0] == "url":
		var s string
		if o.text("url", &s) {
			var why string
			if red, why = ParseRedisURL(s); why != "" {
				o.fault("url", "%s", why)
			}
		}
	case kinds[0] == "cluster":
		red.Cluster = true
		red.Addrs = r.addrs(o, "cluster")
	case kinds[0] == "sentinel":
		r.sentinel(o, &red)
	}
	return red
}

func (r *reader) sentinel(o *object, red *Redis) {
	s := r.object(o.field("sentinel"), "redis.sentinel", "master", "addrs", "username", "password")
	if !s.text("master", &red.Master) && !s.has("master") || s.has("master") && strings.TrimSpace(red.Master) == "" {
		s.fault("master", "is missing; it is the name the sentinels know the primary by")
	}
	red.Addrs = r.addrs(s, "addrs")
	s.text("username", &red.SentinelUsername)
	s.secret("password", &red.SentinelPassword)
	if red.SentinelUsername != "" && red.SentinelPassword == "" && !s.has("password") {
		s.fault("username", "needs a password beside it")
	}
}

func (r *reader) addrs(o *object, name string) []string {
	var out []string
	before := len(r.faults)
	for _, item := range r.items(o.field(name)) {
		s, ok := r.scalar(item)
		if !ok {
			continue
		}
		host, port, err := net.SplitHostPort(s.text)
		n, perr := strconv.Atoi(port)
		if err != nil || perr != nil || host == "" || n < 1 || n > 65535 || strings.ContainsAny(s.text, "/@?# ") {
			r.fault(item.line, item.path, "must be host:port; user, password, database and TLS have their own fields")
			continue
		}
		out = append(out, s.text)
	}
	if len(out) == 0 && len(r.faults) == before {
		o.fault(name, "needs at least one host:port")
	}
	return out
}

// redisLogin reads username, password and db beside what the URL says.
func (r *reader) redisLogin(o *object, red *Redis) {
	var user string
	var pass Secret
	hasUser, hasPass := o.text("username", &user), o.secret("password", &pass)
	if red.Embedded {
		for _, k := range []string{"username", "password", "db", "tls"} {
			if o.has(k) {
				o.fault(k, "means nothing for the embedded store; take it out")
			}
		}
		return
	}
	if (hasUser && red.Username != "") || (hasPass && red.Password != "") {
		o.fault("url", "holds a user or password, and username or password stand beside it; keep one of the two")
	}
	if hasUser {
		red.Username = user
	}
	if hasPass {
		red.Password = pass
	}
	if hasUser && red.Password == "" {
		o.fault("username", "needs a password beside it; Redis logs nobody in by name alone")
	}
	if !o.has("db") {
		return
	}
	switch {
	case red.Cluster:
		o.fault("db", "a cluster has only database 0; take db out")
	case o.has("url"):
		o.fault("db", "stands in the URL: redis://host:port/%s", "N")
	default:
		o.whole("db", &red.DB, 0, maxDB)
	}
}

// redisTLS reads tls. rediss:// alone means TLS with its defaults.
func (r *reader) redisTLS(o *object, red *Redis) *TLS {
	if !o.has("tls") || red.Embedded {
		return red.TLS
	}
	t := TLS{}
	s := r.object(o.field("tls"), "redis.tls", "ca", "cert", "key", "server_name")
	s.text("ca", &t.CA)
	s.text("cert", &t.Cert)
	s.text("key", &t.Key)
	s.text("server_name", &t.ServerName)
	if (t.Cert == "") != (t.Key == "") {
		s.fault("cert", "cert and key go together: the client's certificate and its private key")
	}
	for _, f := range []struct{ name, path string }{{"ca", t.CA}, {"cert", t.Cert}, {"key", t.Key}} {
		if f.path == "" {
			continue
		}
		if _, err := os.Stat(f.path); err != nil {
			s.fault(f.name, "the file cannot be read: %v", unwrapPath(err))
		}
	}
	if o.has("url") && red.TLS == nil && len(red.Addrs) > 0 {
		o.fault("tls", "the URL says redis://, which is plain; write rediss:// for TLS")
	}
	return &t
}

// ParseRedisURL reads redis://[user[:password]@]host[:port][/db], the same with
// rediss for TLS, or "embedded". why says what is wrong and repeats nothing of
// the URL's credentials. Every part is used or refused.
func ParseRedisURL(s string) (red Redis, why string) {
	if s == "embedded" {
		return Redis{Embedded: true}, ""
	}
	u, err := url.Parse(s)
	if err != nil {
		return red, "is not redis://host:port/db; percent-encode special characters in a password, or put it in the field password"
	}
	switch u.Scheme {
	case "redis":
	case "rediss":
		red.TLS = &TLS{}
	case "redis-sentinel", "redis+sentinel", "rediss-sentinel":
		return red, "sentinels have their own setting: sentinel: {master: NAME, addrs: [host:port, …]}, with username, password, db and tls beside it"
	case "redis-cluster", "redis+cluster", "rediss-cluster":
		return red, "a cluster has its own setting: cluster: [host:port, …], with username, password and tls beside it"
	case "":
		return red, "must be redis://host:port/db, the same with rediss:// for TLS, or embedded"
	default:
		return red, "must begin with redis:// or rediss://; unix sockets and other schemes are not read"
	}
	if strings.HasSuffix(s, "#") {
		u.Fragment = "#"
	}
	if why := redisParts(u, &red); why != "" {
		return Redis{}, why
	}
	return red, ""
}

func redisParts(u *url.URL, red *Redis) string {
	switch {
	case u.Opaque != "" || u.Host == "" || u.Hostname() == "":
		return "names no host; write redis://host:port/db"
	case strings.Contains(u.Host, ","):
		return "names several hosts; write cluster: or sentinel: instead of url:"
	case u.RawQuery != "" || u.ForceQuery:
		return "has a query (?…), which is not read; user, password and database stand in the URL, TLS under tls"
	case u.Fragment != "":
		return "has a fragment (#…), which is not read; percent-encode a # in the password as %23"
	}
	port := u.Port()
	if port == "" {
		port = "6379"
	}
	if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 || strings.HasSuffix(u.Host, ":") {
		return "the port must be a number from 1 to 65535"
	}
	red.Addrs = []string{net.JoinHostPort(u.Hostname(), port)}
	if p := strings.Trim(u.Path, "/"); p != "" {
		n, err := strconv.Atoi(p)
		if err != nil || n < 0 || n > maxDB || strings.HasPrefix(p, "+") {
			return "the path must be the database's number, like /0"
		}
		red.DB = n
	}
	if u.User != nil {
		pw, has := u.User.Password()
		red.Username, red.Password = u.User.Username(), Secret(pw)
		if red.Username != "" && (!has || pw == "") {
			return "names a user without a password; write redis://user:password@host, or redis://:password@host for the default user"
		}
	}
	return ""
}
