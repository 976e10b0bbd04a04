package shaper

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Modes of a Control.
const (
	// ControlOn: the gate obeys.
	ControlOn = "on"
	// ControlShadow: it is only watched; the gate hands out its generation.
	ControlShadow = "shadow"
	// ControlOff: nobody decides any more; kept so that nothing stale is obeyed.
	ControlOff = "off"
)

// Phases of a Control; the words are the breaker's.
const (
	PhaseClosed   = "closed"
	PhaseOpen     = "open"
	PhaseHalfOpen = "half_open"
)

// ErrControl: the text is no control record of this release.
var ErrControl = errors.New("not a control record")

// Control is what health decided for a provider, as the gate's script obeys it
// in the very next request of anyone. It is the first line of the control
// record; what follows is health's own and never read here.
//
// Fields are only ever appended to the line, so an older gate obeys what it
// knows of a newer record.
type Control struct {
	// Mode is on, shadow or off.
	Mode string
	// Version grows by one with each write: what compare-and-set compares.
	Version int64
	// Phase is closed, open or half_open.
	Phase string
	// Generation is handed out with each permit; Since is the one in which the
	// phase began.
	Generation, Since uint64
	// Interval between calls, where it is longer than that of the limits. Zero:
	// as the limits say.
	Interval time.Duration
	// InFlight, where it is less than the limits' concurrency. Zero: as they say.
	InFlight int
	// OpenUntil is when an open breaker begins to probe, by Redis TIME. Zero:
	// it is not open.
	OpenUntil time.Time
	// ProbeLease is how long a probe may take, ProbeApart the least time between
	// the starts of two.
	ProbeLease, ProbeApart time.Duration
	// SlowStart: retries need a token.
	SlowStart bool
}

// String is the line that gate.lua reads.
func (c Control) String() string {
	until, slow := int64(0), 0
	if !c.OpenUntil.IsZero() {
		until = c.OpenUntil.UnixMicro()
	}
	if c.SlowStart {
		slow = 1
	}
	return fmt.Sprintf("1 %s %d %s %d %d %d %d %d %d %d %d", c.Mode, c.Version, c.Phase, c.Generation, c.Since,
		c.Interval.Microseconds(), c.InFlight, until, c.ProbeLease.Microseconds(), c.ProbeApart.Microseconds(), slow)
}

// ParseControl reads a control record: its first line, and what follows it. The
// error wraps ErrControl.
func ParseControl(record string) (c Control, rest string, err error) {
	line, rest, _ := strings.Cut(record, "\n")
	var format, iv, until, lease, apart int64
	var slow int
	_, err = fmt.Sscan(line, &format, &c.Mode, &c.Version, &c.Phase, &c.Generation, &c.Since, &iv, &c.InFlight, &until,
		&lease, &apart, &slow)
	if err != nil || format != 1 {
		return Control{}, rest, fmt.Errorf("%w: %q", ErrControl, line)
	}
	c.Interval, c.ProbeLease, c.ProbeApart, c.SlowStart = micros(iv), micros(lease), micros(apart), slow == 1
	if until > 0 {
		c.OpenUntil = time.UnixMicro(until).UTC()
	}
	return c, rest, nil
}

// Account is what pays for retries: first attempts that succeed earn, retries
// spend. One account for each gate, in its script. Amounts are thousandths of a
// token; package retrybudget says what they are for, and has their defaults.
// The zero value is no account: nothing pays and nothing earns.
type Account struct {
	Earn, Spend, Trickle, Cap int64
	// Contended: a first attempt refused so lately counts as waiting.
	Contended time.Duration
	// Longest is the longest that a retry is put off at a time.
	Longest time.Duration
}

// String is how gate.lua reads it; empty for the zero value.
func (a Account) String() string {
	if a == (Account{}) {
		return ""
	}
	return fmt.Sprintf("%d %d %d %d %d %d", a.Earn, a.Spend, a.Trickle, a.Cap, a.Contended.Microseconds(), a.Longest.Microseconds())
}

// Validate refuses what the script cannot count with; the error wraps ErrBadLimit.
func (a Account) Validate() error {
	const most = 1_000_000_000
	switch {
	case a == (Account{}):
		return nil
	case min(a.Earn, a.Spend, a.Trickle, a.Cap) < 1 || max(a.Earn, a.Spend, a.Trickle, a.Cap) > most:
		return fmt.Errorf("%w: the account's amounts must be from 1 to %d thousandths", ErrBadLimit, most)
	case a.Contended < 0 || a.Contended > time.Hour || a.Longest < time.Millisecond || a.Longest > time.Hour:
		return fmt.Errorf("%w: the account's times must be at most 1h", ErrBadLimit)
	}
	return nil
}

// AccountError says that the account could not pay for a retry: nothing was
// taken, and it may ask again After. That is its place in the line divided by
// what comes in, so it is not to be shortened.
type AccountError struct{ After time.Duration }

func (e *AccountError) Error() string {
	return fmt.Sprintf("no token for a retry; ask again in %s", e.After.Round(time.Millisecond))
}
