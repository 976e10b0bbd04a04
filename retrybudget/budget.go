package retrybudget

import (
	"cmp"
	"errors"
	"fmt"
	"time"
)

// ErrBadBudget is wrapped by every error of [Budget.Validate].
var ErrBadBudget = errors.New("bad retry budget")

// Token is one token in the unit that budgets count in: thousandths.
const Token int64 = 1000

// incomeWindow is how far back income is measured, in microseconds.
const incomeWindow int64 = 10_000_000

// Budget are the numbers of one provider's retry budget: first attempts that
// succeed earn, retries that are sent spend. In an outage nothing is earned, so
// almost nothing is retried. It postpones and never drops: a retry without a
// token is told when to ask again, and no attempt is spent.
//
// It is work-conserving (see [Budget.Needed]): under a shaped total a retry can
// only displace a first attempt, so a token is needed only where one waits.
//
// Amounts are thousandths of a token. The zero value means the defaults. A
// Budget is a plain value; its methods are pure and safe for several goroutines.
//
// A tenth of a token per success is gRPC's retry throttling (proposal A6) and
// M. Brooker's "Fixing retries with token buckets and circuit breakers" (2022).
type Budget struct {
	// Earn per first attempt that succeeds. Zero: 100, a tenth of a token.
	Earn int64
	// Spend per retry sent. Zero: 1000, one token.
	Spend int64
	// Trickle is earned each second by time alone. Zero: 100.
	Trickle int64
	// Cap is the most there can be, and what a new account begins with. Zero: 100,000.
	Cap int64
	// Contended: a first attempt that was refused so lately counts as waiting.
	// Zero: 1 s.
	Contended time.Duration
	// Longest is the longest that a retry is put off at a time. Zero: 1 min.
	Longest time.Duration
}

// Normal returns b with its defaults filled in.
func (b Budget) Normal() Budget {
	b.Earn = cmp.Or(b.Earn, 100)
	b.Spend = cmp.Or(b.Spend, Token)
	b.Trickle = cmp.Or(b.Trickle, 100)
	b.Cap = cmp.Or(b.Cap, 100*Token)
	b.Contended = cmp.Or(b.Contended, time.Second)
	b.Longest = cmp.Or(b.Longest, time.Minute)
	return b
}

// Validate reports what is wrong with b, naming the field and the remedy.
func (b Budget) Validate() error {
	b = b.Normal()
	const most = 1_000_000_000
	for _, f := range []struct {
		name string
		v    int64
	}{{"earn", b.Earn}, {"spend", b.Spend}, {"trickle", b.Trickle}, {"cap", b.Cap}} {
		if f.v < 1 || f.v > most {
			return fmt.Errorf("%w: %s must be from 1 to %d thousandths of a token, not %d; leave it out for the default", ErrBadBudget, f.name, most, f.v)
		}
	}
	switch {
	case b.Cap < b.Spend:
		return fmt.Errorf("%w: cap %d is under spend %d: no retry could ever be paid for; raise cap or lower spend", ErrBadBudget, b.Cap, b.Spend)
	case b.Earn > b.Spend:
		return fmt.Errorf("%w: earn %d is over spend %d: each success would pay for more than one retry; lower earn", ErrBadBudget, b.Earn, b.Spend)
	case b.Contended < time.Millisecond || b.Contended > time.Hour:
		return fmt.Errorf("%w: contended must be from 1ms to 1h, not %v; leave it out for 1s", ErrBadBudget, b.Contended)
	case b.Longest < time.Second || b.Longest > time.Hour:
		return fmt.Errorf("%w: longest must be from 1s to 1h, not %v; leave it out for 1m", ErrBadBudget, b.Longest)
	}
	return nil
}

// Situation is what Needed depends on.
type Situation struct {
	// Probe: the call would be a probe of a half-open breaker.
	Probe bool
	// Recovering: the breaker is half-open or in slow start.
	Recovering bool
	// FirstRefused is how long ago a first attempt was last refused for want of
	// room. Negative: never.
	FirstRefused time.Duration
}

// Needed reports whether a retry needs a token. A probe needs none; while the
// provider recovers every other does; else only while first attempts wait. An
// idle healthy provider retries freely, and a backlog of retries always drains.
func (b Budget) Needed(s Situation) bool {
	switch {
	case s.Probe:
		return false
	case s.Recovering:
		return true
	}
	return s.FirstRefused >= 0 && s.FirstRefused < b.Normal().Contended
}

// Balance is the state of one account. The zero value is a new account, which
// is full. Times are microseconds of one clock; amounts thousandths of a token.
// The gate's script keeps the same integers.
type Balance struct {
	// Tokens there are.
	Tokens int64
	// At is up to when the trickle was credited. 0: the account is new.
	At int64
	// Window is when the present window of income began, Earned what came in
	// since, Before what came in in the window before.
	Window, Earned, Before int64
	// Line is when the last of those who were put off may ask again.
	Line int64
}

// Verdict is what an account says to a retry.
type Verdict struct {
	// Go: the retry may be sent, and was charged.
	Go bool
	// After is when to ask again, where it may not. Add jitter upwards.
	After time.Duration
}

// At returns a as it is at now: trickle credited, window turned. A clock that
// was set back mints nothing.
func (b Budget) At(a Balance, now int64) Balance {
	b = b.Normal()
	if a.At == 0 {
		return Balance{Tokens: b.Cap, At: now, Window: now, Line: now}
	}
	if now < a.At {
		back := a.At - now
		a.At, a.Window, a.Line = now, a.Window-back, a.Line-back
	}
	// More than fills it would overflow before it is capped.
	full := (b.Cap*1_000_000)/b.Trickle + 1_000_000
	whole := min(now-a.At, full) * b.Trickle / 1_000_000
	a.Tokens += whole
	if a.At += whole * 1_000_000 / b.Trickle; a.Tokens >= b.Cap {
		a.Tokens, a.At = b.Cap, now
	}
	switch gone := now - a.Window; {
	case gone >= 2*incomeWindow:
		a.Window, a.Before, a.Earned = now, 0, 0
	case gone >= incomeWindow:
		a.Window, a.Before, a.Earned = a.Window+incomeWindow, a.Earned, 0
	}
	a.Line = min(max(a.Line, now), now+b.Normal().Longest.Microseconds())
	return a
}

// Credit returns a after a first attempt succeeded.
func (b Budget) Credit(a Balance, now int64) Balance {
	b = b.Normal()
	a = b.At(a, now)
	a.Earned += b.Earn
	a.Tokens = min(b.Cap, a.Tokens+b.Earn)
	return a
}

// Back returns a after a retry that was charged was not sent after all.
func (b Budget) Back(a Balance, now int64) Balance {
	b = b.Normal()
	a = b.At(a, now)
	a.Tokens = min(b.Cap, a.Tokens+b.Spend)
	return a
}

// Ask decides for one retry that is about to be sent. Where a token is needed
// and there is none, nothing is taken and the verdict gives the retry its place
// in the line: the places before it divided by the income. Where none is
// needed it goes, and takes what there is.
func (b Budget) Ask(a Balance, now int64, needed bool) (Balance, Verdict) {
	b = b.Normal()
	a = b.At(a, now)
	if a.Tokens >= b.Spend || !needed {
		a.Tokens -= min(a.Tokens, b.Spend)
		return a, Verdict{Go: true}
	}
	missing := b.Spend
	if a.Line <= now { // the first in line
		missing -= a.Tokens
	}
	a.Line += missing * 1_000_000 / b.income(a, now)
	longest := b.Longest.Microseconds()
	after := min(a.Line-now, longest)
	a.Line = min(a.Line, now+longest)
	return a, Verdict{After: time.Duration(after) * time.Microsecond}
}

// income returns what a earns in a second, in thousandths: the trickle, and
// what came in over the last ten seconds.
func (b Budget) income(a Balance, now int64) int64 {
	into := min(incomeWindow, max(0, now-a.Window))
	weighted := a.Before*(incomeWindow-into)/incomeWindow + a.Earned
	return max(1, b.Trickle+weighted*1_000_000/incomeWindow)
}
