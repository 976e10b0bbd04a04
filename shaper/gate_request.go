package shaper

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
)

//go:embed gate.lua
var gateSource string

var gateScript = NewScript(gateSource)

const protocol = 1

// request is one exchange with the gate's script. It is never changed after it
// was built, so it can be repeated.
type request struct {
	number   int64
	seq      int64
	waiting  int
	settles  []*settlement
	renewals []*Permit
	arrivals []*waiter
	limits   Limits
	version  int64
	touch    bool // sign of life
}

type answer struct {
	view
	seq      int64
	rollback bool
	lost     []string
	verdicts []verdict
}

type verdict struct {
	permit bool
	after  time.Duration // until the slot, or until asking again
	tat    int64
	reason string
	err    error // refused, for this job alone
}

// requestLocked takes what the next request carries out of the queues.
func (g *Gate) requestLocked(now time.Time, ask, renew bool) *request {
	g.requests++
	req := &request{number: g.requests, seq: g.seq, limits: g.cfg.Limits, version: 1}
	if g.seen.known {
		req.limits, req.version = g.seen.limits, g.seen.version
	}
	if req.touch = now.Sub(g.touched) >= time.Second; req.touch {
		g.touched = now
	}
	n := min(len(g.settles), maxSettles)
	req.settles = append(req.settles, g.settles[:n]...)
	g.settles = g.settles[n:]
	g.settleAt = time.Time{}
	if renew {
		for _, p := range g.live {
			req.renewals = append(req.renewals, p)
			if len(req.renewals) == maxSettles*5 {
				break
			}
		}
	}
	if ask {
		g.asked = now
		n := g.batchLocked(len(req.settles))
		req.waiting = len(g.waiting)
		req.arrivals = append(req.arrivals, g.waiting[:n]...)
		g.waiting = append([]*waiter(nil), g.waiting[n:]...)
	}
	return req
}

func (g *Gate) key(name string) string { return g.prefix + name }

func (g *Gate) send(ctx context.Context, req *request) (*answer, error) {
	keys := []string{
		g.key("gate"), g.key("permits"), g.key("running"), g.key("crash"), g.key("expired"), g.key("control"),
		g.key("held_until"), g.key("paused"), g.key("turns"), g.key("reply:" + g.proc), g.key("refused"),
	}
	l := req.limits
	args := []any{
		protocol, g.proc, req.number, req.seq, g.cfg.Lease.Microseconds(), g.cfg.Horizon.Microseconds(),
		g.prefix, g.key("wake"), req.waiting, req.touch,
		l.Rate.N, l.Rate.Per.Microseconds(), headroomMicros(l), l.Burst, l.Concurrency, l.Interval().Microseconds(),
		fingerprint(g.cfg.Limits), len(req.settles), len(req.renewals), len(req.arrivals), req.version,
		g.account,
	}
	for _, s := range req.settles {
		args = s.append(args)
	}
	for _, p := range req.renewals {
		args = append(args, p.id, p.job)
	}
	for _, w := range req.arrivals {
		args = w.append(args)
	}
	res, err := g.script.Run(ctx, g.cfg.Redis, keys, args...).Slice()
	if err != nil {
		return nil, err
	}
	ans, err := parseAnswer(res, len(req.arrivals))
	if err != nil {
		return nil, fmt.Errorf("gate %s: answer not understood: %w", g.cfg.Name, err)
	}
	return ans, nil
}

// append adds what gate.lua calls an arrival, in its shortest form.
func (w *waiter) append(args []any) []any {
	args = append(args, w.id, w.Job)
	usual := w.Record != "" && w.Record == RecordName(w.Job)
	switch {
	case w.Cost == 1 && !w.Pays && w.Record == "":
		return append(args, "1")
	case w.Cost == 1 && !w.Pays && usual:
		return append(args, "r")
	case w.Cost == 1 && usual:
		return append(args, "R")
	}
	return append(args, "*", w.Cost, w.Pays, w.Record)
}

// append adds what gate.lua calls a settlement, in its shortest form.
func (s *settlement) append(args []any) []any {
	p := s.permit
	args = append(args, p.id, p.job)
	plain := s.called && s.OK && s.Hold == 0 && !s.Refused
	bare, recorded := "k", "o"
	if s.Earns {
		bare, recorded = "K", "O"
	}
	switch r := s.Record; {
	case plain && r == nil:
		return append(args, bare)
	case plain && r.Name == RecordName(p.job) && (r.Index == "" || r.Member == p.job):
		return append(args, recorded, r.Value, max(1, r.TTL.Milliseconds()), r.Index)
	}
	kind, outcome, back := "r", "excluded", p.tat
	if s.called {
		kind, outcome, back = "c", "failed", 0
		if s.OK {
			outcome = "ok"
		} else if s.Excluded {
			outcome = "excluded"
		}
	}
	var rec Record
	if s.Record != nil {
		rec = *s.Record
	}
	return append(args, "*", kind, outcome, back, s.Hold.Microseconds(), s.Refused, s.Capped,
		s.Earns, rec.Name, rec.Value, max(1, rec.TTL.Milliseconds()), rec.Index, rec.Member, p.cost)
}

// parseAnswer reads {now, lines of text}; see gate.lua. A kept answer is
// older than now: its delays are shortened by the difference.
func parseAnswer(res []any, arrivals int) (*answer, error) {
	if len(res) != 2 {
		return nil, fmt.Errorf("%d parts", len(res))
	}
	nowText, _ := res[0].(string)
	text, _ := res[1].(string)
	p := &fields{f: strings.Split(text, "\n")}
	now, _ := strconv.ParseInt(nowText, 10, 64)
	decided := p.int()
	age := micros(now - decided)
	a := &answer{seq: p.int()}
	a.known = true
	a.interval = micros(p.int())
	a.concurrency = int(p.int())
	a.inFlight = int(p.int())
	a.version = p.int()
	a.limits = Limits{Rate: Rate{N: p.int(), Per: micros(p.int())}}
	if a.limits.Headroom = micros(p.int()); a.limits.Headroom == 0 {
		a.limits.Headroom = NoHeadroom
	}
	a.limits.Burst = int(p.int())
	a.limits.Concurrency = int(p.int())
	a.generation = uint64(p.int())
	a.phase = p.text()
	a.probing = p.int() == 1
	a.shut = p.text()
	if until := p.int(); until > 0 {
		a.shutUntil = time.Now().Add(micros(until - now))
	}
	a.processes = int(p.int())
	a.rollback = p.int() == 1
	for range p.int() {
		a.lost = append(a.lost, p.text())
	}
	for range arrivals {
		a.verdicts = append(a.verdicts, p.verdict(age))
	}
	return a, p.err
}

// fields reads an answer one string at a time; the first fault sticks.
type fields struct {
	f   []string
	err error
}

func (p *fields) text() string {
	if len(p.f) == 0 {
		if p.err == nil {
			p.err = fmt.Errorf("it ends too early")
		}
		return ""
	}
	s := p.f[0]
	p.f = p.f[1:]
	return s
}

func (p *fields) int() int64 {
	s := p.text()
	v, err := strconv.ParseInt(s, 10, 64)
	if err != nil && p.err == nil {
		p.err = err
	}
	return v
}

func (p *fields) verdict(age time.Duration) verdict {
	switch kind := p.text(); kind {
	case "g":
		return verdict{permit: true, after: micros(p.int()) - age, tat: p.int()}
	case "n":
		v := verdict{after: micros(p.int()) - age}
		v.reason = p.text()
		return v
	default:
		v := verdict{reason: p.text()}
		extra := p.text()
		switch v.reason {
		case "done":
			var record [1]string
			if err := json.Unmarshal([]byte(extra), &record); err != nil && p.err == nil {
				p.err = err
			}
			v.err = &DoneError{Record: record[0]}
		case "running":
			v.err = ErrRunning
		case "poison":
			v.err = ErrPoison
		case "account":
			n, err := strconv.ParseInt(extra, 10, 64)
			if err != nil && p.err == nil {
				p.err = err
			}
			v.err = &AccountError{After: max(0, micros(n)-age)}
		default:
			v.err = fmt.Errorf("refused: %s %s", kind, v.reason)
		}
		return v
	}
}

func micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }

func headroomMicros(l Limits) int64 { return max(0, l.Normal().Headroom).Microseconds() }
