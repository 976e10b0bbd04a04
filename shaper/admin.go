package shaper

import (
	"context"
	_ "embed"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

//go:embed limits.lua
var limitsSource string

var limitsScript = NewScript(limitsSource)

//go:embed admin.lua
var adminSource string

var adminScript = NewScript(adminSource)

// fingerprint tells one set of the file's values from another.
func fingerprint(l Limits) string {
	l = l.Normal()
	return fmt.Sprintf("1 %d %d %d %d %d", l.Rate.N, l.Rate.Per.Microseconds(), headroomMicros(l), l.Burst, l.Concurrency)
}

// Open writes the file's limits (where they changed) and reads those in force.
// Acquire does it by itself; a process that starts calls it to know early
// whether Redis answers.
func (g *Gate) Open(ctx context.Context) error { return g.open(ctx) }

func (g *Gate) open(ctx context.Context) error {
	g.mu.Lock()
	opened := g.opened
	g.mu.Unlock()
	if opened {
		return nil
	}
	return g.writeLimits(ctx, "file", g.cfg.Limits)
}

// SetLimits changes the limits for the whole fleet, for queued jobs too. They
// stand until the next SetLimits or an edit of the file.
func (g *Gate) SetLimits(ctx context.Context, l Limits) error {
	if err := l.Validate(); err != nil {
		return err
	}
	return g.writeLimits(ctx, "live", l.Normal())
}

func (g *Gate) writeLimits(ctx context.Context, mode string, l Limits) error {
	keys := []string{g.key("gate"), g.key("held_until"), g.key("refused")}
	got, err := limitsScript.Run(ctx, g.cfg.Redis, keys, mode, l.Rate.N, l.Rate.Per.Microseconds(), headroomMicros(l),
		l.Burst, l.Concurrency, l.Interval().Microseconds(), fingerprint(l), g.cfg.Tag, g.key("wake")).StringSlice()
	if err != nil {
		return fmt.Errorf("limits of %s: %w", g.cfg.Name, err)
	}
	p := &fields{f: got}
	version := p.int()
	in := limitsFrom(p)
	if p.err != nil {
		return fmt.Errorf("limits of %s: stored values not understood: %w", g.cfg.Name, p.err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.opened = true
	g.seen.known, g.seen.limits, g.seen.version = true, in, version
	g.seen.interval, g.seen.concurrency = in.Interval(), in.Concurrency
	return nil
}

func limitsFrom(p *fields) Limits {
	l := Limits{Rate: Rate{N: p.int(), Per: micros(p.int())}}
	if l.Headroom = micros(p.int()); l.Headroom == 0 {
		l.Headroom = NoHeadroom
	}
	l.Burst = int(p.int())
	l.Concurrency = int(p.int())
	return l
}

// Pause shuts the gate for the whole fleet until Resume. Idempotent. It works
// when Redis is full, too.
func (g *Gate) Pause(ctx context.Context) error { return g.administer(ctx, "pause") }

// Resume opens the gate again: it ends a pause and any hold, of a Retry-After
// or of refused credentials. An open breaker is not closed by it, but probes at
// once: the provider itself says whether it is well. Idempotent. It works when
// Redis is full, too.
func (g *Gate) Resume(ctx context.Context) error { return g.administer(ctx, "resume") }

func (g *Gate) administer(ctx context.Context, what string) error {
	keys := []string{g.key("paused"), g.key("gate"), g.key("held_until"), g.key("refused"), g.key("health"), g.key("control")}
	return adminScript.Run(ctx, g.cfg.Redis, keys, what, g.key("wake")).Err()
}

// Status is what operators see of a gate.
type Status struct {
	Limits   Limits
	Version  int64 // of the limits; grows with each change
	Interval time.Duration
	InFlight int
	Paused   bool
	// HeldUntil is zero where the gate is not held; HeldReason says why it is.
	HeldUntil  time.Time
	HeldReason string
	// Cautious says why only one call at a time goes; empty: it does not.
	Cautious string
	// Learning until, after a loss of writes in Redis; zero: not.
	LearningUntil time.Time
	Processes     int
}

// Status reads the gate's state from Redis.
func (g *Gate) Status(ctx context.Context) (Status, error) {
	now, err := g.cfg.Redis.Time(ctx).Result()
	if err != nil {
		return Status{}, err
	}
	var fieldsCmd, keysCmd *redis.SliceCmd
	var inFlight *redis.IntCmd
	var turns *redis.MapStringStringCmd
	_, err = g.cfg.Redis.Pipelined(ctx, func(p redis.Pipeliner) error {
		fieldsCmd = p.HMGet(ctx, g.key("gate"), "n", "per", "headroom", "burst", "conc", "v", "iv", "reason", "cautious", "learn")
		keysCmd = p.MGet(ctx, g.key("paused"), g.key("held_until"))
		inFlight = p.ZCount(ctx, g.key("permits"), strconv.FormatInt(now.UnixMicro(), 10), "+inf")
		turns = p.HGetAll(ctx, g.key("turns"))
		return nil
	})
	if err != nil {
		return Status{}, err
	}
	s := Status{Limits: g.Limits(), InFlight: int(inFlight.Val())}
	f := texts(fieldsCmd.Val())
	if f[5] != "" {
		p := &fields{f: f[:7]}
		s.Limits = limitsFrom(p)
		s.Version = p.int()
		if f[6] != "" {
			s.Interval = micros(p.int())
		}
	}
	k := texts(keysCmd.Val())
	s.Paused = k[0] != ""
	if until, _ := strconv.ParseInt(k[1], 10, 64); until > now.UnixMicro() {
		s.HeldUntil, s.HeldReason = time.UnixMicro(until), f[7]
	}
	s.Cautious = f[8]
	if learn, _ := strconv.ParseInt(f[9], 10, 64); learn > now.UnixMicro() {
		s.LearningUntil = time.UnixMicro(learn)
	}
	for _, v := range turns.Val() {
		var served, due, seen int64
		if _, err := fmt.Sscan(v, &served, &due, &seen); err == nil && now.UnixMicro()-seen < 15_000_000 {
			s.Processes++
		}
	}
	return s, nil
}

func texts(vs []any) []string {
	out := make([]string, len(vs))
	for i, v := range vs {
		out[i], _ = v.(string)
	}
	return out
}
