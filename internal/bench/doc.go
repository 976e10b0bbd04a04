// Package bench measures Penstock, and plain asynq beside it, on this machine:
// what stands behind the figures of the README. It starts its own redis-server
// and its own worker processes, and a fragile provider (internal/fragile)
// counts what really arrived.
//
// [Run] runs the comparisons by name, [Worker] is the process that it starts
// ([WorkerCommand] of the binary), and [Results] writes a table or JSON.
// [PlainServer] is plain asynq with its usual retry, for the demo's "unshaped
// beside it".
//
// What is not here: a judgement. Each figure stands beside what was wanted,
// and a missed one is marked; the caller decides what follows.
package bench
