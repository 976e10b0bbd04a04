// Package redistest gives tests a Redis, in two forms:
//
//   - Start: a real redis-server process on a free loopback port, which a test
//     can stop, kill, restart and fill;
//   - Both: one suite on two backends, the real server and miniredis inside a
//     testing/synctest bubble, where time is virtual and reaches into Lua's
//     TIME, into TTLs and into asynq.
//
// A missing redis-server fails the tests that need it; it never skips them.
// Only tests import this package.
package redistest
