//go:build faults

package faults

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/penstock-io/penstock/internal/redistest"
)

// What keeps a process from starting is said in one sentence with a remedy, and
// the process ends: 1 where something failed, 2 where it was used wrongly.
func TestFaultStart(t *testing.T) {
	t.Parallel()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	dead := free.Addr().String()
	_ = free.Close()
	silent, err := net.Listen("tcp", "127.0.0.1:0") // takes connections, says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	stopped := redistest.Start(t)
	stopped.Stop()
	good := redistest.Start(t)
	dir := t.TempDir()
	file := func(name, redis, provider string) string {
		path := filepath.Join(dir, name+".yaml")
		text := "redis: \"" + redis + "\"\nlisten: 127.0.0.1:0\nproviders:\n  shop:\n    base_url: http://127.0.0.1:1\n    " + provider + "\n"
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, c := range []struct {
		name string
		args []string
		code int
		says []string
	}{
		{"dead Redis", []string{"--config", file("dead", "redis://"+dead, "rate: 1/s")}, 1, []string{dead, "does not answer after", "redis.url"}},
		{"dead Redis for a worker", []string{"--role", "worker", "--config", file("dead", "redis://"+dead, "rate: 1/s")}, 1, []string{dead, "does not answer after"}},
		{"silent Redis", []string{"--config", file("silent", "redis://"+silent.Addr().String(), "rate: 1/s")}, 1, []string{silent.Addr().String(), "does not answer after"}},
		{"stopped Redis", []string{"--role", "worker", "--config", file("stopped", stopped.URL(), "rate: 1/s")}, 1, []string{stopped.Addr, "does not answer after"}},
		{"wrong role", []string{"--role", "boss", "--config", file("good", good.URL(), "rate: 1/s")}, 2, []string{`--role must be all, api or worker, not "boss"`}},
		{"no configuration", nil, 2, []string{`required flag(s) "config"`}},
		{"no such file", []string{"--config", filepath.Join(dir, "nosuch.yaml")}, 1, []string{"nosuch.yaml", "no such file"}},
		{"rate zero", []string{"--config", file("zero", good.URL(), "rate: 0/s")}, 1, []string{"zero.yaml:6: providers.shop.rate", "1 fault"}},
		{"misspelt", []string{"--config", file("spelt", good.URL(), "conurrency: 3")}, 1, []string{"spelt.yaml:6", "did you mean concurrency?"}},
		{"unset variable", []string{"--config", file("unset", good.URL(), "headers: {X: \"${NO_SUCH_THING}\"}")}, 1, []string{"unset.yaml:6", "NO_SUCH_THING"}},
		{"not YAML", []string{"--config", file("notyaml", good.URL(), "rate: [1/s")}, 1, []string{"notyaml.yaml:"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			begun := time.Now()
			code, said := command(t, nil, append([]string{"serve"}, c.args...)...)
			if code != c.code {
				t.Errorf("exit code %d, want %d", code, c.code)
			}
			for _, s := range c.says {
				if !strings.Contains(said, s) {
					t.Errorf("it does not say %q", s)
				}
			}
			if strings.Contains(said, "goroutine ") {
				t.Error("a panic")
			}
			if took := time.Since(begun); took > 50*time.Second {
				t.Errorf("it took %s", took)
			}
			if t.Failed() {
				t.Logf("it said:\n%s", said)
			}
		})
	}
}

// Containers start together: a Redis that comes two seconds later is waited for.
func TestFaultRedisComesLater(t *testing.T) {
	t.Parallel()
	red := redistest.Start(t)
	red.Kill()
	path := filepath.Join(t.TempDir(), "penstock.yaml")
	if err := os.WriteFile(path, []byte("redis: "+red.URL()+"\nlisten: 127.0.0.1:0\nproviders: {shop: {base_url: http://127.0.0.1:1, rate: 1/s}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := start(t, "all", "serve", "--config", path)
	p.says(soon, "does not answer yet")
	time.Sleep(time.Second)
	red.Restart()
	p.says(soon, "msg=listening")
	p.says(soon, `msg="worker started"`)
	p.signal(15)
	if how := p.ends(soon); how != "0" {
		t.Errorf("it ended with %s", how)
	}
}
