package simulate

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/penstock-io/penstock/internal/redistest"
	"github.com/penstock-io/penstock/retrybudget"
	"github.com/penstock-io/penstock/retrybudget/budgettest"
)

// TestAccountOfGate runs the suite of every retry budget on the one that the
// gate's script keeps, on both backends, by a clock that the suite alone moves.
func TestAccountOfGate(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient, env *redistest.Env) {
		d := &differ{t: t, rdb: rdb, script: clockedGate(t), rng: rand.New(rand.NewPCG(1, 2))}
		accounts := 0
		open := func(t testing.TB, b retrybudget.Budget) budgettest.Account {
			t.Helper()
			accounts++
			a := &gateAccount{t: t, d: &differ{
				rdb: d.rdb, script: d.script, rng: d.rng, prefix: "penstock:{a" + strconv.Itoa(accounts) + "}:", now: 1_796_040_000_000_000,
			}}
			a.d.gate = NewGate(GateLimits{}, b)
			a.d.limits = GateLimits{Version: 1, N: 0, Per: 0, Burst: 1}
			return a
		}
		cases := budgettest.Cases()
		for _, name := range slices.Sorted(maps.Keys(cases)) {
			if env.Virtual && strings.HasPrefix(name, "never more") {
				continue // 20,000 requests: enough on one of the two
			}
			cases[name](t, open)
			if t.Failed() {
				t.Fatalf("in: %s", name)
			}
		}
		t.Logf("%d cases, %d accounts", len(cases), accounts)
	})
}

// clockedGate is gate.lua with its one call of TIME replaced by its last two
// arguments.
func clockedGate(t *testing.T) *redis.Script {
	t.Helper()
	src, err := os.ReadFile("../../shaper/gate.lua")
	if err != nil {
		t.Fatal(err)
	}
	const clock = "local t = call('TIME')"
	if strings.Count(string(src), clock) != 1 {
		t.Fatalf("gate.lua does not read the clock by %q once", clock)
	}
	_, body, _ := strings.Cut(string(src), "\n") // without the flags, which the embedded store does not know
	return redis.NewScript("\n" + strings.Replace(body, clock, "local t = {ARGV[#ARGV - 1], ARGV[#ARGV]}", 1))
}

// gateAccount is the account of one gate.
type gateAccount struct {
	t      testing.TB
	d      *differ
	number int64
	last   int64 // when the script was last asked
}

func (a *gateAccount) request(rq *GateRequest) *GateAnswer {
	a.t.Helper()
	a.number++
	rq.Proc, rq.Number, rq.Lease, rq.Horizon, rq.Limits = "p", a.number, 10_000_000, 50_000, a.d.limits
	keys, args := a.d.wire(rq)
	res, err := a.d.script.Run(a.t.Context(), a.d.rdb, keys, args...).Slice()
	if err != nil {
		a.t.Fatal(err)
	}
	a.last = a.d.now
	return parseWire(res, len(rq.Arrive))
}

func (a *gateAccount) settle(called bool) {
	a.t.Helper()
	s := GateSettlement{Permit: "gone", Called: called, Outcome: "ok", Account: accountRetry, Credit: 1, Cost: 1}
	if !called {
		s.Outcome = "excluded"
	}
	a.request(&GateRequest{Settle: []GateSettlement{s}})
}

func (a *gateAccount) Earned() { a.settle(true) }
func (a *gateAccount) Back()   { a.settle(false) }

// Ask has a first attempt wait, or none, and arrives as a retry.
func (a *gateAccount) Ask(needed bool) retrybudget.Verdict {
	a.t.Helper()
	refused := int64(0)
	if needed {
		refused = a.d.now + max(0, a.last-a.d.now) // the script moves it with a clock that was set back
	}
	if err := a.d.rdb.HSet(a.t.Context(), a.d.prefix+"gate", "fref", refused).Err(); err != nil {
		a.t.Fatal(err)
	}
	v := a.request(&GateRequest{Arrive: []GateArrival{{Permit: "r" + strconv.FormatInt(a.number, 10), Cost: 1, Account: accountRetry}}}).Verdicts[0]
	return retrybudget.Verdict{Go: v.Kind == 'g', After: time.Duration(v.After) * time.Microsecond}
}

func (a *gateAccount) Tokens() int64 {
	a.t.Helper()
	read := func() []string {
		return strings.Fields(a.d.rdb.HGet(a.t.Context(), a.d.prefix+"gate", "acct").Val())
	}
	f := read()
	if len(f) == 0 { // it begins with the first who asks
		a.Back()
		f = read()
	}
	var n [6]int64
	for i := range f {
		n[i], _ = strconv.ParseInt(f[i], 10, 64)
	}
	b := retrybudget.Balance{Tokens: n[0], At: n[1], Window: n[2], Earned: n[3], Before: n[4], Line: n[5]}
	// The script brings it up to date with each use; a look at it is one.
	b = a.d.gate.Budget.At(b, a.d.now)
	text := fmt.Sprintf("%d %d %d %d %d %d", b.Tokens, b.At, b.Window, b.Earned, b.Before, b.Line)
	if err := a.d.rdb.HSet(a.t.Context(), a.d.prefix+"gate", "acct", text).Err(); err != nil {
		a.t.Fatal(err)
	}
	return b.Tokens
}

func (a *gateAccount) Pass(d time.Duration) { a.d.now += d.Microseconds() }
