package queue

import (
	"errors"
	"fmt"
	"time"
)

// Errors of this package, for errors.Is. Their wrappers say what to do.
var (
	// ErrInvalid: the job cannot be accepted as it is. See FieldError.
	ErrInvalid = errors.New("invalid job")
	// ErrTooLarge: the body is larger than the provider takes. See FieldError.
	ErrTooLarge = errors.New("body too large")
	// ErrUnknownProvider: no worker or server has published this provider.
	ErrUnknownProvider = errors.New("unknown provider")
	// ErrConflict: the id is another job's. See ConflictError.
	ErrConflict = errors.New("id conflict")
	// ErrFull: Redis is nearly out of memory; nothing was stored. See FullError.
	ErrFull = errors.New("the store is full")
	// ErrUnavailable: Redis did not answer, or cannot write now. The job may
	// have been stored: send it again with the same id. See UnavailableError.
	ErrUnavailable = errors.New("the store is unavailable")
	// ErrNotFound: no such job, or not remembered any more.
	ErrNotFound = errors.New("no such job")
	// ErrState: the job's state does not allow what was asked. See StateError.
	ErrState = errors.New("not possible in this state")
	// ErrServer: the Redis server is unfit. See CheckServer.
	ErrServer = errors.New("unfit redis server")
)

// FieldError is a refusal of one field. It is ErrInvalid, and for a body over
// the limit ErrTooLarge too. It never quotes a header's value or a body.
type FieldError struct {
	// Field by its name in the HTTP contract, e.g. "max_age" or "headers.X-A".
	Field string
	// Reason is what is wrong, Fix what to do.
	Reason, Fix string
	tooLarge    bool
}

func (e *FieldError) Error() string {
	s := e.Field + ": " + e.Reason
	if e.Fix != "" {
		s += "; " + e.Fix
	}
	return s
}

// Is makes a FieldError ErrInvalid, or ErrTooLarge.
func (e *FieldError) Is(target error) bool {
	return target == ErrInvalid || e.tooLarge && target == ErrTooLarge
}

func invalid(field, fix, format string, args ...any) error {
	return &FieldError{Field: field, Reason: fmt.Sprintf(format, args...), Fix: fix}
}

// ConflictError says which job has the id, and until when.
type ConflictError struct {
	Provider, ID string
	// State of the job that has the id.
	State State
	// Until is when the id is free again; zero while the job is not final:
	// then it is free once the job is final and the provider's keep is over.
	Until time.Time
}

func (e *ConflictError) Error() string {
	until := "until it is final and forgotten"
	if !e.Until.IsZero() {
		until = "until " + e.Until.UTC().Format(time.RFC3339)
	}
	return fmt.Sprintf("id: %s/%s exists with other content, is %s, and keeps its id %s; use another id",
		e.Provider, e.ID, e.State, until)
}

// Is makes a ConflictError ErrConflict.
func (e *ConflictError) Is(target error) bool { return target == ErrConflict }

// FullError says how full Redis is.
type FullError struct {
	// Used and Max are bytes; zero where Redis itself refused.
	Used, Max int64
	// RetryAfter is when to try again at the earliest.
	RetryAfter time.Duration
}

func (e *FullError) Error() string {
	if e.Max == 0 {
		return "redis refuses writes, its memory is full; let the workers drain, or raise maxmemory"
	}
	return fmt.Sprintf("redis has used %d of %d MiB and takes no more jobs from %d %% on; let the workers drain, or raise maxmemory",
		e.Used>>20, e.Max>>20, fullPercent)
}

// Is makes a FullError ErrFull.
func (e *FullError) Is(target error) bool { return target == ErrFull }

// UnavailableError wraps what the connection or the server said.
type UnavailableError struct {
	// Fix says what to do, where that is known.
	Fix string
	Err error
}

func (e *UnavailableError) Error() string {
	s := ErrUnavailable.Error() + ": " + e.Err.Error()
	if e.Fix != "" {
		s += "; " + e.Fix
	}
	return s
}

// Is makes an UnavailableError ErrUnavailable.
func (e *UnavailableError) Is(target error) bool { return target == ErrUnavailable }

// Unwrap returns the cause.
func (e *UnavailableError) Unwrap() error { return e.Err }

// StateError says what state stood in the way.
type StateError struct {
	Provider, ID string
	State        State
	Fix          string
}

func (e *StateError) Error() string {
	return fmt.Sprintf("%s/%s is %s; %s", e.Provider, e.ID, e.State, e.Fix)
}

// Is makes a StateError ErrState.
func (e *StateError) Is(target error) bool { return target == ErrState }
