package fragile

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// RetryAfter is the form of the Retry-After header of a refusal. The zero
// value is ReplySeconds. A value that begins with "=" is sent as it stands
// after it: "=30".
type RetryAfter string

const (
	// ReplySeconds: whole seconds, rounded up, at least 1.
	ReplySeconds RetryAfter = "seconds"
	// ReplyDate: an HTTP-date, rounded up to the next second.
	ReplyDate RetryAfter = "date"
	// ReplyFraction: seconds with milliseconds, rounded up, as some providers send.
	ReplyFraction RetryAfter = "fraction"
	// ReplyAbsent: no header.
	ReplyAbsent RetryAfter = "absent"
	// ReplyNonsense: a word.
	ReplyNonsense RetryAfter = "nonsense"
	// ReplyHuge: a thousand years in seconds.
	ReplyHuge RetryAfter = "huge"
	// ReplyNegative: a negative number.
	ReplyNegative RetryAfter = "negative"
	// ReplyEpoch: the Unix time when to come back, where seconds are expected.
	ReplyEpoch RetryAfter = "epoch"
)

var retryAfterForms = []RetryAfter{ReplySeconds, ReplyDate, ReplyFraction, ReplyAbsent,
	ReplyNonsense, ReplyHuge, ReplyNegative, ReplyEpoch}

func (f RetryAfter) validate() error {
	if f == "" || strings.HasPrefix(string(f), "=") {
		if strings.ContainsAny(string(f), "\r\n") {
			return fmt.Errorf("retry_after must be one line")
		}
		return nil
	}
	names := make([]string, len(retryAfterForms))
	for i, form := range retryAfterForms {
		if f == form {
			return nil
		}
		names[i] = string(form)
	}
	return fmt.Errorf("retry_after %q is not known; use one of %s, or =VALUE to send a value as it stands", f, strings.Join(names, ", "))
}

// value returns the header's text for a wait that begins at now, "" for none.
func (f RetryAfter) value(now time.Time, wait time.Duration) string {
	back := now.Add(wait + time.Second - 1).Truncate(time.Second)
	switch f {
	case ReplyAbsent:
		return ""
	case ReplyDate:
		return back.UTC().Format(http.TimeFormat)
	case ReplyFraction:
		return fmt.Sprintf("%.3f", float64((wait+time.Millisecond-1)/time.Millisecond)/1000)
	case ReplyNonsense:
		return "soon"
	case ReplyHuge:
		return "31557600000"
	case ReplyNegative:
		return "-5"
	case ReplyEpoch:
		return strconv.FormatInt(back.Unix(), 10)
	}
	if literal, ok := strings.CutPrefix(string(f), "="); ok {
		return literal
	}
	return strconv.FormatInt(max(1, int64((wait+time.Second-1)/time.Second)), 10)
}
