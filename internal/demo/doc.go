// Package demo shows Penstock at work within half a minute, with nothing
// installed: a store in the process (queue/embedded), two fragile providers
// with limits of their own (internal/fragile), a few thousand jobs from
// examples/jobs, workers put together as a user would, and at the end a
// verdict that the providers counted, the same jobs unshaped beside it.
//
// What is printed where, and the exit code, are cmd's; see [Run].
package demo
