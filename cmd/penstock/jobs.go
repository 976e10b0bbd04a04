package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/penstock-io/penstock/internal/api"
	"github.com/penstock-io/penstock/queue"
)

func (c *cli) jobs() *cobra.Command {
	cmd := &cobra.Command{Use: "jobs", Short: "Look at jobs, cancel and replay them", Args: cobra.NoArgs, RunE: needsCommand}
	cmd.AddCommand(c.jobsList(), c.jobsGet(), c.jobsCancel(), c.jobsReplay())
	return cmd
}

func (c *cli) jobsList() *cobra.Command {
	var t *talk
	var provider, state, cursor string
	var limit int
	var all bool
	cmd := &cobra.Command{
		Use: "list --provider NAME", Short: "List a provider's jobs", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cl, err := c.client(t)
			if err != nil {
				return err
			}
			if state != "" && !queue.State(state).Valid() {
				return wrongUse("--state: there is no state %q; use one of %s", state, states())
			}
			if limit < 0 || limit > queue.MaxPage {
				return wrongUse("--limit must be from 1 to %d", queue.MaxPage)
			}
			f := queue.Filter{State: queue.State(state), Limit: limit, Cursor: cursor}
			rows := [][]string{{"ID", "STATE", "ATTEMPTS", "DUE", "STATUS", "REASON"}}
			next := ""
			for {
				page, err := cl.Jobs(cmd.Context(), provider, f)
				if err != nil {
					return explain(err)
				}
				for _, j := range page.Jobs {
					if t.json {
						if err := printJSON(c.out, j); err != nil {
							return err
						}
						continue
					}
					rows = append(rows, jobRow(j))
				}
				if next = page.Next; next == "" || !all {
					break
				}
				f.Cursor = next
			}
			if !t.json {
				if err := table(c.out, rows...); err != nil {
					return err
				}
			}
			if next != "" {
				fmt.Fprintf(c.err, "There are more: --cursor %s, or --all.\n", next)
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&provider, "provider", "", "provider (required)")
	f.StringVar(&state, "state", "", "only jobs in this state: "+states())
	f.StringVar(&cursor, "cursor", "", "go on after an earlier page")
	f.IntVar(&limit, "limit", 0, "jobs of a page (default 50)")
	f.BoolVar(&all, "all", false, "every page")
	_ = cmd.MarkFlagRequired("provider")
	t = c.talkFlags(cmd)
	return cmd
}

func states() string {
	var s []string
	for _, st := range queue.States() {
		s = append(s, string(st))
	}
	return strings.Join(s, ", ")
}

func jobRow(j api.JobInfo) []string {
	status := "-"
	if j.Status != 0 {
		status = strconv.Itoa(j.Status)
	}
	why := j.Reason
	if why == "" {
		why = j.LastError
	}
	return []string{oneLine(j.ID), string(j.State), strconv.Itoa(j.Attempts), moment(j.Due), status, or(oneLine(why))}
}

// ref reads PROVIDER/ID, or the two apart. An id may hold slashes, a provider
// may not.
func ref(args []string) (provider, id string, err error) {
	if len(args) == 2 {
		return args[0], args[1], nil
	}
	provider, id, ok := strings.Cut(args[0], "/")
	if !ok || provider == "" || id == "" {
		return "", "", wrongUse("name a job as PROVIDER/ID, not %q", args[0])
	}
	return provider, id, nil
}

// onJob makes a command that does something to one job.
func (c *cli) onJob(use, short string, do func(cmd *cobra.Command, cl *api.Client, t *talk, provider, id string) error) *cobra.Command {
	var t *talk
	cmd := &cobra.Command{
		Use: use + " PROVIDER/ID", Short: short, Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			provider, id, err := ref(args)
			if err != nil {
				return err
			}
			cl, err := c.client(t)
			if err != nil {
				return err
			}
			return explain(do(cmd, cl, t, provider, id))
		},
	}
	t = c.talkFlags(cmd)
	return cmd
}

func (c *cli) jobsGet() *cobra.Command {
	return c.onJob("get", "Show one job", func(cmd *cobra.Command, cl *api.Client, t *talk, provider, id string) error {
		j, err := cl.Job(cmd.Context(), provider, id)
		if err != nil {
			return err
		}
		if t.json {
			return printJSON(c.out, j)
		}
		return table(c.out, jobRows(j)...)
	})
}

// jobRows are the lines of one job; what is not known is left out.
func jobRows(j api.JobInfo) [][]string {
	var rows [][]string
	add := func(name, value string) {
		if value != "" && value != "-" && value != "0" {
			rows = append(rows, []string{name, oneLine(value)})
		}
	}
	add("job", j.Provider+"/"+j.ID)
	add("state", string(j.State))
	add("reason", j.Reason)
	add("call", strings.TrimSpace(j.Method+" "+j.Path))
	for _, name := range slices.Sorted(mapKeys(j.Headers)) {
		add("header", name+": "+j.Headers[name])
	}
	add("body", strconv.Itoa(j.BodySize)+" bytes")
	add("priority", string(j.Priority))
	allowed := ""
	if j.Allowed > 0 {
		allowed = " of " + strconv.Itoa(j.Allowed)
	}
	rows = append(rows, []string{"attempts", strconv.Itoa(j.Attempts) + allowed})
	add("deferrals", strconv.Itoa(j.Deferrals))
	add("throttles", strconv.Itoa(j.Throttles))
	add("crashes", strconv.Itoa(j.Crashes))
	add("accepted", moment(j.Accepted))
	add("due", moment(j.Due))
	add("expires", moment(j.Expires))
	add("final", moment(j.Final))
	add("remembered until", moment(j.KeptUntil))
	add("last error", j.LastError)
	add("last status", strconv.Itoa(j.Status))
	return rows
}

func (c *cli) jobsCancel() *cobra.Command {
	return c.onJob("cancel", "End a job that is not final", func(cmd *cobra.Command, cl *api.Client, t *talk, provider, id string) error {
		got, err := cl.Cancel(cmd.Context(), provider, id)
		if err != nil {
			return err
		}
		if t.json {
			return printJSON(c.out, got)
		}
		note := ""
		if got.Asked {
			note = " (its worker was told; its call may have been made)"
		}
		fmt.Fprintf(c.out, "%s/%s %s%s\n", provider, oneLine(id), got.State, note)
		return nil
	})
}

func (c *cli) jobsReplay() *cobra.Command {
	return c.onJob("replay", "Put a job back that is dead, expired or cancelled", func(cmd *cobra.Command, cl *api.Client, t *talk, provider, id string) error {
		got, err := cl.Replay(cmd.Context(), provider, id)
		if err != nil {
			return err
		}
		if t.json {
			return printJSON(c.out, got)
		}
		fmt.Fprintf(c.out, "%s/%s %s\n", got.Provider, oneLine(got.ID), got.State)
		return nil
	})
}
