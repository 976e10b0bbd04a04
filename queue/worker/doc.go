// Package worker calls the jobs of one provider, each when its turn has come.
//
// It owns three rooms:
//
//   - the inlet (inlet.go, take.lua) decides how many jobs are taken, from which
//     lane, and when: never before the gate will soon have room for them;
//   - the handler (handler.go, fate.go) makes one attempt through the guard and
//     says what becomes of the job;
//   - the settler (settle.go, settle.lua) stores that, many jobs in one request.
//
// asynq runs underneath, unchanged: its server is given a Redis client
// (client.go) that answers the scripts of its dequeue and of its ends itself and
// leaves in Redis what asynq would leave. A self-test at start (probe.go,
// shape.go) makes sure that they are the scripts we know; where they are not,
// the worker says so and works as plain asynq does, still shaped (plain.go).
//
// Beside them the ticker (ticker.go, tick.lua) gives a sign of life and brings
// back what dead workers held, and the stop sequence (worker.go) sees to it that
// no job is called twice for a stop.
//
// For an asynq server that exists already there is [Middleware].
//
// Not here: when a call may start (shaper), whether the provider is well
// (shaper/guard), what an HTTP answer means (internal/provider), how jobs come
// in (queue).
//
// # What becomes of a job
//
//	nil                    succeeded
//	Defer, 429, 401 once   again, no attempt spent
//	any other error        again, an attempt spent; dead after the last
//	Discard, most of 4xx   dead
//	max_age passed         expired, before any slot is taken for it
//	cancelled              at once while it waits; after its call else
//
// Stop a worker by its context. After Run has returned close the guard, then
// the Redis client; a client closed earlier makes asynq panic.
package worker
