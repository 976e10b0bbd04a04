package app

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/penstock-io/penstock"

// pkg is one package of ours as its files say.
type pkg struct {
	imports     map[string]string // import path -> file, of files that are not tests
	testImports map[string]string
	docs        []string // package comments
	inits       []string // positions of func init
}

// ours lists what each package may import of ours, and why no more. A package
// that is not listed may import what the other rules let it.
var ours = []struct {
	pkg     string
	allowed []string
	why     string
}{
	{"breaker", nil, "the control law is pure and owns the outcome type: the simulator and tests call it without anything else"},
	{"shaper", nil, "mechanism only: a gate that knew a policy could not be reused by the transport, the guard and the inbound limiters"},
	{"retrybudget", nil, "policy and numbers only; the account lives in the gate's script"},
	{"shaper/guard", []string{"breaker", "shaper", "retrybudget", "internal/health"}, "the guard is the composition of these, and of nothing that knows queues or HTTP"},
	{"queue", []string{"queue/internal/layout"}, "producers import it: a job must not drag in the workers' machinery"},
	{"queue/internal/layout", nil, "what stands in Redis: client and worker share it, so it knows neither"},
	{"queue/embedded", nil, "a store, nothing more"},
	{"queue/worker", []string{"queue", "queue/internal/layout", "breaker", "shaper", "shaper/guard", "retrybudget", "internal/provider"},
		"one attempt through the guard; what answers mean is internal/provider's, configuration and metrics come from outside"},
	{"internal/provider", []string{"breaker"}, "a call and what its answer means; WHEN it may start is the guard's, so it must not know it"},
	{"internal/health", []string{"breaker", "retrybudget", "shaper"}, "sensor and tick between the law and the gate"},
	{"shaper/limithttp", []string{"shaper", "shaper/guard", "internal/provider", "breaker"}, "a transport on a guard; the inbound side needs shaper alone"},
	{"webhooks", []string{"queue", "shaper"}, "takes deliveries in and enqueues them; what becomes of the job is not its matter"},
	{"internal/fragile", nil, "it judges the rest, so it shares no code with what it judges"},
	{"internal/simulate", []string{"breaker", "retrybudget", "shaper"}, "it runs the real law on a model of the gate, in virtual time: nothing that does I/O"},
	{"internal/bench", []string{"internal/fragile", "queue", "queue/worker", "shaper", "shaper/guard", "webhooks"}, "it puts the rooms together as a user would, beside plain asynq"},
	{"internal/suggest", nil, "arithmetic on figures: who gathers them and who prints them is not its matter"},
	{"internal/redistest", nil, "every test may use it, so it uses nothing"},
	{"internal/config", []string{"shaper", "breaker", "retrybudget", "internal/provider", "queue", "webhooks", "shaper/limithttp"}, "reads and checks words whose meaning these own; it starts nothing"},
	{"internal/metrics", []string{"breaker", "shaper", "shaper/guard", "queue", "queue/worker", "webhooks", "shaper/limithttp"}, "an adapter: it implements the rooms' Observers and knows no other adapter"},
	{"internal/api", []string{"queue", "shaper"}, "an adapter: it is given its rooms as small interfaces and knows neither configuration, workers nor metrics"},
}

// theirs says who may import a dependency outside of tests, and why no one else.
var theirs = []struct {
	dep   string
	users []string
	why   string
}{
	{"github.com/hibiken/asynq", []string{"queue", "queue/internal/layout", "queue/worker", "internal/bench", "examples"},
		"asynq is pinned and its shape is relied on: an upgrade must be felt in one place"},
	{"github.com/hibiken/asynqmon", []string{"internal/api"}, "it has no protection of its own and must never be served without ours"},
	{"github.com/alicebob/miniredis", []string{"queue/embedded", "internal/redistest"}, "it is not Redis: nothing else may come to depend on what it does differently"},
	{"github.com/prometheus", []string{"internal/metrics"}, "everyone else takes an Observer, so a library user is not given a registry"},
	{"github.com/goccy/go-yaml", []string{"internal/config", "internal/simulate", "internal/fragile"}, "files are read where every fault is named by line"},
	{"github.com/spf13/cobra", []string{"cmd/penstock"}, "flags and what is printed belong to cmd, so that the rooms can be used without a terminal"},
	{"github.com/schollz/progressbar", []string{"cmd/penstock", "internal/demo", "internal/bench"}, "progress belongs where a person looks"},
}

// unbuilt packages of the rules may be missing; every other one must exist, so
// that a renamed package does not escape its rule.
var unbuilt = []string{}

func TestImportsOfOurs(t *testing.T) {
	pkgs := load(t)
	for _, rule := range ours {
		t.Run(rule.pkg, func(t *testing.T) {
			p, ok := pkgs[rule.pkg]
			if !ok {
				missing(t, rule.pkg)
			}
			for imp, file := range p.imports {
				rel, isOurs := strings.CutPrefix(imp, module+"/")
				if isOurs && !slices.Contains(rule.allowed, rel) {
					t.Errorf("%s imports %s; %s may import of ours only %v, because: %s", file, rel, rule.pkg, rule.allowed, rule.why)
				}
			}
		})
	}
}

func TestImportsOfTheirs(t *testing.T) {
	pkgs := load(t)
	for _, rule := range theirs {
		t.Run(rule.dep, func(t *testing.T) {
			for name, p := range pkgs {
				if slices.ContainsFunc(rule.users, func(u string) bool { return name == u || strings.HasPrefix(name, u+"/") && u == "examples" }) {
					continue
				}
				for imp, file := range p.imports {
					if imp == rule.dep || strings.HasPrefix(imp, rule.dep+"/") {
						t.Errorf("%s imports %s, which only %v may, because: %s", file, imp, rule.users, rule.why)
					}
				}
			}
		})
	}
}

func TestWhoMayImportWhom(t *testing.T) {
	for name, p := range load(t) {
		for imp, file := range p.imports {
			rel, isOurs := strings.CutPrefix(imp, module+"/")
			switch {
			case !isOurs:
			case rel == "internal/app" && name != "cmd/penstock":
				t.Errorf("%s imports internal/app; only cmd and tests may, because it is the wiring: whoever needs a part of it needs a room of its own", file)
			case rel == "internal/redistest":
				t.Errorf("%s imports internal/redistest outside of a test", file)
			case strings.HasPrefix(name, "examples/") && strings.Contains("/"+rel, "/internal/"):
				t.Errorf("%s imports %s; examples are what a reader copies, so they use public packages only", file, rel)
			}
		}
		if strings.HasPrefix(name, "examples/") {
			for imp, file := range p.testImports {
				if strings.HasPrefix(imp, module+"/internal/app") {
					t.Errorf("%s imports internal/app", file)
				}
			}
		}
	}
}

// Every package says what it owns, once, and none starts anything by being
// imported.
func TestPackageDocsAndInit(t *testing.T) {
	pkgs := load(t)
	for _, name := range slices.Sorted(maps.Keys(pkgs)) {
		p := pkgs[name]
		want := "Package " + path.Base(name) + " "
		if strings.HasPrefix(name, "cmd/") || strings.HasPrefix(name, "examples/") {
			want = ""
		}
		switch {
		case len(p.docs) != 1:
			t.Errorf("%s has %d package comments; a reader opens a folder and finds one", name, len(p.docs))
		case !strings.HasPrefix(p.docs[0], want):
			t.Errorf("%s's package comment must begin with %q", name, want)
		}
		for _, at := range p.inits {
			t.Errorf("%s: func init; nothing may happen by importing a package", at)
		}
	}
}

func missing(t *testing.T, name string) {
	t.Helper()
	if slices.Contains(unbuilt, name) {
		t.Skip("not built yet")
	}
	t.Fatalf("there is no package %s; a rule without a package keeps nothing", name)
}

// load reads every Go file of the module.
func load(t *testing.T) map[string]*pkg {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(root, "go.mod")); err != nil {
		t.Fatal(err)
	}
	pkgs := map[string]*pkg{}
	fset := token.NewFileSet()
	err = filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "testdata" || file != root && strings.HasPrefix(d.Name(), ".")):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(file, ".go"):
			return nil
		}
		rel, err := filepath.Rel(root, file)
		if err != nil {
			return err
		}
		f, err := parser.ParseFile(fset, file, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		name := filepath.ToSlash(filepath.Dir(rel))
		if pkgs[name] == nil {
			pkgs[name] = &pkg{imports: map[string]string{}, testImports: map[string]string{}}
		}
		pkgs[name].add(fset, f, filepath.ToSlash(rel))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(pkgs) < 4 {
		t.Fatalf("found only %d packages in %s", len(pkgs), root)
	}
	return pkgs
}

func (p *pkg) add(fset *token.FileSet, f *ast.File, file string) {
	test := strings.HasSuffix(file, "_test.go")
	into := p.imports
	if test {
		into = p.testImports
	}
	for _, spec := range f.Imports {
		if imp, err := strconv.Unquote(spec.Path.Value); err == nil {
			into[imp] = file
		}
	}
	if test {
		return
	}
	if f.Doc != nil {
		p.docs = append(p.docs, f.Doc.Text())
	}
	for _, d := range f.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" {
			p.inits = append(p.inits, fset.Position(fn.Pos()).String())
		}
	}
}
