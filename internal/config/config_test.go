package config

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write what was got as what is wanted")

// testEnv is the environment of every test: nothing of the machine's.
var testEnv = map[string]string{
	"OPS_TOKEN":     "ops-0123456789abcdef",
	"BILLING_TOKEN": "billing-0123456789abcdef",
	"SMS_TOKEN":     "sms-topsecret",
	"EMPTY":         "",
	"COUNT":         "20",
	"NOCOUNT":       "topsecret",
	"INJECT":        "x\nconcurrency: 99",
	"RATE":          "100/s",
	"REDIS_URL":     "redis://app:topsecret@127.0.0.1:6380/2",
	"BROKEN_URL":    "redis://app:top%secret@127.0.0.1:6380/2",
	"NEWLINE":       "topsecret\r\nX-Evil: 1",
	"NESTED":        "${OPS_TOKEN}",
	"WHSEC":         "whsec_topsecret_topsecret",
	"STANDARD":      "whsec_dG9wc2VjcmV0dG9wc2VjcmV0dG9wc2VjcmV0",
}

func lookup(name string) (string, bool) { v, ok := testEnv[name]; return v, ok }

// Each file of testdata/bad is refused with exactly the messages in its .want.
func TestBadFiles(t *testing.T) {
	for _, path := range files(t, "testdata/bad/*.yaml", 40) {
		t.Run(name(path), func(t *testing.T) {
			c, rep := Parse(filepath.Base(path), read(t, path), lookup)
			if c != nil || !rep.Failed() {
				t.Fatalf("was accepted")
			}
			got := rep.String()
			for _, secret := range []string{"topsecret", "0123456789abcdef", "s3cret"} {
				if strings.Contains(got, secret) {
					t.Errorf("a fault repeats a secret: %s", got)
				}
			}
			golden(t, strings.TrimSuffix(path, ".yaml")+".want", got)
		})
	}
}

// Each file of testdata/good reads as its .want says, warnings first.
func TestGoodFiles(t *testing.T) {
	for _, path := range files(t, "testdata/good/*.yaml", 5) {
		t.Run(name(path), func(t *testing.T) {
			c, rep := Parse(filepath.Base(path), read(t, path), lookup)
			if c == nil {
				t.Fatalf("was refused:\n%s", rep)
			}
			b, err := json.MarshalIndent(c, "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(b), "topsecret") {
				t.Errorf("a secret is printed: %s", b)
			}
			golden(t, strings.TrimSuffix(path, ".yaml")+".want", rep.String()+string(b)+"\n")
		})
	}
}

func files(t *testing.T, pattern string, atLeast int) []string {
	t.Helper()
	paths, err := filepath.Glob(pattern)
	if err != nil || len(paths) < atLeast {
		t.Fatalf("%s: %d files, want at least %d (%v)", pattern, len(paths), atLeast, err)
	}
	slices.Sort(paths)
	return paths
}

func name(path string) string { return strings.TrimSuffix(filepath.Base(path), ".yaml") }

func read(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func golden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(string(read(t, path)), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
}
