package bench

import (
	"fmt"
	"os"
	"testing"
)

// TestMain lets the test binary be the worker process, and serve.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == serveCommand {
		os.Exit(serve(os.Args[2:]))
	}
	if len(os.Args) == 2 && os.Args[1] == WorkerCommand {
		if err := Worker(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// testRig is a rig with a redis-server of its own, at a small scale.
func testRig(t *testing.T) *rig {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s, err := startRedis(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return &rig{ctx: t.Context(), redis: s, opt: Options{Runs: 1, Scale: 0.01, Command: []string{self, WorkerCommand}, Serve: []string{self, serveCommand}}}
}

// Plain asynq in real processes: every job once, some ten commands a job.
func TestPlainDrain(t *testing.T) {
	r := testRig(t)
	d := drain{side: sidePlain, jobs: 100, shop: shop("none"), atOnce: 10, oneWay: distances(2, 0), most: killMost}
	out, err := r.drain(d)
	if err != nil {
		t.Fatal(err)
	}
	rep := out.report
	if rep.JobsSucceeded != 100 || rep.AttemptsMax != 1 || rep.By["1"]+rep.By["2"] != 100 || rep.PeakInFlight > 20 {
		t.Errorf("%+v", rep)
	}
	if per := out.commandsPerJob(); per < 10 || per > 60 { // with so few jobs the polling counts
		t.Errorf("%.1f commands a job: %v", per, out.commands)
	}
}

// A killed process is noticed, and nothing hangs.
func TestKilledProcess(t *testing.T) {
	r := testRig(t)
	f, err := r.start(workerSpec{Side: sidePlain, Concurrency: 1, Providers: []providerSpec{{Name: "a", URL: "http://127.0.0.1:1"}}}, 0)
	if err != nil {
		t.Fatal(err)
	}
	if u, err := f.processes[0].usage(t.Context()); err != nil || u.CPU <= 0 {
		t.Errorf("%+v, %v", u, err)
	}
	if err := f.processes[0].kill(); err != nil {
		t.Error(err)
	}
	if err := f.stop(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestBadSideIsSaid(t *testing.T) {
	r := testRig(t)
	if _, err := r.start(workerSpec{Side: "other"}, 0); err == nil {
		t.Error("started")
	}
}
