package health

import (
	"context"
	"log/slog"
	"math"
	"time"

	"github.com/penstock-io/penstock/breaker"
)

// Words for how a provider stands, from the worst to the best.
const (
	StateOpen      = "open"       // nobody calls
	StateHalfOpen  = "half_open"  // one probe at a time
	StateSlowStart = "slow_start" // closed again, at a rate that doubles
	StateShedding  = "shedding"   // part of its calls fail: a share of the rate
	StateThrottled = "throttled"  // it refused calls: a ceiling on the rate
	StateClosed    = "closed"     // as its limits say
)

// States lists the words, from the worst to the best.
func States() []string {
	return []string{StateOpen, StateHalfOpen, StateSlowStart, StateShedding, StateThrottled, StateClosed}
}

// StateOf is the word for s.
func StateOf(s breaker.State) string {
	switch p := s.Phase.(type) {
	case breaker.Open:
		return StateOpen
	case breaker.HalfOpen:
		return StateHalfOpen
	case breaker.Closed:
		if p.Ramp.Rate > 0 {
			return StateSlowStart
		}
	}
	switch {
	case s.Factor > 0 && s.Factor < 1:
		return StateShedding
	case s.Ceiling.Rate > 0:
		return StateThrottled
	}
	return StateClosed
}

// Change is one change of a provider's state, told once in the fleet.
type Change struct {
	// From and To are words of States.
	From, To string
	// Reason is why.
	Reason string
	// Shadow: it is what would have been; nothing was changed.
	Shadow bool
	// OpenUntil, of an opening, is when it will be probed, by Redis TIME.
	OpenUntil time.Time
	// Rate in calls a second that is allowed now; 0: no limit.
	Rate float64
}

// announce tells a change of state, in one line and to the listener.
func (h *Health) announce(was, now breaker.State, law breaker.Config, mode Mode) {
	c := Change{From: StateOf(was), To: StateOf(now), Reason: now.Reason, Shadow: mode == Shadow}
	if c.From == c.To && was.Since == now.Since {
		return
	}
	d := now.Control(law)
	c.OpenUntil, c.Rate = d.OpenUntil, RateOf(d, law)
	if c.To == StateClosed {
		c.Reason = "it is well again"
	}
	level, text := slog.LevelInfo, "provider: "+c.To
	if c.To == StateOpen {
		level = slog.LevelWarn
	}
	if c.Shadow {
		text += " (shadow: nothing was changed)"
	}
	attrs := []any{"provider", h.cfg.Provider, "from", c.From, "reason", c.Reason, "generation", now.Generation}
	if c.Rate > 0 {
		attrs = append(attrs, "rate", math.Round(c.Rate*100)/100)
	}
	if !c.OpenUntil.IsZero() {
		attrs = append(attrs, "until", c.OpenUntil)
	}
	h.cfg.Logger.Log(context.Background(), level, text, attrs...)
	if h.cfg.Changed != nil {
		h.cfg.Changed(c)
	}
}

// RateOf is the rate in force, in calls a second; 0: no limit.
func RateOf(d breaker.Control, law breaker.Config) float64 {
	if d.Rate > 0 {
		return d.Rate
	}
	return law.Rate
}
