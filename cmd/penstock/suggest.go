package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/penstock-io/penstock/internal/api"
	"github.com/penstock-io/penstock/internal/suggest"
	"github.com/penstock-io/penstock/queue"
	"github.com/penstock-io/penstock/shaper"
)

func (c *cli) suggest() *cobra.Command {
	var t *talk
	cmd := &cobra.Command{
		Use: "suggest [PROVIDER]", Short: "Work limits out from what was observed, with the reasons", Args: cobra.MaximumNArgs(1),
		Long: `Suggest looks at what the fleet saw of each provider, or of one, in the last ten
minutes at most: demand, refusals, latency. It works limits out, each with its
reason, as lines for the configuration file. Nothing is changed; try them first
with penstock simulate, then with penstock providers set --dry-run.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := c.client(t)
			if err != nil {
				return err
			}
			names := args
			if len(args) == 0 {
				list, err := cl.Providers(cmd.Context())
				if err != nil {
					return explain(err)
				}
				for _, p := range list {
					names = append(names, p.Name)
				}
			}
			if len(names) == 0 && !t.json {
				fmt.Fprintln(c.err, "No provider is served.")
			}
			for i, name := range names {
				p, err := cl.Provider(cmd.Context(), name)
				if err != nil {
					return explain(err)
				}
				if err := c.suggestFor(p, t.json, i > 0); err != nil {
					return err
				}
			}
			return nil
		},
	}
	t = c.talkFlags(cmd)
	return cmd
}

// suggestionDoc is a suggestion as JSON.
type suggestionDoc struct {
	Provider string        `json:"provider"`
	Observed *api.Observed `json:"observed,omitempty"`
	suggest.Suggestion
}

func (c *cli) suggestFor(p api.ProviderStatus, asJSON, next bool) error {
	s := suggest.For(seen(p))
	if asJSON {
		return printJSON(c.out, suggestionDoc{p.Name, p.Observed, s})
	}
	if next {
		fmt.Fprintln(c.out)
	}
	if !s.Enough {
		_, err := fmt.Fprintf(c.out, "%s: not enough seen: %s\n", p.Name, s.Missing)
		return err
	}
	fmt.Fprintf(c.out, "%s, seen from %s to %s:\n\n", p.Name, moment(p.Observed.From), moment(p.Observed.To))
	if err := table(c.out, observedRows(p)...); err != nil {
		return err
	}
	fmt.Fprintf(c.out, "\nproviders:\n  %s:\n", p.Name)
	for _, l := range s.Lines {
		fmt.Fprintf(c.out, "%s    %s: %s\n", comment(l.Why), l.Setting, l.Value)
	}
	return nil
}

// comment writes a sentence as lines of a YAML comment.
func comment(why string) string {
	var b strings.Builder
	line := "    #"
	for _, word := range strings.Fields(strings.ToUpper(why[:1]) + why[1:] + ".") {
		if len(line)+len(word) >= 96 {
			b.WriteString(line + "\n")
			line = "    #"
		}
		line += " " + word
	}
	return b.String() + line + "\n"
}

func observedRows(p api.ProviderStatus) [][]string {
	o := p.Observed
	g := func(v float64) string { return strconv.FormatFloat(v, 'g', 3, 64) }
	d := func(v float64) string { return seconds(v).Round(time.Millisecond / 10).String() }
	return [][]string{
		{"demand", "p50 " + g(o.RateP50) + "/s", "p95 " + g(o.RateP95) + "/s", "p99 " + g(o.RateP99) + "/s", "limit " + noLimit(p.Limits.Rate)},
		{"calls", strconv.Itoa(o.Starts), "refused " + strconv.Itoa(o.Refused), "failed " + strconv.Itoa(o.Failed), "timed out " + strconv.Itoa(o.TimedOut)},
		{"latency", "p50 " + d(o.LatencyP50), "p95 " + d(o.LatencyP95), "p99 " + d(o.LatencyP99), ""},
		{"in flight", "about " + g(o.InFlight), "now " + strconv.Itoa(p.InFlight), "", "limit " + noLimit(strconv.Itoa(p.Limits.Concurrency))},
	}
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// seen is what the server says of a provider, as the arithmetic wants it.
func seen(p api.ProviderStatus) suggest.Seen {
	s := suggest.Seen{Waiting: p.Jobs[queue.Waiting], RateText: p.Limits.Rate}
	if r, err := shaper.ParseRate(p.Limits.Rate); err == nil {
		s.Rate, s.Period = r.PerSec(), r.Per
	}
	s.Headroom, _ = time.ParseDuration(p.Limits.Headroom) // the server wrote it; what it is not is none
	s.Cut = p.Health != nil && p.Health.Adaptive == "on" && p.Health.State != "closed"
	if o := p.Observed; o != nil {
		s.Span = o.To.Sub(o.From)
		s.Starts, s.OK, s.Throttled, s.Failed, s.Timeout = o.Starts, o.Succeeded, o.Refused, o.Failed, o.TimedOut
		s.RateP50, s.RateP95, s.RateP99, s.Accepted = o.RateP50, o.RateP95, o.RateP99, o.Accepted
		s.LatencyP50, s.LatencyP95, s.LatencyP99 = seconds(o.LatencyP50), seconds(o.LatencyP95), seconds(o.LatencyP99)
	}
	return s
}
