package demo

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/penstock-io/penstock/internal/fragile"
)

// Seen is what one provider saw of one phase.
type Seen struct {
	Report fragile.Report `json:"report"`
	// Jobs were enqueued for it.
	Jobs int `json:"jobs"`
	// Watched is how long the phase lasted.
	Watched time.Duration `json:"watched_ns"`
}

// Verdict is what the providers counted.
type Verdict struct {
	Shaped   []Seen `json:"shaped"`
	Unshaped []Seen `json:"unshaped"`
	// Break says that it was asked for.
	Break bool `json:"break,omitempty"`
}

// tolerated is how many of so many calls may be refused before a limit is
// called broken: a machine that stands still for longer than the headroom
// sends two calls closer together than they left. They are shown all the same.
func tolerated(calls int) int { return max(2, calls/1000) }

// Broken says which limits the shaped jobs broke, and which jobs were called
// though they were done. Empty is a pass.
func (v Verdict) Broken() []string {
	var list []string
	for _, s := range v.Shaped {
		r := s.Report
		if r.Refused > tolerated(r.Calls) {
			list = append(list, fmt.Sprintf("%s refused %d of %d calls: its limit of %s was broken", r.Name, r.Refused, r.Calls, r.Limit))
		}
		if r.SucceededTwice > 0 {
			list = append(list, fmt.Sprintf("%s did %d jobs twice", r.Name, r.SucceededTwice))
		}
		if r.JobsSucceeded == 0 {
			list = append(list, fmt.Sprintf("%s saw no job succeed", r.Name))
		}
	}
	return list
}

// WriteText writes the verdict as a table for people.
func (v Verdict) WriteText(w io.Writer) error {
	fmt.Fprintln(w, "\nWhat the providers counted:")
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "\tjobs done\tcalls/job\trefused\tused\tmost in 1 s\tin flight\tevenness\ttwice")
	for i, s := range v.Shaped {
		fmt.Fprintf(t, "%s (%s)\n", s.Report.Name, s.Report.Limit)
		row(t, "  shaped", s, s.Report.Used)
		if i < len(v.Unshaped) {
			u := v.Unshaped[i]
			// Its first burst is followed by silence: used is of the time it was watched.
			row(t, "  unshaped, first "+u.Watched.Round(time.Second).String(), u, u.usedOfWatched())
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, s := range v.Shaped {
		if left := s.Jobs - s.Report.JobsSucceeded; left > 0 {
			fmt.Fprintf(w, "%s: %d jobs were still waiting when the time was over.\n", s.Report.Name, left)
		}
	}
	broken := v.Broken()
	for _, b := range broken {
		fmt.Fprintln(w, "BROKEN:", b)
	}
	switch {
	case len(broken) == 0:
		fmt.Fprintln(w, "No limit was broken; no job was done twice.")
	case v.Break:
		fmt.Fprintln(w, "That was asked for: the headroom was gone and the rates were above the limits.")
	}
	return nil
}

func row(w io.Writer, how string, s Seen, used float64) {
	r := s.Report
	fmt.Fprintf(w, "%s\t%d of %d\t%.2f\t%d (%.1f %%)\t%.1f %%\t%d\t%d\t%.2f\t%d\n", how, r.JobsSucceeded, s.Jobs, r.AttemptsMean,
		r.Refused, 100*r.RefusedShare(), 100*used, r.MostArrived, r.PeakInFlight, r.Evenness, r.SucceededTwice)
}

// usedOfWatched is the share of what the limit allowed in the whole phase.
func (s Seen) usedOfWatched() float64 {
	if s.Report.Span <= 0 || s.Watched <= 0 {
		return 0
	}
	perSecond := (s.Report.Allowed - 1) / s.Report.Span.Seconds()
	return float64(s.Report.Accepted) / (1 + perSecond*s.Watched.Seconds())
}
