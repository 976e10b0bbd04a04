package provider

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

// base is a provider's base URL, taken apart: the job's path is the only thing
// that is ever added to it.
type base struct {
	scheme string
	host   string // with the port, if one is named
	name   string // without the port
	path   string // escaped, without a slash at its end
	user   *url.Userinfo
}

// parseBase reads a base URL. Its errors quote nothing of it: it may hold a
// password in any place.
func parseBase(raw string) (base, error) {
	u, err := url.Parse(raw)
	switch {
	case raw == "":
		return base{}, errors.New("base_url is missing; write https://host[/path]")
	case err != nil:
		return base{}, errors.New("base_url is not a URL; write https://host[/path], and percent-encode what is special in a password")
	case u.Scheme != "http" && u.Scheme != "https":
		return base{}, errors.New("base_url must begin with https:// or http://")
	case u.Opaque != "" || u.Hostname() == "":
		return base{}, errors.New("base_url names no host; write https://host[/path]")
	case u.RawQuery != "" || u.ForceQuery || strings.Contains(raw, "#"):
		return base{}, errors.New("base_url must have no query and no fragment; they belong to a job's path")
	case strings.ContainsAny(u.Host, "\\%,;' "):
		return base{}, errors.New("base_url's host holds a character that no host name has")
	}
	if port := u.Port(); port != "" {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return base{}, errors.New("base_url's port must be between 1 and 65535")
		}
	} else if strings.HasSuffix(u.Host, ":") {
		return base{}, errors.New("base_url has a colon but no port after its host")
	}
	path, err := cleanPath(u.EscapedPath())
	if err != nil {
		return base{}, fmt.Errorf("base_url's path: %w", err)
	}
	b := base{scheme: u.Scheme, host: u.Host, name: u.Hostname(), path: strings.TrimRight(path, "/"), user: u.User}
	if addr, err := netip.ParseAddr(b.name); err == nil {
		if err := checkAddress(addr, private); err != nil {
			return base{}, fmt.Errorf("base_url: %w", err)
		}
	}
	return b, nil
}

// join puts a job's path (and query) behind the base URL. The result has the
// base URL's scheme and host and begins with its path, for every input; what
// could be read as leading elsewhere, by us or by a server less strict than
// net/url, is refused.
func (b base) join(path string) (*url.URL, error) {
	path, query, hasQuery := strings.Cut(path, "?")
	if path != "" && !strings.HasPrefix(path, "/") {
		return nil, unsendable("the path must begin with / (it is joined to the provider's base_url)")
	}
	if strings.HasPrefix(path, "//") {
		return nil, unsendable("the path must not begin with //, which would name another host")
	}
	path, err := cleanPath(path)
	if err != nil {
		return nil, unsendable("the path: " + err.Error())
	}
	query, err = cleanQuery(query)
	if err != nil {
		return nil, unsendable("the query: " + err.Error())
	}
	full := b.path + path
	if full == "" {
		full = "/"
	}
	decoded, err := url.PathUnescape(full)
	if err != nil {
		return nil, unsendable("the path: a % is not followed by two hexadecimal digits")
	}
	u := &url.URL{Scheme: b.scheme, Host: b.host, Path: decoded, RawPath: full, RawQuery: query, ForceQuery: hasQuery && query == ""}
	// What is checked above holds; what is sent is compared with it all the same.
	if again, err := url.Parse(u.String()); err != nil || again.Host != b.host || again.Scheme != b.scheme || again.User != nil || u.EscapedPath() != full {
		return nil, unsendable("the path cannot be written in a URL")
	}
	return u, nil
}

func unsendable(why string) error { return fmt.Errorf("%w: %s", ErrUnsendable, why) }

// cleanPath checks an escaped path and escapes what may not stand in one.
func cleanPath(path string) (string, error) {
	for i := range len(path) {
		switch c := path[i]; {
		case c <= ' ' || c == 0x7f:
			return "", errors.New("it holds a space or a control character; percent-encode it")
		case c == '\\':
			return "", errors.New(`it holds a \, which some servers take for a /`)
		case c == '#':
			return "", errors.New("it holds a fragment, which is never sent")
		case c == '%' && !(i+2 < len(path) && isHex(path[i+1]) && isHex(path[i+2])):
			return "", errors.New("a % is not followed by two hexadecimal digits")
		}
	}
	// A server behind a proxy may decode more than once.
	for decoded, rest := path, 5; ; rest-- {
		if err := checkSegments(decoded); err != nil {
			return "", err
		}
		next, err := url.PathUnescape(decoded)
		if err != nil || next == decoded {
			return escape(path, "/:@!$&'()*+,;=-._~%[]"), nil
		}
		if rest == 0 {
			return "", errors.New("it is percent-encoded many times over")
		}
		decoded = next
	}
}

// checkSegments refuses "." and ".." between whatever may count as a slash,
// with or without parameters behind a semicolon, and control characters.
func checkSegments(path string) error {
	for segment := range strings.FieldsFuncSeq(path, func(r rune) bool { return r == '/' || r == '\\' }) {
		name, _, _ := strings.Cut(segment, ";")
		if name == "." || name == ".." {
			return errors.New("it holds a . or .. segment")
		}
	}
	if strings.ContainsFunc(path, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return errors.New("it holds an encoded control character")
	}
	return nil
}

// cleanQuery checks a query and escapes what may not stand in one.
func cleanQuery(query string) (string, error) {
	for i := range len(query) {
		switch c := query[i]; {
		case c <= ' ' || c == 0x7f:
			return "", errors.New("it holds a space or a control character; percent-encode it")
		case c == '#':
			return "", errors.New("it holds a fragment, which is never sent")
		}
	}
	return escape(query, "/?:@!$&'()*+,;=-._~%[]"), nil
}

// escape percent-encodes every byte that is neither a letter, a digit nor in keep.
func escape(s, keep string) string {
	var out strings.Builder
	for i := range len(s) {
		c := s[i]
		if c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'z' || strings.IndexByte(keep, c) >= 0 {
			out.WriteByte(c)
			continue
		}
		fmt.Fprintf(&out, "%%%02X", c)
	}
	return out.String()
}

func isHex(c byte) bool {
	return c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'f'
}
