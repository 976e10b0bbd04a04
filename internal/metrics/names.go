package metrics

import "slices"

// other stands for a word that is in no list, so that a text from outside can
// never make a new series.
const other = "other"

// states of a job, the final ones last.
var (
	openStates  = []string{"waiting", "delayed", "retrying", "running"}
	finalStates = []string{"succeeded", "dead", "expired", "cancelled"}
)

// denials are the gate's reasons for a wait or a refusal.
var denials = []string{
	// the provider is shut
	"paused", "held", "retry_after", "credentials", "open", "half_open", "probing",
	// a limit
	"rate", "concurrency", "turn", "key", "group", "route", "quota", "budget",
	// the job itself
	"running", "done", "poison", "expired",
	// ourselves
	"closed", "store_away", "fuse",
}

// deferrals are a worker's reasons for putting a job back without an attempt
// spent; "handler" stands for whatever a handler of the user's gave as its own.
var deferrals = []string{"throttled", "refused", "handler", "budget", "failed"}

// causes are a worker's reasons for taking a job back from another.
var causes = []string{"process_died", "lease_expired", "no_lease", "no_lane", "not_in_hand"}

// known returns word if the list has it, and other if not.
func known(word string, list []string) string {
	if slices.Contains(list, word) {
		return word
	}
	return other
}
