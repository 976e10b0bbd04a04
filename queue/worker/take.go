package worker

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/penstock-io/penstock/queue/internal/layout"
)

//go:embed take.lua
var takeLua string

// request takes up to k jobs and puts them into the stash.
func (in *inlet) request(k, free int) {
	in.mu.Lock()
	now := time.Now()
	sign := now.Sub(in.lastBeat) >= beat
	pattern := wheel[in.turn:] + wheel[:in.turn]
	in.hopeful, in.lastTake = false, now
	in.mu.Unlock()
	_, parked := in.hands.counts()
	a := in.keys.Asynq
	keys := append([]string{
		a("pending"), a("active"), a("lease"), a("scheduled"), a("retry"), a("paused"),
		in.keys.Own(layout.Paused), in.keys.Own(layout.HeldUntil),
	}, in.keys.Lanes()...)
	keys = append(keys, in.keys.Own(layout.Procs), in.keys.Owner(in.process), in.keys.Own(layout.Control),
		in.keys.Own(layout.Cancel))
	res, err := in.script.Run(context.Background(), in.rdb, keys,
		in.process, k, min(free, lot), a("t:"), pattern, flag(sign), lease, parked).Slice()
	var got took
	if err == nil {
		got, err = parseTook(res)
	}
	if err != nil {
		in.trouble(err)
		return
	}
	in.accept(got, sign)
}

// took is the answer of take.lua.
type took struct {
	now, until, due int64 // ms
	shut            string
	full            bool
	processes       int
	jobs            [][3]string // id, origin, message
}

func parseTook(res []any) (took, error) {
	var t took
	if len(res) < 6 || len(res)%3 != 0 {
		return t, fmt.Errorf("take.lua answered %d values", len(res))
	}
	var err error
	num := func(v any) int64 {
		switch v := v.(type) {
		case int64:
			return v
		case string:
			n, e := strconv.ParseInt(v, 10, 64)
			err = errors.Join(err, e)
			return n
		}
		err = errors.Join(err, fmt.Errorf("take.lua answered a %T", v))
		return 0
	}
	t.now, t.until, t.due = num(res[0]), num(res[2]), num(res[3])
	t.shut, _ = res[1].(string)
	t.full, t.processes = num(res[4]) == 1, int(num(res[5]))
	for i := 6; i < len(res); i += 3 {
		var j [3]string
		for n := range j {
			s, ok := res[i+n].(string)
			if !ok {
				return t, fmt.Errorf("take.lua answered a %T for a job", res[i+n])
			}
			j[n] = s
		}
		t.jobs = append(t.jobs, j)
	}
	return t, err
}

// accept notes what was taken and when to ask again.
func (in *inlet) accept(got took, signed bool) {
	in.clock.set(got.now)
	now := time.Now()
	var msgs []string
	counted := 0
	for _, j := range got.jobs {
		expired := pastAge(j[2], got.now)
		origin, cancelled := strings.CutSuffix(j[1], "!")
		if in.hands.add(j[0], origin, j[2], expired) {
			msgs = append(msgs, j[2])
		}
		if cancelled {
			in.hands.ask(j[0])
		}
		if !expired {
			counted++
		}
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.failures > 0 {
		in.log.Info("redis answers again", "after", in.failures)
	}
	in.failures = 0
	in.stash = append(in.stash, msgs...)
	in.turn = (in.turn + counted) % len(wheel)
	if signed {
		in.lastBeat, in.processes = now, got.processes
	}
	in.probing = got.shut == "probing"
	in.shut = got.shut != "" && !in.probing
	if in.shut || !in.nextDue.After(now) {
		in.nextDue = time.Time{} // else it may be news that came while the answer was under way
	}
	in.nextPoll = now.Add(poll - time.Duration(rand.Int64N(int64(poll/5))))
	switch {
	case got.shut == "held":
		in.nextDue = in.clock.at(got.until)
	case got.shut == "open":
		// It probes a moment after that: health has to say so.
		in.nextDue = in.clock.at(got.until)
		if soonest := now.Add(openPoll); in.nextDue.Before(soonest) {
			in.nextDue = soonest
		}
	case in.shut:
		// Paused: resume publishes.
	case got.full:
		in.hopeful = true
	case got.due > 0:
		if due := in.clock.at(got.due); in.nextDue.IsZero() || due.Before(in.nextDue) {
			in.nextDue = due
		}
	}
	if len(got.jobs) > 0 {
		in.empties = 0
	} else {
		in.empties++
	}
}

// pastAge reports that the message says it is past its max_age. Only to count
// places: the handler decides.
func pastAge(raw string, nowMS int64) bool {
	ms, ok := expiresOf(raw)
	return ok && ms > 0 && ms <= nowMS
}

func flag(b bool) string {
	if b {
		return "1"
	}
	return "0"
}
