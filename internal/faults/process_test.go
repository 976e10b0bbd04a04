//go:build faults

package faults

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// binary is the built penstock.
var binary string

// together is how many tests run at once: they wait most of the time.
const together = "10"

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		_ = flag.Set("test.parallel", together)
	}
	dir, err := os.MkdirTemp("", "penstock-faults-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "penstock")
	build := exec.Command("go", "build", "-o", binary, "../../cmd/penstock")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "%v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// process is a running command of penstock.
type process struct {
	t    *testing.T
	name string
	cmd  *exec.Cmd
	out  *text
	done chan struct{}
}

// text is what a process has said so far.
type text struct {
	mu sync.Mutex
	b  strings.Builder
}

func (x *text) Write(p []byte) (int, error) { x.mu.Lock(); defer x.mu.Unlock(); return x.b.Write(p) }
func (x *text) String() string              { x.mu.Lock(); defer x.mu.Unlock(); return x.b.String() }

// start runs penstock; it is killed with the test.
func start(t *testing.T, name string, args ...string) *process {
	t.Helper()
	p := &process{t: t, name: name, cmd: exec.Command(binary, args...), out: &text{}, done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = p.out, p.out
	p.cmd.Env = append(os.Environ(), "PENSTOCK_SERVER=", "PENSTOCK_TOKEN=")
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = p.cmd.Wait() // how it ended is in ProcessState
		close(p.done)
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Signal(syscall.SIGCONT)
		_ = p.cmd.Process.Kill()
		<-p.done
		if t.Failed() {
			t.Logf("%s said:\n%s", name, tail(p.out.String()))
		}
	})
	return p
}

func tail(s string) string {
	const most = 3000
	if len(s) > most {
		return "…" + s[len(s)-most:]
	}
	return s
}

// says waits until the process has said something, and returns the first group.
func (p *process) says(limit time.Duration, pattern string) string {
	p.t.Helper()
	re := regexp.MustCompile(pattern)
	for end := time.Now().Add(limit); ; {
		ended := false
		select {
		case <-p.done:
			ended = true
		case <-time.After(20 * time.Millisecond):
		}
		if m := re.FindStringSubmatch(p.out.String()); m != nil {
			return m[len(m)-1]
		}
		if ended || time.Now().After(end) {
			p.t.Fatalf("%s does not say %q (ended: %t)", p.name, pattern, ended)
		}
	}
}

// signal sends one; the process must live.
func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatalf("%s: %v", p.name, err)
	}
}

// ends waits for the end and returns how it ended: "0", "1", "2", or the
// signal's name.
func (p *process) ends(limit time.Duration) string {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(limit):
		p.t.Fatalf("%s has not ended after %s", p.name, limit)
	}
	state := p.cmd.ProcessState
	if w, ok := state.Sys().(syscall.WaitStatus); ok && w.Signaled() {
		return w.Signal().String()
	}
	return fmt.Sprint(state.ExitCode())
}

// command runs penstock to its end and returns the exit code and all it said.
func command(t *testing.T, env []string, args ...string) (code int, said string) {
	t.Helper()
	cmd := exec.Command(binary, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.WaitDelay = time.Second
	end := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
	defer end.Stop()
	out, err := cmd.CombinedOutput()
	if failed, ok := errors.AsType[*exec.ExitError](err); ok {
		return failed.ExitCode(), string(out)
	}
	if err != nil {
		t.Fatal(err)
	}
	return 0, string(out)
}
