// Package simulate rehearses a provider, a fleet and their limits in virtual
// time: hours in seconds, and the same every time for the same seed.
//
// What is real here is what decides: the control law (package breaker), the
// retry budget and the back-off (package retrybudget), and the gate, as a model
// of its script on the same integers (gate*.go). What is modelled is the rest:
// processes that talk to the gate over a network with a round trip
// (worker.go), the jobs that wait (jobs.go), the sensor that counts what comes
// back (sensor.go), and the provider (provider*.go): limits that count in a
// bucket, a sliding or a fixed window, servers with a queue, errors, hangs,
// outages, and changes of all these on a timeline.
//
// A [Scenario] says all of it, from a YAML file or built in ([Builtin]).
// [Run] runs it, and a [Result] says what came of it, as numbers, a table, a
// chart for the terminal, and an SVG or PNG.
//
// CONTROL.md's acceptance table runs here as tests, with several seeds a row.
package simulate
