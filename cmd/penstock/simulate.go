package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/penstock-io/penstock/internal/simulate"
)

// defaultScenario is what runs where none is named.
const defaultScenario = "outage"

// simulation are the flags of a simulation.
type simulation struct {
	file, name, plot   string
	seed               uint64
	list, source, json bool
}

func (c *cli) simulate() *cobra.Command {
	var s simulation
	cmd := &cobra.Command{
		Use: "simulate", Short: "Rehearse limits in virtual time, before production", Args: cobra.NoArgs,
		Long: `Simulate runs the control law, the retry budget and the gate against a model of a
provider, with 1 to 1,000 workers, in virtual time: hours in seconds, and the same
every time for the same seed. It prints figures, what changed when and why, and a
chart. Nothing is started and nothing is called.

Without -f it runs a scenario that comes with Penstock. Begin your own from one.`,
		Example: `  penstock simulate --name halved --plot halved.svg
  penstock simulate --name outage --source > mine.yaml
  penstock simulate -f mine.yaml --seed 7`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case s.list:
				return c.listScenarios(s.json)
			case s.source:
				doc, err := simulate.Source(s.name)
				if err != nil {
					return usageError{err}
				}
				_, err = c.out.Write(doc)
				return err
			}
			return c.runSimulation(cmd.Context(), s)
		},
	}
	f := cmd.Flags()
	f.StringVarP(&s.file, "file", "f", "", "YAML file with a scenario; - for stdin")
	f.StringVar(&s.name, "name", defaultScenario, "built-in scenario; --list shows them")
	f.BoolVar(&s.list, "list", false, "list the built-in scenarios")
	f.BoolVar(&s.source, "source", false, "print the built-in scenario as YAML, and run nothing")
	f.StringVar(&s.plot, "plot", "", "write a plot, too: a file that ends in .svg or .png")
	f.Uint64Var(&s.seed, "seed", 0, "seed of everything drawn; 0 for the scenario's own")
	f.BoolVar(&s.json, "json", false, "print JSON")
	for _, pair := range [][]string{{"file", "name"}, {"file", "source"}, {"list", "source"}, {"list", "plot"}, {"source", "plot"}} {
		cmd.MarkFlagsMutuallyExclusive(pair...)
	}
	return cmd
}

// listed is a built-in scenario in a list.
type listed struct {
	Name  string `json:"name"`
	About string `json:"about"`
}

func (c *cli) listScenarios(asJSON bool) error {
	rows := [][]string{{"SCENARIO", "WHAT IT SHOWS"}}
	for _, name := range simulate.Builtin() {
		s, err := simulate.Named(name)
		if err != nil {
			return err
		}
		if asJSON {
			if err := printJSON(c.out, listed{name, s.About}); err != nil {
				return err
			}
			continue
		}
		rows = append(rows, []string{name, s.About})
	}
	if asJSON {
		return nil
	}
	return table(c.out, rows...)
}

// scenario reads what the flags ask for.
func (c *cli) scenario(s simulation) (simulate.Scenario, error) {
	var sc simulate.Scenario
	var err error
	switch s.file {
	case "":
		sc, err = simulate.Named(s.name)
	case "-":
		sc, err = simulate.Read(c.in)
	default:
		f, e := os.Open(s.file)
		if e != nil {
			return sc, usageError{e}
		}
		defer f.Close()
		if sc, err = simulate.Read(f); err != nil {
			err = fmt.Errorf("%s: %w", s.file, err)
		}
	}
	if err != nil {
		return sc, usageError{err}
	}
	if s.seed > 0 {
		sc.Seed = s.seed
	}
	return sc, nil
}

func (c *cli) runSimulation(ctx context.Context, s simulation) error {
	if s.plot != "" {
		if _, err := simulate.PlotFormat(s.plot); err != nil {
			return usageError{err}
		}
	}
	sc, err := c.scenario(s)
	if err != nil {
		return err
	}
	res, err := simulated(ctx, sc)
	if err != nil {
		return err
	}
	if s.json {
		err = printJSON(c.out, simulationJSON(res))
	} else {
		err = res.Report(c.out, isTerminal(c.out) && c.env("NO_COLOR") == "")
	}
	if err != nil || s.plot == "" {
		return err
	}
	if err := res.PlotFile(s.plot); err != nil {
		return err
	}
	fmt.Fprintf(c.err, "The plot is in %s.\n", s.plot)
	return nil
}

// simulated runs a scenario, or until ctx ends: a large one takes its seconds,
// and what is left of it ends with the program.
func simulated(ctx context.Context, sc simulate.Scenario) (*simulate.Result, error) {
	type outcome struct {
		res *simulate.Result
		err error
	}
	done := make(chan outcome, 1)
	go func() {
		res, err := simulate.Run(sc)
		done <- outcome{res, err}
	}()
	select {
	case o := <-done:
		return o.res, o.err
	case <-ctx.Done():
		return nil, errors.New("the simulation was stopped before its end")
	}
}

// simulationEvent is a change of the provider's health.
type simulationEvent struct {
	At     float64 `json:"at_s"`
	From   string  `json:"from"`
	To     string  `json:"to"`
	Reason string  `json:"reason"`
}

// simulationDoc is a simulation as JSON.
type simulationDoc struct {
	simulate.Summary
	Events []simulationEvent `json:"events"`
}

func simulationJSON(r *simulate.Result) simulationDoc {
	doc := simulationDoc{Summary: r.Summary(), Events: []simulationEvent{}}
	for _, e := range r.Events {
		doc.Events = append(doc.Events, simulationEvent{At: e.At.Seconds(), From: e.From, To: e.To, Reason: e.Reason})
	}
	return doc
}
