package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/penstock-io/penstock/queue/internal/layout"
)

// Enqueue stores a job, in one round trip. Its errors: ErrInvalid and
// ErrTooLarge (nothing was stored, and never will be), ErrUnknownProvider,
// ErrConflict (the id is another job's), ErrFull, and ErrUnavailable: then the
// job may have been stored, and should be sent again with the same id.
//
// A job whose id is known with the same content is not stored again: the
// Receipt is Known and has the state it is in, for as long as the provider's
// keep after its final state.
func (c *Client) Enqueue(ctx context.Context, j Job) (Receipt, error) {
	p, err := c.prepare(ctx, j)
	if err != nil {
		return refused(j), err
	}
	reply, err := p.script.Run(ctx, c.rdb, p.keys, p.args...).Result()
	if err != nil {
		return p.receipt(false), mapError(err)
	}
	return c.settle(ctx, p, reply)
}

// refused is the receipt beside an error: which job it was.
func refused(j Job) Receipt { return Receipt{Provider: j.Provider, ID: j.ID} }

func (p *prepared) receipt(stored bool) Receipt {
	r := Receipt{Provider: p.job.Provider, ID: p.job.ID}
	if stored {
		r.State = p.state
	}
	return r
}

// settle makes a receipt of the script's answer.
func (c *Client) settle(ctx context.Context, p *prepared, reply any) (Receipt, error) {
	if n, ok := reply.(int64); ok && n == 1 {
		return p.receipt(true), nil
	}
	parts, ok := reply.([]any)
	if !ok || len(parts) < 2 {
		return p.receipt(false), fmt.Errorf("the enqueue script answered %v", reply)
	}
	kind, _ := parts[0].(string)
	text, _ := parts[1].(string)
	switch {
	case kind == "final" && len(parts) == 3:
		ttl, _ := parts[2].(int64)
		return p.settleFinal(text, time.Duration(ttl)*time.Millisecond)
	case kind == "error":
		return p.receipt(false), mapError(errors.New(text))
	case kind == "task":
		return c.settleTask(ctx, p, text)
	}
	return p.receipt(false), fmt.Errorf("the enqueue script answered %q", kind)
}

// settleFinal: the id's job is final already.
func (p *prepared) settleFinal(raw string, left time.Duration) (Receipt, error) {
	stone, err := layout.ParseTombstone(raw)
	if err != nil {
		return p.receipt(false), fmt.Errorf("%s/%s: %w", p.job.Provider, p.job.ID, err)
	}
	if stone.Hash != p.hash {
		e := &ConflictError{Provider: p.job.Provider, ID: p.job.ID, State: stone.State}
		if left > 0 {
			e.Until = time.Now().Add(left)
		}
		return p.receipt(false), e
	}
	return Receipt{Provider: p.job.Provider, ID: p.job.ID, State: stone.State, Known: !p.ownID}, nil
}

// settleTask: the id's job is there. For an id that this very call made, that
// is the call's own first try, whose answer was lost: a success.
func (c *Client) settleTask(ctx context.Context, p *prepared, raw string) (Receipt, error) {
	hash := "" // a stranger's
	if msg, err := layout.ParseMessage([]byte(raw)); err == nil {
		if env, err := layout.Decode(msg.Headers); err == nil {
			hash = env.Hash
		}
	}
	if p.ownID && hash == p.hash {
		return p.receipt(true), nil
	}
	state := p.state
	switch info, err := c.Get(ctx, p.job.Provider, p.job.ID); {
	case err == nil:
		state = info.State
	case !errors.Is(err, ErrNotFound):
		return p.receipt(false), err
	}
	if hash != p.hash {
		return p.receipt(false), &ConflictError{Provider: p.job.Provider, ID: p.job.ID, State: state}
	}
	return Receipt{Provider: p.job.Provider, ID: p.job.ID, State: state, Known: true}, nil
}
