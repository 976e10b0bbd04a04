package main

import (
	"bytes"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
)

// The README's table of commands is complete, and names no other.
func TestReadmeCommands(t *testing.T) {
	b, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, ok := strings.Cut(string(b), "\n## Command line\n")
	if !ok {
		t.Fatal("the README has no section on the command line")
	}
	text, _, _ = strings.Cut(text, "\n## ")
	var named []string
	for _, m := range regexp.MustCompile("(?m)^\\| `penstock ([a-z]+(?: [a-z]+)?)").FindAllStringSubmatch(text, -1) {
		named = append(named, m[1])
	}
	var there []string
	var walk func(c *cobra.Command, path string)
	walk = func(c *cobra.Command, path string) {
		for _, sub := range c.Commands() {
			switch name := path + sub.Name(); {
			case sub.Hidden || sub.Name() == "help" || sub.Name() == "completion":
			case sub.HasSubCommands():
				walk(sub, name+" ")
			default:
				there = append(there, name)
			}
		}
	}
	walk((&cli{out: &bytes.Buffer{}, err: &bytes.Buffer{}, env: os.Getenv}).root(), "")
	slices.Sort(named)
	slices.Sort(there)
	if diff := cmp.Diff(there, named); diff != "" {
		t.Errorf("commands there are (-), commands of the table (+):\n%s", diff)
	}
}
