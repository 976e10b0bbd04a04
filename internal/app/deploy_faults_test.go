//go:build faults

package app

import (
	"bufio"
	"bytes"
	"debug/elf"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/penstock-io/penstock/internal/api"
	"github.com/penstock-io/penstock/queue"
)

// image is what the Dockerfile says of its last stage.
type image struct {
	build      []string // the command that builds the binary
	target     string   // where the binary stands
	entrypoint []string
	cmd        []string
}

func readDockerfile(t *testing.T) image {
	t.Helper()
	text := deployFile(t, "Dockerfile")
	find := func(what, pattern string) string {
		m := regexp.MustCompile(`(?m)^` + pattern + `$`).FindStringSubmatch(text)
		if m == nil {
			t.Fatalf("the Dockerfile has no %s", what)
		}
		return m[1]
	}
	list := func(what string) (out []string) {
		if err := json.Unmarshal([]byte(find(what, what+` (\[.*\])`)), &out); err != nil || len(out) == 0 {
			t.Fatalf("%s: %v", what, err)
		}
		return out
	}
	img := image{entrypoint: list("ENTRYPOINT"), cmd: list("CMD")}
	img.build = []string{"sh", "-c", find("go build", `RUN (CGO_ENABLED=0 go build .*)`)}
	built := regexp.MustCompile(`-o (\S+)`).FindStringSubmatch(img.build[2])
	copied := strings.Fields(find("binary copied", `COPY --from=build (.*)`))
	if built == nil || len(copied) != 2 || built[1] != copied[0] || copied[1] != img.entrypoint[0] {
		t.Fatalf("built at %v, copied as %v, started as %v", built, copied, img.entrypoint)
	}
	if user := find("USER", `USER (.*)`); user != "nonroot:nonroot" {
		t.Errorf("it runs as %s", user)
	}
	mod, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	if v := find("golang image", `FROM golang:([\d.]+)-bookworm AS build`); !bytes.Contains(mod, []byte("\ngo "+v)) {
		t.Errorf("it builds with Go %s, which is not go.mod's", v)
	}
	img.target = copied[1]
	img.build[2] = strings.Replace(img.build[2], built[1], `"$OUT"`, 1)
	return img
}

// root is a directory that holds what the image does: the binary and the
// configuration, nothing else. Where the test may, processes see no more than it.
type root struct {
	t   *testing.T
	dir string
	img image
	env []string
}

func buildRoot(t *testing.T, env map[string]string) *root {
	t.Helper()
	r := &root{t: t, dir: t.TempDir(), img: readDockerfile(t)}
	for k, v := range env {
		r.env = append(r.env, k+"="+v)
	}
	bin := filepath.Join(r.dir, r.img.target)
	for _, d := range []string{filepath.Dir(bin), filepath.Join(r.dir, "etc/penstock")} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	build := exec.Command(r.img.build[0], r.img.build[1:]...)
	build.Dir, build.Env = "../..", append(os.Environ(), "OUT="+bin)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	f, err := elf.Open(bin)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP || p.Type == elf.PT_DYNAMIC {
			t.Error("the binary is not static")
		}
	}
	return r
}

// configure writes the file that compose.yaml mounts.
func (r *root) configure(text string) {
	r.t.Helper()
	if err := os.WriteFile(filepath.Join(r.dir, "etc/penstock/penstock.yaml"), []byte(text), 0o644); err != nil {
		r.t.Fatal(err)
	}
}

// command is one as a container of the image runs it: nobody's user, and as
// root also nothing of this machine's files.
func (r *root) command(args []string) *exec.Cmd {
	bin, conf := r.img.target, "/etc/penstock/penstock.yaml"
	cmd := exec.Command(bin, args...)
	if os.Geteuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: r.dir, Credential: &syscall.Credential{Uid: 65532, Gid: 65532}}
		cmd.Dir = "/"
	} else {
		cmd.Path = filepath.Join(r.dir, bin)
		for i, a := range cmd.Args {
			if a == conf {
				cmd.Args[i] = filepath.Join(r.dir, conf)
			}
		}
	}
	cmd.Env = r.env
	return cmd
}

// process is a running command of the image.
type process struct {
	*exec.Cmd
	addr string // where it listens
	t    *testing.T
	said strings.Builder
	more chan string
}

// start runs a command of the image, and waits until it says where it listens.
func (r *root) start(args []string, listens string) *process {
	r.t.Helper()
	p := &process{Cmd: r.command(args), t: r.t, more: make(chan string, 10_000)}
	pipe, err := p.StderrPipe()
	if err != nil {
		r.t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = p.Process.Kill() })
	go func() {
		defer close(p.more)
		for s := bufio.NewScanner(pipe); s.Scan(); {
			p.more <- s.Text()
		}
	}()
	limit := time.After(time.Minute)
	for {
		select {
		case l, ok := <-p.more:
			p.said.WriteString(l + "\n")
			if m := regexp.MustCompile(listens).FindStringSubmatch(l); m != nil {
				p.addr = m[1]
				return p
			}
			if !ok {
				p.end(syscall.SIGKILL)
				r.t.Fatalf("%v ended without listening\n%s", args, &p.said)
			}
		case <-limit:
			p.end(syscall.SIGKILL)
			r.t.Fatalf("%v does not listen\n%s", args, &p.said)
		}
	}
}

// end sends a signal and waits for the end. After SIGTERM that is code 0.
func (p *process) end(sig syscall.Signal) {
	p.t.Helper()
	_ = p.Process.Signal(sig)
	for l := range p.more {
		p.said.WriteString(l + "\n")
	}
	if err := p.Wait(); err != nil && sig != syscall.SIGKILL {
		p.t.Errorf("%v: %v\n%s", p.Args, err, &p.said)
	}
}

// deployedRedis starts a redis-server as compose.yaml does, on a free port.
func deployedRedis(t *testing.T, env map[string]string) (addr string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr = ln.Addr().String()
	_ = ln.Close()
	dir := t.TempDir()
	conf, err := filepath.Abs(filepath.Join(deployDir, "redis/redis.conf"))
	if err != nil {
		t.Fatal(err)
	}
	command := readCompose(t).Services["redis"].Command
	_, port, _ := net.SplitHostPort(addr)
	script := strings.NewReplacer("$$", "$", "/usr/local/etc/redis/redis.conf", conf, "/tmp/", dir+"/").
		Replace(strings.TrimSpace(command[2])) + " --port " + port + " --bind 127.0.0.1"
	cmd := exec.Command(command[0], command[1], script)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "REDISCLI_AUTH="+env["REDIS_PASSWORD"])
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Signal(syscall.SIGTERM); _ = cmd.Wait() })

	rdb := redis.NewClient(&redis.Options{Addr: addr, Password: env["REDIS_PASSWORD"]})
	defer rdb.Close()
	await(t, 30*time.Second, "redis-server answers", func() bool { return rdb.Ping(t.Context()).Err() == nil })
	report, err := queue.CheckServer(t.Context(), rdb)
	if err != nil || len(report.Warnings) > 0 || !report.AOF || report.Policy != "noeviction" || report.MaxMemory == 0 {
		t.Errorf("%+v %v\n%s", report, err, &out)
	}
	if open := redis.NewClient(&redis.Options{Addr: addr}); open.Ping(t.Context()).Err() == nil {
		t.Error("it answers without the password")
	} else {
		_ = open.Close()
	}
	return addr
}

func await(t *testing.T, limit time.Duration, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(limit); !cond(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %s: %s", limit, what)
		}
	}
}

// The containers of compose.yaml, by hand: the binary is built as the
// Dockerfile does and sees what the image holds, Redis runs with its
// configuration, one of the workers is killed, and every job succeeds.
func TestFaultDeployment(t *testing.T) {
	defer http.DefaultClient.CloseIdleConnections()
	const jobs = 500
	compose, env := readCompose(t), exampleEnv(t)
	store := deployedRedis(t, env)
	r := buildRoot(t, env)
	if out, err := r.command([]string{"version"}).CombinedOutput(); err != nil || !bytes.HasPrefix(out, []byte("penstock ")) {
		t.Fatalf("version: %v %s", err, out)
	}
	on := func(service string) []string {
		args := slices.Clone(compose.Services[service].Command)
		for i := range args {
			args[i] = strings.NewReplacer("0.0.0.0:8080", "127.0.0.1:0", "0.0.0.0:9000", "127.0.0.1:0").Replace(args[i])
		}
		return args
	}
	fragile := r.start(on("fragile"), `listens on (http://\S+)`)
	r.configure(strings.NewReplacer("redis:6379", store, "http://fragile:9000", fragile.addr, "0.0.0.0:8080", "127.0.0.1:0").
		Replace(deployFile(t, "penstock.yaml")))
	const listening = `"listening".*"addr":"([^"]+)"`
	server := r.start(on("api"), listening)
	first, second := r.start(on("worker"), listening), r.start(on("worker"), listening)
	scrape(t, "http://"+first.addr+"/metrics", env["METRICS_TOKEN"])

	client, err := api.NewClient("http://"+server.addr, env["PRODUCER_TOKEN"])
	if err != nil {
		t.Fatal(err)
	}
	var lines strings.Builder
	for i := range jobs {
		fmt.Fprintf(&lines, `{"provider":"rehearsal","id":"n-%d","path":"/hello","body":{"n":%d}}`+"\n", i, i)
	}
	for l, err := range client.Batch(t.Context(), strings.NewReader(lines.String())) {
		if err != nil || l.Error != nil {
			t.Fatal(err, l.Error)
		}
	}
	succeeded := func(i int) bool {
		info, err := client.Job(t.Context(), "rehearsal", fmt.Sprintf("n-%d", i))
		if err != nil {
			t.Fatal(err)
		}
		if info.State.Final() && info.State != queue.Succeeded {
			t.Fatalf("%+v", info)
		}
		return info.State == queue.Succeeded
	}
	await(t, time.Minute, "jobs are under way", func() bool { return succeeded(jobs / 4) })
	first.end(syscall.SIGKILL)
	for i := range jobs {
		await(t, 2*time.Minute, "every job succeeds", func() bool { return succeeded(i) })
	}
	// What the image does when it is told nothing: one process for everything.
	all := r.start(append(slices.Clone(r.img.entrypoint[1:]), r.img.cmd...), `(listening)`)
	for _, p := range []*process{all, second, server, fragile} {
		p.end(syscall.SIGTERM)
	}
}

// scrape wants metrics of a process, with the token and not without.
func scrape(t *testing.T, url, token string) {
	t.Helper()
	for _, c := range []struct {
		token string
		want  int
	}{{"", 401}, {token, 200}} {
		status, body := get(t, url, c.token)
		if status != c.want || c.want == 200 && !bytes.Contains(body, []byte("penstock_attempts_total")) {
			t.Errorf("%s with %q: %d %.200s", url, c.token, status, body)
		}
	}
}

func get(t *testing.T, url, token string) (int, []byte) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, b
}
