package api

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// field is one member of a JSON object.
type field struct {
	name string
	raw  json.RawMessage
}

// object splits a JSON object into its members without touching their values.
func object(src []byte, what string) ([]field, error) {
	if !utf8.Valid(src) {
		return nil, problem(CodeInvalid, "send UTF-8; binary bodies go into body_base64", "not valid UTF-8")
	}
	if bytes.HasPrefix(src, []byte("\uFEFF")) {
		return nil, problem(CodeInvalid, "save it as UTF-8 without one", "%s begins with a byte order mark", what)
	}
	dec := json.NewDecoder(bytes.NewReader(src))
	bad := func(err error) error {
		return problem(CodeInvalid, "send one JSON object", "%s", jsonFault(err, what))
	}
	tok, err := dec.Token()
	if err != nil {
		return nil, bad(err)
	}
	if tok != json.Delim('{') {
		return nil, problem(CodeInvalid, "send one JSON object", "%s must be a JSON object", what)
	}
	var out []field
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return nil, bad(err)
		}
		f := field{name: key.(string)}
		if err := dec.Decode(&f.raw); err != nil {
			return nil, bad(err)
		}
		if slices.ContainsFunc(out, func(o field) bool { return o.name == f.name }) {
			return nil, wrong(f.name, "give it once", "is given twice")
		}
		out = append(out, f)
		if len(out) > 1000 {
			return nil, problem(CodeInvalid, "send fewer", "%s has over 1,000 members", what)
		}
	}
	if _, err := dec.Token(); err != nil {
		return nil, bad(err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, problem(CodeInvalid, "send one JSON object; many jobs go to /v1/jobs:batch, one a line", "something stands behind %s", what)
	}
	return out, nil
}

// jsonFault words a syntax error; what the decoder quotes of the text is at
// most one character.
func jsonFault(err error, what string) string {
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return what + " is cut off or missing"
	}
	return "not JSON: " + err.Error()
}

func wrong(name, fix, format string, args ...any) error {
	p := problem(CodeInvalid, fix, format, args...)
	if len(name) > 64 {
		name = name[:60] + "…"
	}
	p.Field = strings.ToValidUTF8(name, "\uFFFD")
	return p
}

func (f field) null() bool { return string(f.raw) == "null" }

func (f field) text(into *string) error {
	if f.null() {
		return nil
	}
	if f.raw[0] != '"' {
		return wrong(f.name, "put it in quotes", "must be text")
	}
	s, err := unquote(f.name, f.raw)
	*into = s
	return err
}

// unquote reads a JSON string. Half of a surrogate pair has no UTF-8 and is
// refused instead of being replaced.
func unquote(name string, raw json.RawMessage) (string, error) {
	var s string
	if err := json.Unmarshal(raw, &s); err != nil {
		return "", wrong(name, "", "not JSON text")
	}
	if strings.ContainsRune(s, utf8.RuneError) && loneSurrogate(raw) {
		return "", wrong(name, "binary bodies go into body_base64", `holds half of a surrogate pair (\ud800 to \udfff)`)
	}
	return s, nil
}

// loneSurrogate reports an escape \ud800 to \udfff without its other half.
func loneSurrogate(raw []byte) bool {
	for i := 0; i+1 < len(raw); i++ {
		if raw[i] != '\\' {
			continue
		}
		i++
		if raw[i] != 'u' || i+4 >= len(raw) {
			continue
		}
		n, _ := strconv.ParseUint(string(raw[i+1:i+5]), 16, 32)
		switch {
		case n >= 0xd800 && n < 0xdc00 && i+10 < len(raw) && raw[i+5] == '\\' && raw[i+6] == 'u':
			low, _ := strconv.ParseUint(string(raw[i+7:i+11]), 16, 32)
			if low < 0xdc00 || low > 0xdfff {
				return true
			}
			i += 10
		case n >= 0xd800 && n <= 0xdfff:
			return true
		default:
			i += 4
		}
	}
	return false
}

func (f field) texts(into *map[string]string) error {
	if f.null() {
		return nil
	}
	members, err := object(f.raw, f.name)
	if err != nil {
		p := problemOf(err)
		if p.Field != "" {
			p.Field = f.name + "." + p.Field
		} else {
			p.Field, p.Detail = f.name, "must be an object of text"
		}
		return p
	}
	if *into == nil {
		*into = make(map[string]string, len(members))
	}
	for _, m := range members {
		var v string
		m2 := field{name: f.name + "." + m.name, raw: m.raw}
		if m.null() {
			return wrong(m2.name, "leave it out", "is null")
		}
		if err := m2.text(&v); err != nil {
			return err
		}
		(*into)[m.name] = v
	}
	return nil
}

func (f field) base64(into *[]byte) error {
	var s string
	if err := f.text(&s); err != nil || f.null() {
		return err
	}
	b, err := base64.StdEncoding.Strict().DecodeString(s)
	if err != nil {
		return wrong(f.name, "use standard base64 with padding (RFC 4648, section 4)", "not base64")
	}
	*into = b
	return nil
}

func (f field) duration(into *time.Duration) error {
	var s string
	if err := f.text(&s); err != nil || f.null() {
		if err != nil {
			return wrong(f.name, `write a time like "500ms", "10s" or "5m"`, "must be text")
		}
		return nil
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		return wrong(f.name, `write a time like "500ms", "10s" or "5m"`, "not a time")
	}
	*into = d
	return nil
}

// positive is a duration for which zero would silently mean a default.
func (f field) positive(into *time.Duration) error {
	if err := f.duration(into); err != nil || f.null() || *into > 0 {
		return err
	}
	return wrong(f.name, "leave it out for the provider's default", "must be longer than 0")
}

// whole is a whole number of at least 1.
func (f field) whole(into *int) error {
	if f.null() {
		return nil
	}
	n, err := strconv.Atoi(string(f.raw))
	if err != nil {
		return wrong(f.name, "write a whole number without quotes", "must be a whole number")
	}
	if n < 1 {
		return wrong(f.name, "leave it out for the default", "must be at least 1")
	}
	*into = n
	return nil
}

// nearest is a hint for a misspelt name.
func nearest(given string, known []string) string {
	low := strings.ReplaceAll(strings.ToLower(given), "-", "_")
	for _, k := range known {
		if k == low || strings.TrimSuffix(low, "s") == k || len(low) > 3 && (strings.HasPrefix(k, low) || strings.HasPrefix(low, k)) || near(low, k) {
			return fmt.Sprintf("did you mean %s?", k)
		}
	}
	return "known: " + strings.Join(known, ", ")
}

// near reports that one edit makes b of a.
func near(a, b string) bool {
	if len(a) > len(b) {
		a, b = b, a
	}
	if len(b)-len(a) > 1 || len(b) < 3 {
		return false
	}
	i := 0
	for i < len(a) && a[i] == b[i] {
		i++
	}
	if len(a) == len(b) {
		if i+1 < len(a) && a[i] == b[i+1] && a[i+1] == b[i] && a[i+2:] == b[i+2:] {
			return true
		}
		return i == len(a) || a[i+1:] == b[i+1:]
	}
	return a[i:] == b[i+1:]
}
