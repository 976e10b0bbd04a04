package retrybudget

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// WriteSchedule writes the schedule of a job with the given number of attempts
// (the first included) as a table of human durations: for each retry the
// longest and the mean delay, and when it is made at the latest, counted from
// the first failure and without the calls' own time. Its error is w's.
func (b Backoff) WriteSchedule(w io.Writer, attempts int) error {
	table := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "attempt\tdelay at most\tmean\tat the latest after")
	var total time.Duration
	for n := range max(attempts-1, 0) {
		ceiling := b.Ceiling(n)
		if total > math.MaxInt64-ceiling {
			total = math.MaxInt64
		} else {
			total += ceiling
		}
		fmt.Fprintf(table, "%d\t%s\t%s\t%s\n", n+2, human(ceiling), human(ceiling/2), human(total))
	}
	return table.Flush()
}

// human writes d as a person would: days, and no unit that is zero.
func human(d time.Duration) string {
	if d < time.Second {
		return d.String()
	}
	var out strings.Builder
	for _, unit := range []struct {
		size time.Duration
		name string
	}{{24 * time.Hour, "d"}, {time.Hour, "h"}, {time.Minute, "m"}} {
		if count := d / unit.size; count > 0 {
			out.WriteString(strconv.FormatInt(int64(count), 10) + unit.name)
			d -= count * unit.size
		}
	}
	if seconds := d.Round(time.Millisecond).Seconds(); seconds > 0 {
		out.WriteString(strconv.FormatFloat(seconds, 'f', -1, 64) + "s")
	}
	return out.String()
}
