package main

import (
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/penstock-io/penstock/internal/config"
)

// checked is the JSON of a check.
type checked struct {
	File   string        `json:"file"`
	OK     bool          `json:"ok"`
	Report config.Report `json:"report"`
}

func (c *cli) check() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "check FILE", Short: "Look for faults in a configuration file", Args: cobra.ExactArgs(1),
		Long: `Check prints every fault and warning of a configuration file with its line, what
the providers come to with their defaults, and what a request is held against at
the door, in that order. Variables are read from the environment, as serve does.
Nothing is started and nothing is called.`,
		RunE: func(_ *cobra.Command, args []string) error {
			cfg, rep := config.Load(args[0])
			if asJSON {
				if rep == nil {
					rep = config.Report{}
				}
				if err := printJSON(c.out, checked{File: args[0], OK: cfg != nil, Report: rep}); err != nil {
					return err
				}
			} else {
				fmt.Fprint(c.out, rep)
			}
			if cfg == nil {
				return fmt.Errorf("%s cannot be used: %s", args[0], count(len(rep.Faults()), "fault"))
			}
			if asJSON {
				return nil
			}
			return c.effective(cfg)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// effective prints what the file comes to.
func (c *cli) effective(cfg *config.Config) error {
	fmt.Fprintf(c.out, "%s can be used: %s, %s, listens on %s\n", cfg.File, count(len(cfg.Providers), "provider"), cfg.Redis.Where(), cfg.Listen)
	rows := [][]string{{"PROVIDER", "RATE", "BURST", "HEADROOM", "CONCURRENCY", "TIMEOUT", "ATTEMPTS", "MAX AGE", "KEEP", "MAX BODY"}}
	for _, p := range cfg.Providers {
		l := p.Limits.Normal()
		rate, flight := "no limit", "no limit"
		if !l.Rate.IsZero() {
			rate = l.Rate.String()
		}
		if l.Concurrency > 0 {
			flight = strconv.Itoa(l.Concurrency)
		}
		rows = append(rows, []string{p.Name, rate, strconv.Itoa(l.Burst), config.FormatDuration(max(0, l.Headroom)), flight,
			config.FormatDuration(p.Timeout), strconv.Itoa(p.Retry.Attempts), config.FormatDuration(p.Retry.MaxAge), config.FormatDuration(p.Keep), config.FormatSize(p.MaxBody)})
	}
	if err := table(c.out, rows...); err != nil {
		return err
	}
	if err := hooks(c.out, cfg); err != nil {
		return err
	}
	return door(c.out, cfg.Door)
}
