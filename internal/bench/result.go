package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
)

// Unit says how a value is written.
type Unit string

// The units of a Metric's Value.
const (
	Count      Unit = "count"
	Share      Unit = "share" // 0 to 1, written as a percentage
	PerSec     Unit = "per_second"
	Ratio      Unit = "ratio"
	Millis     Unit = "ms"
	Sec        Unit = "s"
	Figure     Unit = "figure" // a pure number, like evenness
	PerJobUnit Unit = "per_job"
)

// Metric is one figure, and what was wanted of it.
type Metric struct {
	Name  string  `json:"name"`
	Unit  Unit    `json:"unit"`
	Value float64 `json:"value"`
	// Least and Most are what was wanted; nil is no bound.
	Least *float64 `json:"least,omitempty"`
	Most  *float64 `json:"most,omitempty"`
}

// Met reports whether the figure is within what was wanted.
func (m Metric) Met() bool {
	return !math.IsNaN(m.Value) && (m.Least == nil || m.Value >= *m.Least) && (m.Most == nil || m.Value <= *m.Most)
}

// wanted writes the bounds, "" for none.
func (m Metric) wanted() string {
	switch {
	case m.Least != nil && m.Most != nil && *m.Least == *m.Most:
		return "=" + m.format(*m.Least)
	case m.Least != nil && m.Most != nil:
		return m.format(*m.Least) + "-" + m.format(*m.Most)
	case m.Least != nil:
		return "≥" + m.format(*m.Least)
	case m.Most != nil:
		return "≤" + m.format(*m.Most)
	}
	return ""
}

func (m Metric) format(v float64) string {
	switch m.Unit {
	case Count:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case Share:
		return strconv.FormatFloat(100*v, 'f', 2, 64) + "%"
	case PerSec:
		return strconv.FormatFloat(v, 'f', 1, 64) + "/s"
	case Ratio:
		return strconv.FormatFloat(v, 'f', 2, 64) + "x"
	case Millis:
		return strconv.FormatFloat(v, 'f', 2, 64) + "ms"
	case Sec:
		return strconv.FormatFloat(v, 'f', 2, 64) + "s"
	case PerJobUnit:
		return strconv.FormatFloat(v, 'f', 2, 64)
	}
	return strconv.FormatFloat(v, 'f', 3, 64)
}

// figure makes a Metric without a bound; atLeast and atMost add one.
func figure(name string, unit Unit, value float64) Metric {
	return Metric{Name: name, Unit: unit, Value: value}
}

func (m Metric) atLeast(v float64) Metric { m.Least = &v; return m }
func (m Metric) atMost(v float64) Metric  { m.Most = &v; return m }

// Result is one run of one case.
type Result struct {
	Bench   string   `json:"bench"`
	Case    string   `json:"case"`
	Side    string   `json:"side"` // penstock, asynq, or empty for both in one
	Run     int      `json:"run"`
	Metrics []Metric `json:"metrics"`
	// Note says what a reader must know of this run. Empty: nothing.
	Note string `json:"note,omitempty"`
}

// Missed names the metrics that are not within what was wanted.
func (r Result) Missed() []string {
	var names []string
	for _, m := range r.Metrics {
		if !m.Met() {
			names = append(names, m.Name)
		}
	}
	return names
}

// Results are what Run measured.
type Results struct {
	Machine Machine  `json:"machine"`
	Results []Result `json:"results"`
}

// WriteJSON writes one document.
func (r Results) WriteJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(r)
}

// WriteText writes a table for each kind of result, the machine above. A
// figure outside of what was wanted has a "!" after it.
func (r Results) WriteText(w io.Writer) error {
	if _, err := fmt.Fprintln(w, r.Machine); err != nil {
		return err
	}
	for rest := r.Results; len(rest) > 0; {
		n := 1
		for n < len(rest) && sameColumns(rest[0], rest[n]) {
			n++
		}
		if err := writeTable(w, rest[:n]); err != nil {
			return err
		}
		rest = rest[n:]
	}
	return nil
}

func sameColumns(a, b Result) bool {
	return a.Bench == b.Bench && slices.EqualFunc(a.Metrics, b.Metrics, func(x, y Metric) bool { return x.Name == y.Name })
}

func writeTable(w io.Writer, rows []Result) error {
	fmt.Fprintf(w, "\n%s\n", rows[0].Bench)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	line := func(cells ...string) { fmt.Fprintln(t, strings.Join(cells, "\t")+"\t") }
	head := []string{"case", "side", "run"}
	for _, m := range rows[0].Metrics {
		head = append(head, m.Name)
	}
	line(head...)
	last := ""
	for _, r := range rows {
		wanted, any := []string{r.Case, "wanted", ""}, false
		cells := []string{r.Case, r.Side, strconv.Itoa(r.Run)}
		for _, m := range r.Metrics {
			mark := ""
			if !m.Met() {
				mark = "!"
			}
			cells = append(cells, m.format(m.Value)+mark)
			wanted = append(wanted, m.wanted())
			any = any || m.wanted() != ""
		}
		if all := strings.Join(wanted, "\t"); any && all != last {
			line(wanted...)
			last = all
		}
		line(cells...)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, r := range rows {
		if r.Note != "" {
			if _, err := fmt.Fprintf(w, "  %s %s run %d: %s\n", r.Case, r.Side, r.Run, r.Note); err != nil {
				return err
			}
		}
	}
	return nil
}

// median of the values; NaN for none.
func median(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	v := slices.Sorted(slices.Values(values))
	if n := len(v); n%2 == 0 {
		return (v[n/2-1] + v[n/2]) / 2
	}
	return v[len(v)/2]
}

// quantile returns the value below which the share q lies; NaN for none.
func quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	v := slices.Sorted(slices.Values(values))
	return v[min(len(v)-1, int(q*float64(len(v))))]
}
