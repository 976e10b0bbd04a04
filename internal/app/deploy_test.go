package app

import (
	"context"
	"maps"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/penstock-io/penstock/breaker"
	"github.com/penstock-io/penstock/internal/config"
	"github.com/penstock-io/penstock/internal/metrics"
	"github.com/penstock-io/penstock/queue"
)

// What stands in deploy/ is held to the code: here what can be read,
// deploy_faults_test.go has what must be run.

const deployDir = "../../deploy"

func deployFile(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(deployDir, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// composeFile is what the tests read of compose.yaml.
type composeFile struct {
	Services map[string]struct {
		Image       string            `yaml:"image"`
		Build       map[string]string `yaml:"build"`
		Command     []string          `yaml:"command"`
		Environment map[string]string `yaml:"environment"`
		Volumes     []string          `yaml:"volumes"`
		Secrets     []string          `yaml:"secrets"`
		Ports       []string          `yaml:"ports"`
	} `yaml:"services"`
	Secrets map[string]map[string]string `yaml:"secrets"`
}

func readCompose(t *testing.T) composeFile {
	t.Helper()
	var c composeFile
	if err := yaml.Unmarshal([]byte(deployFile(t, "compose.yaml")), &c); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"api", "worker", "redis", "prometheus", "fragile"} {
		if len(c.Services[name].Command) == 0 {
			t.Fatalf("compose.yaml has no command for %s", name)
		}
	}
	return c
}

// exampleEnv is env.example with every variable set to a secret of its own.
func exampleEnv(t *testing.T) map[string]string {
	t.Helper()
	env := map[string]string{}
	for line := range strings.Lines(deployFile(t, "env.example")) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && !strings.HasPrefix(line, "#") {
			if value != "" {
				t.Errorf("env.example gives %s a value; a secret that everyone knows is none", name)
			}
			env[name] = strings.ToLower(name) + "-0123456789abcdef"
		}
	}
	if len(env) == 0 {
		t.Fatal("env.example has no variables")
	}
	return env
}

// The configurations shipped are read without a fault or a warning, from
// variables that the containers are given.
func TestDeployConfiguration(t *testing.T) {
	compose, env := readCompose(t), exampleEnv(t)
	for _, name := range []string{"api", "worker"} {
		given := slices.Sorted(maps.Keys(compose.Services[name].Environment))
		if want := slices.Sorted(maps.Keys(env)); !slices.Equal(given, want) {
			t.Errorf("%s is given %v, env.example has %v", name, given, want)
		}
	}
	files := map[string]string{"penstock.yaml": deployFile(t, "penstock.yaml")}
	for _, doc := range strings.Split(deployFile(t, "kubernetes.yaml"), "\n---\n") {
		var k struct {
			Kind string            `yaml:"kind"`
			Data map[string]string `yaml:"data"`
		}
		if err := yaml.Unmarshal([]byte(doc), &k); err != nil {
			t.Fatal(err)
		}
		if k.Kind == "ConfigMap" {
			files["kubernetes.yaml"] = k.Data["penstock.yaml"]
		}
	}
	if len(files) != 2 {
		t.Fatal("kubernetes.yaml has no ConfigMap")
	}
	for name, text := range files {
		_, rep := config.Parse(name, []byte(text), func(v string) (string, bool) { s, ok := env[v]; return s, ok })
		if len(rep) > 0 {
			t.Errorf("%s", rep)
		}
	}
}

// Every file that a container is given exists, and what Prometheus asks for is there.
func TestDeployCompose(t *testing.T) {
	compose := readCompose(t)
	for name, s := range compose.Services {
		if s.Build != nil {
			if _, err := os.Stat(filepath.Join(deployDir, s.Build["context"], s.Build["dockerfile"])); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		for _, v := range s.Volumes {
			if from, _, _ := strings.Cut(v, ":"); strings.HasPrefix(from, ".") {
				if _, err := os.Stat(filepath.Join(deployDir, from)); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
		}
		for _, p := range s.Ports {
			if !strings.HasPrefix(p, "127.0.0.1:") {
				t.Errorf("%s publishes %s beyond this machine", name, p)
			}
		}
	}
	var prom struct {
		RuleFiles []string `yaml:"rule_files"`
		Scrape    []struct {
			Authorization map[string]string `yaml:"authorization"`
			DNS           []struct {
				Names []string `yaml:"names"`
				Port  int      `yaml:"port"`
			} `yaml:"dns_sd_configs"`
		} `yaml:"scrape_configs"`
	}
	if err := yaml.Unmarshal([]byte(deployFile(t, "prometheus/prometheus.yml")), &prom); err != nil {
		t.Fatal(err)
	}
	if len(prom.RuleFiles) == 0 || len(prom.Scrape) == 0 {
		t.Fatal("prometheus.yml has no rules or scrapes nothing")
	}
	for _, f := range prom.RuleFiles {
		if !slices.ContainsFunc(compose.Services["prometheus"].Volumes, func(v string) bool { return strings.Contains(v, ":"+f+":") }) {
			t.Errorf("nothing is mounted at %s", f)
		}
	}
	for _, s := range prom.Scrape {
		secret := strings.TrimPrefix(s.Authorization["credentials_file"], "/run/secrets/")
		if !slices.Contains(compose.Services["prometheus"].Secrets, secret) || compose.Secrets[secret]["environment"] == "" {
			t.Errorf("Prometheus is not given the secret %q", secret)
		}
		for _, d := range s.DNS {
			for _, n := range d.Names {
				if len(compose.Services[n].Command) == 0 || d.Port != 8080 {
					t.Errorf("nothing serves metrics at %s:%d", n, d.Port)
				}
			}
		}
	}
}

// Every metric and every label that a rule names exists.
func TestDeployRules(t *testing.T) {
	names, series := allMetrics(t)
	var rules struct {
		Groups []struct {
			Rules []struct{ Record, Alert, Expr string }
		}
	}
	if err := yaml.Unmarshal([]byte(deployFile(t, "prometheus/penstock.rules.yml")), &rules); err != nil {
		t.Fatal(err)
	}
	recorded := regexp.MustCompile(`[a-z0-9_]+:[a-z0-9_:]+`)
	metric := regexp.MustCompile(`(penstock_[a-z0-9_]+)(?:\{([^}]*)\})?`)
	matcher := regexp.MustCompile(`(\w+)(=~?)"([^"]*)"`)
	known, found := map[string]bool{}, 0
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			known[r.Record] = true
			for _, n := range recorded.FindAllString(r.Expr, -1) {
				if !known[n] {
					t.Errorf("%s%s: %s is not recorded before", r.Record, r.Alert, n)
				}
			}
			for _, m := range metric.FindAllStringSubmatch(recorded.ReplaceAllString(r.Expr, ""), -1) {
				found++
				if !names[m[1]] {
					t.Errorf("%s%s: there is no metric %s", r.Record, r.Alert, m[1])
				}
				for _, l := range matcher.FindAllStringSubmatch(m[2], -1) {
					for _, value := range strings.Split(l[3], "|") {
						want := l[1] + `="` + value + `"`
						if !slices.ContainsFunc(series, func(s string) bool { return strings.HasPrefix(s, m[1]+"{") && strings.Contains(s, want) }) {
							t.Errorf("%s%s: no series of %s has %s", r.Record, r.Alert, m[1], want)
						}
					}
				}
			}
		}
	}
	if found < 10 {
		t.Errorf("only %d metrics found in the rules", found)
	}
}

// allMetrics makes every series of internal/metrics, and returns the names that
// a query may use and the series.
func allMetrics(t *testing.T) (names map[string]bool, series []string) {
	t.Helper()
	m := metrics.New()
	everyMetric(m)
	answer := httptest.NewRecorder()
	m.Handler().ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
	names = map[string]bool{}
	for line := range strings.Lines(answer.Body.String()) {
		if f := strings.Fields(line); strings.HasPrefix(line, "# TYPE penstock_") {
			names[f[2]] = true
		} else if strings.HasPrefix(line, "penstock_") {
			name, _, _ := strings.Cut(f[0], "{")
			names[name] = true
			series = append(series, f[0])
		}
	}
	if len(names) < 20 {
		t.Fatalf("only %d metrics", len(names))
	}
	return names, series
}

func fixedSnapshot(s metrics.Snapshot) func(context.Context) (metrics.Snapshot, error) {
	return func(context.Context) (metrics.Snapshot, error) { return s, nil }
}

func everyMetric(m *metrics.Metrics) {
	const p = "sms"
	m.Watch(p, fixedSnapshot(metrics.Snapshot{RateAllowed: 1, Concurrency: 1, Health: "open", Factor: 0.5, Ceiling: 1}))
	for _, o := range breaker.Outcomes() {
		m.Attempt(p, o, time.Second)
	}
	for _, s := range queue.States() {
		if s.Final() {
			m.Settled(p, string(s), 1)
		}
	}
	m.Waited(p, time.Second)
	m.Denied(p, "rate")
	m.GateRequest(p, 1, 1, time.Second, nil)
	m.Started(p, time.Second, false)
	m.Deferred(p, "throttled", false)
	m.Deferred(p, "failed", true)
	m.Reclaimed(p, "process_died", 1)
	m.WatchWebhook("hook")
	m.WatchSpool(1 << 20)
	m.WatchDoor([]string{"rule"})
}
