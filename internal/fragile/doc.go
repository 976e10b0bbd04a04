// Package fragile is a rehearsal provider: an HTTP server with a hidden limit
// that a caller can only find out by being refused, with troubles that follow
// a script, and with its own account of what it saw.
//
// It is the judge in demo, bench and the fault tests, and `penstock fragile`
// for people who want to rehearse. Therefore it shares no code with what it
// judges: it has its own rate, its own limiters and its own arithmetic.
//
// A [Provider] is an http.Handler; a [Server] is one on a loopback port; [Run]
// is what the command does. Time is read from the monotonic clock at the
// arrival in the handler, under the lock that decides, so the account is in
// exactly the order of the decisions. In a testing/synctest bubble it is exact.
//
// A call goes through these doors, in this order:
//
//  1. outage: the connection is reset, nothing is accepted or counted as used.
//  2. in_flight, then limit: refused with 429 and a Retry-After. Refused calls
//     do not count against the limit.
//  3. accepted. The script may let it fail, hang, or cut its connection.
//  4. latency, and the wait for a free server where Servers is set; then 200.
//
// What is not here: whether the caller did well. Read [Report] for that.
package fragile
