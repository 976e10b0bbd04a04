package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/penstock-io/penstock/queue/internal/layout"
)

// Cancelling is what Cancel did.
type Cancelling struct {
	// State of the job now: Cancelled, or Running where it was asked for.
	State State
	// Asked says that a worker has the job and was told to stop it: it may
	// still end otherwise, as its call may have been made.
	Asked bool
}

// CancelReason is the Reason of a job that Cancel ended.
const CancelReason = "cancelled on request"

// Cancel ends a job that is not final: at once where nobody has it, else by
// asking the worker that has it. ErrNotFound; ErrState where it is final,
// unless it is cancelled already, which is no error.
func (c *Client) Cancel(ctx context.Context, provider, id string) (Cancelling, error) {
	for range 8 {
		info, r, err := c.get(ctx, provider, id)
		if err != nil {
			return Cancelling{}, err
		}
		done, again, err := c.cancel(ctx, info, r)
		if err != nil || !again {
			return done, err
		}
	}
	return Cancelling{}, &UnavailableError{Fix: "try again", Err: fmt.Errorf("%s/%s changed again and again", provider, id)}
}

// cancel runs the script for what was read of the job.
func (c *Client) cancel(ctx context.Context, info Info, r record) (done Cancelling, again bool, err error) {
	if info.State.Final() {
		if info.State == Cancelled {
			return Cancelling{State: Cancelled}, false, nil
		}
		return Cancelling{}, false, finalError(info, "it cannot be cancelled any more")
	}
	spec, err := c.Spec(ctx, info.Provider)
	if err != nil && !errors.Is(err, ErrUnknownProvider) {
		return Cancelling{}, false, err
	}
	keep := cmp.Or(info.keep, spec.normal().Keep)
	stone := layout.Tombstone{State: Cancelled, Hash: info.hash, Attempts: info.Attempts, Reason: CancelReason, Status: info.Status,
		Deferrals: info.Deferrals, Throttles: info.Throttles}
	now, err := c.room(ctx, info.Provider, 0)
	if err != nil && !errors.Is(err, ErrFull) {
		return Cancelling{}, false, err
	}
	k := c.keys(info.Provider)
	keys := []string{k.Task(info.ID), k.Tombstone(info.ID), k.Asynq("pending"), k.Asynq("scheduled"), k.Asynq("retry"), k.Asynq("completed")}
	keys = append(append(keys, k.Lanes()...), k.Own(layout.Cancel), k.Done(Cancelled))
	v, err := c.scripts.cancel.Run(ctx, c.rdb, keys,
		info.ID, k.Own(layout.Cancelled), stone.Encode(), keep.Milliseconds(), r.msg,
		layout.CompletedSuffix(now.Unix(), int64(keep.Seconds()), "")).StringSlice()
	if err != nil {
		return Cancelling{}, false, mapError(err)
	}
	switch v[0] {
	case "done":
		return Cancelling{State: Cancelled}, false, nil
	case "asked":
		return Cancelling{State: Running, Asked: true}, false, nil
	case "gone":
		return Cancelling{}, false, notFound(info.Provider, info.ID)
	}
	return Cancelling{}, true, nil // changed meanwhile: look again
}

func finalError(i Info, fix string) error {
	return &StateError{Provider: i.Provider, ID: i.ID, State: i.State, Fix: fix}
}

// Replay puts a dead, expired or cancelled job in again, as one that never
// ran: attempts from zero, max_age from now. ErrNotFound where it is not kept
// any more, ErrState where it is succeeded or not final.
func (c *Client) Replay(ctx context.Context, provider, id string) (Receipt, error) {
	info, r, err := c.get(ctx, provider, id)
	if err != nil {
		return Receipt{}, err
	}
	switch {
	case !info.State.Final():
		return Receipt{}, finalError(info, "only final jobs are replayed")
	case info.State == Succeeded:
		return Receipt{}, finalError(info, "its call was made; enqueue a new job to make another")
	case r.msg == "" || r.state != "completed" && r.state != "archived":
		return Receipt{}, fmt.Errorf("%w: the content of %s/%s is not kept any more; enqueue it anew", ErrNotFound, provider, id)
	}
	msg, err := layout.ParseMessage([]byte(r.msg))
	if err != nil {
		return Receipt{}, err
	}
	env, err := layout.Decode(msg.Headers)
	if err != nil {
		return Receipt{}, fmt.Errorf("%s/%s: %w", provider, id, err)
	}
	return c.replay(ctx, info, r, env)
}

func (c *Client) replay(ctx context.Context, info Info, r record, env layout.Envelope) (Receipt, error) {
	now, err := c.room(ctx, info.Provider, jobOverhead)
	if err != nil {
		return Receipt{}, err
	}
	k := c.keys(info.Provider)
	due, where := now.UnixMilli(), "line"
	if env.Priority != PriorityDefault {
		where = "lane"
	}
	keys := []string{k.Task(info.ID), k.Tombstone(info.ID), k.Asynq("completed"), k.Done(info.State), k.Asynq("pending"), k.Asynq("scheduled")}
	keys = append(append(keys, lanesFirst(k, env.Priority)...), k.Own(layout.Cancel), k.Own("crash"), k.Asynq("archived"))
	n, err := c.scripts.replay.Run(ctx, c.rdb, keys, info.ID, r.msg, layout.ReplaySuffix(env.Changes(due)),
		due, where, layout.Far, k.Own(layout.Jobs)).Int()
	if err != nil {
		return Receipt{}, mapError(err)
	}
	if n == 0 {
		return Receipt{}, finalError(info, "it changed while it was looked at; try again")
	}
	return Receipt{Provider: info.Provider, ID: info.ID, State: Waiting}, nil
}

// PauseQueue shuts asynq's queue of a provider, as asynqmon's pause does.
// Penstock's own pause is the gate's (shaper.Gate.Pause): set both together.
// Pausing twice is no error.
func (c *Client) PauseQueue(ctx context.Context, provider string) error {
	if err := CheckName("provider", provider); err != nil {
		return err
	}
	now, err := c.room(ctx, provider, 0)
	if err != nil && !errors.Is(err, ErrFull) {
		return err
	}
	return mapError(c.rdb.SetNX(ctx, c.keys(provider).Asynq("paused"), now.Unix(), 0).Err())
}

// ResumeQueue undoes PauseQueue, or a pause by asynqmon.
func (c *Client) ResumeQueue(ctx context.Context, provider string) error {
	if err := CheckName("provider", provider); err != nil {
		return err
	}
	return mapError(c.rdb.Del(ctx, c.keys(provider).Asynq("paused")).Err())
}
