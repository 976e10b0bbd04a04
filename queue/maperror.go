package queue

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"
)

// answers are what Redis says when it cannot write or read now, by the
// beginning of the text: neither go-redis nor asynq has codes for all of them,
// and from inside a script the text may come later in the line.
var answers = []struct{ text, fix string }{
	{"READONLY", "a replica answered: wait for the failover, or point redis.url at the primary"},
	{"LOADING", "redis is loading its data: wait"},
	{"MASTERDOWN", "the replica has lost its primary: wait for the failover"},
	{"CLUSTERDOWN", "the cluster has no quorum, or slots without a node"},
	{"TRYAGAIN", "the cluster is moving the slot: try again"},
	{"MISCONF", "redis cannot save to disk and so refuses writes: look at its log and disk"},
	{"NOREPLICAS", "redis has fewer good replicas than min-replicas-to-write"},
	{"BUSY ", "redis is busy with a script"},
	{"NOAUTH", "give the user and password in redis.url"},
	{"WRONGPASS", "check the user and password in redis.url"},
	{"NOPERM", "the Redis user needs the commands and keys (asynq:*, penstock:*) and channels (penstock:*) of Penstock"},
	{"max number of clients", "redis has no connection left: raise maxclients"},
}

// mapError gives an error of Redis its name. Nil stays nil, and so does an
// error that has a name of ours.
func mapError(err error) error {
	if err == nil {
		return nil
	}
	for _, named := range []error{ErrUnavailable, ErrFull, ErrInvalid, ErrUnknownProvider, ErrConflict, ErrNotFound, ErrState} {
		if errors.Is(err, named) {
			return err
		}
	}
	text := err.Error()
	if strings.Contains(text, "OOM command not allowed") || strings.HasPrefix(text, "OOM ") {
		return &FullError{RetryAfter: fullRetry}
	}
	for _, a := range answers {
		if strings.Contains(text, a.text) {
			return &UnavailableError{Fix: a.fix, Err: err}
		}
	}
	if _, ok := errors.AsType[net.Error](err); ok || isAway(err) {
		return &UnavailableError{Err: err}
	}
	return err
}

// isAway: no answer, for whatever reason. A context that ended is the
// caller's own decision, but what was sent may have been done: the same advice
// stands, and errors.Is still finds the context's error.
func isAway(err error) bool {
	for _, e := range []error{
		io.EOF, io.ErrUnexpectedEOF, redis.ErrClosed, redis.ErrPoolTimeout, redis.ErrPoolExhausted,
		context.DeadlineExceeded, context.Canceled, net.ErrClosed,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
