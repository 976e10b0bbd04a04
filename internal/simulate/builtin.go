package simulate

import (
	"embed"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
)

//go:embed scenarios/*.yaml
var scenarios embed.FS

// Builtin returns the names of the scenarios that come with Penstock, in order.
func Builtin() []string {
	files, err := fs.Glob(scenarios, "scenarios/*.yaml")
	if err != nil {
		panic(err) // the pattern is a constant
	}
	names := make([]string, 0, len(files))
	for _, f := range files {
		names = append(names, strings.TrimSuffix(path.Base(f), ".yaml"))
	}
	slices.Sort(names)
	return names
}

// Source returns a built-in scenario as YAML, to begin one's own from. The
// error wraps ErrScenario and lists the names there are.
func Source(name string) ([]byte, error) {
	doc, err := scenarios.ReadFile("scenarios/" + name + ".yaml")
	if err != nil || strings.ContainsAny(name, `/\`) {
		return nil, fmt.Errorf("%w: there is none named %q; there are %s", ErrScenario, name, strings.Join(Builtin(), ", "))
	}
	return doc, nil
}

// Named returns a built-in scenario. Its error is Source's.
func Named(name string) (Scenario, error) {
	doc, err := Source(name)
	if err != nil {
		return Scenario{}, err
	}
	return Read(strings.NewReader(string(doc)))
}
