package budgettest

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/penstock-io/penstock/retrybudget"
)

// Account is what the suite drives. Implementations have a clock that the
// suite alone moves: virtual time, or a shift of what is stored.
type Account interface {
	// Earned credits a first attempt that succeeded.
	Earned()
	// Ask decides for one retry.
	Ask(needed bool) retrybudget.Verdict
	// Back returns the charge of a retry that was not sent.
	Back()
	// Tokens returns the balance, in thousandths of a token.
	Tokens() int64
	// Pass lets time go by; a negative d sets the clock back.
	Pass(d time.Duration)
}

// Open opens a new account.
type Open func(t testing.TB, b retrybudget.Budget) Account

// Cases are the suite, by name. Run each in a subtest, or one after the other
// where subtests are not possible.
func Cases() map[string]func(t testing.TB, open Open) {
	return map[string]func(t testing.TB, open Open){
		"a new account is full":                 newIsFull,
		"a needed retry takes a token":          takesAToken,
		"no token postpones (RET-10)":           postpones,
		"an idle provider retries freely":       freely,
		"a tenth per success":                   earns,
		"an outage earns the trickle alone":     trickles,
		"the cap holds":                         capped,
		"refilled after an outage (RET-08)":     refilled,
		"one account each (RET-09)":             apart,
		"the line is served in order":           line,
		"the line is as long as the income":     income,
		"a permit not used gives back":          back,
		"a clock that is set back mints none":   clock,
		"equal to the model, at every step":     model,
		"never more retries than were paid for": solvent,
	}
}

func want(t testing.TB, what string, got, want int64) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %d, want %d", what, got, want)
	}
}

func newIsFull(t testing.TB, open Open) {
	want(t, "tokens", open(t, retrybudget.Budget{}).Tokens(), 100_000)
	want(t, "tokens", open(t, retrybudget.Budget{Cap: 3000}).Tokens(), 3000)
}

func takesAToken(t testing.TB, open Open) {
	a := open(t, retrybudget.Budget{})
	if v := a.Ask(true); !v.Go || v.After != 0 {
		t.Errorf("refused with a full account: %+v", v)
	}
	want(t, "tokens", a.Tokens(), 99_000)
}

func postpones(t testing.TB, open Open) {
	a := open(t, retrybudget.Budget{Cap: 10_000})
	sent := 0
	for range 100 { // a job that may try a hundred times, and every call fails
		v := a.Ask(true)
		if v.Go {
			sent++
			continue
		}
		if v.After <= 0 {
			t.Fatalf("refused without a time to come back: %+v", v)
		}
	}
	want(t, "retries sent", int64(sent), 10)
	want(t, "tokens", a.Tokens(), 0)
	a.Pass(10 * time.Second)
	if v := a.Ask(true); !v.Go {
		t.Errorf("a refused retry took something: %+v", v)
	}
}

func freely(t testing.TB, open Open) {
	a := open(t, retrybudget.Budget{Cap: 2000})
	for i := range 50 {
		if v := a.Ask(false); !v.Go {
			t.Fatalf("retry %d refused though nobody waits: %+v", i, v)
		}
	}
	want(t, "tokens", a.Tokens(), 0)
}

func drain(a Account) {
	for a.Ask(true).Go {
	}
}

func earns(t testing.TB, open Open) {
	a := open(t, retrybudget.Budget{})
	drain(a)
	for range 9 {
		a.Earned()
	}
	want(t, "tokens", a.Tokens(), 900)
	if a.Ask(true).Go {
		t.Error("nine successes paid for a retry")
	}
	a.Earned()
	if !a.Ask(true).Go {
		t.Error("ten successes did not")
	}
}

func trickles(t testing.TB, open Open) {
	a := open(t, retrybudget.Budget{})
	drain(a)
	for _, step := range []struct {
		d    time.Duration
		want int64
	}{{9 * time.Millisecond, 0}, {time.Millisecond, 1}, {5 * time.Millisecond, 1}, {5 * time.Millisecond, 2}, {time.Second, 102}, {time.Minute, 6102}} {
		a.Pass(step.d)
		want(t, "tokens after "+step.d.String(), a.Tokens(), step.want)
	}
}

func capped(t testing.TB, open Open) {
	a := open(t, retrybudget.Budget{Cap: 5000})
	a.Ask(true)
	a.Pass(1000 * time.Hour)
	for range 100 {
		a.Earned()
	}
	want(t, "tokens", a.Tokens(), 5000)
	a.Back()
	want(t, "tokens", a.Tokens(), 5000)
}

func refilled(t testing.TB, open Open) {
	a := open(t, retrybudget.Budget{})
	drain(a)
	for range 10_000 {
		a.Earned()
	}
	if v := a.Ask(true); !v.Go {
		t.Errorf("one 500 after 10,000 successes is not retried: %+v", v)
	}
}

func apart(t testing.TB, open Open) {
	down, well := open(t, retrybudget.Budget{}), open(t, retrybudget.Budget{})
	drain(down)
	if v := well.Ask(true); !v.Go {
		t.Errorf("the other provider's retry pays for this one's outage: %+v", v)
	}
}

func line(t testing.TB, open Open) {
	a := open(t, retrybudget.Budget{Longest: time.Hour})
	drain(a)
	last := a.Ask(true).After
	for i := range 20 {
		v := a.Ask(true)
		if got := v.After - last; got != 10*time.Second { // a token at 0.1 a second
			t.Fatalf("place %d is %v behind the one before, want 10s", i+2, got)
		}
		last = v.After
	}
	short := open(t, retrybudget.Budget{})
	drain(short)
	for range 20 {
		if v := short.Ask(true); v.After > time.Minute {
			t.Fatalf("put off for %v, the longest is a minute", v.After)
		}
	}
}

func income(t testing.TB, open Open) {
	a := open(t, retrybudget.Budget{Longest: time.Hour})
	for a.Tokens() >= retrybudget.Token {
		a.Ask(true)
	}
	for range 100 {
		for range 5 {
			a.Earned()
		}
		for a.Tokens() >= retrybudget.Token {
			a.Ask(true)
		}
		a.Pass(100 * time.Millisecond)
	}
	first := a.Ask(true).After
	// 50 successes a second and the trickle: 5.1 tokens, so about 196 ms a place.
	if gap := a.Ask(true).After - first; gap < 150*time.Millisecond || gap > 250*time.Millisecond {
		t.Errorf("a place in the line takes %v, want about 196ms", gap)
	}
}

func back(t testing.TB, open Open) {
	a := open(t, retrybudget.Budget{})
	a.Ask(true)
	a.Back()
	want(t, "tokens", a.Tokens(), 100_000)
}

func clock(t testing.TB, open Open) {
	a := open(t, retrybudget.Budget{})
	drain(a)
	for range 5 {
		a.Pass(-time.Hour)
		want(t, "tokens", a.Tokens(), 0)
	}
	a.Pass(time.Second)
	want(t, "tokens a second later", a.Tokens(), 100)
	if v := a.Ask(true); v.Go || v.After > time.Minute {
		t.Errorf("put off beyond the longest after the clock went back: %+v", v)
	}
}

// model drives an account and the pure functions side by side.
func model(t testing.TB, open Open) {
	rng := rand.New(rand.NewPCG(7, 7))
	for range 20 {
		b := retrybudget.Budget{Cap: 1000 * (1 + rng.Int64N(20)), Trickle: 1 + rng.Int64N(500), Earn: 1 + rng.Int64N(900)}
		a, now := open(t, b), int64(1_796_040_000_000_000)
		state := b.At(retrybudget.Balance{}, now)
		a.Tokens()
		for range 200 {
			switch rng.IntN(6) {
			case 0:
				d := rng.Int64N(3_000_000)
				now += d
				a.Pass(time.Duration(d) * time.Microsecond)
			case 1, 2:
				a.Earned()
				state = b.Credit(state, now)
			case 3:
				a.Back()
				state = b.Back(state, now)
			default:
				needed := rng.IntN(3) > 0
				var v retrybudget.Verdict
				state, v = b.Ask(state, now, needed)
				if got := a.Ask(needed); got != v {
					t.Fatalf("%+v: got %+v, want %+v", b, got, v)
				}
			}
			want(t, "tokens", a.Tokens(), b.At(state, now).Tokens)
			state = b.At(state, now)
		}
	}
}

// solvent: whatever happens, what was spent is what was there, earned or
// trickled.
func solvent(t testing.TB, open Open) {
	rng := rand.New(rand.NewPCG(8, 8))
	a := open(t, retrybudget.Budget{})
	sent, earned, passed := int64(0), int64(0), time.Duration(0)
	for range 20_000 {
		switch rng.IntN(3) {
		case 0:
			a.Earned()
			earned++
		case 1:
			d := time.Duration(rng.Int64N(int64(100 * time.Millisecond)))
			a.Pass(d)
			passed += d
		default:
			if a.Ask(true).Go {
				sent++
			}
		}
	}
	if paid := 100_000 + 100*earned + passed.Milliseconds()/10 + 1; sent*1000 > paid {
		t.Errorf("%d retries sent, %d thousandths there were", sent, paid)
	}
	if sent < 500 {
		t.Errorf("only %d retries sent", sent)
	}
}
