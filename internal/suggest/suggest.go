// Package suggest works limits out from what was observed of a provider, and
// says why. It is arithmetic on figures that others gathered (internal/health),
// and changes nothing: who runs a provider decides.
//
// Enough is [MinCalls] calls that came back over [MinSpan]; below it nothing is
// suggested. A limit that stands is suggested again where what was seen gives no
// reason for another.
package suggest

import (
	"fmt"
	"math"
	"strconv"
	"time"
)

// What must have been seen before anything is suggested.
const (
	MinCalls = 100
	MinSpan  = 30 * time.Second
)

const (
	// acceptedShare: what is kept of the rate that a provider accepted while it
	// refused others. 5 % is what CONTROL.md's cut leaves, too.
	acceptedShare = 0.95
	// spare: what is added to a demand that met no limit.
	spare = 1.2
	// flightSpare: what is added to the calls in flight that rate and latency
	// come to; a latency that grows by half must not stop the rate.
	flightSpare = 1.5
	// timeoutFactor of the p99 of latency; a timeout never under minTimeout.
	timeoutFactor = 3
	minTimeout    = time.Second
	// fewRefusals are no reason for another rate, only for more headroom.
	fewRefusals = 0.001
	// atLimit: demand from this share of the limit on is cut off by it.
	atLimit = 0.9
	// maxHeadroom: more costs more throughput than a lower rate.
	maxHeadroom = 250 * time.Millisecond
)

// Seen is what was observed of a provider, and what it is limited to now.
type Seen struct {
	// Span that was observed.
	Span time.Duration
	// Starts are calls that began; the others came back so.
	Starts, OK, Throttled, Failed, Timeout int
	// Rates in calls a second: quantiles of the calls that started, and what was
	// accepted while others were refused (0: none was).
	RateP50, RateP95, RateP99, Accepted float64
	// Latency of successes.
	LatencyP50, LatencyP95, LatencyP99 time.Duration
	// Waiting jobs now.
	Waiting int64
	// Limits in force: RateText as a configuration writes it and Rate in calls a
	// second ("" and 0: none), Period what the rate's calls are counted over.
	RateText string
	Rate     float64
	Period   time.Duration
	Headroom time.Duration
	// Cut says that health holds the rate or the calls in flight below the limits now.
	Cut bool
}

// Line is one setting.
type Line struct {
	// Setting is its name in the provider's section, Value what to write there.
	Setting string `json:"setting"`
	Value   string `json:"value"`
	// Why, in a sentence.
	Why string `json:"why"`
}

// Suggestion is what is suggested for a provider.
type Suggestion struct {
	// Enough was seen. Where not, Missing says what is missing and Lines is empty.
	Enough  bool   `json:"enough"`
	Missing string `json:"missing,omitempty"`
	Lines   []Line `json:"lines,omitempty"`
}

// For works a provider's limits out. It is a pure function.
func For(s Seen) Suggestion {
	back := s.OK + s.Throttled + s.Failed + s.Timeout
	switch {
	case s.Starts == 0:
		return Suggestion{Missing: fmt.Sprintf("no call was seen in the last 10 minutes; it takes %d over %s, with adaptive: on or shadow", MinCalls, MinSpan)}
	case back < MinCalls || s.Span < MinSpan:
		return Suggestion{Missing: fmt.Sprintf("%s came back in %s; it takes %d over %s", calls(back), s.Span.Round(time.Second), MinCalls, MinSpan)}
	case s.Throttled == back:
		return Suggestion{Missing: fmt.Sprintf("the provider refused all %s, so that what it takes is not known; ask its operator", calls(back))}
	}
	rate, why := s.rate()
	out := Suggestion{Enough: true, Lines: []Line{{"rate", s.write(rate), why}}}
	if s.OK > 0 {
		n, why := s.concurrency(rate)
		out.Lines = append(out.Lines, Line{"concurrency", strconv.Itoa(n), why})
	}
	if h, why := s.headroom(rate); why != "" {
		out.Lines = append(out.Lines, Line{"headroom", h.String(), why})
	}
	if s.OK > 0 {
		d, why := s.timeout()
		out.Lines = append(out.Lines, Line{"timeout", d.String(), why})
	}
	return out
}

// refused is the share of calls that were refused, of those that came back.
func (s Seen) refused() float64 {
	return float64(s.Throttled) / float64(max(1, s.OK+s.Throttled+s.Failed+s.Timeout))
}

// rate in calls a second.
func (s Seen) rate() (float64, string) {
	most := fmt.Sprintf("p99 of demand is %s", perSecond(s.RateP99))
	switch {
	case s.refused() >= fewRefusals && s.Accepted > 0:
		return acceptedShare * s.Accepted, fmt.Sprintf("the provider refused %s of calls, and accepted %s while it did; 5 %% below that it has no reason to",
			percent(s.refused()), perSecond(s.Accepted))
	case s.refused() >= fewRefusals:
		return acceptedShare * (1 - s.refused()) * s.RateP95, fmt.Sprintf("the provider refused %s of calls; this is what it accepted of the p95 of demand, %s, less 5 %%",
			percent(s.refused()), perSecond(s.RateP95))
	case s.Rate > 0 && s.Cut:
		return s.Rate, fmt.Sprintf("health holds the provider below its limits now, so that demand (%s) says little; keep the rate until it is well", most)
	case s.Rate > 0 && s.RateP99 >= atLimit*s.Rate:
		return s.Rate, fmt.Sprintf("%s, which is the limit itself, and nothing was refused: keep it, or raise it in small steps if the provider's contract allows more%s",
			most, s.waiting())
	case s.Rate > 0 && spare*s.RateP99 >= s.Rate:
		return s.Rate, fmt.Sprintf("%s, which leaves a fifth or less to the limit, and nothing was refused", most)
	}
	return spare * s.RateP99, fmt.Sprintf("%s and nothing was refused; a fifth above that never delays what is usual, and bounds what is not", most)
}

func (s Seen) waiting() string {
	if s.Waiting == 0 {
		return ""
	}
	return fmt.Sprintf(" (%d jobs wait)", s.Waiting)
}

// concurrency is Little's law: as many are in flight as start in the time that
// one takes.
func (s Seen) concurrency(rate float64) (int, string) {
	r, which := s.RateP95, "p95 of demand"
	if rate < r {
		r, which = rate, "the rate above"
	}
	need := r * s.LatencyP95.Seconds()
	n := max(1, int(math.Ceil(flightSpare*need-1e-9)))
	return n, fmt.Sprintf("%s (%s) at the p95 of latency (%s) keeps %.3g calls in flight (Little's law); half as many again is room for a slower hour",
		which, perSecond(r), millis(s.LatencyP95), need)
}

// headroom is kept unless few refusals show that the network's jitter makes
// calls arrive closer than they started.
func (s Seen) headroom(rate float64) (time.Duration, string) {
	if s.Rate == 0 {
		return 0, ""
	}
	if s.Throttled > 0 && s.refused() < fewRefusals {
		h := min(max(2*s.Headroom, 25*time.Millisecond), maxHeadroom)
		return h, fmt.Sprintf("a few calls (%d) were refused at a rate that the provider otherwise accepts, which is calls that arrive closer than they started; twice the headroom costs %s of the rate",
			s.Throttled, percent((h-s.Headroom).Seconds()/max(s.Period.Seconds(), h.Seconds())))
	}
	if s.Throttled > 0 {
		return s.Headroom, "refusals are too many to be jitter; the rate is what must change"
	}
	return s.Headroom, "nothing was refused, so what there is suffices"
}

// timeout of a call.
func (s Seen) timeout() (time.Duration, string) {
	want := timeoutFactor * s.LatencyP99
	d := roundUp(max(minTimeout, want))
	why := fmt.Sprintf("%d times the p99 of latency (%s)", timeoutFactor, millis(s.LatencyP99))
	if want < minTimeout {
		why += fmt.Sprintf(", and not under %s: a connection must be made, too", minTimeout)
	}
	why += "; what takes longer is not coming, and holds a place"
	if s.Timeout > 0 {
		why += fmt.Sprintf(". %s timed out, whose latency is not known: look at the provider before you shorten it", calls(s.Timeout))
	}
	return d, why
}

// roundUp makes a duration one that a person would write.
func roundUp(d time.Duration) time.Duration {
	step := 500 * time.Millisecond
	if d > 10*time.Second {
		step = 5 * time.Second
	}
	return (d + step - 1) / step * step
}

// write writes a rate; one that stands as it stands.
func (s Seen) write(rate float64) string {
	if rate == s.Rate && s.RateText != "" {
		return s.RateText
	}
	return rateText(rate)
}

// rateText writes a rate as a configuration does: two or three digits, never
// more than r.
func rateText(r float64) string {
	for _, u := range []struct {
		per  float64
		name string
	}{{1, "s"}, {60, "m"}, {3600, "h"}} {
		if n := math.Floor(r*u.per + 1e-9); n >= 10 || u.name == "h" {
			if n >= 1000 {
				n = math.Floor(n/10) * 10
			}
			return strconv.FormatFloat(max(1, n), 'f', -1, 64) + "/" + u.name
		}
	}
	return ""
}

func perSecond(r float64) string { return strconv.FormatFloat(r, 'g', 3, 64) + "/s" }

func percent(share float64) string { return strconv.FormatFloat(100*share, 'g', 2, 64) + " %" }

func millis(d time.Duration) string {
	if d >= time.Second {
		return d.Round(10 * time.Millisecond).String()
	}
	return d.Round(100 * time.Microsecond).String()
}

func calls(n int) string {
	if n == 1 {
		return "1 call"
	}
	return strconv.Itoa(n) + " calls"
}
