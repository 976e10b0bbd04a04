// Package health hears what every call showed of a provider, over the whole
// fleet, and makes the control law's decision the gate's.
//
// Each process counts into a window of its own. Four times a second it flushes
// the window into buckets in Redis that all share (sense.lua); whoever finds
// that a tick is due reads them, runs [breaker.Step], and publishes the control
// record by compare-and-set on its version (publish.lua). There is no leader
// and no lock: a process that dies between the two costs one tick. The gate's
// script obeys the record in the next request of anyone.
//
// It runs only for a provider with calls in the last seconds, with callers that
// wait, or with a state that is not at rest: an open breaker is ticked by every
// process that knows of it until it probes, whether or not that process has
// anything to call.
//
// Keys, below the gate's prefix: control (the record: the gate's line, then the
// law's own JSON), health (hash: when it was ticked, the row of failures, the
// mode), buckets (hash: what came back, by time and generation), seconds (list: what
// was forgotten of them, by the second and for ten minutes, for people alone;
// see Observe). All may be lost: a record that is gone begins anew, in a
// generation of its own.
//
// The package is not for deciding anything (package breaker) nor for holding
// anybody back (the gate).
package health
