package queue

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"github.com/penstock-io/penstock/queue/internal/layout"
)

// taskTimeout is far outside of everything: the worker's own deadlines are inside.
const taskTimeout = 24 * time.Hour

// prepared is one job on its way into Redis: a script's keys and arguments.
type prepared struct {
	job    Job // normal, with its id
	ownID  bool
	hash   string
	state  State // if it is put in
	script *layout.Script
	keys   []string
	args   []any
	size   int64
}

// prepare checks a job against its provider and makes it ready to be sent. It
// asks Redis only where what it knows is too old.
func (c *Client) prepare(ctx context.Context, j Job) (*prepared, error) {
	j, err := j.normal()
	if err != nil {
		return nil, err
	}
	spec, err := c.Spec(ctx, j.Provider)
	if err != nil {
		return nil, err
	}
	if n := int64(len(j.Body)); n > spec.MaxBody {
		return nil, tooLarge(n, spec.MaxBody)
	}
	if spec.MaxCost > 0 && j.Cost > spec.MaxCost {
		return nil, invalid("cost", "split the job, or raise the provider's limits", "%d could never be granted by %s, at most %d", j.Cost, j.Provider, spec.MaxCost)
	}
	p := &prepared{job: j, hash: contentHash(j), size: int64(len(j.Body) + len(j.Path) + jobOverhead)}
	if p.job.ID == "" {
		id, err := uuid.NewV7()
		if err != nil {
			return nil, fmt.Errorf("no random bytes for an id: %w", err)
		}
		p.job.ID, p.ownID = id.String(), true
	}
	now, err := c.room(ctx, j.Provider, p.size)
	if err != nil {
		return nil, err
	}
	return p, c.pack(p, now)
}

// room asks whether the provider's server takes size more bytes, and what
// time it is there.
func (c *Client) room(ctx context.Context, provider string, size int64) (time.Time, error) {
	k := c.keys(provider)
	name := ""
	if _, ok := c.rdb.(interface {
		MasterForKey(context.Context, string) (*redis.Client, error)
	}); ok {
		name = k.Queue
	}
	c.mu.Lock()
	s := c.samplers[name]
	if s == nil {
		s = &sampler{log: c.log}
		c.samplers[name] = s
	}
	c.mu.Unlock()
	node, err := nodeFor(ctx, c.rdb, k.Own(layout.Spec))
	if err != nil {
		return time.Time{}, err
	}
	if err := s.room(ctx, node, size); err != nil {
		return time.Time{}, err
	}
	return s.now(), nil
}

// pack makes the task's message, and the script's keys and arguments, the
// first of which are those that asynq's own script would be given.
func (c *Client) pack(p *prepared, now time.Time) error {
	j, k := &p.job, c.keys(p.job.Provider)
	nowMS := now.UnixMilli()
	due := nowMS + ceilMS(j.Delay)
	if !j.Due.IsZero() {
		due = max(nowMS, j.Due.UnixMilli())
	}
	env := layout.Envelope{
		Type: j.Type, Method: j.Method, Path: j.Path, Headers: j.Headers,
		Key: j.Key, Priority: j.Priority, Allowed: j.Attempts, Cost: j.Cost,
		Accepted: nowMS, Due: due, MaxAge: ceilMS(j.MaxAge), Keep: ceilMS(j.Keep),
		IdempotencyKey: j.IdempotencyKey, Hash: p.hash,
		BodyKey: len(j.Body) > layout.InlineBody,
	}
	if env.MaxAge > 0 {
		env.Expires = due + env.MaxAge
	}
	payload := j.Body
	if env.BodyKey {
		payload, env.Size = nil, len(j.Body)
	}
	msg, err := layout.NewMessage(j.ID, k.Queue, payload, int64(taskTimeout.Seconds()), env)
	if err != nil {
		return err
	}
	p.state, p.script = Waiting, c.scripts.enqueue
	if due > nowMS {
		p.state = Delayed
	}
	if p.state == Delayed || j.Priority != PriorityDefault {
		p.script = c.scripts.schedule
		p.keys = append(make([]string, 0, 8), k.Task(j.ID), k.Asynq("scheduled"), k.Tombstone(j.ID))
		p.keys = append(p.keys, lanesFirst(k, j.Priority)...)
		p.args = append(make([]any, 0, 5), msg, layout.ParkScore(due, nowMS), j.ID, due)
	} else {
		p.keys = append(make([]string, 0, 5), k.Task(j.ID), k.Asynq("pending"), k.Tombstone(j.ID))
		p.args = append(make([]any, 0, 4), msg, j.ID, now.UnixNano())
	}
	if env.BodyKey {
		p.keys = append(p.keys, k.Body(j.ID), k.Own(layout.Bodies))
		p.args = append(p.args, j.Body)
	}
	return nil
}

// lanesFirst are the three lanes, the one of p first.
func lanesFirst(k layout.Keys, p Priority) []string {
	out := []string{k.Lane(p)}
	for _, other := range k.Lanes() {
		if other != out[0] {
			out = append(out, other)
		}
	}
	return out
}
