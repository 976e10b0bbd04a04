package retrybudget

import (
	"math/rand/v2"
	"sync"
	"time"
)

// Account is a retry budget in the process, for use without Redis. It obeys
// the same conformance suite (package budgettest) as the account that the
// gate's script keeps. Safe for several goroutines; make it with NewAccount.
type Account struct {
	budget Budget
	mu     sync.Mutex
	state  Balance
}

// NewAccount returns a full account. Its error is Budget.Validate's.
func NewAccount(b Budget) (*Account, error) {
	if err := b.Validate(); err != nil {
		return nil, err
	}
	return &Account{budget: b.Normal()}, nil
}

// Earned credits a first attempt that succeeded at now.
func (a *Account) Earned(now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.state = a.budget.Credit(a.state, now.UnixMicro())
}

// Ask decides for one retry that would be sent at now, and charges it where it
// may go. Needed comes from Budget.Needed.
func (a *Account) Ask(now time.Time, needed bool) Verdict {
	a.mu.Lock()
	defer a.mu.Unlock()
	var v Verdict
	a.state, v = a.budget.Ask(a.state, now.UnixMicro(), needed)
	return v
}

// Back returns the charge of a retry that was not sent after all.
func (a *Account) Back(now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.state = a.budget.Back(a.state, now.UnixMicro())
}

// Tokens returns what there is at now, in thousandths of a token.
func (a *Account) Tokens(now time.Time) int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.state = a.budget.At(a.state, now.UnixMicro())
	return a.state.Tokens
}

// Deferral is how long to put off a retry that was told to ask again: v.After,
// and up to a quarter more (at most maxSpread), so that those in line do not
// all meet. It is never shorter than v.After.
func (v Verdict) Deferral() time.Duration {
	if spread := min(v.After/4, maxSpread); spread > 0 {
		return v.After + rand.N(spread)
	}
	return v.After
}
