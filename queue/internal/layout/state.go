package layout

// State of a job.
type State string

// The states of a job. The last four are final.
const (
	Waiting   State = "waiting"
	Delayed   State = "delayed"
	Retrying  State = "retrying"
	Running   State = "running"
	Succeeded State = "succeeded"
	Dead      State = "dead"
	Expired   State = "expired"
	Canceled  State = "cancelled"
)

// States are all states, the way a job goes through them.
func States() []State {
	return []State{Waiting, Delayed, Retrying, Running, Succeeded, Dead, Expired, Canceled}
}

// FinalStates are the final ones.
func FinalStates() []State { return []State{Succeeded, Dead, Expired, Canceled} }

// Final reports that a job in this state never changes again, but by replay.
func (s State) Final() bool {
	switch s {
	case Succeeded, Dead, Expired, Canceled:
		return true
	}
	return false
}

// Valid reports that s is one of States.
func (s State) Valid() bool {
	switch s {
	case Waiting, Delayed, Retrying, Running:
		return true
	}
	return s.Final()
}

// Priority of a job inside its provider.
type Priority string

// The priorities; the empty one means Default.
const (
	High    Priority = "high"
	Default Priority = "default"
	Low     Priority = "low"
)

// Valid reports that p is one of the three.
func (p Priority) Valid() bool { return p == High || p == Default || p == Low }
