package main

import (
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/penstock-io/penstock/internal/app"
	"github.com/penstock-io/penstock/internal/config"
)

func (c *cli) serve() *cobra.Command {
	var file, role, redis, listen, format, level string
	var grace time.Duration
	cmd := &cobra.Command{
		Use: "serve --config FILE", Short: "Run the API and the workers", Args: cobra.NoArgs,
		Long: `Serve runs the API, the workers, or both, until it gets SIGTERM or SIGINT. Then it
takes no more jobs in hand, lets calls under way end for --grace, and stores what
came of them. A second signal ends it at once.

The role worker serves no API; with --listen it serves /healthz, /readyz and
/metrics there.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, err := logger(c.err, format, level)
			if err != nil {
				return err
			}
			cfg, err := c.load(file, log)
			if err != nil {
				return err
			}
			if redis != "" {
				if err := overrideRedis(cfg, redis); err != nil {
					return err
				}
			}
			opt := app.Options{Role: app.Role(role), Listen: listen, Grace: grace, Logger: log}
			if err := checkRole(opt.Role); err != nil {
				return err
			}
			if grace < 0 {
				return wrongUse("--grace must not be negative")
			}
			return app.Serve(cmd.Context(), cfg, opt)
		},
	}
	f := cmd.Flags()
	f.StringVarP(&file, "config", "c", "", "configuration file (required)")
	f.StringVar(&role, "role", string(app.RoleAll), "all, api or worker")
	f.StringVar(&redis, "redis", "", `Redis instead of the file's: redis://…, rediss://… or "embedded" (in memory only)`)
	f.StringVar(&listen, "listen", "", "host:port instead of the file's")
	f.DurationVar(&grace, "grace", app.DefaultGrace, "how long calls under way may go on at a stop")
	f.StringVar(&format, "log-format", "text", "text or json")
	f.StringVar(&level, "log-level", "info", "debug, info, warn or error")
	_ = cmd.MarkFlagRequired("config")
	return cmd
}

// load reads the file; its faults are printed one a line, its warnings logged.
func (c *cli) load(file string, log *slog.Logger) (*config.Config, error) {
	cfg, rep := config.Load(file)
	if cfg == nil {
		fmt.Fprint(c.err, rep.Faults())
		return nil, fmt.Errorf("%s cannot be used: %s", file, count(len(rep.Faults()), "fault"))
	}
	for _, w := range rep.Warnings() {
		log.Warn("configuration: " + strings.TrimPrefix(w.Field+": "+w.Text, ": "))
	}
	return cfg, nil
}

// overrideRedis puts another store in the place of the file's; the namespace stays.
func overrideRedis(cfg *config.Config, url string) error {
	r, why := config.ParseRedisURL(url)
	if why != "" {
		return wrongUse("--redis %s", why)
	}
	r.Namespace = cfg.Redis.Namespace
	cfg.Redis = r
	return nil
}

func checkRole(r app.Role) error {
	for _, known := range app.Roles() {
		if r == known {
			return nil
		}
	}
	return wrongUse("--role must be all, api or worker, not %q", string(r))
}

// logger writes to stderr.
func logger(w io.Writer, format, level string) (*slog.Logger, error) {
	opt := &slog.HandlerOptions{}
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, wrongUse("--log-level must be debug, info, warn or error, not %q", level)
	}
	opt.Level = l
	switch format {
	case "text":
		return slog.New(slog.NewTextHandler(w, opt)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, opt)), nil
	}
	return nil, wrongUse("--log-format must be text or json, not %q", format)
}

// count writes 1 fault, 2 faults.
func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
