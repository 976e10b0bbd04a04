package layout

import (
	"encoding/json"
	"fmt"
)

// Tombstone is what is kept of a final job: in its key for as long as keep, in
// the gate's script at the settlement, and as the result of a task that asynq
// keeps as completed.
type Tombstone struct {
	State    State  `json:"s"`
	Hash     string `json:"h,omitempty"` // content hash
	Attempts int    `json:"a"`           // calls made
	At       int64  `json:"t"`           // when it became final, ms
	Reason   string `json:"r,omitempty"` // why; empty for a plain success. No secret
	Status   int    `json:"c,omitempty"` // the last HTTP status. 0: none
	// How often it came back with no attempt spent, and how often of them because
	// the provider said not now.
	Deferrals int `json:"d,omitempty"`
	Throttles int `json:"w,omitempty"`
}

// Encode writes the JSON that ParseTombstone reads.
func (t Tombstone) Encode() string {
	b, err := json.Marshal(t)
	if err != nil { // strings and ints only: cannot happen
		panic(err)
	}
	return string(b)
}

// ParseTombstone reads a tombstone; what is not one, or has no final state, is an error.
func ParseTombstone(s string) (Tombstone, error) {
	var t Tombstone
	if err := json.Unmarshal([]byte(s), &t); err != nil {
		return Tombstone{}, fmt.Errorf("not a tombstone: %w", err)
	}
	if !t.State.Final() {
		return Tombstone{}, fmt.Errorf("not a tombstone: state %q is not final", t.State)
	}
	return t, nil
}
