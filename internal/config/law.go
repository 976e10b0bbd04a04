package config

import (
	"errors"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/penstock-io/penstock/breaker"
	"github.com/penstock-io/penstock/retrybudget"
)

// adaptive reads whether limits follow the provider's health, and by which
// constants.
func (r *reader) adaptive(o *object, p *Provider) {
	p.Adaptive = "on"
	o.word("adaptive", &p.Adaptive, "on", "shadow", "off")
	lines := map[string]int{}
	if o.has("law") {
		r.constants(o.field("law"), "", reflect.ValueOf(&p.Law).Elem(), lines)
		if p.Adaptive == "off" {
			o.warn("law", "means nothing while adaptive is off, but for holding")
		}
	}
	if o.has("budget") {
		r.constants(o.field("budget"), "", reflect.ValueOf(&p.Budget).Elem(), map[string]int{})
		if err := p.Budget.Validate(); err != nil {
			o.fault("budget", "%s", strings.TrimPrefix(err.Error(), retrybudget.ErrBadBudget.Error()+": "))
		}
		if p.Adaptive != "on" {
			o.warn("budget", "means nothing while adaptive is %s", p.Adaptive)
		}
	}
	law := p.Law
	law.Timeout = p.Timeout
	r.lawFaults(o, law.Validate(), lines)
}

// lawFaults names each fault of the law by the line of its field; a fault of a
// relation may be of one that is left out.
func (r *reader) lawFaults(o *object, err error, lines map[string]int) {
	var all []error
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		all = joined.Unwrap()
	} else if err != nil {
		all = []error{err}
	}
	for _, e := range all {
		f, ok := errors.AsType[*breaker.FieldError](e)
		if !ok {
			o.fault("law", "%s", e)
			continue
		}
		line := lines[f.Field]
		if section, _, ok := strings.Cut(f.Field, "."); ok && line == 0 {
			line = lines[section]
		}
		if line == 0 {
			line = o.at("law")
		}
		r.fault(line, join(o.path, "law."+f.Field), "%s; %s", f.Problem, f.Remedy)
	}
}

// constants reads a mapping into a struct by the names of its fields' yaml tags
// (or their own names in small letters), and notes each field's line. A zero
// means "the default" there, so none can be written.
func (r *reader) constants(v value, prefix string, into reflect.Value, lines map[string]int) {
	fields := map[string]reflect.Value{}
	var names []string
	for i := range into.NumField() {
		name, _, _ := strings.Cut(into.Type().Field(i).Tag.Get("yaml"), ",")
		switch name {
		case "-":
			continue
		case "":
			name = strings.ToLower(into.Type().Field(i).Name)
		}
		fields[name] = into.Field(i)
		names = append(names, name)
	}
	o := r.object(v, "providers.*.law", names...)
	for _, name := range names {
		if !o.has(name) {
			continue
		}
		lines[prefix+name] = o.at(name)
		f := fields[name]
		switch x := f.Addr().Interface().(type) {
		case *time.Duration:
			o.duration(name, x, time.Microsecond, math.MaxInt64)
		case *int:
			o.whole(name, x, 1, math.MaxInt32)
		case *int64:
			n := int(*x)
			o.whole(name, &n, 1, math.MaxInt32)
			*x = int64(n)
		case *float64:
			o.number(name, x)
		default:
			r.constants(o.field(name), prefix+name+".", f, lines)
		}
	}
}

// number reads a number above 0.
func (o *object) number(name string, into *float64) {
	s, ok := o.r.scalar(o.field(name))
	if !ok {
		return
	}
	n, err := strconv.ParseFloat(s.text, 64)
	if err != nil || s.quoted || !(n > 0) || math.IsInf(n, 0) {
		o.fault(name, "must be a number above 0, not %s", s.shown)
		return
	}
	*into = n
}
