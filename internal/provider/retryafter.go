package provider

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"time"
)

// MaxRetryAfter bounds a stated wait. Longer ones (an epoch taken for seconds,
// years, more digits than a number holds) count as this much.
const MaxRetryAfter = 7 * 24 * time.Hour

// retryAfter is what the Retry-After lines of an answer say together.
type retryAfter struct {
	wait   time.Duration // in [0, MaxRetryAfter]
	stated bool          // some line could be read
	odd    string        // why a line was bounded or ignored; empty if none was
}

var (
	secondsForm  = regexp.MustCompile(`^[0-9]+(\.[0-9]+)?$`)
	durationForm = regexp.MustCompile(`^([0-9]+(\.[0-9]+)?(ns|us|µs|μs|ms|s|m|h))+$`)
)

// readRetryAfter reads Retry-After (RFC 9110, 10.2.3) as servers really send
// it: seconds, fractions of them, the three forms of HTTP-date, and Go
// durations. Of several lines, or of values that a proxy joined with commas,
// the longest wait counts. A date is measured against the answer's own Date
// where it has one, for clocks differ. What cannot be read is ignored.
func readRetryAfter(header http.Header, now time.Time) retryAfter {
	var all retryAfter
	for _, line := range header.Values("Retry-After") {
		for _, value := range splitValues(line) {
			wait, ok, bounded := readWait(value, header, now)
			switch {
			case !ok && value != "":
				all.odd = fmt.Sprintf("Retry-After %q is no wait: ignored", shorten(value))
			case bounded:
				all.odd = fmt.Sprintf("Retry-After %q is out of reason: taken as %v", shorten(value), MaxRetryAfter)
			}
			if ok {
				all.stated = true
				all.wait = max(all.wait, wait)
			}
		}
	}
	return all
}

// splitValues splits a line at its commas, and keeps a date, which has a comma
// of its own after the day's name, together.
func splitValues(line string) []string {
	parts := strings.Split(line, ",")
	var values []string
	for i := 0; i < len(parts); i++ {
		value := strings.Trim(parts[i], " \t")
		if i+1 < len(parts) && isDayName(value) {
			i++
			value += ", " + strings.Trim(parts[i], " \t")
		}
		values = append(values, value)
	}
	return values
}

// isDayName reports whether s is "Mon" or "Monday" and so on.
func isDayName(s string) bool {
	for day := time.Sunday; day <= time.Saturday; day++ {
		if name := day.String(); s == name || s == name[:3] {
			return true
		}
	}
	return false
}

// readWait reads one value. bounded says that it was over MaxRetryAfter.
func readWait(value string, header http.Header, now time.Time) (wait time.Duration, ok, bounded bool) {
	switch {
	case secondsForm.MatchString(value):
		wait, ok = readDuration(value + "s")
	case durationForm.MatchString(value):
		wait, ok = readDuration(value)
	default:
		at, err := readDate(value)
		if err != nil {
			return 0, false, false
		}
		wait, ok = waitUntil(at, header, now), true
	}
	if !ok || wait > MaxRetryAfter {
		return MaxRetryAfter, true, true
	}
	return wait, true, false
}

// readDuration reads a duration whose form was checked: the only error left is
// a number too large.
func readDuration(s string) (time.Duration, bool) {
	d, err := time.ParseDuration(s)
	return d, err == nil
}

// readDate reads the three forms of HTTP-date. Their zone is GMT; Go would take
// any other abbreviation for GMT, too, and be hours off.
func readDate(value string) (time.Time, error) {
	at, err := http.ParseTime(value)
	if err != nil {
		return time.Time{}, err
	}
	if zone, _ := at.Zone(); zone != "GMT" && zone != "UTC" {
		return time.Time{}, fmt.Errorf("zone %s", zone)
	}
	return at, nil
}

// waitUntil measures a date against the answer's Date, or against our clock
// where it has none or where its clock makes no sense. A date that is past is a
// wait of zero.
func waitUntil(at time.Time, header http.Header, now time.Time) time.Duration {
	own := max(at.Sub(now), 0)
	sent, err := readDate(header.Get("Date"))
	if err != nil {
		return own
	}
	if theirs := max(at.Sub(sent), 0); theirs <= MaxRetryAfter {
		return theirs
	}
	return own
}

// shorten makes a value fit for a log line.
func shorten(value string) string {
	if len(value) > 40 {
		return value[:40] + "…"
	}
	return value
}
