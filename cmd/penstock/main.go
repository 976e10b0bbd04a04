// Command penstock runs and operates Penstock: the server and workers, a
// client of the HTTP API, and tools to rehearse with.
//
// Results go to stdout and everything else to stderr. Exit codes: 0 done,
// 1 failed, 2 wrong use. Flags and what is printed are all that lives here.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// The first signal asks for a stop in order; the next one ends at once.
	context.AfterFunc(ctx, stop)
	// go-redis logs each failed dial by itself; who needed the connection says so.
	redis.SetLogger(quiet{})
	// net/http logs by itself what a provider sends unasked, which may be anything.
	log.SetOutput(io.Discard)
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

// Exit codes.
const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2
)

// cli is what every command needs of the world.
type cli struct {
	in       io.Reader
	out, err io.Writer
	env      func(string) string
}

// usageError is wrong use: exit code 2.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func wrongUse(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// errSilent says that what went wrong is printed already.
var errSilent = errors.New("failed")

// run runs one command line and returns its exit code.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	c := &cli{in: stdin, out: stdout, err: stderr, env: os.Getenv}
	root := c.root()
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	done, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exitDone
	}
	if _, ok := errors.AsType[usageError](err); ok || isCobraUsage(err) {
		path := done.CommandPath()
		if done.Hidden {
			path = root.Name()
		}
		fmt.Fprintf(stderr, "penstock: %v\nSee %s --help.\n", err, path)
		return exitUsage
	}
	if !errors.Is(err, errSilent) {
		fmt.Fprintf(stderr, "penstock: %v\n", err)
	}
	return exitFailed
}

// isCobraUsage: cobra has no type for what it says of commands and groups.
func isCobraUsage(err error) bool {
	for _, s := range []string{"unknown command", "required flag(s)", "if any flags in the group"} {
		if strings.HasPrefix(err.Error(), s) {
			return true
		}
	}
	return false
}

// root is the command tree.
func (c *cli) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "penstock",
		Short: "A job-queue shaper for calls to fragile providers",
		Long: `Penstock takes jobs in, and calls a provider at an even pace that never exceeds
what it can take, without losing a job.

  penstock demo                      see it at work, with nothing installed
  penstock check penstock.yaml       look for faults in a configuration
  penstock serve -c penstock.yaml    run API and workers
  penstock enqueue --provider sms --path /messages --body '{"to": "…"}'`,
		SilenceErrors: true, SilenceUsage: true,
		Args: cobra.NoArgs, RunE: needsCommand,
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	root.AddCommand(c.serve(), c.check(), c.enqueue(), c.jobs(), c.providers(), c.fragile(), c.simulate(), c.suggest(), c.bench(), c.benchWorker(), c.demo(), c.webhooks(), c.version())
	for name, fix := range notBuiltYet {
		root.AddCommand(c.notBuilt(name, fix))
	}
	wrapArgs(root)
	return root
}

// needsCommand is what a command does that is only a name for others.
func needsCommand(cmd *cobra.Command, _ []string) error {
	var names []string
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			names = append(names, sub.Name())
		}
	}
	return wrongUse("%s needs a command: %s", cmd.CommandPath(), strings.Join(names, ", "))
}

// wrapArgs makes wrong arguments wrong use, for the whole tree.
func wrapArgs(cmd *cobra.Command) {
	cmd.SuggestionsMinimumDistance = 2
	if check := cmd.Args; check != nil {
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			if cmd.HasSubCommands() && len(args) > 0 {
				s := ""
				if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
					s = fmt.Sprintf("; did you mean %s?", strings.Join(near, " or "))
				}
				return wrongUse("%s has no command %q%s", cmd.CommandPath(), args[0], s)
			}
			if err := check(cmd, args); err != nil {
				return wrongUse("%s: %w", cmd.Name(), err)
			}
			return nil
		}
	}
	for _, sub := range cmd.Commands() {
		wrapArgs(sub)
	}
}

// notBuiltYet are commands of the contract that this version has not.
var notBuiltYet = map[string]string{
	"top":    "penstock providers list shows the same figures once",
	"doctor": "penstock check looks at a configuration, and serve at the Redis it is given",
}

func (c *cli) notBuilt(name, instead string) *cobra.Command {
	return &cobra.Command{
		Use: name, Hidden: true, DisableFlagParsing: true,
		RunE: func(*cobra.Command, []string) error {
			return wrongUse("%s is not built yet; %s", name, instead)
		},
	}
}
