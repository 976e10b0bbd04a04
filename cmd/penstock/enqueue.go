package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/penstock-io/penstock/internal/api"
	"github.com/penstock-io/penstock/internal/config"
)

// jobHelp is the help of each job field's flag. A test holds it to the contract.
var jobHelp = map[string]string{
	"provider":        "provider to call",
	"method":          "HTTP method (default POST)",
	"path":            "path below the provider's base_url, with its query",
	"headers":         `header "Name: value"; may be given several times`,
	"body":            "body; a JSON object or list is sent as JSON, anything else as text",
	"body_base64":     "binary body in base64",
	"key":             "key that limits and fair shares go by",
	"id":              "id of the job; the same id with the same content is one job (default: a new UUIDv7)",
	"priority":        "high, default or low",
	"delay":           "time until it may be called, like 5s",
	"max_age":         "time after its due time when it expires, like 10m",
	"attempts":        "attempts allowed, the first one counted",
	"cost":            "cost in calls",
	"callback":        `where its end is reported, as JSON {"provider": …, "path": …}`,
	"idempotency_key": "value of the header Idempotency-Key (default: the id)",
}

func (c *cli) enqueue() *cobra.Command {
	var t *talk
	var file string
	var wait time.Duration
	var headers []string
	fields := map[string]*string{}
	cmd := &cobra.Command{
		Use: "enqueue", Short: "Enqueue one job by flags, or many from a file", Args: cobra.NoArgs,
		Long: `Enqueue sends one job made of flags, or every line of --file (a JSON job a line,
"-" for stdin). Without flags it reads jobs from stdin when that is not a
terminal. The flags are the fields of a job.

Of many jobs, a line that is refused is reported on stderr and does not end the
rest; the exit code is then 1. With --json each line has its result on stdout.
Lines that the server refuses because of its own limits are sent again when it
says so; --wait bounds how long that may take without a job being accepted.`,
		Example: `  penstock enqueue --provider sms --path /messages --body '{"to": "+15550100"}'
  penstock enqueue --file jobs.ndjson
  generate-jobs | penstock enqueue`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cl, err := c.client(t)
			if err != nil {
				return err
			}
			if wait < 0 {
				return wrongUse("--wait must not be negative")
			}
			one := slices.ContainsFunc(api.JobFields, func(f string) bool { return cmd.Flags().Changed(f) })
			switch {
			case one && file != "":
				return wrongUse("give one job by flags, or many by --file, not both")
			case file == "" && !one && isTerminal(c.in):
				return wrongUse("nothing to enqueue; give --provider, or --file")
			case !one:
				return c.enqueueMany(cmd.Context(), cl, file, wait, t.json)
			}
			job, err := jobOfFlags(cmd.Flags(), fields, headers)
			if err != nil {
				return err
			}
			return c.enqueueOne(cmd.Context(), cl, job, t.json)
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	for _, name := range api.JobFields {
		if name == "headers" {
			f.StringArrayVar(&headers, name, nil, jobHelp[name])
			continue
		}
		fields[name] = f.String(name, "", jobHelp[name])
	}
	f.StringVarP(&file, "file", "f", "", `file with a JSON job on each line; "-" is stdin`)
	f.DurationVar(&wait, "wait", 10*time.Minute, "with --file or stdin: longest wait in a row for the server's limits; 0 waits for nothing")
	f.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if u := strings.ReplaceAll(name, "-", "_"); jobHelp[u] != "" {
			return pflag.NormalizedName(u)
		}
		return pflag.NormalizedName(name)
	})
	t = c.talkFlags(cmd)
	return cmd
}

// jobOfFlags makes the JSON of a job, and checks it as the server would.
func jobOfFlags(set *pflag.FlagSet, fields map[string]*string, headers []string) ([]byte, error) {
	job := map[string]any{}
	for name, v := range fields {
		if !set.Changed(name) {
			continue
		}
		switch name {
		case "body":
			switch {
			case isJSON(*v):
				job[name] = json.RawMessage(*v)
			case utf8.ValidString(*v):
				job[name] = *v
			default:
				job["body_base64"] = base64.StdEncoding.EncodeToString([]byte(*v))
			}
		case "attempts", "cost", "callback":
			if !json.Valid([]byte(*v)) {
				return nil, wrongUse("--%s: %q is not a number or JSON", name, *v)
			}
			job[name] = json.RawMessage(*v)
		default:
			job[name] = *v
		}
	}
	if len(headers) > 0 {
		h := map[string]string{}
		for _, line := range headers {
			name, value, ok := strings.Cut(line, ":")
			if !ok {
				return nil, wrongUse(`--headers must be "Name: value"`)
			}
			if _, twice := h[name]; twice {
				return nil, wrongUse("--headers: %s is given twice", name)
			}
			h[name] = strings.TrimSpace(value)
		}
		job["headers"] = h
	}
	b, err := encodeJob(job)
	if err != nil {
		return nil, err
	}
	if _, err := api.DecodeJob(b); err != nil {
		return nil, wrongUse("--%w", err)
	}
	return b, nil
}

// encodeJob keeps the bytes of a JSON body: json.Marshal would compact them.
func encodeJob(job map[string]any) ([]byte, error) {
	var parts []string
	for _, name := range api.JobFields {
		v, ok := job[name]
		if !ok {
			continue
		}
		raw, isRaw := v.(json.RawMessage)
		if !isRaw {
			var err error
			if raw, err = json.Marshal(v); err != nil {
				return nil, err
			}
		}
		parts = append(parts, fmt.Sprintf("%q:%s", name, raw))
	}
	return []byte("{" + strings.Join(parts, ",") + "}"), nil
}

// isJSON reports a JSON object or list.
func isJSON(s string) bool {
	trimmed := strings.TrimSpace(s)
	return (strings.HasPrefix(trimmed, "{") || strings.HasPrefix(trimmed, "[")) && json.Valid([]byte(s))
}

func (c *cli) enqueueOne(ctx context.Context, cl *api.Client, job []byte, asJSON bool) error {
	r, err := cl.Enqueue(ctx, job)
	if err != nil {
		return explain(err)
	}
	if asJSON {
		return printJSON(c.out, r)
	}
	known := ""
	if r.Known {
		known = " (known before)"
	}
	fmt.Fprintf(c.out, "%s/%s %s%s\n", r.Provider, oneLine(r.ID), r.State, known)
	return nil
}

// tally counts what became of many lines.
type tally struct{ New, Known, Refused int }

func (c *cli) enqueueMany(ctx context.Context, cl *api.Client, file string, wait time.Duration, asJSON bool) error {
	in, size := c.in, int64(-1)
	if file != "" && file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return usageError{err}
		}
		defer f.Close()
		if st, err := f.Stat(); err == nil && st.Mode().IsRegular() {
			size = st.Size()
		}
		in = f
	}
	bar := c.progress(size)
	defer bar.end()
	var n tally
	patience := api.Patience{Wait: wait, Waiting: func(d time.Duration, why *api.Problem) {
		bar.clear()
		fmt.Fprintf(c.err, "%s; waiting for %s\n", oneLine(why.Detail), config.FormatDuration(d))
	}}
	for l, err := range cl.BatchPatiently(ctx, io.TeeReader(in, bar), patience) {
		if err != nil {
			bar.end()
			fmt.Fprintf(c.err, "penstock: after %d lines: %v\n", n.New+n.Known+n.Refused, explain(err))
			return errors.Join(errSilent, err)
		}
		bar.jobs(n.add(l))
		if asJSON {
			if err := printJSON(c.out, l); err != nil {
				return err
			}
		} else if l.Error != nil {
			bar.clear()
			fmt.Fprintf(c.err, "line %d: %v\n", l.Line, l.Error)
		}
	}
	bar.end()
	summary := fmt.Sprintf("%d accepted, %d known before, %d refused", n.New, n.Known, n.Refused)
	if asJSON {
		fmt.Fprintln(c.err, summary)
	} else {
		fmt.Fprintln(c.out, summary)
	}
	if n.Refused > 0 {
		return fmt.Errorf("%s refused", count(n.Refused, "job"))
	}
	return nil
}

// add counts a line and returns how many there were.
func (n *tally) add(l api.BatchLine) int {
	switch {
	case l.Error != nil:
		n.Refused++
	case l.Known:
		n.Known++
	default:
		n.New++
	}
	return n.New + n.Known + n.Refused
}
