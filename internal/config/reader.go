package config

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// reader walks one file's syntax tree and collects what is wrong with it.
type reader struct {
	file    string
	env     func(string) (string, bool)
	anchors map[string]ast.Node
	faults  Report
}

// value is one place in the file: its node (anchors and aliases resolved) and
// the path it is reported under. A nil node means that nothing stands there.
type value struct {
	node ast.Node
	path string
	line int
}

func (r *reader) fault(line int, path, format string, args ...any) {
	r.faults = append(r.faults, Fault{File: r.file, Line: line, Field: path, Text: fmt.Sprintf(format, args...)})
}

func (r *reader) warn(line int, path, format string, args ...any) {
	r.faults = append(r.faults, Fault{File: r.file, Line: line, Field: path, Text: fmt.Sprintf(format, args...), Warning: true})
}

// report is what was found, by line.
func (r *reader) report() Report {
	slices.SortStableFunc(r.faults, func(a, b Fault) int { return cmp.Compare(a.Line, b.Line) })
	return r.faults
}

// parse reads the YAML; false means that there is nothing to walk.
func (r *reader) parse(src []byte) (value, bool) {
	if !utf8.Valid(src) {
		line := 1 + strings.Count(string(src[:invalidAt(src)]), "\n")
		r.fault(line, "", "not valid UTF-8; save the file as UTF-8")
		return value{}, false
	}
	src = []byte(strings.TrimPrefix(string(src), "\ufeff"))
	f, err := parser.ParseBytes(src, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		r.syntax(err, string(src))
		return value{}, false
	}
	var bodies []ast.Node
	for _, d := range f.Docs {
		switch d.Body.(type) {
		case nil, *ast.CommentGroupNode, *ast.DirectiveNode:
		default:
			bodies = append(bodies, d.Body)
		}
	}
	if len(bodies) == 0 {
		r.fault(0, "", "is empty; it must name at least one provider")
		return value{}, false
	}
	if len(bodies) > 1 {
		r.fault(lineOf(bodies[1]), "", "a second document begins here; one file is one document")
		return value{}, false
	}
	r.anchors = map[string]ast.Node{}
	ast.Walk(anchorVisitor(r.anchors), bodies[0])
	return r.at(bodies[0], ""), true
}

// syntax reports a parser's error without the source text that it quotes.
func (r *reader) syntax(err error, src string) {
	line, msg := 0, "cannot be read as YAML"
	if e, ok := errors.AsType[yaml.Error](err); ok {
		msg = "not YAML: " + e.GetMessage()
		if tk := e.GetToken(); tk != nil && tk.Position != nil {
			line = tk.Position.Line
		}
	}
	if lines := strings.Split(src, "\n"); line > 0 && line <= len(lines) && strings.Contains(lines[line-1], "${") {
		msg += `; inside { } and [ ] a value with ${…} must stand in quotes: "${NAME}"`
	}
	r.fault(line, "", "%s", msg)
}

// at resolves anchors, aliases and tags.
func (r *reader) at(n ast.Node, path string) value {
	line := lineOf(n)
	for range 16 {
		switch x := n.(type) {
		case *ast.AnchorNode:
			n = x.Value
		case *ast.AliasNode:
			name := x.Value.GetToken().Value
			target, ok := r.anchors[name]
			if !ok {
				r.fault(line, path, "there is no anchor &%s in this file", name)
				return value{path: path, line: line}
			}
			n = target
		case *ast.TagNode:
			r.fault(line, path, "a tag (%s) is not read here; write the plain value", x.Start.Value)
			return value{path: path, line: line}
		case *ast.MappingValueNode:
			m := &ast.MappingNode{BaseNode: &ast.BaseNode{}, Start: x.Start, Values: []*ast.MappingValueNode{x}}
			return value{node: m, path: path, line: lineOf(x)}
		case *ast.NullNode, nil:
			return value{path: path, line: line}
		default:
			return value{node: n, path: path, line: lineOf(n)}
		}
	}
	r.fault(line, path, "an alias leads back to itself")
	return value{path: path, line: line}
}

func lineOf(n ast.Node) int {
	switch x := n.(type) {
	case nil:
		return 0
	case *ast.LiteralNode:
		return x.Start.Position.Line
	case *ast.MappingNode:
		if len(x.Values) > 0 {
			return lineOf(x.Values[0])
		}
	case *ast.MappingValueNode:
		return x.Key.GetToken().Position.Line
	}
	if tk := n.GetToken(); tk != nil && tk.Position != nil {
		return tk.Position.Line
	}
	return 0
}

func invalidAt(b []byte) int {
	for i := 0; i < len(b); {
		c, n := utf8.DecodeRune(b[i:])
		if c == utf8.RuneError && n == 1 {
			return i
		}
		i += n
	}
	return len(b)
}

// anchorVisitor notes every anchor by its name.
type anchorVisitor map[string]ast.Node

func (v anchorVisitor) Visit(n ast.Node) ast.Visitor {
	if a, ok := n.(*ast.AnchorNode); ok && a.Name != nil {
		v[a.Name.GetToken().Value] = a.Value
	}
	return v
}
