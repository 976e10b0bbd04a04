package queue

import (
	"time"

	"github.com/penstock-io/penstock/queue/internal/layout"
)

// Bounds of a job. What is larger is refused at enqueue, naming the field.
const (
	MaxID         = 128                  // characters of an id
	MaxPath       = 8 << 10              // bytes of a path
	MaxHeaders    = 64                   // headers of a call
	MaxHeaderSize = 32 << 10             // bytes of all names and values together
	MaxBody       = 64 << 20             // bytes of a body, whatever the provider's spec says
	MaxDelay      = 366 * 24 * time.Hour // of Delay, Due and MaxAge
	MaxAttempts   = 10_000
	MaxCost       = 1_000_000

	// DefaultMaxBody stands where a provider's spec says nothing.
	DefaultMaxBody = 1 << 20
	// DefaultKeep is how long a final job's id is remembered where a
	// provider's spec says nothing.
	DefaultKeep = 24 * time.Hour
	// InlineBody is the largest body kept inside asynq's message; a larger
	// one has a key of its own.
	InlineBody = layout.InlineBody
)

// State of a job; see the package's drawing.
type State = layout.State

// The states. The last four are final.
const (
	Waiting   = layout.Waiting   // it could be called now
	Delayed   = layout.Delayed   // never called yet, its due time is to come
	Retrying  = layout.Retrying  // put back: waits for its next attempt
	Running   = layout.Running   // a worker has it
	Succeeded = layout.Succeeded // the call was made and answered well
	Dead      = layout.Dead      // refused for good, or out of attempts; kept for replay
	Expired   = layout.Expired   // max_age passed before it was called well
	Cancelled = layout.Canceled  // by Cancel
)

// States are all states in the order above.
func States() []State { return layout.States() }

// Priority of a job inside its provider; shares are 8 : 4 : 1.
type Priority = layout.Priority

// The priorities. The empty Priority means PriorityDefault.
const (
	PriorityHigh    = layout.High
	PriorityDefault = layout.Default
	PriorityLow     = layout.Low
)

// Callback is where a job's final state is to be reported. It is part of the
// contract but not built yet: a job that has one is refused.
type Callback struct {
	Provider string
	Path     string
}

// Job is one call to make. Only Provider is required; the zero value of every
// other field says what most jobs want. A Job is a plain value: Enqueue keeps
// nothing of it, and does not change what it points to.
type Job struct {
	// Provider that is called. It must be served by some worker.
	Provider string
	// ID names the job inside its provider: 1 to 128 printable characters.
	// The same id with the same content is one job, however often it is
	// enqueued. Empty: a new UUIDv7.
	ID string

	// Type is set for a job that a Go handler understands (worker.Config.Handler);
	// Method and Path may then be empty. Empty: an HTTP call.
	Type string
	// Method of the call. Empty: POST for an HTTP call.
	Method string
	// Path below the provider's base_url, with its query, beginning with "/".
	// Empty: the base_url itself.
	Path string
	// Headers of the call. Those that belong to the connection (Host,
	// Content-Length, Connection, …) are refused.
	Headers map[string]string
	// Body is sent as it is, byte for byte.
	Body []byte
	// IdempotencyKey is sent as the header Idempotency-Key. Empty: the job's
	// id, or the header where Headers has one.
	IdempotencyKey string

	// Key is what the job is limited and shared fairly by inside its
	// provider. Not built yet: refused unless empty.
	Key string
	// Priority. Empty: PriorityDefault.
	Priority Priority
	// Delay from now on until the job may be called, to the millisecond
	// (rounded up). Zero: at once. Not together with Due.
	Delay time.Duration
	// Due is the moment from which on the job may be called; past ones mean
	// at once. Zero: now plus Delay.
	Due time.Time
	// MaxAge runs from the due time; a job that is not called well by then
	// is expired. Zero: the provider's default.
	MaxAge time.Duration
	// Attempts allowed, the first one counted. Zero: the provider's default.
	Attempts int
	// Cost in calls that the limits are charged. Zero: 1.
	Cost int
	// Keep is how long this job's id is remembered once it is final, and, where
	// it did not succeed, how long it can be seen and replayed: for ids whose
	// sender repeats them for longer than others, like webhooks. It is no part of
	// the content that a repeat is compared by. Zero: the provider's keep.
	Keep time.Duration
	// Callback is not built yet: refused unless nil.
	Callback *Callback
}

// Receipt says what became of an enqueue.
type Receipt struct {
	Provider string
	ID       string
	// State of the job now: Waiting or Delayed for a new one.
	State State
	// Known says that the job had been accepted before, with the same
	// content: nothing was added.
	Known bool
}
