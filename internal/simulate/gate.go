package simulate

import "github.com/penstock-io/penstock/retrybudget"

// Gate is the state of one provider's gate, and Gate.Request what its script
// does in one request: a model of shaper/gate.lua in Go, on the same integers.
// It is deterministic and pure: time is an argument, nothing is random.
//
// Times are whole microseconds of the store's clock, as in the script. Every
// field is one field or key there; the names are spelled out.
type Gate struct {
	Limits GateLimits
	// Seq counts requests, Last is the time of the last one.
	Seq, Last int64
	// Tat and Interval are GCRA's theoretical arrival time and the emission
	// interval in force.
	Tat, Interval int64
	// Learn and Quiet end learning mode, and its first part in which nobody goes.
	Learn, Quiet int64
	// ExpireAt is when leases are looked at next.
	ExpireAt int64
	// Cautious is why only one call at a time goes ("" : it is not so), Probe
	// the permit that is it, Reason why the gate is held.
	Cautious, Probe, Reason string
	// ProbeUntil, ProbeSince and ProbeNext are the probe's lease while the
	// breaker is half-open, the phase it belongs to, and when the next may start.
	ProbeUntil, ProbeSince, ProbeNext int64
	// FirstRefused is when an arrival without an account was last refused for
	// want of room. 0: never.
	FirstRefused int64
	// Control is what health decided. The zero value: as the limits say.
	Control GateControl
	// Held is until when nobody may go; Paused the operator's own.
	Held   int64
	Paused bool

	Permits  map[string]int64  // permit → end of its lease
	Running  map[string]string // job → permit
	Crash    map[string]int64  // job → crashes of its holders
	Expired  map[string]int64  // permit → when its lease ran out
	Refused  map[string]bool   // jobs whose credentials were refused
	Turns    []GateTurn        // in the order in which they came
	Accounts map[string]retrybudget.Balance
	Budget   retrybudget.Budget // of every account
	Records  map[string]string
	Replies  map[string]gateReply
}

// GateLimits are the limits as the script keeps them.
type GateLimits struct {
	Version, N, Per, Headroom, Burst, Concurrency, Interval int64
}

// GateControl is health's decision as the script reads it.
type GateControl struct {
	// Phase is "", "closed", "open" or "half_open".
	Phase string
	// Generation is handed out with each permit; Since is the one in which the
	// phase began.
	Generation, Since int64
	// Interval in µs, where it is longer than that of the limits. 0: as the limits say.
	Interval int64
	// InFlight, where it is less than the limits'. 0: as the limits say.
	InFlight int64
	// OpenUntil is when an open breaker begins to probe.
	OpenUntil int64
	// ProbeLease and ProbeApart, in µs.
	ProbeLease, ProbeApart int64
	// SlowStart: retries need a token.
	SlowStart bool
}

// GateTurn is what one process was served.
type GateTurn struct {
	Proc              string
	Served, Due, Seen int64
}

type gateReply struct {
	number int64
	answer *GateAnswer
}

// GateRequest is one request of one process.
type GateRequest struct {
	Proc           string
	Number, Seen   int64
	Lease, Horizon int64
	Waiting        int64
	Touch          bool       // a sign of life, once a second
	Limits         GateLimits // used where the gate lost its own
	Settle         []GateSettlement
	Renew          []GateRenewal
	Arrive         []GateArrival
}

// GateSettlement ends one permit.
type GateSettlement struct {
	Permit, Job string
	// Called: a call was made; else the permit goes back unused.
	Called bool
	// Outcome is "ok", "failed" or "excluded".
	Outcome string
	// Back is the tat to give back, of a permit not used. 0: none.
	Back int64
	Hold int64
	// Refused: credentials; Capped: Hold is shorter than what was asked.
	Refused, Capped bool
	// Account that gets Credit thousandths.
	Account string
	Credit  int64
	Record  GateRecord
	Cost    int64
}

// GateRecord is written with a settlement. Name "" means none.
type GateRecord struct{ Name, Value string }

// GateRenewal renews one lease.
type GateRenewal struct{ Permit, Job string }

// GateArrival asks for one permit.
type GateArrival struct {
	Permit, Job string
	Cost        int64
	// Account that pays, where a token is needed. "": a first attempt.
	Account string
	// Record whose existence refuses the arrival. "": none.
	Record string
}

// GateAnswer is what the script answers.
type GateAnswer struct {
	Now, Seq, Interval, Concurrency, InFlight int64
	Limits                                    GateLimits
	Shut                                      string
	ShutUntil, Processes                      int64
	Rollback                                  bool
	Lost                                      []string
	Verdicts                                  []GateVerdict
	// Generation of a call that starts on a permit of this answer, and Phase of
	// the breaker; Probing: such a call is a probe.
	Generation int64
	Phase      string
	Probing    bool
	// Wake is whom the script wakes: "" nobody, "*" all, or a process.
	Wake string
}

// GateVerdict is the answer to one arrival.
type GateVerdict struct {
	// Kind is 'g' (go), 'n' (not now) or 'x' (refused, for this job alone).
	Kind byte
	// After is the delay to the slot ('g'), or when to ask again ('n', and 'x'
	// for "account").
	After int64
	// Tat after this grant, to be given back with a permit not used.
	Tat    int64
	Reason string
	// Record that stands, for "done".
	Record string
}

// NewGate returns the gate of a provider with these limits and this budget.
func NewGate(limits GateLimits, budget retrybudget.Budget) *Gate {
	return &Gate{
		Limits: limits, Budget: budget.Normal(),
		Permits: map[string]int64{}, Running: map[string]string{}, Crash: map[string]int64{},
		Expired: map[string]int64{}, Refused: map[string]bool{}, Accounts: map[string]retrybudget.Balance{},
		Records: map[string]string{}, Replies: map[string]gateReply{},
	}
}

// Flush loses everything that the store knew, as FLUSHALL does.
func (g *Gate) Flush() { *g = *NewGate(GateLimits{}, g.Budget) }
