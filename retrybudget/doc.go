// Package retrybudget decides WHETHER and WHEN a failed call may be tried
// again. It holds policy and numbers only: no I/O, no goroutine, and nothing
// of Penstock's other packages.
//
// [Backoff] is the WHEN: a delay drawn with full jitter from an exponentially
// growing range, computed from the number of the retry alone, so that a job's
// schedule outlives the process that made its first attempt. [Backoff.Next] is
// the method most callers want.
//
// [Budget] is the WHETHER: first attempts that succeed earn, retries spend, and
// a retry without a token is postponed, never dropped. Its arithmetic is pure,
// on the same integers as the account in the gate's script; [Account] is one in
// the process, and package budgettest holds the two to be alike.
//
// What a failure means is decided elsewhere (internal/provider), and so is how
// many calls may leave in a second (shaper).
package retrybudget
