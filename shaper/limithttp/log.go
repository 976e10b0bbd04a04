package limithttp

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/penstock-io/penstock/shaper"
)

// sayEvery is how often one kind of trouble is logged at most.
const sayEvery = time.Second

// doorLog writes what an operator should read: troubles at most once a second
// of a kind, decisions by sample, audited rules all.
type doorLog struct {
	log, audit *slog.Logger
	sample     float64
	keys       bool

	mu   sync.Mutex
	said map[string]*spoken
}

type spoken struct {
	next time.Time
	left int
}

func newDoorLog(cfg Config) *doorLog {
	return &doorLog{log: cfg.Logger, audit: cfg.Audit, sample: cfg.Sample, keys: cfg.LogKeys, said: map[string]*spoken{}}
}

// sparse reports whether a line of a kind is to be written, and how many were not.
func (l *doorLog) sparse(kind string) (left int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.said[kind]
	if s == nil {
		s = &spoken{}
		l.said[kind] = s
	}
	now := time.Now()
	if now.Before(s.next) {
		s.left++
		return 0, false
	}
	left, s.next, s.left = s.left, now.Add(sayEvery), 0
	return left, true
}

// away is told of each limit that was decided without its store.
func (l *doorLog) away(limit string, by shaper.Source, why error) {
	if left, ok := l.sparse("away " + limit); ok {
		l.log.Error("limit decided without its store", "rule", limit, "by", by, "error", why, "not_logged", left)
	}
}

// failed is told of errors that nobody should see.
func (l *doorLog) failed(err error) {
	if left, ok := l.sparse("failed"); ok {
		l.log.Error("limits could not be decided; the request passes", "error", err, "not_logged", left)
	}
}

// listed is told of refusals by list.
func (l *doorLog) listed(list string, v *visit) {
	if left, ok := l.sparse("list " + list); ok {
		l.log.Info("request refused by list", "list", list, "client", l.name(v.full.String()), "not_logged", left)
	}
}

// name hides a key.
func (l *doorLog) name(key string) string {
	if l.keys {
		return key
	}
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:8])
}

// decided writes one rule's decision, if it is sampled or audited.
func (l *doorLog) decided(v *visit, i int, o Outcome, d shaper.Decision) {
	audited := v.rules[i].Audit
	sampled := l.sample > 0 && rand.Float64() < l.sample
	if !audited && !sampled {
		return
	}
	args := []any{"rule", v.rules[i].Name, "client", l.name(v.asks[i].Key), "outcome", o, "cost", v.asks[i].Cost,
		"limit", d.Limit, "remaining", d.Remaining, "retry_after", d.RetryAfter, "by", d.Source, "route", v.routes[i], "enforced", !v.asks[i].Shadow}
	if audited {
		l.audit.Log(context.Background(), slog.LevelInfo, "limit audit", args...)
	}
	if sampled {
		l.log.Log(context.Background(), slog.LevelInfo, "limit decision", args...)
	}
}

// strike writes one step of an escalation: with all lines of a client, and the
// rule, every block can be computed again (shaper.Escalation.Step).
func (l *doorLog) strike(v *visit, i int, o shaper.Offence, now int64, left time.Duration) {
	to, level := l.log, slog.LevelDebug
	if v.rules[i].Audit {
		to, level = l.audit, slog.LevelInfo
	}
	if left > 0 {
		level = slog.LevelWarn
	}
	to.Log(context.Background(), level, "limit strike", "rule", v.rules[i].Name, "client", l.name(v.asks[i].Key), "at", now,
		"strikes", o.Strikes, "since", o.Since, "doublings", o.Level, "until", o.Until, "blocked", left)
}
