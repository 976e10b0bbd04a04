package queue

import (
	"context"
	"fmt"
	"strings"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/penstock-io/penstock/queue/internal/layout"
)

// seam stands between asynq's client and Redis. asynq builds the task; what it
// would run is held back for the scripts of this package, which take the same
// keys and arguments. Everything else passes.
type seam struct{ redis.UniversalClient }

// held is what asynq's enqueue or schedule script would have been given.
type held struct {
	keys []string
	args []any
}

type heldKey struct{}

// EvalSha holds an enqueue back, and passes everything else.
func (s *seam) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	h, ok := ctx.Value(heldKey{}).(*held)
	if !ok {
		return s.UniversalClient.EvalSha(ctx, sha, keys, args...)
	}
	h.keys, h.args = keys, args
	cmd := redis.NewCmd(ctx)
	cmd.SetVal(int64(1)) // "put in": ours decides later
	return cmd
}

// taskArgs lets asynq build the task and returns what its script would have
// been given: keys {task, pending or scheduled}; args {message, id, now ns} or
// {message, score, id}. An asynq that asks for anything else is refused.
func (c *Client) taskArgs(ctx context.Context, t *asynq.Task, k layout.Keys, id string, scheduled bool, opts ...asynq.Option) (held, error) {
	var h held
	if _, err := c.asynq.EnqueueContext(context.WithValue(ctx, heldKey{}, &h), t, opts...); err != nil {
		return held{}, err
	}
	want, idAt := "pending", 1
	if scheduled {
		want, idAt = "scheduled", 2
	}
	fits := len(h.keys) == 2 && h.keys[0] == k.Task(id) && h.keys[1] == k.Asynq(want) && len(h.args) == 3 && h.args[idAt] == any(id)
	if fits {
		_, fits = h.args[0].([]byte)
	}
	if !fits {
		return held{}, fmt.Errorf("asynq's script to put a task in has changed (keys %s): this version of Penstock needs asynq v0.26.0",
			strings.Join(h.keys, " "))
	}
	return h, nil
}
