package breaker

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"
)

// RecordVersion is the version of the record that this release writes.
const RecordVersion = 1

var (
	// ErrNewer: a newer release wrote the record in a way that this one cannot
	// act on. Obey the Control that is published, and leave the ticks to it.
	ErrNewer = errors.New("the control record was written by a newer release")
	// ErrRecord: it is no control record. Begin anew, with the zero State.
	ErrRecord = errors.New("not a control record")
)

// record is a State as it is stored. Times are microseconds since 1970,
// durations microseconds, rates calls a second. Members are only ever added;
// one that a reader does not know it hands on unchanged.
type record struct {
	V        int             `json:"v"`
	Reads    int             `json:"reads"` // the oldest version that can act on it
	Phase    string          `json:"phase"`
	At       int64           `json:"at,omitzero"`
	Until    int64           `json:"until,omitzero"`
	Good     int             `json:"good,omitzero"`
	Last     int64           `json:"last,omitzero"`
	For      int64           `json:"for,omitzero"`
	Ramp     float64         `json:"ramp,omitzero"`
	Gen      uint64          `json:"gen"`
	Since    uint64          `json:"since"`
	Ticked   int64           `json:"ticked,omitzero"`
	Openings int             `json:"openings,omitzero"`
	Ceiling  *ceilingRecord  `json:"ceiling,omitempty"`
	Factor   float64         `json:"factor,omitzero"`
	Trouble  *troubleRecord  `json:"trouble,omitempty"`
	InFlight float64         `json:"in_flight,omitzero"`
	Latency  *baselineRecord `json:"latency,omitempty"`
	Reason   string          `json:"reason,omitzero"`
	Changed  int64           `json:"changed,omitzero"`
}

type ceilingRecord struct {
	Rate  float64 `json:"rate,omitzero"`
	Peak  float64 `json:"peak,omitzero"`
	Beta  float64 `json:"beta,omitzero"`
	Age   int64   `json:"age,omitzero"`
	CutAt int64   `json:"cut_at,omitzero"`
	Gen   uint64  `json:"gen,omitzero"`
}

type troubleRecord struct {
	Rate   float64 `json:"rate,omitzero"`
	Ratio  float64 `json:"ratio,omitzero"`
	Rested int64   `json:"rested,omitzero"`
}

type baselineRecord struct {
	P50    int64     `json:"p50,omitzero"`
	Lows   [10]int64 `json:"lows"`
	Minute int64     `json:"minute,omitzero"`
}

func micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

func moment(us int64) time.Time {
	if us == 0 {
		return time.Time{}
	}
	return time.UnixMicro(us).UTC()
}

func span(us int64) time.Duration { return time.Duration(us) * time.Microsecond }

// MarshalJSON writes the control record. Times keep microseconds.
func (s State) MarshalJSON() ([]byte, error) {
	r := record{
		V: RecordVersion, Reads: RecordVersion, Phase: s.phase().Name(),
		Gen: s.Generation, Since: s.Since, Ticked: micros(s.Ticked), Openings: s.Openings,
		Factor: s.Factor, InFlight: s.InFlight,
		Reason: s.Reason, Changed: micros(s.Changed),
	}
	switch p := s.phase().(type) {
	case Closed:
		r.For, r.Ramp = p.For.Microseconds(), p.Ramp.Rate
	case Open:
		r.At, r.Until = micros(p.At), micros(p.Until)
	case HalfOpen:
		r.At, r.Good, r.Last = micros(p.At), p.Good, micros(p.Last)
	}
	if c := s.Ceiling; c != (Ceiling{}) {
		r.Ceiling = &ceilingRecord{c.Rate, c.Peak, c.Beta, c.Age.Microseconds(), micros(c.CutAt), c.Generation}
	}
	if d := s.Trouble; d != (Trouble{}) {
		r.Trouble = &troubleRecord{d.Rate, d.Ratio, d.Rested.Microseconds()}
	}
	if b := s.Latency; b != (Baseline{}) {
		r.Latency = &baselineRecord{P50: b.P50.Microseconds(), Minute: b.Minute}
		for i, l := range b.Lows {
			r.Latency.Lows[i] = l.Microseconds()
		}
	}
	known, err := json.Marshal(r)
	if err != nil || len(s.unknown) == 0 {
		return known, err
	}
	all := maps.Clone(s.unknown)
	if err := json.Unmarshal(known, &all); err != nil {
		return nil, err
	}
	return json.Marshal(all)
}

// UnmarshalJSON reads a control record. Errors are ErrNewer and ErrRecord. What
// cannot be (a negative rate, a factor above 1) is read as "nothing": a damaged
// record must never stop a provider, nor speed it up.
func (s *State) UnmarshalJSON(b []byte) error {
	var r record
	if err := json.Unmarshal(b, &r); err != nil {
		return fmt.Errorf("%w: %w", ErrRecord, err)
	}
	if r.Reads > RecordVersion {
		return fmt.Errorf("%w: version %d, this one knows %d; finish the rollout", ErrNewer, r.Reads, RecordVersion)
	}
	p, err := r.phase()
	if err != nil {
		return err
	}
	n := State{
		Phase: p, Generation: max(r.Gen, r.Since), Since: r.Since, Ticked: moment(r.Ticked), Openings: max(0, r.Openings),
		Factor: r.Factor, InFlight: max(0, r.InFlight),
		Reason: r.Reason, Changed: moment(r.Changed),
	}
	if n.Factor < 0 || n.Factor > 1 {
		n.Factor = 0
	}
	if c := r.Ceiling; c != nil && c.Rate >= 0 && c.Peak >= 0 && c.Beta >= 0 && c.Beta <= 1 {
		n.Ceiling = Ceiling{c.Rate, c.Peak, c.Beta, span(max(0, c.Age)), moment(c.CutAt), min(c.Gen, n.Generation)}
	}
	if d := r.Trouble; d != nil {
		n.Trouble = Trouble{max(0, d.Rate), max(0, d.Ratio), span(max(0, d.Rested))}
	}
	if l := r.Latency; l != nil {
		n.Latency = Baseline{P50: span(max(0, l.P50)), Minute: l.Minute}
		for i, low := range l.Lows {
			n.Latency.Lows[i] = span(max(0, low))
		}
	}
	if n.unknown, err = unknownMembers(b); err != nil {
		return err
	}
	*s = n
	return nil
}

// phase reads the phase of a record.
func (r record) phase() (Phase, error) {
	switch r.Phase {
	case Closed{}.Name():
		return Closed{For: span(max(0, r.For)), Ramp: Ramp{max(0, r.Ramp)}}, nil
	case Open{}.Name():
		return Open{At: moment(r.At), Until: moment(r.Until)}, nil
	case HalfOpen{}.Name():
		return HalfOpen{At: moment(r.At), Good: max(0, r.Good), Last: moment(r.Last)}, nil
	}
	return nil, fmt.Errorf("%w: phase %q is none of closed, open, half_open", ErrRecord, r.Phase)
}

// unknownMembers returns the members of b that this release does not know.
func unknownMembers(b []byte) (map[string]json.RawMessage, error) {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(b, &all); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRecord, err)
	}
	for _, name := range recordMembers {
		delete(all, name)
	}
	if len(all) == 0 {
		return nil, nil
	}
	return all, nil
}

// recordMembers are the members of record; a test holds them against its tags.
var recordMembers = [...]string{
	"v", "reads", "phase", "at", "until", "good", "last", "for", "ramp", "gen", "since", "ticked", "openings",
	"ceiling", "factor", "trouble", "in_flight", "latency", "reason", "changed",
}
