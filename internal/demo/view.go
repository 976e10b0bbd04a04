package demo

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/penstock-io/penstock/internal/fragile"
)

const (
	redraw     = 200 * time.Millisecond
	plainLines = 2 * time.Second
)

// watch shows the live view until every job has succeeded, the time is over or
// ctx ends.
func (d *demo) watch(ctx context.Context, title string, shops []*fragile.Server, counts map[string]int, most time.Duration) {
	fmt.Fprintf(d.opt.Out, "\n%s\n", title)
	v := view{out: d.opt.Out, terminal: d.opt.Terminal}
	over := time.NewTimer(most)
	defer over.Stop()
	tick := time.NewTicker(redraw)
	defer tick.Stop()
	begun, shown := time.Now(), time.Now()
	for {
		lines, done := lives(shops, counts)
		if every := plainLines; d.opt.Terminal || done || time.Since(shown) >= every {
			v.show(time.Since(begun), lines)
			shown = time.Now()
		}
		if done {
			return
		}
		select {
		case <-tick.C:
		case <-over.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// line is what the view shows of one provider.
type line struct {
	fragile.Live
	waiting int
	jobs    int
}

func lives(shops []*fragile.Server, counts map[string]int) (lines []line, done bool) {
	done = true
	for _, s := range shops {
		l := s.Live()
		if l.Rate == 0 {
			l.Used = 0 // between bursts it would mean nothing
		}
		n := counts[l.Name]
		lines = append(lines, line{Live: l, jobs: n, waiting: max(0, n-l.Succeeded-l.InFlight)})
		done = done && l.Succeeded >= n
	}
	return lines, done
}

// view writes the lines, over the last ones where the terminal allows.
type view struct {
	out      io.Writer
	terminal bool
	height   int // lines drawn last time
}

func (v *view) show(at time.Duration, lines []line) {
	if !v.terminal {
		var parts []string
		for _, l := range lines {
			parts = append(parts, fmt.Sprintf("%s %d of %.0f/s, in flight %d, waiting %d, refused %d%s",
				l.Name, l.Rate, l.Limit, l.InFlight, l.waiting, l.Refused, used(", used %.0f %%", l.Used)))
		}
		fmt.Fprintf(v.out, "%5.1fs  %s\n", at.Seconds(), strings.Join(parts, "  |  "))
		return
	}
	var b strings.Builder
	if v.height > 0 {
		fmt.Fprintf(&b, "\x1b[%dA", v.height)
	}
	fmt.Fprintf(&b, "\x1b[2K%5.1fs %10s %8s %9s %8s %8s %8s\n", at.Seconds(), "rate", "limit", "in flight", "waiting", "refused", "used")
	for _, l := range lines {
		fmt.Fprintf(&b, "\x1b[2K%-10s %4d/s %6.0f/s %9d %8d %8d %8s  %s\n", l.Name, l.Rate, l.Limit, l.InFlight, l.waiting, l.Refused,
			used("%.1f %%", l.Used), bar(l.jobs-l.waiting-l.InFlight, l.jobs))
	}
	v.height = len(lines) + 1
	fmt.Fprint(v.out, b.String())
}

func used(format string, share float64) string {
	if share == 0 {
		return ""
	}
	return fmt.Sprintf(format, 100*share)
}

// bar is the share done, twenty characters wide.
func bar(done, all int) string {
	const width = 20
	n := 0
	if all > 0 {
		n = min(width, max(0, done*width/all))
	}
	return strings.Repeat("█", n) + strings.Repeat("░", width-n)
}
