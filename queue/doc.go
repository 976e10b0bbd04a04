// Package queue takes a job from accepted to final: what a job is, the client
// that stores jobs (the SDK of producers), their states, and looking at them.
//
// A job is one call to make to one provider. It is stored as a task in asynq's
// queue of that provider, so that asynq's inspector and asynqmon show it; what
// asynq does not have stands beside it under penstock:{queue}: (package
// queue/internal/layout). A job that is final leaves a tombstone for the
// provider's keep, so that the same id never makes a second call.
//
// The package does not run jobs (queue/worker does), does not know limits
// (shaper), and reads no configuration. For a store without a Redis see
// queue/embedded.
//
//	waiting ──┐                      ┌── succeeded
//	          ├── running ── fate ───┼── dead
//	delayed ──┤      │               ├── expired
//	retrying ─┘◄─────┘               └── cancelled
package queue
