package config

import (
	"fmt"
	"strings"
)

// expansion is a value with its variables replaced.
type expansion struct {
	text string
	// vars are the variables it was made from. Such a value is never shown.
	vars []string
	// faults found, without place.
	faults []string
}

// expand replaces ${NAME} by the variable's value, once: what a variable holds
// is not looked at again. $${ stands for ${ itself. Every other $ is kept.
func expand(s string, env func(string) (string, bool)) expansion {
	if !strings.Contains(s, "${") {
		return expansion{text: s}
	}
	var e expansion
	var b strings.Builder
	for {
		i := strings.Index(s, "${")
		if i < 0 {
			b.WriteString(s)
			break
		}
		if i > 0 && s[i-1] == '$' {
			b.WriteString(s[:i-1] + "${")
			s = s[i+2:]
			continue
		}
		b.WriteString(s[:i])
		name, rest, ok := strings.Cut(s[i+2:], "}")
		if !ok {
			e.faults = append(e.faults, "a ${ without its }; write $${ for the characters themselves")
			break
		}
		s = rest
		b.WriteString(e.variable(name, env))
	}
	e.text = b.String()
	return e
}

func (e *expansion) variable(name string, env func(string) (string, bool)) string {
	if !isVariable(name) {
		if base, _, ok := strings.Cut(name, ":"); ok && isVariable(base) {
			e.faults = append(e.faults, fmt.Sprintf("${%s:…} has a default; only ${%s} is read, set the variable", base, base))
		} else {
			e.faults = append(e.faults, "${…} must hold the name of a variable: letters, digits and _; write $${ for the characters themselves")
		}
		return ""
	}
	e.vars = append(e.vars, name)
	v, ok := env(name)
	if !ok {
		e.faults = append(e.faults, fmt.Sprintf("the variable %s is not set; export it, or write $${%s} for the characters themselves", name, name))
	}
	return v
}

func isVariable(s string) bool {
	for i, c := range s {
		if c != '_' && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return s != ""
}
