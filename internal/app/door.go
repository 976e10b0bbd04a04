package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/penstock-io/penstock/internal/api"
	"github.com/penstock-io/penstock/internal/config"
	"github.com/penstock-io/penstock/internal/metrics"
	"github.com/penstock-io/penstock/shaper"
	"github.com/penstock-io/penstock/shaper/guard"
	"github.com/penstock-io/penstock/shaper/limithttp"
)

// openPaths never stand behind the door: whoever watches must see, most of all
// in a storm.
var openPaths = []string{"/healthz", "/readyz", "/metrics"}

// door is the limits of this process's front. The zero value has none.
type door struct {
	limits *limithttp.Door // nil: there are none
	audit  io.Closer       // nil: the log has it
}

// openDoor makes the limits that the file asks for. caller names who sends a
// request, "" where nobody knows.
func openDoor(cfg *config.Config, rdb redis.UniversalClient, caller func(*http.Request) string, m *metrics.Metrics, log *slog.Logger) (*door, error) {
	d := &door{}
	c := cfg.Door
	if !c.On() {
		return d, nil
	}
	opt := limithttp.Config{
		Store:        shaper.NewRedisLimitStore(rdb, guard.QueueName(cfg.Redis.Namespace, "door")),
		StoreTimeout: c.StoreTimeout, Deny: listOf(c.Deny), Allow: listOf(c.Allow), Identify: identify(c, caller),
		TrustedProxies: c.TrustedProxies, ProxyHeader: c.ProxyHeader, IPv6Prefix: c.IPv6Prefix, Fields: c.Fields,
		Documentation: c.Documentation, Observer: m, Logger: log, Sample: c.Sample, LogKeys: cfg.LogKeys,
	}
	var names []string
	for _, r := range c.Rules {
		opt.Rules = append(opt.Rules, r.HTTP())
		names = append(names, r.Name)
	}
	if c.AuditFile != "" {
		f, err := os.OpenFile(c.AuditFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			return nil, fmt.Errorf("door.audit_file: %w", err)
		}
		d.audit, opt.Audit = f, slog.New(slog.NewJSONHandler(f, nil))
	}
	var err error
	if d.limits, err = limithttp.New(opt); err != nil {
		return nil, errors.Join(fmt.Errorf("door: %w", err), d.close())
	}
	m.WatchDoor(names)
	log.Info("door", "order", "deny, allow, blocks, then together: "+strings.Join(names, ", "))
	return d, nil
}

// handler is next behind the door, but for what watches.
func (d *door) handler(next http.Handler) http.Handler {
	if d.limits == nil {
		return next
	}
	limited := d.limits.Handler(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if slices.Contains(openPaths, r.URL.Path) {
			next.ServeHTTP(w, r)
			return
		}
		limited.ServeHTTP(w, r)
	})
}

func (d *door) close() error {
	if d.audit == nil {
		return nil
	}
	return d.audit.Close()
}

// charge takes units for the lines of a batch.
func charge(ctx context.Context, units int64) (int64, *api.Problem) {
	n, err := limithttp.ChargeUpTo(ctx, units)
	if err == nil {
		return n, nil
	}
	le, ok := errors.AsType[*limithttp.LimitedError](err)
	if !ok { // rules are checked: cannot happen, and must not stop jobs
		return units, nil
	}
	ref := le.Refusal
	fix := "send this line again then, with the same id"
	if ref.Documentation != "" {
		fix += "; see " + ref.Documentation
	}
	return n, api.TooMany(fmt.Sprintf("the limit %q is used up", ref.Rule), fix, ref.RetryAfter)
}

// identify says what is known of who sends a request.
func identify(c config.Door, caller func(*http.Request) string) func(*http.Request) limithttp.Client {
	known := map[string]config.DoorClient{}
	for _, cl := range c.Clients {
		known[cl.Token] = cl
	}
	return func(r *http.Request) limithttp.Client {
		name := caller(r)
		if name == "" {
			return limithttp.Client{}
		}
		return limithttp.Client{APIKey: name, Organisation: known[name].Organisation, Plan: known[name].Plan}
	}
}

func listOf(l config.DoorList) limithttp.List {
	return limithttp.List{Addresses: l.Addresses, APIKeys: l.Tokens, Organisations: l.Organisations}
}
