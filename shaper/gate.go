package shaper

import (
	"errors"
	"time"
)

// Errors that say why a permit was not given. Waiting for the provider is not
// an error: Acquire waits for it.
var (
	// ErrRunning: the job holds a live permit already.
	ErrRunning = errors.New("the job is running already")
	// ErrDone: the job's record stands; its call was made. See DoneError.
	ErrDone = errors.New("the job is done already")
	// ErrPoison: the job's holders died too often.
	ErrPoison = errors.New("the job's workers died too often")
	// ErrClosed: the gate was closed while waiting.
	ErrClosed = errors.New("the gate is closed")
	// ErrStoreAway: Redis does not answer; nothing new may start.
	ErrStoreAway = errors.New("redis does not answer")
)

// DoneError is the ErrDone of a job whose record stands.
type DoneError struct{ Record string }

func (e *DoneError) Error() string        { return ErrDone.Error() }
func (e *DoneError) Is(target error) bool { return target == ErrDone }

// Record is written in the same script as a settlement: what a queue keeps of
// a job that is final. Name is below the gate's prefix ("id:<job>").
type Record struct {
	Name  string
	Value string
	TTL   time.Duration
	// Index, if set, is a sorted set below the prefix that gets Member at the
	// time of the settlement (milliseconds).
	Index  string
	Member string
}

// Observer hears what a gate does. Methods must not block.
type Observer interface {
	// GateRequest is told of each request to Redis: how many arrivals and
	// settlements it carried, and how long it took.
	GateRequest(provider string, arrivals, settlements int, took time.Duration, err error)
	// Denied counts arrivals that had to wait or were refused, by reason.
	Denied(provider, reason string)
	// Waited is how long an arrival waited for its permit.
	Waited(provider string, d time.Duration)
}
