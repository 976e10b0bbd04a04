package api

import (
	"bytes"
	"context"
	"net/http"
	"time"
)

// Charge takes units more of what a caller may do, for a request that holds
// more than one job: as many as there is room for. Where those are fewer than
// were asked for, the problem says why, and when to come back.
type Charge func(ctx context.Context, units int64) (granted int64, refused *Problem)

// TooMany is the refusal of a limit: what is used up, what to do, and how long
// to wait, which is rounded up to whole seconds.
func TooMany(detail, fix string, wait time.Duration) *Problem {
	p := problem(CodeTooMany, fix, "%s", detail)
	p.RetryAfter = max(1, seconds(wait))
	return p
}

// Caller is the name of the token that a request is known by, or of the
// session that was opened with it. Empty: none, or none that is known.
func (s *Server) Caller(r *http.Request) string {
	if s.door.open() {
		return ""
	}
	c, p := s.door.identify(r)
	if p != nil {
		return ""
	}
	return c.name
}

// chargeMost is the most lines that are charged at once.
const chargeMost = 256

// toll charges a batch for its lines, many at once: those that have arrived.
// After a refusal nobody asks again until it says so, so that a stream that
// goes on is neither a load nor an offence.
type toll struct {
	charge Charge
	// credit is how many lines more are paid for; the first is with the request.
	credit int64
	shut   time.Time
	why    *Problem
}

// pass reports why a line is refused; nil: it may go. arrived is what has
// come after it already.
func (t *toll) pass(ctx context.Context, arrived []byte) *Problem {
	if t.charge == nil {
		return nil
	}
	if t.credit == 0 {
		t.pay(ctx, 1+countLines(arrived))
	}
	if t.credit > 0 || t.why == nil {
		t.credit = max(0, t.credit-1)
		return nil
	}
	p := *t.why
	p.RetryAfter = max(1, seconds(time.Until(t.shut)))
	return &p
}

// ahead pays for what has arrived, before the answer is begun.
func (t *toll) ahead(ctx context.Context, arrived []byte) {
	if n := countLines(arrived) - t.credit; n > 0 {
		t.pay(ctx, n)
	}
}

func (t *toll) pay(ctx context.Context, lines int64) {
	if time.Now().Before(t.shut) {
		return
	}
	granted, refused := t.charge(ctx, min(lines, chargeMost))
	t.credit += granted
	if refused != nil {
		t.why, t.shut = refused, time.Now().Add(time.Duration(refused.RetryAfter)*time.Second)
	}
}

// countLines counts the whole lines that hold anything.
func countLines(b []byte) (n int64) {
	for line := range bytes.Lines(b) {
		if len(bytes.TrimSpace(line)) > 0 && line[len(line)-1] == '\n' {
			n++
		}
	}
	return n
}
