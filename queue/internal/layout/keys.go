// Package layout is what package queue and package queue/worker must agree on
// in Redis: the names of keys, the envelope of a job, the tombstone of a final
// one, and the few bytes of asynq's task message that both touch. It talks to
// no one and decides nothing.
//
// All keys of one provider carry the hash tag {queue}, so that one script may
// touch them all in a Redis Cluster.
package layout

import "strings"

// Key and channel names below the provider's prefix, for Keys.Own.
const (
	Spec      = "spec"   // STRING, JSON: what producers must know (queue.Spec)
	Bodies    = "bodies" // SET of job ids that have a body key of their own
	Procs     = "procs"  // ZSET process -> last heartbeat (ms, Redis TIME)
	Cancel    = "cancel" // ZSET id -> when cancellation was asked for (ms, Redis TIME)
	Paused    = "paused" // STRING: the operator's pause, beside asynq's own
	HeldUntil = "held_until"
	Control   = "control"
	Jobs      = "jobs"      // channel: a job was put in; wakes inlets
	Wake      = "wake"      // channel: the gate's
	Cancelled = "cancelled" // channel: the id of a running job that is to be stopped
)

// Providers is the set of all providers' names, with a namespace's own set
// where there is one. It is in no provider's hash slot.
func Providers(namespace string) string {
	if namespace == "" {
		return "penstock:providers"
	}
	return "penstock:" + namespace + ":providers"
}

// Keys makes the names of one provider's keys. Make it with For.
type Keys struct {
	// Queue is asynq's queue: the provider, or namespace.provider.
	Queue string
	// Prefix is penstock:{queue}: and AsynqPrefix asynq:{queue}:
	Prefix, AsynqPrefix string
}

// For returns the keys of a provider in a namespace ("" for none).
func For(namespace, provider string) Keys {
	q := provider
	if namespace != "" {
		q = namespace + "." + provider
	}
	return Keys{Queue: q, Prefix: "penstock:{" + q + "}:", AsynqPrefix: "asynq:{" + q + "}:"}
}

// Own is a key (or channel) of Penstock: penstock:{queue}:name.
func (k Keys) Own(name string) string { return k.Prefix + name }

// Asynq is a key of asynq: asynq:{queue}:name (pending, active, lease,
// scheduled, retry, archived, completed, paused).
func (k Keys) Asynq(name string) string { return k.AsynqPrefix + name }

// Task is asynq's hash of a job: msg, state, pending_since, result.
func (k Keys) Task(id string) string { return k.AsynqPrefix + "t:" + id }

// Tombstone is the STRING that remembers a final job for as long as its
// provider's keep; see type Tombstone.
func (k Keys) Tombstone(id string) string { return k.Prefix + TombstoneName(id) }

// TombstoneName is Tombstone below the prefix (shaper.Record.Name).
func TombstoneName(id string) string { return "id:" + id }

// Body is the STRING with a body larger than InlineBody.
func (k Keys) Body(id string) string { return k.Prefix + "body:" + id }

// Lane is the ZSET id -> due time (ms, Redis TIME) of a priority. It holds
// every waiting job of priority high and low, and every delayed or retrying
// job of any priority.
func (k Keys) Lane(p Priority) string { return k.Prefix + "lane:" + string(p) }

// Lanes are all lanes, in the order High, Default, Low.
func (k Keys) Lanes() []string {
	return []string{k.Lane(High), k.Lane(Default), k.Lane(Low)}
}

// Owner is the SET of job ids taken by a process.
func (k Keys) Owner(process string) string { return k.Prefix + "owner:" + process }

// Done is the ZSET id -> when it became final (ms, Redis TIME) of the jobs in
// one final state.
func (k Keys) Done(s State) string { return k.Prefix + DoneName(s) }

// DoneName is Done below the prefix (shaper.Record.Index; its Member is the id).
func DoneName(s State) string { return "done:" + string(s) }

// Types of asynq tasks.
const (
	TaskHTTP = "penstock:http" // one HTTP call
	TaskJob  = "penstock:job"  // for a Go handler, by Envelope.Type
)

// IsTask reports that a task of asynq is a job of ours.
func IsTask(typename string) bool { return strings.HasPrefix(typename, "penstock:") }

// AsynqMaxRetry is never reached: attempts are our own count.
const AsynqMaxRetry = 1 << 30

// InlineBody is the most bytes of a body inside the task's message; a larger
// one has its own key, because asynq's heartbeat rewrites each active message
// every 5 s.
const InlineBody = 16 << 10

// Far is the score (Unix s, in the year 2200) from which on an entry of
// asynq's sets scheduled and retry is bookkeeping only: its due time is in a lane.
const Far = 4102444800

// ParkScore is the score in asynq's scheduled or retry of a job whose due time
// (ms) is in a lane: Far where it is due already, else Far + due in seconds,
// rounded up, so that asynq's sets tell delayed from waiting by count alone.
func ParkScore(dueMS, nowMS int64) int64 {
	if dueMS <= nowMS {
		return Far
	}
	return Far + (dueMS+999)/1000
}
