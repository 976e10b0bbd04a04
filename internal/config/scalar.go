package config

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"github.com/penstock-io/penstock/shaper"
)

// scalar is a value as text.
type scalar struct {
	text string
	// shown is how a message names the value: never a variable's content.
	shown string
	// quoted text is never taken for a number.
	quoted bool
}

// scalar reads a value as text, with its variables replaced.
func (r *reader) scalar(v value) (scalar, bool) {
	var raw string
	quoted := true
	switch x := v.node.(type) {
	case nil:
		return scalar{}, false
	case *ast.StringNode:
		raw = x.Value
	case *ast.LiteralNode:
		raw = x.Value.Value
	case *ast.MappingNode, *ast.SequenceNode:
		r.fault(v.line, v.path, "must be a single value, not %s", kindOf(v.node))
		return scalar{}, false
	default:
		raw, quoted = v.node.GetToken().Value, false
	}
	e := expand(raw, r.env)
	for _, f := range e.faults {
		r.fault(v.line, v.path, "%s", f)
	}
	s := scalar{text: e.text, shown: strconv.Quote(clip(raw)), quoted: quoted}
	if len(e.vars) > 0 {
		s.shown, s.quoted = "the value of ${"+strings.Join(e.vars, "}, ${")+"}", false
	}
	return s, len(e.faults) == 0
}

// text reads text. secret text is not shown in a fault.
func (o *object) text(name string, into *string) bool {
	v := o.field(name)
	s, ok := o.r.scalar(v)
	if !ok {
		return false
	}
	if _, isBool := v.node.(*ast.BoolNode); isBool || (!s.quoted && strings.HasPrefix(s.shown, `"`)) {
		o.fault(name, "must be text, not %s; put it in quotes", kindOf(v.node))
		return false
	}
	*into = s.text
	return true
}

// secret reads text that must not be empty.
func (o *object) secret(name string, into *Secret) bool {
	var s string
	if !o.text(name, &s) {
		return false
	}
	*into = Secret(s)
	return true
}

// flag reads true or false.
func (o *object) flag(name string, into *bool) {
	s, ok := o.r.scalar(o.field(name))
	if !ok {
		return
	}
	switch {
	case !s.quoted && s.text == "true":
		*into = true
	case !s.quoted && s.text == "false":
		*into = false
	default:
		o.fault(name, "must be true or false, not %s", s.shown)
	}
}

// word reads one of a few words and refuses those not built yet.
func (o *object) word(name string, into *string, known ...string) {
	s, ok := o.r.scalar(o.field(name))
	if !ok {
		return
	}
	if why, later := notBuiltValues[name][s.text]; later {
		o.fault(name, "%s is not built yet: %s", s.text, why)
		return
	}
	if !slices.Contains(known, s.text) {
		o.fault(name, "must be %s, not %s", strings.Join(known, ", "), s.shown)
		return
	}
	*into = s.text
}

// whole reads a whole number from lo to hi.
func (o *object) whole(name string, into *int, lo, hi int) {
	s, ok := o.r.scalar(o.field(name))
	if !ok {
		return
	}
	n, err := strconv.ParseInt(strings.ReplaceAll(s.text, "_", ""), 10, 64)
	if err != nil || s.quoted || strings.HasPrefix(s.text, "+") {
		o.fault(name, "must be a whole number from %d to %d, not %s", lo, hi, s.shown)
		return
	}
	if n < int64(lo) || n > int64(hi) {
		o.fault(name, "must be from %d to %d, not %s%s", lo, hi, s.shown, leaveOut(name, n))
		return
	}
	*into = int(n)
}

func leaveOut(name string, n int64) string {
	if n == 0 && name == "concurrency" {
		return "; leave it out for no limit, or pause the provider"
	}
	return ""
}

// duration reads a time from lo to hi.
func (o *object) duration(name string, into *time.Duration, lo, hi time.Duration) {
	s, ok := o.r.scalar(o.field(name))
	if !ok {
		return
	}
	d, err := time.ParseDuration(strings.TrimSpace(s.text))
	switch {
	case err != nil:
		o.fault(name, "must be a time like 500ms, 10s, 5m or 24h, not %s%s", s.shown, days(s.text))
	case d < lo || d > hi:
		o.fault(name, "must be from %s to %s, not %s", FormatDuration(lo), FormatDuration(hi), s.shown)
	default:
		*into = d
	}
}

// days translates 7d, which Go does not read.
func days(s string) string {
	n, ok := strings.CutSuffix(strings.TrimSpace(s), "d")
	if v, err := strconv.Atoi(n); ok && err == nil && v > 0 && v < 10_000 {
		return fmt.Sprintf("; %d days are %dh", v, v*24)
	}
	return ""
}

// FormatDuration writes a duration as people do: 24h, not 24h0m0s.
func FormatDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// size reads bytes: 4096, 64KiB, 1MiB, 1MB.
func (o *object) size(name string, into *int64, lo, hi int64) {
	s, ok := o.r.scalar(o.field(name))
	if !ok {
		return
	}
	n, err := ParseSize(s.text)
	switch {
	case err != nil:
		o.fault(name, "must be a size like 65536, 64KiB or 1MiB, not %s", s.shown)
	case n < lo || n > hi:
		o.fault(name, "must be from %s to %s, not %s", FormatSize(lo), FormatSize(hi), s.shown)
	default:
		*into = n
	}
}

// rate reads what shaper.ParseRate does.
func (o *object) rate(name string, into *shaper.Rate) {
	s, ok := o.r.scalar(o.field(name))
	if !ok {
		return
	}
	r, err := shaper.ParseRate(s.text)
	switch {
	case err == nil:
		*into = r
	case strings.HasPrefix(s.shown, `"`):
		o.fault(name, "%s", strings.TrimPrefix(err.Error(), shaper.ErrBadLimit.Error()+": "))
	default:
		o.fault(name, "%s is not a rate that can be kept; write calls per period, like 100/s, 12/m, 10/h or 5/10s", s.shown)
	}
}

var sizeUnits = []struct {
	suffix string
	bytes  int64
}{
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30},
	{"kB", 1e3}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"B", 1}, {"", 1},
}

// ParseSize reads a number of bytes: 4096, 64KiB, 1MiB (powers of 1024), 1MB
// (powers of 1000). Whole numbers only.
func ParseSize(s string) (int64, error) {
	s = strings.TrimSpace(s)
	for _, u := range sizeUnits {
		num, ok := strings.CutSuffix(s, u.suffix)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(num), 10, 64)
		if err != nil || n < 0 || strings.HasPrefix(num, "+") || n > math.MaxInt64/u.bytes {
			break
		}
		return n * u.bytes, nil
	}
	return 0, fmt.Errorf("size %q: write bytes, like 65536, 64KiB or 1MiB", clip(s))
}

// FormatSize writes the shortest form that ParseSize reads back exactly.
func FormatSize(n int64) string {
	for _, u := range []int{2, 1, 0} {
		if b := sizeUnits[u].bytes; n >= b && n%b == 0 {
			return strconv.FormatInt(n/b, 10) + sizeUnits[u].suffix
		}
	}
	return strconv.FormatInt(n, 10)
}
