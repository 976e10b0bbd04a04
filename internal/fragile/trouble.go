package fragile

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// What names the kind of a Trouble.
type What string

const (
	// Fail answers with Status after the usual latency.
	Fail What = "error"
	// Hang accepts the call and never answers: until the caller leaves or the
	// server closes.
	Hang What = "hang"
	// Cut resets the connection of an accepted call; the work is not done.
	Cut What = "cut"
	// Lose does the work and then resets the connection: the answer is lost,
	// and the job counts as succeeded.
	Lose What = "lose"
	// Slow adds Extra to the latency.
	Slow What = "slow"
	// Limit sets another rate limit, of the same kind.
	Limit What = "limit"
	// InFlight sets another cap on the calls in flight.
	InFlight What = "in-flight"
	// Servers sets another number of servers.
	Servers What = "servers"
	// Outage resets every connection at once; nothing is accepted.
	Outage What = "outage"
)

// Trouble is one entry of the script: what happens From .. To, counted from
// the provider's start or its last reset. Where several hold at once, the last
// of the list wins for limit, in-flight and servers, slow adds up, and the
// first that strikes decides how a call ends.
type Trouble struct {
	From time.Duration
	// To is the end, exclusive. Zero: for ever.
	To   time.Duration
	What What
	// Status of Fail, 400 to 599. Zero: 500.
	Status int
	// Share of the calls that it strikes, from 0 to 1. Zero: all of them.
	Share float64
	// Times bounds how many calls it strikes. Zero: no bound.
	Times int
	// Extra latency of Slow.
	Extra time.Duration
	// Rate of Limit.
	Rate Rate
	// N of InFlight and Servers. Zero: no cap.
	N int
	// RetryAfter of Fail: empty means none, but for status 429, which then
	// has the provider's own form with a wait of one second.
	RetryAfter RetryAfter
}

const troubleHelp = `write FROM..TO WHAT, like "10s..40s error 503 30%", "5s.. hang", "1m..2m limit 50/s"; WHAT is one of: ` +
	`error STATUS [SHARE%] [xTIMES] [retry-after=FORM], hang|cut|lose [SHARE%] [xTIMES], slow TIME [SHARE%], limit RATE, in-flight N, servers N, outage`

// ParseTrouble reads one line of a timeline, for example
//
//	10s..40s error 503 30% retry-after==30
//	40s..    limit 50/s
//
// TO may be left out. See the kinds of What for the rest.
func ParseTrouble(line string) (Trouble, error) {
	var t Trouble
	fail := func(why string) (Trouble, error) {
		return Trouble{}, fmt.Errorf("trouble %q: %s; %s", line, why, troubleHelp)
	}
	words := strings.Fields(line)
	if len(words) < 2 {
		return fail("too short")
	}
	from, to, ok := strings.Cut(words[0], "..")
	if !ok {
		return fail("no FROM..TO")
	}
	var err error
	if t.From, err = time.ParseDuration(from); err != nil {
		return fail("FROM is not a time")
	}
	if to != "" {
		if t.To, err = time.ParseDuration(to); err != nil {
			return fail("TO is not a time")
		}
		if t.To == 0 {
			return fail("it ends before it begins")
		}
	}
	t.What = What(words[1])
	rest := words[2:]
	if needed, err := t.argument(rest); err != nil {
		return fail(err.Error())
	} else if needed {
		rest = rest[1:]
	}
	for _, w := range rest {
		if err := t.option(w); err != nil {
			return fail(err.Error())
		}
	}
	if err := t.validate(); err != nil {
		return fail(err.Error())
	}
	return t, nil
}

// argument reads the one word that error, slow, limit, in-flight and servers
// need, and reports whether there was one.
func (t *Trouble) argument(words []string) (used bool, err error) {
	if t.What != Fail && t.What != Slow && !t.sets() {
		return false, nil
	}
	if len(words) == 0 {
		return false, fmt.Errorf("%s needs a value", t.What)
	}
	switch t.What {
	case Fail:
		t.Status, err = strconv.Atoi(words[0])
	case Slow:
		t.Extra, err = time.ParseDuration(words[0])
	case Limit:
		t.Rate, err = ParseRate(words[0])
	case InFlight, Servers:
		t.N, err = strconv.Atoi(words[0])
	}
	if err != nil {
		return true, fmt.Errorf("%s %q cannot be read", t.What, words[0])
	}
	return true, nil
}

func (t *Trouble) option(w string) error {
	if share, ok := strings.CutSuffix(w, "%"); ok {
		v, err := strconv.ParseFloat(share, 64)
		if err != nil || !(v > 0 && v <= 100) {
			return fmt.Errorf("the share must be over 0%% and at most 100%%, not %s", w)
		}
		t.Share = v / 100
		return nil
	}
	if form, ok := strings.CutPrefix(w, "retry-after="); ok {
		t.RetryAfter = RetryAfter(form)
		return t.RetryAfter.validate()
	}
	if times, ok := strings.CutPrefix(w, "x"); ok {
		v, err := strconv.Atoi(times)
		if err != nil || v < 1 {
			return fmt.Errorf("%s must be x and a number of calls of at least 1", w)
		}
		t.Times = v
		return nil
	}
	return fmt.Errorf("%q is not understood", w)
}

func (t Trouble) validate() error {
	switch {
	case t.From < 0:
		return fmt.Errorf("it begins before the start")
	case t.To < 0 || t.To != 0 && t.To <= t.From:
		return fmt.Errorf("it ends before it begins")
	case !(t.Share >= 0 && t.Share <= 1):
		return fmt.Errorf("the share must be from 0 to 1, not %v", t.Share)
	case t.Times < 0:
		return fmt.Errorf("the number of calls it strikes must not be negative")
	case t.What == Fail && t.Status != 0 && (t.Status < 400 || t.Status > 599):
		return fmt.Errorf("the status of an error must be from 400 to 599, not %d", t.Status)
	case t.What != Fail && t.RetryAfter != "":
		return fmt.Errorf("only an error has a retry-after")
	case t.What == Slow && (t.Extra <= 0 || t.Extra > time.Hour):
		return fmt.Errorf("the added latency must be over 0 and at most 1h, not %s", t.Extra)
	case !t.strikes() && (t.Share != 0 || t.Times != 0):
		return fmt.Errorf("%s holds for every call; leave the share and the number of calls out", t.What)
	case t.N < 0 || t.N > maxCalls:
		return fmt.Errorf("the number must be from 0 (no cap) to %d, not %d", maxCalls, t.N)
	}
	if err := t.RetryAfter.validate(); err != nil {
		return err
	}
	if !t.strikes() && !t.sets() && t.What != Outage {
		return fmt.Errorf("%q is not known", t.What)
	}
	return t.Rate.validate()
}

// sets reports whether it sets a value for every call while it holds.
func (t Trouble) sets() bool { return t.What == Limit || t.What == InFlight || t.What == Servers }

// strikes reports whether it strikes single calls, with a share and a bound.
func (t Trouble) strikes() bool {
	switch t.What {
	case Fail, Hang, Cut, Lose, Slow:
		return true
	}
	return false
}

func (t Trouble) holds(now time.Duration) bool {
	return now >= t.From && (t.To == 0 || now < t.To)
}

// String writes the form that ParseTrouble reads.
func (t Trouble) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s..", t.From)
	if t.To != 0 {
		b.WriteString(t.To.String())
	}
	fmt.Fprintf(&b, " %s", t.What)
	switch t.What {
	case Fail:
		status := t.Status
		if status == 0 {
			status = 500
		}
		fmt.Fprintf(&b, " %d", status)
	case Slow:
		fmt.Fprintf(&b, " %s", t.Extra)
	case Limit:
		fmt.Fprintf(&b, " %s", t.Rate)
	case InFlight, Servers:
		fmt.Fprintf(&b, " %d", t.N)
	}
	if t.Share != 0 {
		fmt.Fprintf(&b, " %s%%", strconv.FormatFloat(t.Share*100, 'f', -1, 64))
	}
	if t.Times != 0 {
		fmt.Fprintf(&b, " x%d", t.Times)
	}
	if t.RetryAfter != "" {
		fmt.Fprintf(&b, " retry-after=%s", t.RetryAfter)
	}
	return b.String()
}

// MarshalText writes the form that ParseTrouble reads.
func (t Trouble) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// UnmarshalText reads as ParseTrouble does.
func (t *Trouble) UnmarshalText(b []byte) (err error) {
	*t, err = ParseTrouble(string(b))
	return err
}

// ParseTimeline reads one Trouble a line. Empty lines and what follows a # are
// left out; an error names the line.
func ParseTimeline(r io.Reader) ([]Trouble, error) {
	var list []Trouble
	in := bufio.NewScanner(r)
	for n := 1; in.Scan(); n++ {
		line, _, _ := strings.Cut(in.Text(), "#")
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		t, err := ParseTrouble(line)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		list = append(list, t)
	}
	return list, in.Err()
}
