package main

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/penstock-io/penstock/internal/api"
	"github.com/penstock-io/penstock/internal/config"
	"github.com/penstock-io/penstock/queue"
	"github.com/penstock-io/penstock/shaper"
)

func mapKeys[V any](m map[string]V) iter.Seq[string] { return maps.Keys(m) }

func (c *cli) providers() *cobra.Command {
	cmd := &cobra.Command{Use: "providers", Short: "Look at providers, pause them and change their limits", Args: cobra.NoArgs, RunE: needsCommand}
	cmd.AddCommand(c.providersList(), c.providersSet(),
		c.onProvider("get", "Show one provider", (*api.Client).Provider),
		c.onProvider("pause", "Stop all calls to a provider, on every worker", (*api.Client).Pause),
		c.onProvider("resume", "Undo a pause, and end any hold", (*api.Client).Resume))
	return cmd
}

func (c *cli) providersList() *cobra.Command {
	var t *talk
	cmd := &cobra.Command{
		Use: "list", Short: "List all providers", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cl, err := c.client(t)
			if err != nil {
				return err
			}
			list, err := cl.Providers(cmd.Context())
			if err != nil {
				return explain(err)
			}
			rows := [][]string{{"PROVIDER", "STATE", "RATE", "IN FLIGHT", "WAITING", "DELAYED", "RETRYING", "RUNNING", "DEAD"}}
			for _, p := range list {
				if t.json {
					if err := printJSON(c.out, p); err != nil {
						return err
					}
					continue
				}
				row := []string{p.Name, providerState(p), rateInForce(p), inFlight(p)}
				for _, s := range []queue.State{queue.Waiting, queue.Delayed, queue.Retrying, queue.Running, queue.Dead} {
					row = append(row, strconv.FormatInt(p.Jobs[s], 10))
				}
				rows = append(rows, row)
			}
			if t.json {
				return nil
			}
			return table(c.out, rows...)
		},
	}
	t = c.talkFlags(cmd)
	return cmd
}

// providerState is why nobody goes, in a word.
func providerState(p api.ProviderStatus) string {
	switch {
	case p.Paused:
		return "paused"
	case !p.HeldUntil.IsZero():
		return "held"
	case p.Health != nil && p.Health.Adaptive == "on" && p.Health.State != "closed":
		return p.Health.State
	case p.Cautious != "":
		return "cautious"
	case !p.LearningUntil.IsZero():
		return "learning"
	}
	return "ok"
}

// rateInForce is the rate, and what health leaves of it.
func rateInForce(p api.ProviderStatus) string {
	limit := noLimit(p.Limits.Rate)
	h := p.Health
	if h == nil || h.Adaptive != "on" || h.Rate == 0 {
		return limit
	}
	if r, err := shaper.ParseRate(p.Limits.Rate); err == nil && h.Rate >= 0.9*r.PerSec() {
		return limit // what is missing is the headroom's
	}
	now := strconv.FormatFloat(h.Rate, 'g', 3, 64) + "/s"
	if p.Limits.Rate == "" {
		return now
	}
	return now + " of " + limit
}

// healthRows show how a provider stands and why.
func healthRows(h *api.Health) [][2]string {
	if h == nil {
		return nil
	}
	rows := [][2]string{{"adaptive", h.Adaptive}, {"health", h.State}, {"since", moment(h.ChangedAt)}, {"because", h.Reason}}
	if h.Factor < 1 {
		rows = append(rows, [2]string{"share of the rate", strconv.FormatFloat(h.Factor, 'g', 3, 64)})
	}
	if h.Ceiling > 0 {
		rows = append(rows, [2]string{"ceiling", strconv.FormatFloat(h.Ceiling, 'g', 3, 64) + "/s"})
	}
	if h.Concurrency > 0 {
		rows = append(rows, [2]string{"in flight allowed", strconv.Itoa(h.Concurrency)})
	}
	return append(rows, [2]string{"probed from", moment(h.OpenUntil)})
}

func inFlight(p api.ProviderStatus) string {
	if p.Limits.Concurrency == 0 {
		return strconv.Itoa(p.InFlight)
	}
	return fmt.Sprintf("%d of %d", p.InFlight, p.Limits.Concurrency)
}

func noLimit(s string) string {
	if s == "" || s == "0" {
		return "no limit"
	}
	return s
}

// onProvider makes a command on one provider that shows what it came to.
func (c *cli) onProvider(use, short string, do func(cl *api.Client, ctx context.Context, name string) (api.ProviderStatus, error)) *cobra.Command {
	var t *talk
	cmd := &cobra.Command{
		Use: use + " PROVIDER", Short: short, Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := c.client(t)
			if err != nil {
				return err
			}
			p, err := do(cl, cmd.Context(), args[0])
			if err != nil {
				return explain(err)
			}
			if t.json {
				return printJSON(c.out, p)
			}
			return table(c.out, providerRows(p)...)
		},
	}
	t = c.talkFlags(cmd)
	return cmd
}

func providerRows(p api.ProviderStatus) [][]string {
	rows := [][]string{
		{"provider", p.Name}, {"state", providerState(p)}, {"rate", rateInForce(p)}, {"burst", strconv.Itoa(p.Limits.Burst)},
		{"headroom", p.Limits.Headroom}, {"concurrency", noLimit(strconv.Itoa(p.Limits.Concurrency))}, {"in flight", strconv.Itoa(p.InFlight)},
		{"processes", strconv.Itoa(p.Processes)},
	}
	add := func(name, value string) {
		if value != "" && value != "-" && value != "0" {
			rows = append(rows, []string{name, oneLine(value)})
		}
	}
	add("held until", moment(p.HeldUntil))
	add("held because", p.HeldReason)
	for _, row := range healthRows(p.Health) {
		add(row[0], row[1])
	}
	add("one at a time", p.Cautious)
	add("half rate until", moment(p.LearningUntil))
	for _, s := range queue.States() {
		if n := p.Jobs[s]; n > 0 || s == queue.Waiting {
			rows = append(rows, []string{string(s), strconv.FormatInt(n, 10)})
		}
	}
	add("max body", config.FormatSize(p.Defaults.MaxBody))
	add("attempts", strconv.Itoa(p.Defaults.Attempts))
	add("max age", p.Defaults.MaxAge)
	add("keep", p.Defaults.Keep)
	return rows
}

func (c *cli) providersSet() *cobra.Command {
	var t *talk
	var dry bool
	cmd := &cobra.Command{
		Use: "set PROVIDER", Short: "Change a provider's limits, live, on every worker", Args: cobra.ExactArgs(1),
		Long: `Set changes limits at once and for queued jobs too. They stay until the next set,
or until the configuration file gets other values. "none" takes a rate or a
concurrency away.`,
		Example: `  penstock providers set sms --rate 50/s --dry-run
  penstock providers set sms --concurrency none`,
	}
	f := cmd.Flags()
	fields := map[string]*string{
		"rate":        f.String("rate", "", "calls per period, like 100/s, 12/m or 5/10s; none for no limit"),
		"burst":       f.String("burst", "", "calls that may start at once after a pause"),
		"headroom":    f.String("headroom", "", "time added to the rate's period, like 25ms"),
		"concurrency": f.String("concurrency", "", "calls in flight; none for no limit"),
	}
	f.BoolVar(&dry, "dry-run", false, "only say what would change")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var parts []string
		for name, v := range fields {
			if cmd.Flags().Changed(name) {
				parts = append(parts, fmt.Sprintf("%q:%s", name, limitValue(name, *v)))
			}
		}
		if len(parts) == 0 {
			return wrongUse("nothing to change; give --rate, --burst, --headroom or --concurrency")
		}
		cl, err := c.client(t)
		if err != nil {
			return err
		}
		got, err := cl.SetLimits(cmd.Context(), args[0], []byte("{"+strings.Join(parts, ",")+"}"), dry)
		if err != nil {
			return explain(err)
		}
		if t.json {
			return printJSON(c.out, got)
		}
		return c.printChange(got)
	}
	t = c.talkFlags(cmd)
	return cmd
}

// limitValue writes a flag as JSON: numbers as they are, so that the server
// judges them, and none as null.
func limitValue(name, v string) string {
	if v == "none" {
		return "null"
	}
	if _, err := strconv.Atoi(v); err == nil && (name == "burst" || name == "concurrency") {
		return v
	}
	return strconv.Quote(v)
}

func (c *cli) printChange(got api.LimitsChange) error {
	row := func(name, before, after string) []string {
		mark := ""
		if before != after {
			mark = "changed"
		}
		return []string{name, before, after, mark}
	}
	b, a := got.Before, got.After
	if err := table(c.out, []string{got.Provider, "BEFORE", "AFTER", ""},
		row("rate", noLimit(b.Rate), noLimit(a.Rate)), row("burst", strconv.Itoa(b.Burst), strconv.Itoa(a.Burst)),
		row("headroom", b.Headroom, a.Headroom), row("concurrency", noLimit(strconv.Itoa(b.Concurrency)), noLimit(strconv.Itoa(a.Concurrency)))); err != nil {
		return err
	}
	if got.DryRun {
		fmt.Fprintln(c.err, "Nothing was changed (--dry-run).")
	}
	return nil
}
