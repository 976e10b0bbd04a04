package provider

import (
	"errors"
	"net/url"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestJoin(t *testing.T) {
	for _, test := range []struct{ base, path, want string }{
		{"https://h.example", "", "https://h.example/"},
		{"https://h.example/", "/", "https://h.example/"},
		{"https://h.example", "/messages", "https://h.example/messages"},
		{"https://h.example/v1", "/messages", "https://h.example/v1/messages"},
		{"https://h.example/v1/", "/messages/", "https://h.example/v1/messages/"},
		{"https://h.example/v1", "", "https://h.example/v1"},
		{"https://h.example/v1", "?a=1", "https://h.example/v1?a=1"},
		{"https://h.example/v1", "/x?", "https://h.example/v1/x?"},
		{"https://h.example", "/x?u=//evil.example/..&v=a%0Ab&w=100%", "https://h.example/x?u=//evil.example/..&v=a%0Ab&w=100%"},
		{"https://h.example", "/x?q=é|{}\"", "https://h.example/x?q=%C3%A9%7C%7B%7D%22"},
		{"https://h.example", "/a//b", "https://h.example/a//b"},
		{"https://h.example", "/@evil.example", "https://h.example/@evil.example"},
		{"https://h.example", "/user:pw@evil.example/", "https://h.example/user:pw@evil.example/"},
		{"https://h.example", "/http://evil.example/", "https://h.example/http://evil.example/"},
		{"https://h.example", "/a%2Fb", "https://h.example/a%2Fb"},
		{"https://h.example", "/é/a%2Fb", "https://h.example/%C3%A9/a%2Fb"},
		{"https://h.example", "/a%20b;v=1,2/...", "https://h.example/a%20b;v=1,2/..."},
		{"https://h.example", "/..a/a../.well-known", "https://h.example/..a/a../.well-known"},
		{"https://h.example/a%2Fb", "/c", "https://h.example/a%2Fb/c"},
		{"https://h.example", "/a<b>^`\"{|}", "https://h.example/a%3Cb%3E%5E%60%22%7B%7C%7D"},
		{"https://h.example", "/100%25", "https://h.example/100%25"},
		{"http://[::1]:8080/v1", "/x", "http://[::1]:8080/v1/x"},
		{"HTTPS://H.example:8443", "/x", "https://H.example:8443/x"},
	} {
		b, err := parseBase(test.base)
		if err != nil {
			t.Errorf("%s: %v", test.base, err)
			continue
		}
		u, err := b.join(test.path)
		if err != nil || u.String() != test.want {
			t.Errorf("%s and %q: %v, %v; want %s", test.base, test.path, u, err, test.want)
		}
	}
}

func TestJoinRefuses(t *testing.T) {
	bases := []string{"https://h.example", "https://h.example/", "https://h.example/v1", "https://h.example/v1/"}
	for _, path := range []string{
		"//evil.example", "//evil.example/x", "///evil.example", "////", "/\\evil.example", "\\\\evil.example", "/a\\b",
		"http://evil.example/", "https://h.example/x", "HTTP://evil.example", "ftp://evil.example", "javascript:1", "mailto:a@b",
		"@evil.example", "@evil.example/x", ":80/x", ":pw@evil.example", ".evil.example", "evil.example", "x", "*", "%2F/x", "%2e",
		"/..", "/../", "/../x", "/a/../../x", "/a/..", "/.", "/./x", "/a/./b", "/..?x", "/..;/x", "/..;a=b/x", "/.;/x",
		"/%2e%2e/x", "/%2E%2e", "/.%2e/x", "/%2e./x", "/%2e", "/a/%2e%2e%2fb", "/..%2fx", "/..%5cx", "/%5c..%5cx", "/a%5C..",
		"/%252e%252e/x", "/%25252e%25252e/x", "/..%252fx", "/%2e%2e;/x", "/..%3bx/y",
		"/" + "%" + strings.Repeat("25", 40) + "2e",
		"/a b", "/a\tb", "/a\r\nHost: evil.example", "/a\nb", "/a\x00b", "/a\x7fb", " /a", "/a ", "\r\n/a",
		"/a%0d%0aHost:%20evil.example", "/a%00", "/a%0a", "/a%250a", "/%7f",
		"/a%", "/a%2", "/a%zz", "/a%2g", "/%%32e%%32e",
		"/a#b", "#", "/#/x", "/x?a=b#c",
		"/x?a b", "/x?a\r\nb", "/x?\x00", "/x?a\tb", "/x?a\x7f",
	} {
		for _, base := range bases {
			b, err := parseBase(base)
			if err != nil {
				t.Fatal(err)
			}
			u, err := b.join(path)
			if !errors.Is(err, ErrUnsendable) {
				t.Errorf("%s and %q: joined to %v, error %v", base, path, u, err)
			}
		}
	}
}

// TestJoinNeverLeaves joins anything and looks at the result as others would.
func TestJoinNeverLeaves(t *testing.T) {
	pieces := rapid.OneOf(
		rapid.SampledFrom([]string{"/", "\\", ".", "..", "%2e", "%2F", "%5c", "%25", "//", "@", ":", "?", "#", ";", "evil.example", "http:", "\r\n", "a", "é", "%", "%00", " "}),
		rapid.String())
	joined := 0
	rapid.Check(t, func(t *rapid.T) {
		b, err := parseBase(rapid.SampledFrom([]string{"https://h.example", "http://h.example:81/v1", "https://u:p@h.example/a/b/"}).Draw(t, "base"))
		if err != nil {
			t.Fatal(err)
		}
		path := rapid.SampledFrom([]string{"", "/", "/x"}).Draw(t, "start") + strings.Join(rapid.SliceOfN(pieces, 0, 6).Draw(t, "pieces"), "")
		u, err := b.join(path)
		if err != nil {
			if !errors.Is(err, ErrUnsendable) {
				t.Fatalf("%q: %v", path, err)
			}
			return
		}
		joined++
		again, err := url.Parse(u.String())
		if err != nil || again.Scheme != b.scheme || again.Host != b.host || again.User != nil || again.Fragment != "" {
			t.Fatalf("%q became %v (%v)", path, again, err)
		}
		if !strings.HasPrefix(u.RequestURI(), b.path) || strings.ContainsFunc(u.RequestURI(), func(r rune) bool { return r <= ' ' || r >= 0x7f || r == '\\' }) {
			t.Fatalf("%q is sent as %q", path, u.RequestURI())
		}
		if clean := u.JoinPath().EscapedPath(); !strings.HasPrefix(clean, b.path) {
			t.Fatalf("%q is %q once cleaned", path, clean)
		}
	})
	if joined == 0 {
		t.Error("no path was joined: the test tests nothing")
	}
}

func TestBaseURLRefused(t *testing.T) {
	for _, raw := range []string{
		"", "h.example", "/x", "//h.example", "ftp://h.example", "file:///etc/passwd", "unix:/run/x", "https:h.example", "https://", "https:///x",
		"https://:443", "https://h.example:", "https://h.example:0", "https://h.example:65536", "https://h.example:-1", "https://h.example:x",
		"https://h.example?a=b", "https://h.example?", "https://h.example#a", "https://h.example/#", "https://h.example/a/../b", "https://h.example/%2e%2e/",
		"https://h example/", "https://a,b/", "https://a\\b/", "https://h.example\r\n/", "https://[::1", "https://[fe80::1%25eth0]/",
		"http://169.254.169.254/", "http://[fe80::1]/", "http://[::ffff:169.254.169.254]/", "http://[fd00:ec2::254]/", "http://[64:ff9b::a9fe:a9fe]/",
		"https://user:s3cret@h.example:bad/", "https://user:s3/cret@h.example/", "https://user:s3cret@h.exa mple/", "ftp://user:s3cret@h.example",
		"https://user:s3cret@h.example/?q", "https://user:s3cret@/x", "https://user:s3cret@169.254.169.254/",
	} {
		b, err := parseBase(raw)
		if err == nil {
			t.Errorf("%q taken as %+v", raw, b)
			continue
		}
		if !strings.Contains(err.Error(), "base_url") {
			t.Errorf("%q: the error names no field: %v", raw, err)
		}
		if strings.Contains(err.Error(), "s3") || strings.Contains(err.Error(), "cret") {
			t.Errorf("OUT-06: %q: the error quotes the password: %v", raw, err)
		}
	}
}
