// Package faults kills, stops and starves real processes, and looks whether a
// job was lost or called twice. It holds tests only, with the build tag
// "faults": run them with make test-faults.
//
// Each test has a redis-server, an API and workers of its own, all of them
// processes of the real binary, and a provider in the test's own process that
// counts what it saw (internal/fragile): the judge shares nothing with the
// judged. Only orders and counts are asserted, and times with room for a machine
// that does other work beside.
//
// What happens inside one process is tested in its own room; the killing of a
// worker under load, with its figures, in internal/bench; the container's files
// in internal/app.
package faults
