package simulate

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/penstock-io/penstock/internal/redistest"
	"github.com/penstock-io/penstock/retrybudget"
	"github.com/penstock-io/penstock/shaper"
)

// TestGateModel holds the model to the script, integer by integer: the same
// random requests, by the same clock, must give the same answers and leave the
// same state, on Redis and on the embedded store.
//
// The script's one call of TIME is replaced by an argument; nothing else is.
//
// 20,000 requests on each; PENSTOCK_TEST_REQUESTS=100000 makes so many, from a
// seed of its own that it names.
func TestGateModel(t *testing.T) {
	script := clockedGate(t)
	requests := 20_000
	if testing.Short() {
		requests = 4_000
	}
	seed := uint64(33)
	if text := os.Getenv(differEnv); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatalf("%s: %v", differEnv, err)
		}
		requests = n
		seed = rand.Uint64()
	}
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient, env *redistest.Env) {
		t.Logf("seed %d", seed)
		d := &differ{t: t, rdb: rdb, script: script, rng: rand.New(rand.NewPCG(3, seed))}
		for d.requests < requests && !t.Failed() {
			env.Flush(t.Context())
			if err := script.Load(t.Context(), rdb).Err(); err != nil {
				t.Fatal(err)
			}
			d.begin()
			for range 10 {
				d.batch(40)
			}
		}
		t.Logf("%d requests, %d arrivals granted, %d not now, %d refused, %d settled, %d clock steps, %d decisions", d.requests,
			d.verdicts['g'], d.verdicts['n'], d.verdicts['x'], d.settled, d.steps, d.decisions)
		for _, kind := range []string{"rate", "concurrency", "turn", "probing", "account", "open", "paused", "retry_after", "credentials", "learning", "running", "done", "poison"} {
			if d.reasons[kind] == 0 && requests >= 20_000 {
				t.Errorf("nobody was refused for %s: the test shows less than it says", kind)
			}
		}
		for kind, n := range d.reasons {
			t.Logf("%-12s %d", kind, n)
		}
	})
}

const differEnv = "PENSTOCK_TEST_REQUESTS"

// differ makes random requests and compares.
type differ struct {
	t      *testing.T
	rdb    redis.UniversalClient
	script *redis.Script
	rng    *rand.Rand

	prefix  string
	now     int64
	gate    *Gate
	limits  GateLimits
	number  map[string]int64
	seen    map[string]int64
	held    []GateArrival // granted, not settled
	tats    map[string]int64
	permits int
	deadly  bool // many processes die with their permits
	refuses bool // many calls have their credentials refused
	control bool // health decides something

	requests, settled, steps int
	decisions                int
	verdicts                 map[byte]int
	reasons                  map[string]int
}

func (d *differ) n(n int) int64 { return d.rng.Int64N(int64(n)) }

func (d *differ) one(of ...int64) int64 { return of[d.rng.IntN(len(of))] }

// begin begins with an empty gate and new limits.
func (d *differ) begin() {
	d.prefix = fmt.Sprintf("penstock:{q%d}:", d.requests)
	d.now = epoch + d.n(1_000_000)
	d.limits = GateLimits{
		Version: 1, N: 1, Per: 1_000_000, Headroom: 25_000, Burst: d.one(1, 1, 1, 2, 5),
		Concurrency: d.one(0, 1, 2, 5, 20), Interval: d.one(0, 50, 1000, 10_250, 10_250, 100_000, 1_000_000, 60_000_000),
	}
	d.deadly, d.refuses, d.control = d.n(4) == 0, d.n(4) == 0, d.n(5) > 0
	d.gate = NewGate(d.limits, retrybudget.Budget{
		Earn: d.one(0, 100, 999), Trickle: d.one(0, 1, 700), Cap: d.one(0, 1000, 5000), Longest: time.Duration(d.one(0, 2)) * time.Second,
	})
	d.gate.Limits = GateLimits{}
	d.number, d.seen, d.tats, d.held = map[string]int64{}, map[string]int64{}, map[string]int64{}, nil
	if d.verdicts == nil {
		d.verdicts, d.reasons = map[byte]int{}, map[string]int{}
	}
}

// batch sends requests in one pipeline; the model says what there is to settle.
func (d *differ) batch(n int) {
	ctx := context.Background()
	var want []*GateAnswer
	var rqs []*GateRequest
	var cmds []*redis.Cmd
	pipe := d.rdb.Pipeline()
	for range n {
		d.tick()
		d.decide(pipe)
		rq := d.request()
		want, rqs = append(want, d.gate.Request(d.now, rq)), append(rqs, rq)
		d.learn(rq, want[len(want)-1])
		keys, args := d.wire(rq)
		cmds = append(cmds, d.script.EvalSha(ctx, pipe, keys, args...))
		d.requests++
	}
	if _, err := pipe.Exec(ctx); err != nil {
		d.t.Fatal(err)
	}
	for i, cmd := range cmds {
		res, err := cmd.Slice()
		if err != nil {
			d.t.Fatal(err)
		}
		got := parseWire(res, len(rqs[i].Arrive))
		// Not in the answer.
		want[i].Wake, want[i].Limits.Interval = "", 0
		if diff := cmp.Diff(want[i], got); diff != "" {
			d.t.Fatalf("request %d: %+v\nlimits %+v\nmodel -, script +:\n%s", d.requests-n+i, *rqs[i], d.limits, diff)
		}
	}
	d.compareState(ctx)
}

// decide changes now and then what health and the operator decided, in the
// model and in the store.
func (d *differ) decide(pipe redis.Pipeliner) {
	ctx := context.Background()
	if d.n(100) == 0 {
		d.gate.Paused = !d.gate.Paused
		if d.gate.Paused {
			pipe.Set(ctx, d.prefix+"paused", 1, 0)
		} else {
			pipe.Del(ctx, d.prefix+"paused")
		}
	}
	if !d.control || d.n(12) > 0 {
		return
	}
	old := d.gate.Control
	c := GateControl{
		Phase: []string{"closed", "closed", "half_open", "half_open", "open"}[d.n(5)], Generation: old.Generation + d.n(2), Since: old.Since,
		Interval: d.one(0, 0, 20_000, 1_000_000), InFlight: d.one(0, 0, 1, 3),
		ProbeLease: d.one(2_000_000, 12_000_000), ProbeApart: d.one(1, 250_000, 1_000_000), SlowStart: d.n(3) == 0,
	}
	if c.Phase != old.Phase {
		c.Generation++
		c.Since = c.Generation
	}
	if c.Phase == "open" {
		c.OpenUntil = d.now + d.n(30_000_000)
	}
	mode := shaper.ControlOn
	d.gate.Control = c
	if d.n(8) == 0 { // only watched: the generation, and nothing else
		mode = shaper.ControlShadow
		d.gate.Control = GateControl{Generation: c.Generation, Since: c.Since}
	}
	line := shaper.Control{
		Mode: mode, Version: d.n(1000), Phase: c.Phase, Generation: uint64(c.Generation), Since: uint64(c.Since),
		Interval: micro(c.Interval), InFlight: int(c.InFlight), ProbeLease: micro(c.ProbeLease), ProbeApart: micro(c.ProbeApart), SlowStart: c.SlowStart,
	}
	if c.OpenUntil > 0 {
		line.OpenUntil = time.UnixMicro(c.OpenUntil)
	}
	pipe.Set(ctx, d.prefix+"control", line.String()+"\n{}", 0)
	d.decisions++
}

// tick lets time go by, now and then a lot of it, and rarely backwards.
func (d *differ) tick() {
	switch p := d.n(1000); {
	case p < 500:
		d.now += d.n(2_000)
	case p < 900:
		d.now += d.n(60_000)
	case p < 980:
		d.now += d.n(2_000_000)
	case p < 993:
		d.now += d.n(12_000_000)
	case p < 996:
		d.now -= d.n(15_000_000)
		d.steps++
	case p < 998:
		d.now -= 3_600_000_000
		d.steps++
	default:
		d.now += 3_600_000_000
	}
}

// request makes a random request of one of a few processes.
func (d *differ) request() *GateRequest {
	proc := "p" + strconv.Itoa(int(d.n(4)))
	d.number[proc]++
	if d.n(50) == 0 && d.number[proc] > 1 {
		d.number[proc]-- // its answer was lost: asked again
	}
	rq := &GateRequest{
		Proc: proc, Number: d.number[proc], Seen: d.seen[proc], Lease: d.one(10_000_000, 10_000_000, 1_000_000), Horizon: 50_000,
		Limits: d.limits, Touch: d.n(10) == 0,
	}
	if d.n(400) == 0 {
		rq.Seen += d.n(100)
	}
	for range d.n(4) {
		if len(d.held) > 0 {
			i := d.rng.IntN(len(d.held))
			rq.Settle = append(rq.Settle, d.settlement(d.held[i]))
			d.held = slices.Delete(d.held, i, i+1)
			d.settled++
		}
	}
	for range d.n(3) {
		if len(d.held) > 0 {
			a := d.held[d.rng.IntN(len(d.held))]
			rq.Renew = append(rq.Renew, GateRenewal{a.Permit, a.Job})
		}
	}
	for range d.n(5) {
		d.permits++
		a := GateArrival{Cost: d.one(1, 1, 1, 1, 3)}
		if d.n(3) == 0 {
			a.Account = accountRetry
		}
		if d.n(5) > 0 {
			jobs := 40
			if d.deadly {
				jobs = 5 // so that some die again and again
			}
			a.Job = "j" + strconv.Itoa(int(d.n(jobs)))
			if d.n(3) == 0 {
				a.Record = "id:" + a.Job
			}
		}
		a.Permit = fmt.Sprintf("%s-%d:%s", proc, d.permits, a.Job)
		// No process asks twice for one job.
		twice := slices.ContainsFunc(rq.Arrive, func(o GateArrival) bool { return a.Job != "" && o.Job == a.Job })
		if !twice {
			rq.Arrive = append(rq.Arrive, a)
		}
	}
	rq.Waiting = int64(len(rq.Arrive)) + d.n(3)
	return rq
}

func (d *differ) settlement(a GateArrival) GateSettlement {
	s := GateSettlement{Permit: a.Permit, Job: a.Job, Called: d.n(5) > 0, Outcome: "excluded", Cost: a.Cost}
	if !s.Called {
		s.Back = d.tats[a.Permit]
		if a.Account != "" {
			s.Account, s.Credit = a.Account, 1
		}
		return s
	}
	s.Outcome = []string{"ok", "ok", "failed", "excluded"}[d.n(4)]
	if d.n(60) == 0 {
		s.Hold, s.Capped = d.n(3_000_000), d.n(2) == 0
	}
	if d.refuses && d.n(2) == 0 {
		s.Outcome, s.Refused = "failed", true
	}
	if a.Account == "" && s.Outcome == "ok" {
		s.Account, s.Credit = accountRetry, 1
	}
	if a.Job != "" && d.n(6) == 0 {
		s.Record = GateRecord{"id:" + a.Job, "done by " + a.Permit}
	}
	return s
}

// learn keeps what the processes now know.
func (d *differ) learn(rq *GateRequest, a *GateAnswer) {
	d.seen[rq.Proc] = max(d.seen[rq.Proc], a.Seq)
	for i, v := range a.Verdicts {
		d.verdicts[v.Kind]++
		if v.Reason != "" {
			d.reasons[v.Reason]++
		}
		dies := d.n(20) == 0 || d.deadly && d.n(3) > 0
		if v.Kind == 'g' && i < len(rq.Arrive) && !dies {
			d.held = append(d.held, rq.Arrive[i])
			d.tats[rq.Arrive[i].Permit] = v.Tat
		}
	}
}

// wire writes a request as shaper does.
func (d *differ) wire(rq *GateRequest) (keys []string, args []any) {
	for _, k := range []string{"gate", "permits", "running", "crash", "expired", "control", "held_until", "paused", "turns", "reply:" + rq.Proc, "refused"} {
		keys = append(keys, d.prefix+k)
	}
	l, b := rq.Limits, d.gate.Budget
	args = []any{1, rq.Proc, rq.Number, rq.Seen, rq.Lease, rq.Horizon, d.prefix, d.prefix + "wake", rq.Waiting, rq.Touch,
		l.N, l.Per, l.Headroom, l.Burst, l.Concurrency, l.Interval, "file", len(rq.Settle), len(rq.Renew), len(rq.Arrive), l.Version,
		shaper.Account{Earn: b.Earn, Spend: b.Spend, Trickle: b.Trickle, Cap: b.Cap, Contended: b.Contended, Longest: b.Longest}.String()}
	for _, s := range rq.Settle {
		args = d.wireSettlement(args, s)
	}
	for _, r := range rq.Renew {
		args = append(args, r.Permit, r.Job)
	}
	for _, a := range rq.Arrive {
		args = append(args, a.Permit, a.Job)
		switch plain := a.Cost == 1 && d.n(4) > 0; { // now and then the long form for what has a short one
		case plain && a.Account == "" && a.Record == "":
			args = append(args, "1")
		case plain && a.Account == "" && a.Record == "id:"+a.Job:
			args = append(args, "r")
		case plain && a.Record == "id:"+a.Job:
			args = append(args, "R")
		default:
			args = append(args, "*", a.Cost, a.Account != "", a.Record)
		}
	}
	return keys, append(args, d.now/1_000_000, d.now%1_000_000)
}

func (d *differ) wireSettlement(args []any, s GateSettlement) []any {
	args = append(args, s.Permit, s.Job)
	if s.Called && s.Outcome == "ok" && s.Hold == 0 && !s.Refused && d.n(4) > 0 {
		code := "k"
		if s.Record.Name != "" {
			code = "o"
		}
		if s.Account != "" {
			code = strings.ToUpper(code)
		}
		if args = append(args, code); s.Record.Name != "" {
			args = append(args, s.Record.Value, 3_600_000, "")
		}
		return args
	}
	kind := "r"
	if s.Called {
		kind = "c"
	}
	return append(args, "*", kind, s.Outcome, s.Back, s.Hold, s.Refused, s.Capped, s.Account != "",
		s.Record.Name, s.Record.Value, 3_600_000, "", "", s.Cost)
}

// parseWire reads an answer as shaper does.
func parseWire(res []any, arrivals int) *GateAnswer {
	f := strings.Split(res[1].(string), "\n")
	text := func() string { s := f[0]; f = f[1:]; return s }
	num := func() int64 {
		v, err := strconv.ParseInt(text(), 10, 64)
		if err != nil {
			panic(err)
		}
		return v
	}
	a := &GateAnswer{}
	num() // when it was decided
	a.Now, _ = strconv.ParseInt(res[0].(string), 10, 64)
	a.Seq, a.Interval, a.Concurrency, a.InFlight = num(), num(), num(), num()
	a.Limits = GateLimits{Version: num(), N: num(), Per: num(), Headroom: num(), Burst: num(), Concurrency: num()}
	a.Generation, a.Phase, a.Probing = num(), text(), num() == 1
	a.Shut, a.ShutUntil, a.Processes = text(), num(), num()
	a.Rollback = num() == 1
	for range num() {
		a.Lost = append(a.Lost, text())
	}
	for range len(f) / 3 {
		v := GateVerdict{Kind: f[0][0]}
		text()
		switch v.Kind {
		case 'g':
			v.After, v.Tat = num(), num()
		case 'n':
			v.After, v.Reason = num(), text()
		default:
			v.Reason = text()
			switch extra := text(); v.Reason {
			case "account":
				v.After, _ = strconv.ParseInt(extra, 10, 64)
			case "done":
				var record [1]string
				if err := json.Unmarshal([]byte(extra), &record); err != nil {
					panic(err)
				}
				v.Record = record[0]
			}
		}
		a.Verdicts = append(a.Verdicts, v)
	}
	return a
}

// compareState compares all that the script keeps.
func (d *differ) compareState(ctx context.Context) {
	d.t.Helper()
	g, key := d.gate, func(k string) string { return d.prefix + k }
	hash := func(k string) map[string]string { return d.rdb.HGetAll(ctx, key(k)).Val() }
	scores := func(k string) map[string]int64 {
		m := map[string]int64{}
		for _, z := range d.rdb.ZRangeWithScores(ctx, key(k), 0, -1).Val() {
			m[z.Member.(string)] = int64(z.Score)
		}
		return m
	}
	num := func(s string) int64 { v, _ := strconv.ParseInt(s, 10, 64); return v }
	h := hash("gate")
	same := func(what string, want, got any) {
		d.t.Helper()
		if diff := cmp.Diff(want, got); diff != "" {
			d.t.Fatalf("%s after request %d, limits %+v\nmodel -, script +:\n%s", what, d.requests, d.limits, diff)
		}
	}
	for name, want := range map[string]int64{
		"seq": g.Seq, "last": g.Last, "tat": g.Tat, "iv": g.Interval, "xat": g.ExpireAt,
		"v": g.Limits.Version, "burst": g.Limits.Burst, "conc": g.Limits.Concurrency, "liv": g.Limits.Interval, "nref": int64(len(g.Refused)),
		"crashes": int64(len(g.Crash)), "puntil": g.ProbeUntil, "psince": g.ProbeSince, "pnext": g.ProbeNext, "fref": g.FirstRefused,
	} {
		same(name, want, num(h[name]))
	}
	account := ""
	if a, ok := g.Accounts[accountRetry]; ok {
		account = fmt.Sprintf("%d %d %d %d %d %d", a.Tokens, a.At, a.Window, a.Earned, a.Before, a.Line)
	}
	same("account", account, h["acct"])
	same("cautious", g.Cautious, h["cautious"])
	same("probe", g.Probe, h["probe"])
	same("held", g.Held, num(d.rdb.Get(ctx, key("held_until")).Val()))
	same("permits", g.Permits, scores("permits"))
	same("expired", g.Expired, scores("expired"))
	same("running", g.Running, hash("running"))
	crash := map[string]int64{}
	for k, v := range hash("crash") {
		crash[k] = num(v)
	}
	same("crash", g.Crash, crash)
	turns := map[string]string{}
	for _, u := range g.Turns {
		turns[u.Proc] = fmt.Sprintf("%d %d %d", u.Served, u.Due, u.Seen)
	}
	same("turns", turns, hash("turns"))
	for name, want := range g.Records {
		same(name, want, d.rdb.Get(ctx, key(name)).Val())
	}
}
