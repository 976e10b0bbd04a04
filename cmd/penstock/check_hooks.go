package main

import (
	"fmt"
	"io"
	"strconv"

	"github.com/penstock-io/penstock/internal/config"
)

// hooks prints what the webhooks come to.
func hooks(w io.Writer, cfg *config.Config) error {
	if len(cfg.Webhooks) == 0 {
		return nil
	}
	spool := "no"
	if cfg.Spool.Dir != "" {
		spool = config.FormatSize(cfg.Spool.MaxBytes)
	}
	rows := [][]string{{"WEBHOOK", "PATH", "SCHEME", "SECRETS", "PROVIDER", "WINDOW", "MAX BODY", "SPOOL"}}
	for _, hook := range cfg.Webhooks {
		h := hook.Config
		rows = append(rows, []string{h.Name, hook.Path, string(h.Options.Scheme), strconv.Itoa(len(h.Options.Secrets)), h.To.Provider,
			config.FormatDuration(h.Window), config.FormatSize(h.MaxBody), spool})
	}
	fmt.Fprintln(w)
	return table(w, rows...)
}
