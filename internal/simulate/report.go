package simulate

import (
	"fmt"
	"io"
	"math"
	"text/tabwriter"
	"time"

	"github.com/guptarohit/asciigraph"
)

// Summary is a Result in a few figures, for a table or as JSON.
type Summary struct {
	Scenario string `json:"scenario"`
	About    string `json:"about,omitempty"`
	Seed     uint64 `json:"seed"`
	Adaptive string `json:"adaptive"`
	// Jobs, and what became of them.
	Jobs      int `json:"jobs"`
	Succeeded int `json:"succeeded"`
	Dead      int `json:"dead"`
	Expired   int `json:"expired"`
	Waiting   int `json:"waiting"`
	// Calls, and what came back.
	Calls        int     `json:"calls"`
	OK           int     `json:"ok"`
	Throttled    int     `json:"throttled"`
	Failed       int     `json:"failed"`
	Timeouts     int     `json:"timeouts"`
	CallsPerJob  float64 `json:"calls_per_job"`
	MostAttempts int     `json:"most_attempts"`
	Deferrals    int     `json:"deferrals"`
	// Rates in calls a second: the mean while there were any, and the most that
	// started in any second.
	MeanRate float64 `json:"mean_rate"`
	PeakRate int     `json:"peak_rate"`
	// Latency of calls that succeeded, in seconds.
	P50 float64 `json:"latency_p50_s"`
	P99 float64 `json:"latency_p99_s"`
	// Wait of jobs that succeeded, from due to done, in seconds.
	WaitP50 float64 `json:"wait_p50_s"`
	WaitP99 float64 `json:"wait_p99_s"`
	// Openings of the breaker, failed probes included, and cuts of the ceiling.
	Openings int `json:"openings"`
	Cuts     int `json:"cuts"`
	// Done is when the last job became final, in seconds.
	Done float64 `json:"done_s"`
}

// Summary sums up.
func (r *Result) Summary() Summary {
	end := r.Scenario.Duration + r.Scenario.Timeout
	s := Summary{
		Scenario: r.Scenario.Name, About: r.Scenario.About, Seed: r.Scenario.Seed, Adaptive: r.Scenario.Adaptive,
		Jobs: r.Jobs, Succeeded: r.Succeeded, Dead: r.Dead, Expired: r.Expired, Waiting: r.Waiting,
		Calls: r.Counts.Starts, OK: r.Counts.OK, Throttled: r.Counts.Throttled, Failed: r.Counts.Failed, Timeouts: r.Counts.Timeout,
		CallsPerJob:  float64(r.Counts.Starts) / float64(max(1, r.Jobs-r.Waiting)),
		MostAttempts: r.MostAttempts, Deferrals: r.Deferrals,
		PeakRate: r.Peak(time.Second, 0, end),
		P50:      r.LatencyP(0.5, 0, end).Seconds(), P99: r.LatencyP(0.99, 0, end).Seconds(),
		WaitP50: quantile(r.waits, 0.5).Seconds(), WaitP99: quantile(r.waits, 0.99).Seconds(),
		Openings: r.Openings(0, end), Cuts: r.Cuts, Done: r.Took.Seconds(),
	}
	if n := len(r.calls); n > 1 {
		s.MeanRate = float64(n-1) / micro(r.calls[n-1].start-r.calls[0].start).Seconds()
	}
	return s
}

// Report writes the result for a person: figures, what changed and when, and a
// chart. Color uses the terminal's. The error is w's.
func (r *Result) Report(w io.Writer, color bool) error {
	s := r.Summary()
	fmt.Fprintf(w, "%s: %s\n\n", s.Scenario, s.About)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, line := range s.table() {
		fmt.Fprintln(t, line)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w)
	r.writeEvents(w)
	_, err := fmt.Fprintln(w, r.chart(color))
	return err
}

func (s Summary) table() []string {
	return []string{
		fmt.Sprintf("jobs\t%d\tsucceeded %d\tdead %d\texpired %d\twaiting %d", s.Jobs, s.Succeeded, s.Dead, s.Expired, s.Waiting),
		fmt.Sprintf("calls\t%d\tok %d\t429 %d\tfailed %d\ttimed out %d", s.Calls, s.OK, s.Throttled, s.Failed, s.Timeouts),
		fmt.Sprintf("rate\t%.1f/s\tpeak %d/s\tper job %.3f\tattempts ≤ %d\tdeferrals %d", s.MeanRate, s.PeakRate, s.CallsPerJob, s.MostAttempts, s.Deferrals),
		fmt.Sprintf("latency\tp50 %s\tp99 %s", seconds(s.P50), seconds(s.P99)),
		fmt.Sprintf("wait\tp50 %s\tp99 %s\tlast job after %s", seconds(s.WaitP50), seconds(s.WaitP99), seconds(s.Done)),
		fmt.Sprintf("breaker\topenings %d\tcuts %d\tadaptive %s\tseed %d", s.Openings, s.Cuts, s.Adaptive, s.Seed),
	}
}

// seconds writes s seconds as a person would.
func seconds(s float64) string {
	d := time.Duration(s * float64(time.Second))
	switch {
	case d >= time.Minute:
		return d.Round(time.Second).String()
	case d >= time.Second:
		return d.Round(10 * time.Millisecond).String()
	}
	return d.Round(100 * time.Microsecond).String()
}

// mostEvents bounds what a report lists.
const mostEvents = 16

func (r *Result) writeEvents(w io.Writer) {
	for i, e := range r.Events {
		if i == mostEvents && len(r.Events) > mostEvents+1 {
			fmt.Fprintf(w, "%10s  … %d more\n", "", len(r.Events)-i)
			break
		}
		what := e.To
		if e.From != e.To {
			what = e.From + " → " + e.To
		}
		fmt.Fprintf(w, "%10s  %-22s %s\n", seconds(e.At.Seconds()), what, e.Reason)
	}
	if len(r.Events) > 0 {
		fmt.Fprintln(w)
	}
}

// series are the curves of a chart, one value for each step.
type series struct {
	step                     time.Duration
	calls, bad, allowed      []float64
	waiting, inFlight, limit []float64
}

// curves cuts the run into n steps at most, of whole seconds.
func (r *Result) curves(n int) series {
	end := r.Took
	if len(r.calls) > 0 {
		end = max(end, micro(r.calls[len(r.calls)-1].start))
	}
	if r.Waiting > 0 {
		end = r.Scenario.Duration
	}
	step := max(time.Second, (end/time.Duration(n)).Truncate(time.Second)+time.Second)
	s := series{step: step}
	points, p := r.Points, Point{Rate: r.Scenario.Law.Rate}
	for at := time.Duration(0); at < max(end, step); at += step {
		for len(points) > 0 && points[0].At < at+step {
			p, points = points[0], points[1:]
		}
		ok := r.ok(at, at+step)
		s.calls = append(s.calls, r.PerSecond(at, at+step))
		s.bad = append(s.bad, float64(r.Calls(at, at+step)-ok)/step.Seconds())
		s.allowed = append(s.allowed, p.Rate)
		s.waiting = append(s.waiting, float64(p.Waiting))
		s.inFlight = append(s.inFlight, float64(p.InFlight))
		if p.Concurrency == 0 {
			p.Concurrency = r.Scenario.Limits.Concurrency
		}
		s.limit = append(s.limit, float64(p.Concurrency))
	}
	return s
}

// chart draws calls a second, how many of them went wrong, and what was allowed.
func (r *Result) chart(color bool) string {
	const width = 72
	s := r.curves(2 * width)
	most := 0.0
	for i := range s.calls {
		most = max(most, s.calls[i])
	}
	// What is allowed and never used would flatten all else.
	for i, a := range s.allowed {
		s.allowed[i] = math.Min(a, 1.25*most)
	}
	for i, b := range s.bad {
		if b == 0 {
			s.bad[i] = math.NaN() // nothing is drawn, rather than a line along the bottom
		}
	}
	caption := "over " + seconds(float64(len(s.calls))*s.step.Seconds())
	options := []asciigraph.Option{asciigraph.Width(width), asciigraph.Height(12), asciigraph.LowerBound(0), asciigraph.Precision(0)}
	// What is drawn last lies on top.
	if color {
		options = append(options, asciigraph.SeriesColors(asciigraph.Blue, asciigraph.Red, asciigraph.Green),
			asciigraph.SeriesLegends("allowed/s", "refused or failed/s", "calls/s"))
	} else {
		caption += ":  ─ calls/s   x refused or failed/s   · allowed/s"
		options = append(options, asciigraph.SeriesChars(asciigraph.CreateCharSet("·"), asciigraph.CreateCharSet("x"), asciigraph.DefaultCharSet))
	}
	options = append(options, asciigraph.Caption(caption))
	return asciigraph.PlotMany([][]float64{s.allowed, s.bad, s.calls}, options...)
}
