package fragile

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// Report is what the provider saw, from its start or last reset to the moment
// of asking. Durations are nanoseconds in JSON.
type Report struct {
	Name  string `json:"name"`
	Limit string `json:"limit"`
	// Calls that arrived, and how they ended. Those in flight have not ended.
	Calls    int `json:"calls"`
	Accepted int `json:"accepted"`
	// Refused by the limits (RefusedRate + RefusedInFlight); a 429 of the
	// script is in ByStatus only.
	Refused         int         `json:"refused"`
	RefusedRate     int         `json:"refused_rate"`
	RefusedInFlight int         `json:"refused_in_flight"`
	ByStatus        map[int]int `json:"by_status"`
	// Without an answer: Cut and Lost by the script, Down in an outage, Left by
	// the caller (or by closing).
	Cut  int `json:"cut"`
	Lost int `json:"lost"`
	Down int `json:"down"`
	Left int `json:"left"`

	// First and Last are the arrivals of the first and last accepted call, in
	// the provider's time; Span is between them.
	First time.Duration `json:"first_ns"`
	Last  time.Duration `json:"last_ns"`
	Span  time.Duration `json:"span_ns"`
	// Allowed is how many calls the limit has room for in Span, both ends
	// included: 1 + the integral of the rate in force, an outage counting as
	// none. 0 where there is no limit. A bucket's burst is not in it.
	Allowed float64 `json:"allowed"`
	// Used is Accepted / Allowed; 0 where there is no limit.
	Used float64 `json:"used"`

	// Window is the limit's period (1 s where there is none). MostAccepted and
	// MostArrived are the most in any half-open window (t-Window, t], exactly,
	// by arrival (beyond a million in one window: at least a million).
	Window       time.Duration `json:"window_ns"`
	MostAccepted int           `json:"most_accepted"`
	MostArrived  int           `json:"most_arrived"`
	InFlight     int           `json:"in_flight"`
	PeakInFlight int           `json:"peak_in_flight"`

	// Evenness is the coefficient of variation of the gaps between accepted
	// calls in order of arrival: with gaps g1..gn and their mean m,
	// sqrt(((g1-m)² + … + (gn-m)²) / n) / m. 0 is a clock; 1 is chance (Poisson);
	// bursts are above. 0 for fewer than three calls.
	Evenness float64       `json:"evenness"`
	MeanGap  time.Duration `json:"mean_gap_ns"`
	MinGap   time.Duration `json:"min_gap_ns"`

	// Jobs are the different Idempotency-Keys seen. Attempts are the calls that
	// arrived for them, refused ones too.
	Jobs           int     `json:"jobs"`
	JobsSucceeded  int     `json:"jobs_succeeded"`
	SucceededTwice int     `json:"succeeded_twice"`
	AttemptsMean   float64 `json:"attempts_mean"`
	AttemptsMax    int     `json:"attempts_max"`
	// WithoutKey are calls without an Idempotency-Key; NotFollowed are calls
	// whose key came after two million others: the figures of jobs are without them.
	WithoutKey  int `json:"without_key"`
	NotFollowed int `json:"not_followed,omitzero"`

	// By counts the calls that arrived by the value of Config.CountBy.
	By map[string]int `json:"by,omitempty"`

	// Seconds is the series by second of the provider's time, a day at most.
	// Only in Series.
	Seconds []Second `json:"seconds,omitempty"`
}

// Report returns the account so far.
func (p *Provider) Report() Report {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.run.report()
}

// Series is Report with Seconds.
func (p *Provider) Series() Report {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.run.report()
	r.Seconds = slices.Clone(p.run.acc.seconds)
	return r
}

func (r *run) report() Report {
	a := r.acc
	rep := Report{
		Name: r.cfg.Name, Limit: r.cfg.String(),
		Calls: a.calls, Accepted: a.accepted,
		RefusedRate: a.ends[RefusedRate], RefusedInFlight: a.ends[RefusedInFlight],
		Refused:  a.ends[RefusedRate] + a.ends[RefusedInFlight],
		ByStatus: maps.Clone(a.statuses),
		Cut:      a.ends[WasCut], Lost: a.ends[WasLost], Down: a.ends[WasDown], Left: a.ends[Left],
		First: a.first, Last: a.last, Span: a.last - a.first,
		Window: r.cfg.window(), MostAccepted: a.takenIn.most, MostArrived: a.arrivedIn.most,
		InFlight: a.inFlight, PeakInFlight: a.peak,
		Evenness: a.gaps.cv(), MeanGap: time.Duration(a.gaps.mean), MinGap: a.minGap,
		Jobs: len(a.jobs), JobsSucceeded: a.succeeded, SucceededTwice: a.twice,
		AttemptsMax: a.maxAttempts, WithoutKey: a.withoutKey, NotFollowed: a.notFollowed,
	}
	if len(a.by) > 0 {
		rep.By = maps.Clone(a.by)
	}
	if rep.Jobs > 0 {
		rep.AttemptsMean = float64(a.attempts) / float64(rep.Jobs)
	}
	if a.accepted > 0 {
		if rep.Allowed = r.allowed(a.first, a.last); rep.Allowed > 0 {
			rep.Used = float64(a.accepted) / rep.Allowed
		}
	}
	return rep
}

// RefusedShare is Refused / Calls, 0 without calls.
func (r Report) RefusedShare() float64 {
	if r.Calls == 0 {
		return 0
	}
	return float64(r.Refused) / float64(r.Calls)
}

// WriteText writes the report as a table for people.
func (r Report) WriteText(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) { fmt.Fprintf(t, "%s\t%s\n", name, fmt.Sprintf(format, args...)) }
	fmt.Fprintf(t, "%s\t(%s)\n", r.Name, r.Limit)
	row("calls", "%d in %s, %d accepted", r.Calls, r.Span.Round(time.Millisecond), r.Accepted)
	row("refused", "%d (%.2f %%): %d by the rate, %d in flight", r.Refused, 100*r.RefusedShare(), r.RefusedRate, r.RefusedInFlight)
	row("by status", "%s", r.statuses())
	if r.Cut+r.Lost+r.Down+r.Left > 0 {
		row("no answer", "%d cut, %d lost, %d in an outage, %d left by the caller", r.Cut, r.Lost, r.Down, r.Left)
	}
	if r.Allowed > 0 {
		row("used", "%.1f %% of %.0f allowed between first and last", 100*r.Used, r.Allowed)
	}
	row("most in any "+r.Window.String(), "%d accepted, %d arrived", r.MostAccepted, r.MostArrived)
	row("most in flight", "%d", r.PeakInFlight)
	row("evenness", "%.3f (variation of the gaps; 0 is a clock, 1 is chance), mean gap %s, least %s", r.Evenness, r.MeanGap.Round(time.Microsecond), r.MinGap.Round(time.Microsecond))
	row("jobs", "%d, %d succeeded, %d of them twice", r.Jobs, r.JobsSucceeded, r.SucceededTwice)
	row("attempts per job", "%.3f mean, %d most", r.AttemptsMean, r.AttemptsMax)
	if r.WithoutKey+r.NotFollowed > 0 {
		row("not in jobs", "%d calls without Idempotency-Key, %d beyond what is followed", r.WithoutKey, r.NotFollowed)
	}
	for _, value := range slices.Sorted(maps.Keys(r.By)) {
		row("from "+value, "%d", r.By[value])
	}
	return t.Flush()
}

func (r Report) statuses() string {
	var parts []string
	for _, s := range slices.Sorted(maps.Keys(r.ByStatus)) {
		parts = append(parts, fmt.Sprintf("%d: %d", s, r.ByStatus[s]))
	}
	if parts == nil {
		return "none"
	}
	return strings.Join(parts, ", ")
}
