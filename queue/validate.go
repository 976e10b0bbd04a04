package queue

import (
	"fmt"
	"net/textproto"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/net/http/httpguts"
)

// Validate refuses what no provider's queue would take, naming the first
// field that is wrong (a FieldError). What depends on the provider (its body
// limit, the largest cost) is checked by Enqueue.
func (j Job) Validate() error {
	_, err := j.normal()
	return err
}

// normal returns the job with its defaults, checked. The id may still be empty.
func (j Job) normal() (Job, error) {
	if j.Method == "" && j.Type == "" {
		j.Method = "POST"
	}
	if j.Priority == "" {
		j.Priority = PriorityDefault
	}
	if j.Cost == 0 {
		j.Cost = 1
	}
	for _, check := range []func(*Job) error{
		checkNames, checkNotBuilt, checkCall, checkHeaders, checkIdempotency, checkTimes, checkNumbers,
	} {
		if err := check(&j); err != nil {
			return Job{}, err
		}
	}
	return j, nil
}

// CheckName refuses a provider's or a namespace's name that does not match
// [a-z0-9][a-z0-9._-]{0,62}. Such names need no escaping in keys, paths,
// metrics and dashboards.
func CheckName(field, name string) error {
	const fix = "use 1 to 63 of a-z 0-9 . _ - and begin with a letter or digit"
	switch {
	case name == "":
		return invalid(field, fix, "missing")
	case !utf8.ValidString(name):
		return invalid(field, fix, "not valid UTF-8")
	case len(name) > 63:
		return invalid(field, fix, "%d bytes are too long", len(name))
	}
	for i := range len(name) {
		c := name[i]
		alnum := c >= 'a' && c <= 'z' || c >= '0' && c <= '9'
		if !alnum && (i == 0 || c != '.' && c != '_' && c != '-') {
			return invalid(field, fix, "%q is not a name", name)
		}
	}
	return nil
}

// CheckID refuses an id that is not 1 to 128 printable characters.
func CheckID(id string) error {
	const fix = "use 1 to 128 printable characters, or leave it out for a new one"
	switch {
	case id == "":
		return invalid("id", fix, "empty")
	case !utf8.ValidString(id):
		return invalid("id", fix, "not valid UTF-8")
	case utf8.RuneCountInString(id) > MaxID:
		return invalid("id", fix, "%d characters are too long", utf8.RuneCountInString(id))
	case id == "." || id == "..":
		return invalid("id", fix, "%q cannot be part of a path", id)
	case strings.TrimSpace(id) != id:
		return invalid("id", fix, "has spaces at an end")
	}
	for _, r := range id {
		if !unicode.IsPrint(r) {
			return invalid("id", fix, "the character %U is not printable", r)
		}
	}
	return nil
}

func checkNames(j *Job) error {
	if err := CheckName("provider", j.Provider); err != nil {
		return err
	}
	if j.ID != "" {
		if err := CheckID(j.ID); err != nil {
			return err
		}
	}
	if !utf8.ValidString(j.Type) || len(j.Type) > 128 || strings.ContainsFunc(j.Type, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return invalid("type", "use at most 128 bytes of printable UTF-8", "not a type's name")
	}
	if !j.Priority.Valid() {
		return invalid("priority", "use high, default or low", "%q does not exist", j.Priority)
	}
	return nil
}

// checkNotBuilt refuses by name what the contract has and this version has not.
func checkNotBuilt(j *Job) error {
	switch {
	case j.Key != "":
		return invalid("key", "leave it out: limits and fair shares by key come with a later version", "not built yet")
	case j.Callback != nil:
		return invalid("callback", "leave it out, and ask for the job's state instead", "not built yet")
	}
	return nil
}

func checkCall(j *Job) error {
	if j.Method == "" && j.Path == "" && j.Type != "" {
		return nil
	}
	m := j.Method
	switch up := strings.ToUpper(m); {
	case m == "" && j.Type != "":
	case !validToken(m) || len(m) > 32:
		return invalid("method", "use an HTTP method like POST", "not a method")
	case up == "CONNECT" || up == "TRACE":
		return invalid("method", "use another method", "%s cannot be sent", up)
	case m != up && slices.Contains([]string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}, up):
		return invalid("method", "write "+up, "%q: methods are written in capitals", m)
	}
	return checkPath(j.Path)
}

func validToken(s string) bool { return httpguts.ValidHeaderFieldName(s) }

// checkPath refuses what could leave the base_url or could not be sent as it
// stands. It quotes nothing: a query may hold secrets.
func checkPath(p string) error {
	const fix = `use a path below the provider's base_url, like "/messages?x=1", percent-encoded`
	if p == "" {
		return nil
	}
	bad := func(reason string) error { return invalid("path", fix, "%s", reason) }
	switch {
	case !utf8.ValidString(p):
		return bad("not valid UTF-8")
	case len(p) > MaxPath:
		return bad(fmt.Sprintf("%d bytes are too long, at most %d", len(p), MaxPath))
	case p[0] != '/':
		return bad(`does not begin with "/"`)
	case strings.HasPrefix(p, "//"):
		return bad(`begins with "//", which would name a host`)
	}
	for i := range len(p) {
		if c := p[i]; c <= ' ' || c == 0x7f || c == '\\' || c == '#' {
			return bad(fmt.Sprintf("has the character %q", c))
		}
	}
	u, err := url.ParseRequestURI(p)
	if err != nil || u.Host != "" || u.Scheme != "" || u.User != nil {
		return bad("not a path")
	}
	if _, err := url.QueryUnescape(u.RawQuery); err != nil {
		return bad("the query is not percent-encoded")
	}
	return checkDecoded(u.EscapedPath(), bad)
}

// checkDecoded refuses what a server behind a proxy, which decodes a path more
// than once, would take for a way up or a control character. internal/provider
// has the last word on that, at the call: what it would refuse for every
// base_url is refused here, at once.
func checkDecoded(path string, bad func(reason string) error) error {
	for rest := 5; ; rest-- {
		for seg := range strings.FieldsFuncSeq(path, func(r rune) bool { return r == '/' || r == '\\' }) {
			if name, _, _ := strings.Cut(seg, ";"); name == "." || name == ".." {
				return bad(`has a "." or ".." segment`)
			}
		}
		if strings.ContainsFunc(path, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			return bad("has an encoded control character")
		}
		next, err := url.PathUnescape(path)
		switch {
		case err != nil || next == path:
			return nil
		case rest == 0:
			return bad("is percent-encoded many times over")
		}
		path = next
	}
}

// connectionHeaders belong to one connection or are made by the client itself.
var connectionHeaders = []string{
	"Connection", "Content-Length", "Expect", "Host", "Http2-Settings", "Keep-Alive", "Proxy-Authenticate",
	"Proxy-Authorization", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
}

func checkHeaders(j *Job) error {
	if len(j.Headers) == 0 {
		return nil
	}
	if len(j.Headers) > MaxHeaders {
		return invalid("headers", "", "%d are too many, at most %d", len(j.Headers), MaxHeaders)
	}
	size := 0
	canonical := make(map[string]string, len(j.Headers))
	for name, value := range j.Headers {
		if !httpguts.ValidHeaderFieldName(name) {
			return invalid("headers", "use letters, digits and -", "%q is not a header's name", name)
		}
		cn := textproto.CanonicalMIMEHeaderKey(name)
		field := "headers." + cn
		switch _, twice := canonical[cn]; {
		case twice:
			return invalid(field, "give it once, several values separated by commas", "given twice")
		case slices.Contains(connectionHeaders, cn):
			return invalid(field, "leave it out: it is set by the call itself", "belongs to the connection")
		case !utf8.ValidString(value):
			return invalid(field, "", "the value is not valid UTF-8")
		case !httpguts.ValidHeaderFieldValue(value):
			return invalid(field, "leave out line breaks and control characters", "the value cannot be sent")
		}
		canonical[cn] = strings.Trim(value, " \t")
		size += len(name) + len(value)
	}
	if size > MaxHeaderSize {
		return invalid("headers", "", "%d bytes are too many, at most %d", size, MaxHeaderSize)
	}
	j.Headers = canonical
	return nil
}

// checkIdempotency makes one of the field and the header.
func checkIdempotency(j *Job) error {
	const name = "Idempotency-Key"
	if h, ok := j.Headers[name]; ok {
		if j.IdempotencyKey != "" && j.IdempotencyKey != h {
			return invalid("headers."+name, "give one of them", "differs from idempotency_key")
		}
		j.IdempotencyKey = h
		delete(j.Headers, name) // the map is checkHeaders' own
	}
	k := j.IdempotencyKey
	if len(k) > 255 || !utf8.ValidString(k) || !httpguts.ValidHeaderFieldValue(k) {
		return invalid("idempotency_key", "use at most 255 bytes that a header can carry", "cannot be sent")
	}
	if k == j.ID {
		j.IdempotencyKey = "" // what it is without: the same content, said or not
	}
	return nil
}

// atMostMaxDelay is MaxDelay in words.
const atMostMaxDelay = "at most 366 days"

func checkTimes(j *Job) error {
	switch {
	case j.Delay < 0:
		return invalid("delay", "leave it out for at once", "%s is negative", j.Delay)
	case j.Delay > MaxDelay:
		return invalid("delay", atMostMaxDelay, "%s is too long", j.Delay)
	case j.Delay > 0 && !j.Due.IsZero():
		return invalid("delay", "give one of them", "given together with due")
	case !j.Due.IsZero() && (j.Due.Year() < 1970 || time.Until(j.Due) > MaxDelay):
		return invalid("due", atMostMaxDelay+" from now", "out of range")
	case j.MaxAge < 0:
		return invalid("max_age", "leave it out for the provider's default", "%s is negative", j.MaxAge)
	case j.MaxAge > MaxDelay:
		return invalid("max_age", atMostMaxDelay, "%s is too long", j.MaxAge)
	case j.Keep < 0:
		return invalid("keep", "leave it out for the provider's", "%s is negative", j.Keep)
	case j.Keep > 0 && j.Keep < time.Second:
		return invalid("keep", "at least 1s", "%s is too short", j.Keep)
	case j.Keep > MaxDelay:
		return invalid("keep", atMostMaxDelay, "%s is too long", j.Keep)
	}
	return nil
}

func checkNumbers(j *Job) error {
	switch {
	case j.Attempts < 0:
		return invalid("attempts", "leave it out for the provider's default", "%d is negative", j.Attempts)
	case j.Attempts > MaxAttempts:
		return invalid("attempts", fmt.Sprintf("at most %d", MaxAttempts), "%d are too many", j.Attempts)
	case j.Cost < 0:
		return invalid("cost", "leave it out for 1", "%d is negative", j.Cost)
	case j.Cost > MaxCost:
		return invalid("cost", fmt.Sprintf("at most %d", MaxCost), "%d is too much", j.Cost)
	case len(j.Body) > MaxBody:
		return tooLarge(int64(len(j.Body)), MaxBody)
	}
	return nil
}

func tooLarge(size, limit int64) error {
	return &FieldError{
		Field:    "body",
		Reason:   fmt.Sprintf("%d bytes are too large, at most %d", size, limit),
		Fix:      "store it elsewhere and send a reference, or raise the provider's max_body",
		tooLarge: true,
	}
}
