package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/penstock-io/penstock/internal/api"
	"github.com/penstock-io/penstock/internal/app"
	"github.com/penstock-io/penstock/internal/config"
)

func TestMain(m *testing.M) { testscript.Main(m, map[string]func(){"penstock": main}) }

const scriptToken = "operator-0123456789"

// The command line is pinned by scripts: stdout, stderr, exit code.
func TestScripts(t *testing.T) {
	if list, err := filepath.Glob("testdata/script/*.txtar"); err != nil || len(list) < 8 {
		t.Fatalf("only %d scripts: %v", len(list), err)
	}
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script", RequireExplicitExec: true, RequireUniqueNames: true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("HOME", env.WorkDir)
			env.Setenv("PENSTOCK_SERVER", "")
			env.Setenv("PENSTOCK_TOKEN", "")
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"server": startServer, "exits": exits, "await": await, "freeport": freePort,
		},
	})
}

// server starts Penstock and a provider in this process, on the embedded store,
// and sets PENSTOCK_SERVER and PENSTOCK_TOKEN.
func startServer(ts *testscript.TestScript, _ bool, _ []string) {
	down := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if strings.HasPrefix(r.URL.Path, "/bad") {
			w.WriteHeader(http.StatusBadRequest)
		}
	}))
	ts.Defer(down.Close)
	url, stop, err := serveHere(fmt.Sprintf(`redis: embedded
listen: 127.0.0.1:0
auth: {operators: [{name: ops, token: %s}], producers: [{name: shop, token: producer-0123456789}]}
providers:
  sms: {base_url: %q, rate: 1000/s, concurrency: 20}
  email: {base_url: %q, rate: 10/s}
`, scriptToken, down.URL, down.URL))
	ts.Check(err)
	ts.Defer(func() { ts.Check(stop()) })
	ts.Setenv("PENSTOCK_SERVER", url)
	ts.Setenv("PENSTOCK_TOKEN", scriptToken)
}

// serveHere runs a server in this process until stop, which may be called again.
func serveHere(conf string) (url string, stop func() error, err error) {
	cfg, rep := config.Parse("script.yaml", []byte(conf), os.LookupEnv)
	if cfg == nil {
		return "", nil, fmt.Errorf("%s", rep)
	}
	started, ended := make(chan net.Addr, 1), make(chan error, 1)
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		ended <- app.Serve(ctx, cfg, app.Options{Started: func(a net.Addr) { started <- a }, Logger: slog.New(slog.DiscardHandler)})
	}()
	stop = sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
	select {
	case a := <-started:
		return "http://" + a.String(), stop, nil
	case err := <-ended:
		cancel()
		return "", nil, fmt.Errorf("the server did not start: %w", err)
	}
}

// exits CODE COMMAND… runs a command and checks its exit code.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND…")
	}
	err := ts.Exec(args[1], args[2:]...)
	got := 0
	if err != nil {
		failed, ok := errors.AsType[*exec.ExitError](err)
		if !ok {
			ts.Fatalf("%v", err)
		}
		got = failed.ExitCode()
	}
	if fmt.Sprint(got) != args[0] {
		ts.Fatalf("exit code %d, want %s", got, args[0])
	}
}

// await URL waits until it answers 200.
func await(ts *testscript.TestScript, _ bool, args []string) {
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		resp, err := http.Get(args[0])
		if err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return
			}
		}
		if time.Now().After(deadline) {
			ts.Fatalf("%s does not answer: %v", args[0], err)
		}
	}
}

// freePort sets PORT.
func freePort(ts *testscript.TestScript, _ bool, _ []string) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	ts.Check(err)
	_, port, err := net.SplitHostPort(ln.Addr().String())
	ts.Check(err)
	ts.Check(ln.Close())
	ts.Setenv("PORT", port)
}

// The flags of enqueue are the job's field names, all of them.
func TestEnqueueFlagsAreTheJobsFields(t *testing.T) {
	cmd := (&cli{in: strings.NewReader(""), env: os.Getenv}).enqueue()
	for _, name := range api.JobFields {
		f := cmd.Flags().Lookup(name)
		if f == nil || f.Usage == "" {
			t.Errorf("--%s is missing or has no help", name)
		}
	}
	if len(jobHelp) != len(api.JobFields) {
		t.Errorf("help for %d fields of %d", len(jobHelp), len(api.JobFields))
	}
}

// Every command says what it does and refuses unknown flags and arguments.
func TestCommandTree(t *testing.T) {
	root := (&cli{in: strings.NewReader(""), env: os.Getenv}).root()
	n := 0
	for _, cmd := range root.Commands() {
		for _, c := range append(cmd.Commands(), cmd) {
			n++
			if !c.Hidden && (c.Short == "" || c.RunE == nil && c.Run == nil) && c.Name() != "completion" {
				t.Errorf("%s has no help or does nothing", c.CommandPath())
			}
		}
	}
	if n < 20 {
		t.Fatalf("only %d commands", n)
	}
}
