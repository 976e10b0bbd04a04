package retrybudget_test

import (
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/penstock-io/penstock/retrybudget"
	"github.com/penstock-io/penstock/retrybudget/budgettest"
)

// local is the account in the process, with the suite's clock.
type local struct {
	*retrybudget.Account
	now time.Time
}

func (l *local) Earned()                             { l.Account.Earned(l.now) }
func (l *local) Ask(needed bool) retrybudget.Verdict { return l.Account.Ask(l.now, needed) }
func (l *local) Back()                               { l.Account.Back(l.now) }
func (l *local) Tokens() int64                       { return l.Account.Tokens(l.now) }
func (l *local) Pass(d time.Duration)                { l.now = l.now.Add(d) }

func TestAccount(t *testing.T) {
	open := func(t testing.TB, b retrybudget.Budget) budgettest.Account {
		a, err := retrybudget.NewAccount(b)
		if err != nil {
			t.Fatal(err)
		}
		return &local{a, time.Unix(1796040000, 0)}
	}
	cases := budgettest.Cases()
	if len(cases) == 0 {
		t.Fatal("no cases")
	}
	for name, run := range cases {
		t.Run(name, func(t *testing.T) { run(t, open) })
	}
}

// TestAccountTogether: many goroutines never spend more than there is.
func TestAccountTogether(t *testing.T) {
	a, err := retrybudget.NewAccount(retrybudget.Budget{})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Unix(1796040000, 0)
	var sent atomic.Int64
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			for range 20 {
				if a.Ask(now, true).Go {
					sent.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if sent.Load() != 100 {
		t.Errorf("%d retries sent on 100 tokens", sent.Load())
	}
}

func TestNeeded(t *testing.T) {
	const never = -1
	for _, test := range []struct {
		name string
		s    retrybudget.Situation
		want bool
	}{
		{"idle and healthy", retrybudget.Situation{FirstRefused: never}, false},
		{"a first attempt waits", retrybudget.Situation{FirstRefused: 0}, true},
		{"it waited in the last second", retrybudget.Situation{FirstRefused: 999 * time.Millisecond}, true},
		{"it waited a second ago", retrybudget.Situation{FirstRefused: time.Second}, false},
		{"half-open or slow start", retrybudget.Situation{Recovering: true, FirstRefused: never}, true},
		{"a probe", retrybudget.Situation{Probe: true, Recovering: true, FirstRefused: 0}, false},
	} {
		if got := (retrybudget.Budget{}).Needed(test.s); got != test.want {
			t.Errorf("%s: needed %v, want %v", test.name, got, test.want)
		}
	}
}

func TestBudgetValidate(t *testing.T) {
	if err := (retrybudget.Budget{}).Validate(); err != nil {
		t.Error(err)
	}
	for field, b := range map[string]retrybudget.Budget{
		"earn":      {Earn: -1},
		"spend":     {Spend: -5},
		"trickle":   {Trickle: 2_000_000_000},
		"cap":       {Cap: 500},
		"earn 2000": {Earn: 2000},
		"contended": {Contended: -time.Second},
		"longest":   {Longest: time.Millisecond},
	} {
		err := b.Validate()
		if !errors.Is(err, retrybudget.ErrBadBudget) || !strings.Contains(err.Error(), ": "+field+" ") {
			t.Errorf("%s: %v", field, err)
		}
		if _, err2 := retrybudget.NewAccount(b); err2 == nil {
			t.Errorf("%s: an account was opened", field)
		}
	}
}

// TestBalanceStaysInBounds: for any numbers that Validate takes.
func TestBalanceStaysInBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := retrybudget.Budget{
			Earn: rapid.Int64Range(0, 1000).Draw(t, "earn"), Spend: rapid.Int64Range(1000, 1_000_000).Draw(t, "spend"),
			Trickle: rapid.Int64Range(0, 1_000_000_000).Draw(t, "trickle"), Cap: rapid.Int64Range(1_000_000, 1_000_000_000).Draw(t, "cap"),
		}
		if err := b.Validate(); err != nil {
			t.Fatal(err)
		}
		var a retrybudget.Balance
		now := int64(1_796_040_000_000_000)
		for range rapid.IntRange(1, 50).Draw(t, "steps") {
			now += rapid.Int64Range(-4_000_000_000, 400_000_000_000).Draw(t, "dt")
			var v retrybudget.Verdict
			switch rapid.IntRange(0, 3).Draw(t, "what") {
			case 0:
				a = b.Credit(a, now)
			case 1:
				a = b.Back(a, now)
			case 2:
				a, v = b.Ask(a, now, rapid.Bool().Draw(t, "needed"))
			default:
				a = b.At(a, now)
			}
			if a.Tokens < 0 || a.Tokens > b.Cap || a.At > now || v.After < 0 || v.After > time.Minute {
				t.Fatalf("%+v at %d, verdict %+v", a, now, v)
			}
		}
	})
}

// TestDeferral: jitter only upwards, a quarter at most and ten seconds.
func TestDeferral(t *testing.T) {
	for _, after := range []time.Duration{0, 1, 3, time.Second, time.Hour} {
		v := retrybudget.Verdict{After: after}
		for range 100 {
			if d := v.Deferral(); d < after || d > after+after/4 || d > after+10*time.Second {
				t.Fatalf("a deferral of %v for %v", d, after)
			}
		}
	}
}
