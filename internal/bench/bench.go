package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
)

// Options of Run.
type Options struct {
	// Names of the comparisons, see Names. Empty: all.
	Names []string
	// Runs of each case. Zero: 3.
	Runs int
	// Scale is the share of the jobs and of the waiting, for a quick look; the
	// figures that are wanted are meant for 1. Zero: 1.
	Scale float64
	// Command starts a worker process: path and arguments. Empty: this binary
	// with WorkerCommand.
	Command []string
	// Serve starts a server; its configuration is added. Empty: this binary
	// with "serve".
	Serve []string
	// Progress is told what is being measured. Nil: nobody.
	Progress func(string)
	// Done is given each result at once. Nil: nobody.
	Done func(Result)
}

// comparison measures one run of all its cases, on both sides.
type comparison struct {
	name, about string
	run         func(*rig, int) error
}

func comparisons() []comparison {
	return []comparison{
		{"shape", "used share, refusals, evenness and Redis commands per job at 5/s, 100/s and 1000/s and without a limit", (*rig).shape},
		{"fairness", "the shares of four processes, one of them further away from Redis", (*rig).fairness},
		{"throughput", "jobs per second with nothing to wait for and nothing to do, beside plain asynq", (*rig).throughput},
		{"enqueue", "jobs per second that one producer stores, beside plain asynq", (*rig).enqueue},
		{"idle", "what 20 idle providers cost, and from enqueue to call", (*rig).idle},
		{"kill", "kill -9 of one of two workers under load", (*rig).kill},
		{"outage", "a provider that fails every call for a minute: calls made in it, time to recover, peak afterwards", (*rig).outage},
		{"webhooks", "a storm of 5,000 signed webhooks: as it is, with the receiver or Redis killed, with Redis away for a minute", (*rig).webhooks},
	}
}

// Names lists the comparisons as name and what it measures.
func Names() [][2]string {
	var list [][2]string
	for _, c := range comparisons() {
		list = append(list, [2]string{c.name, c.about})
	}
	return list
}

// Validate returns every fault, each naming the field and the remedy.
func (o Options) Validate() error {
	var errs []error
	var known []string
	for _, c := range comparisons() {
		known = append(known, c.name)
	}
	for _, n := range o.Names {
		if !slices.Contains(known, n) {
			errs = append(errs, fmt.Errorf("no comparison is called %q; choose from %s", n, strings.Join(known, ", ")))
		}
	}
	if o.Runs < 0 || o.Runs > 100 {
		errs = append(errs, fmt.Errorf("runs: must be from 1 to 100, not %d", o.Runs))
	}
	if !(o.Scale == 0 || o.Scale >= 0.01 && o.Scale <= 10) {
		errs = append(errs, fmt.Errorf("scale: must be from 0.01 to 10, not %v", o.Scale))
	}
	return errors.Join(errs...)
}

// Run measures. What was measured before an error, or before ctx ended, is
// returned with it.
func Run(ctx context.Context, opt Options) (Results, error) {
	if err := opt.Validate(); err != nil {
		return Results{}, err
	}
	opt.Runs, opt.Scale = cmp.Or(opt.Runs, 3), cmp.Or(opt.Scale, 1)
	self, err := os.Executable()
	if err != nil {
		return Results{}, fmt.Errorf("find this program to start workers: %w", err)
	}
	if len(opt.Command) == 0 {
		opt.Command = []string{self, WorkerCommand}
	}
	if len(opt.Serve) == 0 {
		opt.Serve = []string{self, "serve"}
	}
	server, err := startRedis(ctx)
	if err != nil {
		return Results{}, err
	}
	r := &rig{ctx: ctx, opt: opt, redis: server}
	r.results.Machine = thisMachine(server.version(ctx))
	for _, c := range comparisons() {
		if len(opt.Names) > 0 && !slices.Contains(opt.Names, c.name) {
			continue
		}
		for run := 1; run <= opt.Runs && err == nil; run++ {
			if err = c.run(r, run); err != nil {
				err = fmt.Errorf("%s: %w", c.name, err)
			}
		}
	}
	inOrder(r.results.Results)
	return r.results, errors.Join(err, server.Close())
}

// inOrder puts the runs of one case and side together, the cases in the order
// in which they were first measured.
func inOrder(results []Result) {
	type key struct{ bench, name, side string }
	first := map[key]int{}
	of := func(r Result) key { return key{r.Bench, r.Case, r.Side} }
	for i, r := range results {
		if _, known := first[of(r)]; !known {
			first[of(r)] = i
		}
	}
	slices.SortStableFunc(results, func(a, b Result) int { return first[of(a)] - first[of(b)] })
}
