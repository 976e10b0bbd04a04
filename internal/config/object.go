package config

import (
	"fmt"
	"maps"
	"slices"

	"github.com/goccy/go-yaml/ast"
)

// entry is one key of a mapping.
type entry struct {
	key string
	// line of the key.
	line int
	val  value
}

// entries lists a mapping's keys in their order, merges (<<) last. Duplicates
// and keys that are no text are faults.
func (r *reader) entries(v value) []entry {
	m, ok := v.node.(*ast.MappingNode)
	if !ok {
		if v.node != nil {
			r.fault(v.line, v.path, "must be a mapping of names to values, not %s", kindOf(v.node))
		}
		return nil
	}
	seen := map[string]int{}
	out := r.collect(m, v.path, seen, nil, 0)
	return out
}

func (r *reader) collect(m *ast.MappingNode, path string, seen map[string]int, out []entry, depth int) []entry {
	var merges []ast.Node
	for _, kv := range m.Values {
		key, line := kv.Key.GetToken().Value, kv.Key.GetToken().Position.Line
		switch kv.Key.(type) {
		case *ast.MergeKeyNode:
			merges = append(merges, kv.Value)
			continue
		case *ast.StringNode, *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.NullNode:
		default:
			r.fault(line, path, "a key must be plain text")
			continue
		}
		if first, ok := seen[key]; ok {
			if depth == 0 {
				r.fault(line, join(path, key), "is set a second time; the first is on line %d", first)
			}
			continue
		}
		seen[key] = line
		e := entry{key: key, line: line, val: r.at(kv.Value, join(path, key))}
		if e.val.node == nil {
			e.val.line = line
		}
		out = append(out, e)
	}
	for _, n := range merges {
		out = r.merge(n, path, seen, out, depth)
	}
	return out
}

func (r *reader) merge(n ast.Node, path string, seen map[string]int, out []entry, depth int) []entry {
	if depth > 8 {
		r.fault(lineOf(n), path, "<< leads back to itself")
		return out
	}
	v := r.at(n, path)
	switch x := v.node.(type) {
	case *ast.MappingNode:
		return r.collect(x, path, seen, out, depth+1)
	case *ast.SequenceNode:
		for _, item := range x.Values {
			out = r.merge(item, path, seen, out, depth+1)
		}
	default:
		r.fault(lineOf(n), path, "<< must name a mapping")
	}
	return out
}

// object is a mapping whose keys the contract names.
type object struct {
	r     *reader
	path  string
	line  int
	vals  map[string]value
	lines map[string]int
}

// object reads a mapping of known fields. kind is the pattern under which
// notBuilt lists the fields that are refused by name. Where there is no
// mapping at all the object is empty, and the fault is noted.
func (r *reader) object(v value, kind string, known ...string) *object {
	o := &object{r: r, path: v.path, line: v.line, vals: map[string]value{}, lines: map[string]int{}}
	later := notBuilt[kind]
	for _, e := range r.entries(v) {
		if what, ok := later[e.key]; ok {
			r.fault(e.line, join(v.path, e.key), "not built yet: %s; take it out", what)
			continue
		}
		if !slices.Contains(known, e.key) {
			all := slices.Sorted(maps.Keys(later))
			r.fault(e.line, v.path, "unknown field %q; %s", clip(e.key), didYouMean(kind, e.key, append(slices.Clone(known), all...)))
			continue
		}
		if e.val.node == nil {
			if !nullable[e.key] {
				r.fault(e.line, join(v.path, e.key), "has no value; give it one, or take the line out")
				o.lines[e.key] = e.line
				continue
			}
		}
		o.vals[e.key], o.lines[e.key] = e.val, e.line
	}
	return o
}

// nullable fields may stand there without a value: "tls:" means all defaults.
var nullable = map[string]bool{"tls": true}

// has reports whether the field stands in the file.
func (o *object) has(name string) bool { _, ok := o.lines[name]; return ok }

// field returns a field's value; its node is nil where it is missing.
func (o *object) field(name string) value {
	if v, ok := o.vals[name]; ok {
		return v
	}
	return value{path: join(o.path, name), line: o.line}
}

// at is the line of a field, or of the object where the field is missing.
func (o *object) at(name string) int {
	if l, ok := o.lines[name]; ok {
		return l
	}
	return o.line
}

// fault notes a fault of a field.
func (o *object) fault(name, format string, args ...any) {
	o.r.fault(o.at(name), join(o.path, name), format, args...)
}

// warn notes a warning of a field.
func (o *object) warn(name, format string, args ...any) {
	o.r.warn(o.at(name), join(o.path, name), format, args...)
}

// items lists a sequence's values.
func (r *reader) items(v value) []value {
	s, ok := v.node.(*ast.SequenceNode)
	if !ok {
		if v.node != nil {
			r.fault(v.line, v.path, "must be a list, not %s", kindOf(v.node))
		}
		return nil
	}
	var out []value
	for i, n := range s.Values {
		item := r.at(n, fmt.Sprintf("%s[%d]", v.path, i))
		if item.node == nil {
			r.fault(max(item.line, v.line), item.path, "is empty")
			continue
		}
		out = append(out, item)
	}
	return out
}

func kindOf(n ast.Node) string {
	switch n.(type) {
	case *ast.MappingNode:
		return "a mapping"
	case *ast.SequenceNode:
		return "a list"
	case *ast.StringNode, *ast.LiteralNode:
		return "text"
	case *ast.IntegerNode, *ast.FloatNode, *ast.InfinityNode, *ast.NanNode:
		return "a number"
	case *ast.BoolNode:
		return "true or false"
	}
	return "this"
}

func join(path, name string) string {
	name = clip(name)
	if path == "" {
		return name
	}
	return path + "." + name
}

// clip keeps a name from the file short enough for a message.
func clip(s string) string {
	if len(s) <= 64 {
		return s
	}
	return s[:60] + "…"
}
