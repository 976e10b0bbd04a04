// Package provider makes one HTTP call to a downstream provider and says what
// its answer means.
//
// [Provider.Call] is the whole of it: one attempt, on a pooled connection,
// under one deadline, seen by the provider at most once. It never follows a
// redirect, never leaves the host of the base URL, never dials an address that
// the configuration does not allow, and never repeats a request of which a byte
// may have arrived. What came of it is a [Result]: the outcome (what the
// attempt showed of the provider) and the fate (what becomes of the job).
//
// [Judge] and [JudgeError] are the table of outcomes and fates by themselves,
// pure, for callers that make their calls another way.
//
// Not here: when a call may start (shaper), whether the provider is well
// (breaker), when to try again (retrybudget), and everything that needs to know
// a job's history, such as "the second 401 is final" (queue/worker).
//
// Where to read: verdict.go for the table, retryafter.go and quota.go for what
// a provider says about waiting, target.go and address.go for what keeps a
// call from going elsewhere, request.go for what a job may set.
package provider
