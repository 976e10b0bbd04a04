// Package jobs holds a few thousand jobs for two providers, "sms" and
// "payments": what `penstock demo` sends, and something to feed your own
// rehearsal with:
//
//	penstock enqueue --file examples/jobs/jobs.ndjson
//
// Everything in them is invented.
package jobs

import _ "embed"

// NDJSON is one job a line, in the form that POST /v1/jobs:batch takes.
//
//go:embed jobs.ndjson
var NDJSON []byte
