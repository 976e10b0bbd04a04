// Package shaper decides WHEN a call may start: rate, burst, concurrency and
// accounts, over a whole fleet of processes, in one atomic script.
//
// It is mechanism only and knows no policy: not what a provider is, not why a
// call failed. A [Gate] gives permits for one provider. In each process one
// goroutine per active gate talks to Redis; while its request is under way,
// arrivals and settlements queue up in memory and the next request carries
// them all (group commit), so the cost per call falls as load rises.
//
// The rate is GCRA on whole microseconds of Redis TIME: consecutive slots are
// one interval apart, whichever process gets them, so the fleet emits one even
// stream. Read gate.lua for the decision itself, [Limits] for the numbers, and
// package guard for what most callers want.
//
// At our own door nothing waits: a [Policy] refuses at once. A [LimitStore]
// counts what clients use, in Redis for a fleet or in memory, with seven
// algorithms that decide alike on both; [BatchLimitStore] saves round trips
// within a stated error, [FallbackLimitStore] decides while Redis is away. The
// middleware is shaper/limithttp.
package shaper
