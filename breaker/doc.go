// Package breaker decides WHETHER a provider is well, and how much it may be
// asked: a pure control law, [Step](now, state, sample, config) → state. No
// I/O, no clock, no randomness, no goroutine: time and chance are arguments.
//
// It also owns the one word that every room shares, [Outcome]: what an attempt
// showed of the provider. What becomes of the job is another matter and is
// decided by the worker.
//
// One signal moves one thing, and nothing else:
//
//	signal                        moves                       how                               file
//	429, 503 with Retry-After     C, a ceiling on the rate    cut, then cubic growth            ceiling.go
//	5xx, timeouts, no connection  f, a share of the rate      proportional, never integrating   factor.go
//	latency of successes, stalls  L, calls in flight          gradient                          inflight.go
//	failures beyond hope          the breaker's state         open, probe, slow start           closed.go, open.go, halfopen.go
//	Retry-After, RateLimit-Reset  held until T                obeyed as it is                   hold.go
//
// What comes of it is a [Control]: R = max(R_min, min(R_cfg, C, f·R_ref, R_ss))
// calls a second, L calls in flight, and whether anybody may go at all.
//
//	          15 failures in a row, or
//	          half of the calls fail                     T is over
//	┌────────┐ ───────────────────────────────▶ ┌──────┐ ─────────▶ ┌───────────┐
//	│ closed │                                  │ open │            │ half-open │
//	└────────┘ ◀──────────┐                     └──────┘ ◀───────── └───────────┘
//	     slow start       │                           a probe fails, or is lost
//	                      └──────────────────────────────────────── 3 good probes
//
// Every change of the breaker's state, and every cut of the ceiling, begins a
// new generation. A call carries the generation in which it started, so that
// nothing is concluded from a call that knew nothing of the last decision.
//
// The package is not for counting (internal/health's windows), not for keeping
// anything (Redis, by compare-and-set), and not for holding anybody back
// (shaper's gate does that, from the Control).
package breaker
