package app

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/penstock-io/penstock/breaker"
	"github.com/penstock-io/penstock/internal/config"
	"github.com/penstock-io/penstock/queue"
	"github.com/penstock-io/penstock/retrybudget"
)

// The README is held to the code: what it says compiles, is read, is run, and
// its tables are complete.

func readme(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// snippets are the README's blocks in a language; there must be some.
func snippets(t *testing.T, language string) []string {
	t.Helper()
	var out []string
	for _, m := range regexp.MustCompile("(?ms)^```"+language+"\n(.*?)^```").FindAllStringSubmatch(readme(t), -1) {
		out = append(out, m[1])
	}
	if len(out) == 0 {
		t.Fatalf("the README has no block of %s", language)
	}
	return out
}

// section is the text below a heading, up to the next one.
func section(t *testing.T, heading string) string {
	t.Helper()
	_, rest, ok := strings.Cut(readme(t), "\n## "+heading+"\n")
	if !ok {
		t.Fatalf("the README has no section %q", heading)
	}
	text, _, _ := strings.Cut(rest, "\n## ")
	return text
}

// firstColumn is every `code` of the first cells of a section's tables.
func firstColumn(text string) []string {
	var out []string
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "| `") {
			continue
		}
		cell, _, _ := strings.Cut(line[2:], " | ")
		for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cell, -1) {
			out = append(out, m[1])
		}
	}
	slices.Sort(out)
	return out
}

// Every Go program of the README compiles as if it stood in the module.
func TestReadmeGo(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	dir, replace, pkgs := t.TempDir(), map[string]string{}, []string{}
	for i, text := range snippets(t, "go") {
		file := filepath.Join(dir, fmt.Sprintf("readme%d.go", i))
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		pkg := fmt.Sprintf("readmesnippet%d", i)
		replace[filepath.Join(root, pkg, "main.go")] = file
		pkgs = append(pkgs, "./"+pkg)
		if out, err := exec.Command("gofmt", "-l", file).CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("block %d is not formatted: %v %s", i, err, out)
		}
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	list := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(list, overlay, 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", append([]string{"build", "-overlay", list}, pkgs...)...)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// Every configuration of the README is read without a fault.
func TestReadmeYAML(t *testing.T) {
	secret := func(name string) (string, bool) { return strings.ToLower(name) + "-0123456789abcdef", true }
	for i, text := range snippets(t, "yaml") {
		if _, rep := config.Parse(fmt.Sprintf("README block %d", i), []byte(text), secret); len(rep) > 0 {
			t.Errorf("%s", rep)
		}
	}
}

// The curl lines of the README are run against a server with the README's first
// configuration.
func TestReadmeCurl(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("there is no curl")
	}
	d := newDownstream(t)
	t.Setenv("PENSTOCK_TOKEN", testToken)
	conf := strings.NewReplacer("http://127.0.0.1:9000", d.URL, "listen: 127.0.0.1:8080", "listen: 127.0.0.1:0").Replace(snippets(t, "yaml")[0])
	r := serve(t, conf, Options{})
	ran := 0
	for _, text := range snippets(t, "sh") {
		if !strings.Contains(text, "curl ") {
			continue
		}
		script := strings.ReplaceAll(text, "http://127.0.0.1:8080", r.url)
		out, err := exec.Command("bash", "-euo", "pipefail", "-c", script).CombinedOutput()
		if err != nil || strings.Contains(string(out), `"code"`) {
			t.Fatalf("%v\n%s\nprinted\n%s", err, script, out)
		}
		ran += strings.Count(text, "curl -")
		for line := range strings.Lines(text) {
			if want, ok := strings.CutPrefix(strings.TrimSpace(line), "# {"); ok && !strings.Contains(string(out), "{"+want) {
				t.Errorf("nothing printed {%s but\n%s", want, out)
			}
		}
	}
	if ran < 4 {
		t.Errorf("only %d curl commands", ran)
	}
	r.until("sms", "welcome-17", queue.Succeeded)
}

// The table of settings names every field that internal/config reads.
func TestReadmeConfiguration(t *testing.T) {
	files, err := filepath.Glob("../config/*.go")
	if err != nil || len(files) == 0 {
		t.Fatal(err)
	}
	call := regexp.MustCompile(`r\.object\(.*?, "([a-z_.*]*)",\s*((?:"[a-z0-9_]+",?\s*)+)\)`)
	fields := map[string]bool{}
	for _, f := range files {
		src, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range call.FindAllStringSubmatch(string(src), -1) {
			for _, name := range regexp.MustCompile(`[a-z0-9_]+`).FindAllString(m[2], -1) {
				fields[strings.TrimPrefix(m[1]+"."+name, ".")] = true
			}
		}
	}
	delete(fields, "auth")
	delete(fields, "providers")
	if diff := cmp.Diff(slices.Sorted(maps.Keys(fields)), firstColumn(section(t, "Configuration"))); diff != "" {
		t.Errorf("fields read (-), fields of the table (+):\n%s", diff)
	}
}

// The table of metrics is complete.
func TestReadmeMetrics(t *testing.T) {
	files, err := filepath.Glob("../metrics/*.go")
	if err != nil || len(files) == 0 {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, f := range files {
		src, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`"(penstock_[a-z0-9_]+)"`).FindAllStringSubmatch(string(src), -1) {
			names[m[1]] = true
		}
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(names)), firstColumn(section(t, "Metrics"))); diff != "" {
		t.Errorf("metrics there are (-), metrics of the table (+):\n%s", diff)
	}
}

// The table of requests is complete; what is not built is named as such.
func TestReadmeHTTP(t *testing.T) {
	src, err := os.ReadFile("../api/server.go")
	if err != nil {
		t.Fatal(err)
	}
	missing := section(t, "What is not built yet")
	var routes []string
	for line := range strings.Lines(string(src)) {
		m := regexp.MustCompile(`"((?:GET|POST|PATCH|DELETE) (/[^"]*))"`).FindStringSubmatch(line)
		switch {
		case m == nil:
		case strings.Contains(line, "notBuilt("):
			if path := strings.TrimSuffix(m[2], "{$}"); !strings.Contains(missing, "`GET "+path+"`") && !strings.Contains(missing, "`"+path+"`") {
				t.Errorf("%s is not built, and the README does not say so", m[1])
			}
		default:
			routes = append(routes, m[1])
		}
	}
	if len(routes) < 12 {
		t.Fatalf("only %d routes found: %v", len(routes), routes)
	}
	named := firstColumn(section(t, "HTTP API"))
	for _, r := range routes {
		if !slices.Contains(named, r) {
			t.Errorf("the README does not name %s", r)
		}
	}
	for _, n := range named {
		if strings.Contains(n, " /") && n != "GET /queues" && !slices.Contains(routes, n) {
			t.Errorf("the README names %s, which is not served", n)
		}
	}
}

// Links to files of the repository lead somewhere, and so do those inside.
func TestReadmeLinks(t *testing.T) {
	text := readme(t)
	anchors := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(text, -1) {
		kept := regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(strings.ToLower(m[1]), "")
		anchors["#"+strings.ReplaceAll(kept, " ", "-")] = true
	}
	links := regexp.MustCompile(`\]\(([^)]+)\)`).FindAllStringSubmatch(text, -1)
	if len(links) < 20 {
		t.Fatalf("only %d links", len(links))
	}
	for _, l := range links {
		switch to := l[1]; {
		case strings.HasPrefix(to, "https://"):
		case strings.HasPrefix(to, "#"):
			if !anchors[to] {
				t.Errorf("there is no heading for %s", to)
			}
		default:
			if _, err := os.Stat(filepath.Join("../..", to)); err != nil {
				t.Error(err)
			}
		}
	}
}

// The table of libraries names what is imported, and nothing else.
func TestReadmeLibraries(t *testing.T) {
	table := section(t, "Libraries")
	owner := regexp.MustCompile(`^(github\.com/[^/]+/[^/]+|go\.uber\.org/\w+|gonum\.org/v1/\w+|pgregory\.net/\w+)`)
	used := map[string]bool{}
	for _, p := range load(t) {
		for _, imports := range []map[string]string{p.imports, p.testImports} {
			for imp := range imports {
				if m := owner.FindString(imp); m != "" && !strings.HasPrefix(imp, module) {
					used[strings.TrimPrefix(strings.NewReplacer("go.uber.org/", "uber-go/", "gonum.org/v1/", "gonum/").Replace(m), "github.com/")] = true
				}
			}
		}
	}
	for name := range used {
		if name == "spf13/pflag" || name == "chromedp/cdproto" { // come with what is named
			continue
		}
		if !strings.Contains(table, name) {
			t.Errorf("%s is used, and the README does not say why", name)
		}
	}
	links := regexp.MustCompile(`\]\(https://(?:github\.com|pkg\.go\.dev)/([^)]+)\)`).FindAllStringSubmatch(table, -1)
	if len(links) < 15 {
		t.Fatalf("only %d libraries", len(links))
	}
	for _, l := range links {
		if name := l[1]; !used[name] {
			t.Errorf("the README names %s, which nothing imports", name)
		}
	}
}

// The table of the law's and the budget's constants is complete, and its
// defaults are those of the code.
func TestReadmeConstants(t *testing.T) {
	want := constantRows("law.", reflect.ValueOf(breaker.Config{}.Normal()))
	want = append(want, constantRows("budget.", reflect.ValueOf(retrybudget.Budget{}.Normal()))...)
	var got []string
	for line := range strings.Lines(section(t, "Health")) {
		if strings.HasPrefix(line, "| `law") || strings.HasPrefix(line, "| `budget") {
			got = append(got, strings.TrimSpace(line))
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("constants there are (-), constants of the table (+):\n%s", diff)
	}
}

// constantRows are a table's rows for a struct of constants, one for each
// struct in it and one for what stands in it itself.
func constantRows(prefix string, v reflect.Value) []string {
	var own, rows []string
	for i := range v.NumField() {
		name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("yaml"), ",")
		f := v.Field(i)
		switch {
		case name == "-":
			continue
		case name == "":
			name = strings.ToLower(v.Type().Field(i).Name)
		}
		switch x := f.Interface().(type) {
		case time.Duration:
			own = append(own, name+" "+config.FormatDuration(x))
		case int, int64, float64:
			own = append(own, fmt.Sprint(name, " ", x))
		default:
			rows = append(rows, constantRows(prefix+name+".", f)...)
		}
	}
	if len(own) > 0 {
		rows = append([]string{"| `" + strings.TrimSuffix(prefix, ".") + "` | " + strings.Join(own, ", ") + " |"}, rows...)
	}
	return rows
}
