package config

import (
	"strings"
	"testing"
)

// FuzzParse: no text makes Parse panic, hang or accept a file without a
// provider, and no variable's value ever stands in a fault. Its seeds are the
// files of testdata.
func FuzzParse(f *testing.F) {
	t := &testing.T{}
	n := 0
	for _, pattern := range []string{"testdata/bad/*.yaml", "testdata/good/*.yaml"} {
		for _, p := range files(t, pattern, 1) {
			f.Add(string(read(t, p)))
			n++
		}
	}
	if n < 50 {
		f.Fatalf("only %d seeds", n)
	}
	f.Fuzz(func(t *testing.T, src string) {
		c, rep := Parse("f.yaml", []byte(src), func(string) (string, bool) { return "TOPSECRETVALUE", true })
		if strings.Contains(rep.String(), "TOPSECRETVALUE") {
			t.Errorf("a variable's value in a fault:\n%s", rep)
		}
		if (c == nil) != rep.Failed() {
			t.Errorf("config %v with report %v", c != nil, rep)
		}
		if c != nil && len(c.Providers) == 0 {
			t.Error("accepted without a provider")
		}
	})
}
