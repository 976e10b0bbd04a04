package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/penstock-io/penstock/internal/bench"
	"github.com/penstock-io/penstock/internal/demo"
	"github.com/penstock-io/penstock/internal/fragile"
)

// textFlag is a flag of a type that reads and writes itself as text.
type textFlag struct {
	set  func(string) error
	text string
	kind string
}

func (f *textFlag) String() string     { return f.text }
func (f *textFlag) Type() string       { return f.kind }
func (f *textFlag) Set(s string) error { f.text = s; return f.set(s) }

func (c *cli) fragile() *cobra.Command {
	var file, listen, timeline string
	var asJSON bool
	var duration time.Duration
	var fc fragile.Config
	var changes []func(*fragile.Config) // flags go before the file
	cmd := &cobra.Command{
		Use: "fragile", Short: "Run a provider with a hidden limit, to rehearse with", Args: cobra.NoArgs,
		Long: `Fragile is an HTTP provider with a hidden limit, a cap of calls in flight, latency
and a script of troubles. When it ends (Ctrl-C, or --duration) it reports what it
saw: calls, refusals, used share, evenness, jobs that succeeded twice.

The script has one trouble a line, times from the start: "10s..20s error 500",
"30s..40s hang", "1m..2m limit 50/s". Its fields may stand in a file, too.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if file != "" {
				var err error
				if fc, err = fragile.Load(file); err != nil {
					return usageError{err}
				}
			}
			for _, change := range changes {
				change(&fc)
			}
			if timeline != "" {
				if err := loadTimeline(timeline, &fc); err != nil {
					return err
				}
			}
			if err := fc.Validate(); err != nil {
				return usageError{err}
			}
			if duration < 0 {
				return wrongUse("--duration must not be negative")
			}
			return c.runFragile(cmd.Context(), fc, listen, duration, asJSON)
		},
	}
	f := cmd.Flags()
	text := func(name, kind, help string, read func(*fragile.Config) interface{ UnmarshalText([]byte) error }) {
		f.Var(&textFlag{kind: kind, set: func(s string) error {
			var probe fragile.Config
			if err := read(&probe).UnmarshalText([]byte(s)); err != nil {
				return err
			}
			changes = append(changes, func(fc *fragile.Config) { _ = read(fc).UnmarshalText([]byte(s)) })
			return nil
		}}, name, help)
	}
	type unmarshaler = interface{ UnmarshalText([]byte) error }
	text("limit", "rate", "hidden rate limit, like 100/s", func(fc *fragile.Config) unmarshaler { return &fc.Limit })
	text("kind", "kind", "how it counts: sliding, bucket or fixed", func(fc *fragile.Config) unmarshaler { return &fc.Kind })
	text("latency", "time", "latency, like 20ms±10ms", func(fc *fragile.Config) unmarshaler { return &fc.Latency })
	number := func(name, help string, into func(*fragile.Config) *int) {
		f.Var(&textFlag{kind: "int", set: func(s string) error {
			var n int
			if _, err := fmt.Sscanf(s, "%d", &n); err != nil || fmt.Sprint(n) != s {
				return fmt.Errorf("%q is not a whole number", s)
			}
			changes = append(changes, func(fc *fragile.Config) { *into(fc) = n })
			return nil
		}}, name, help)
	}
	number("burst", "tokens of a bucket", func(fc *fragile.Config) *int { return &fc.Burst })
	number("in-flight", "cap of calls in flight", func(fc *fragile.Config) *int { return &fc.InFlight })
	number("servers", "calls worked on at once; more wait in line", func(fc *fragile.Config) *int { return &fc.Servers })
	number("remember", "calls to remember one by one", func(fc *fragile.Config) *int { return &fc.Remember })
	words := func(name, help string, into func(*fragile.Config, string)) {
		f.Var(&textFlag{kind: "text", set: func(s string) error {
			changes = append(changes, func(fc *fragile.Config) { into(fc, s) })
			return nil
		}}, name, help)
	}
	words("name", "name in the report", func(fc *fragile.Config, s string) { fc.Name = s })
	words("count-by", "request header whose values are counted apart", func(fc *fragile.Config, s string) { fc.CountBy = s })
	words("retry-after", "form of Retry-After in refusals", func(fc *fragile.Config, s string) { fc.RetryAfter = fragile.RetryAfter(s) })
	f.Uint64Var(&fc.Seed, "seed", 0, "seed of everything drawn")
	f.StringVar(&timeline, "timeline", "", "file with the script of troubles")
	f.StringVarP(&file, "config", "c", "", "YAML file with these settings; flags go before it")
	f.StringVar(&listen, "listen", "127.0.0.1:0", "host:port")
	f.DurationVar(&duration, "duration", 0, "end by itself after this time")
	f.BoolVar(&asJSON, "json", false, "print the report as JSON")
	return cmd
}

func loadTimeline(path string, fc *fragile.Config) error {
	f, err := os.Open(path)
	if err != nil {
		return usageError{err}
	}
	defer f.Close()
	list, err := fragile.ParseTimeline(f)
	if err != nil {
		return wrongUse("%s: %w", path, err)
	}
	fc.Timeline = append(fc.Timeline, list...)
	return nil
}

func (c *cli) runFragile(ctx context.Context, fc fragile.Config, listen string, duration time.Duration, asJSON bool) error {
	if duration > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, duration)
		defer cancel()
	}
	opt := fragile.Options{Listen: listen, Ready: func(url string) {
		fmt.Fprintf(c.err, "%s listens on %s (%s)\n", nameOf(fc), url, fc)
	}}
	if isTerminal(c.err) {
		opt.Show = func(l fragile.Live) {
			fmt.Fprintf(c.err, "\r\033[K%d/s, %d in flight, %d calls, %d refused, %.1f %% used ", l.Rate, l.InFlight, l.Calls, l.Refused, 100*l.Used)
		}
	}
	report, err := fragile.Run(ctx, fc, opt)
	if opt.Show != nil {
		fmt.Fprint(c.err, "\r\033[K")
	}
	if err != nil {
		return err
	}
	if asJSON {
		return printJSON(c.out, report)
	}
	return report.WriteText(c.out)
}

func nameOf(fc fragile.Config) string {
	if fc.Name == "" {
		return "fragile"
	}
	return fc.Name
}

func (c *cli) bench() *cobra.Command {
	var opt bench.Options
	var asJSON, list bool
	cmd := &cobra.Command{
		Use: "bench [NAME…]", Short: "Measure Penstock beside plain asynq on this machine", Args: cobra.ArbitraryArgs,
		Long: "Bench starts a redis-server and worker processes of its own. Without names it runs\nevery comparison:\n\n" + comparisons(),
		RunE: func(cmd *cobra.Command, args []string) error {
			if list {
				fmt.Fprint(c.out, comparisons())
				return nil
			}
			opt.Names = args
			if err := opt.Validate(); err != nil {
				return usageError{err}
			}
			opt.Progress = func(s string) { fmt.Fprintln(c.err, s) }
			results, err := bench.Run(cmd.Context(), opt)
			write := results.WriteText
			if asJSON {
				write = results.WriteJSON
			}
			if len(results.Results) > 0 {
				err = errors.Join(err, write(c.out))
			}
			return err
		},
	}
	f := cmd.Flags()
	f.IntVar(&opt.Runs, "runs", 3, "runs of each case")
	f.Float64Var(&opt.Scale, "scale", 1, "share of the jobs, for a quick look")
	f.BoolVar(&list, "list", false, "list the comparisons")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func comparisons() string {
	var b strings.Builder
	for _, n := range bench.Names() {
		fmt.Fprintf(&b, "  %-11s %s\n", n[0], n[1])
	}
	return b.String()
}

func (c *cli) benchWorker() *cobra.Command {
	return &cobra.Command{
		Use: bench.WorkerCommand, Hidden: true, Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return bench.Worker(c.in, c.out) },
	}
}

func (c *cli) demo() *cobra.Command {
	opt := demo.Options{}
	var asJSON bool
	cmd := &cobra.Command{
		Use: "demo", Short: "See Penstock at work, with nothing installed", Args: cobra.NoArgs,
		Long: `Demo sends a few thousand jobs to two fragile providers in this process, first
shaped by Penstock, then by plain asynq, and shows what the providers counted. It
exits with 1 when a limit was broken; --break proves that it would.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if opt.Duration < demo.MinDuration || opt.Duration > demo.MaxDuration {
				return wrongUse("--duration must be from %s to %s", demo.MinDuration, demo.MaxDuration)
			}
			opt.Out, opt.Terminal = c.err, isTerminal(c.err)
			opt.Logger = slog.New(slog.NewTextHandler(c.err, &slog.HandlerOptions{Level: slog.LevelError}))
			v, err := demo.Run(cmd.Context(), opt)
			if err != nil {
				return err
			}
			if asJSON {
				err = printJSON(c.out, v)
			} else {
				err = v.WriteText(c.out)
			}
			if err == nil && len(v.Broken()) > 0 {
				err = errors.New("a limit was broken")
			}
			return err
		},
	}
	f := cmd.Flags()
	f.DurationVar(&opt.Duration, "duration", demo.DefaultDuration, "how long it takes, about")
	f.BoolVar(&opt.Break, "break", false, "take the headroom away and set the rates too high")
	f.BoolVar(&asJSON, "json", false, "print the verdict as JSON")
	return cmd
}
