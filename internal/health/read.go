package health

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/penstock-io/penstock/breaker"
	"github.com/penstock-io/penstock/shaper"
)

// Status is how a provider stands, for those who look at it.
type Status struct {
	// State is a word of States; empty where nothing is known yet.
	State string
	// Mode is on, shadow or off; empty where nothing is known yet.
	Mode string
	// Factor is f, from (0, 1]; Ceiling C in calls a second, 0: none.
	Factor, Ceiling float64
	// Interval between calls that health asks for, 0: as the limits say;
	// InFlight likewise. They are obeyed only in mode on.
	Interval time.Duration
	InFlight int
	// OpenUntil is when an open breaker begins to probe.
	OpenUntil time.Time
	// Reason and Changed say why and when it changed last.
	Reason  string
	Changed time.Time
	// Openings of the breaker that are not forgotten yet.
	Openings int
	// Newer: a newer release decides; only what its first line says is known.
	Newer bool
}

// Read reads how the provider of a queue stands. The zero Status where nothing
// is known of it.
func Read(ctx context.Context, rdb redis.UniversalClient, queue string) (Status, error) {
	text, err := rdb.Get(ctx, shaper.Prefix(queue)+"control").Result()
	if errors.Is(err, redis.Nil) {
		return Status{}, nil
	}
	if err != nil {
		return Status{}, fmt.Errorf("health of %s: %w", queue, err)
	}
	r := readRecord(text)
	c := r.control
	st := Status{
		State: StateOf(r.state), Mode: c.Mode, Factor: r.state.Factor, Ceiling: r.state.Ceiling.Rate,
		Interval: c.Interval, InFlight: c.InFlight, OpenUntil: c.OpenUntil,
		Reason: r.state.Reason, Changed: r.state.Changed, Openings: r.state.Openings, Newer: r.newer,
	}
	switch {
	case r.fresh:
		return Status{}, nil
	case r.newer:
		st.State = c.Phase
	}
	if _, open := r.state.Phase.(breaker.Open); !open && !r.newer {
		st.OpenUntil = time.Time{}
	}
	if st.Factor == 0 {
		st.Factor = 1
	}
	return st, nil
}
