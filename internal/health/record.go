package health

import (
	"encoding/json"
	"errors"
	"math"
	"regexp"
	"strconv"
	"time"

	"github.com/penstock-io/penstock/breaker"
	"github.com/penstock-io/penstock/shaper"
)

// record is the control record as it was read.
type record struct {
	control shaper.Control
	state   breaker.State
	// version is what compare-and-set compares; empty where there is no record,
	// or one that nobody can read.
	version string
	// newer: written by a newer release, whose state this one cannot act on. The
	// gate obeys the line, and the ticks are left to the other.
	newer bool
	// fresh: there was none, or none that could be read.
	fresh bool
}

// readRecord reads a record. What is no record at all begins anew.
func readRecord(text string) record {
	if text == "" {
		return record{fresh: true}
	}
	format, version := 0, ""
	if m := recordHead.FindStringSubmatch(text); m != nil {
		format, _ = strconv.Atoi(m[1])
		version = m[2]
	}
	if format > 1 {
		return record{newer: true, version: version}
	}
	c, rest, err := shaper.ParseControl(text)
	if err != nil {
		return record{fresh: true, version: version}
	}
	r := record{control: c, version: version}
	switch err := json.Unmarshal([]byte(rest), &r.state); {
	case errors.Is(err, breaker.ErrNewer):
		r.newer = true
	case err != nil:
		r.fresh = true
	}
	return r
}

// recordHead is how publish.lua finds the version.
var recordHead = regexp.MustCompile(`^(\d+) [A-Za-z]+ (\d+)`)

// begin returns the state to go on from: that of the record, unless it is lost,
// rolled back, or of another mode. A new beginning has a generation of its own,
// beyond every one that this process has given to a call.
func (r record) begin(mode Mode, seen uint64) breaker.State {
	lost := r.fresh || r.state.Generation < seen
	if !lost && r.control.Mode == mode.word() {
		return r.state
	}
	gen := max(seen, r.state.Generation, r.control.Generation)
	if r.fresh && gen == 0 {
		return breaker.State{}
	}
	if !lost || r.fresh {
		return breaker.State{Generation: gen + 1, Since: gen + 1}
	}
	s := r.state // rolled back: the newest that is known, under a new generation
	s.Generation, s.Since = gen+1, gen+1
	return s
}

// control is the gate's line of s.
func control(s breaker.State, law breaker.Config, mode Mode, version int64) shaper.Control {
	d := s.Control(law)
	c := shaper.Control{
		Mode: mode.word(), Version: version, Phase: d.Phase, Generation: d.Generation, Since: d.Since,
		InFlight: d.InFlight, OpenUntil: d.OpenUntil, ProbeLease: d.ProbeLease, ProbeApart: d.ProbeApart, SlowStart: d.SlowStart,
	}
	if d.Rate > 0 {
		c.Interval = time.Duration(math.Ceil(1e6/d.Rate)) * time.Microsecond
	}
	return c
}

// text is the whole record.
func text(c shaper.Control, s breaker.State) (string, error) {
	b, err := json.Marshal(s)
	if err != nil {
		return "", err
	}
	return c.String() + "\n" + string(b), nil
}

// stale returns the buckets that the law does not look at any more: those
// beyond its windows, but for the last calls of a slow provider, and those from
// before the clock was set back. A second goes as a whole, and no more than
// mostForgotten at once.
func stale(buckets []breaker.Bucket, now time.Time, law breaker.Config) (old []breaker.Bucket) {
	reach := max(law.Window, law.Refusals.Window, law.Refusals.RateLong, law.Refusals.Settle) + 2*law.Tick
	starts, returned := 0, 0
	for i := len(buckets) - 1; i >= 0; i-- { // newest first
		b := &buckets[i]
		age, past := now.Sub(b.At), now.Sub(b.At.Truncate(time.Second).Add(time.Second))
		if age < 0 || age > law.StretchMax+law.Tick || past > reach && starts >= law.StretchCalls && returned >= law.StretchCalls {
			old = append(old, *b)
			continue
		}
		starts += b.Starts
		returned += b.Returned()
	}
	return old[:min(len(old), mostForgotten)]
}

// mostForgotten bounds what one request of publish.lua forgets.
const mostForgotten = 1000
