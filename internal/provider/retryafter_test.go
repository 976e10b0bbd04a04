package provider

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/penstock-io/penstock/breaker"
)

// now is the moment at which every dated case is read.
var now = time.Unix(1796040000, 0)

func TestRetryAfter(t *testing.T) {
	const none = -1
	at := func(d time.Duration) string { return now.Add(d).UTC().Format(http.TimeFormat) }
	for _, test := range []struct {
		name string
		want time.Duration
		odd  bool
		date string
		line []string
	}{
		{name: "RA-01 seconds", line: []string{"120"}, want: 120 * time.Second},
		{name: "zero", line: []string{"0"}, want: 0},
		{name: "leading zeros", line: []string{"0000000000000000000000000000000005"}, want: 5 * time.Second},
		{name: "blanks", line: []string{" \t30 "}, want: 30 * time.Second},
		{name: "RA-03 date", line: []string{"Mon, 30 Nov 2026 12:00:30 GMT"}, want: 30 * time.Second},
		{name: "RA-04 RFC 850", line: []string{"Monday, 30-Nov-26 12:00:30 GMT"}, want: 30 * time.Second},
		{name: "RA-05 asctime", line: []string{"Mon Nov 30 12:00:30 2026"}, want: 30 * time.Second},
		{name: "date past", line: []string{at(-time.Hour)}, want: 0},
		{name: "date in another zone", line: []string{"Monday, 30-Nov-26 12:00:30 PST"}, want: none, odd: true},
		{name: "RA-07 negative", line: []string{"-5"}, want: none, odd: true},
		{name: "RA-08 plus", line: []string{"+7"}, want: none, odd: true},
		{name: "RA-09 fraction", line: []string{"0.493"}, want: 493 * time.Millisecond},
		{name: "RA-10 fraction of zero", line: []string{"2.0"}, want: 2 * time.Second},
		{name: "a point and nothing", line: []string{"2."}, want: none, odd: true},
		{name: "nothing and a point", line: []string{".5"}, want: none, odd: true},
		{name: "RA-11 Go duration", line: []string{"1m0s"}, want: time.Minute},
		{name: "duration with a fraction", line: []string{"1.5s"}, want: 1500 * time.Millisecond},
		{name: "duration in days", line: []string{"1d2h"}, want: none, odd: true},
		{name: "negative duration", line: []string{"-1m"}, want: none, odd: true},
		{name: "duration overflows", line: []string{"99999999999999h"}, want: MaxRetryAfter, odd: true},
		{name: "RA-13 int64 overflow", line: []string{"9223372036854775807"}, want: MaxRetryAfter, odd: true},
		{name: "RA-13 overflow as nanoseconds", line: []string{"9223372037"}, want: MaxRetryAfter, odd: true},
		{name: "RA-14 more digits than a number", line: []string{"99999999999999999999999999"}, want: MaxRetryAfter, odd: true},
		{name: "ten thousand digits", line: []string{strings.Repeat("9", 10000)}, want: MaxRetryAfter, odd: true},
		{name: "an epoch", line: []string{"1796040030"}, want: MaxRetryAfter, odd: true},
		{name: "RA-15 empty", line: []string{""}, want: none},
		{name: "blank", line: []string{"  "}, want: none},
		{name: "no line", line: nil, want: none},
		{name: "RA-17 two lines", line: []string{"10", "60"}, want: time.Minute},
		{name: "RA-17 reversed", line: []string{"60", "10"}, want: time.Minute},
		{name: "one good line of two", line: []string{"soon", "60"}, want: time.Minute, odd: true},
		{name: "RA-18 merged", line: []string{"120, 120"}, want: 2 * time.Minute},
		{name: "merged, the longer", line: []string{"10,60"}, want: time.Minute},
		{name: "merged dates", line: []string{at(30*time.Second) + ", " + at(90*time.Second)}, want: 90 * time.Second},
		{name: "merged date and seconds", line: []string{"10, " + at(90*time.Second)}, want: 90 * time.Second},
		{name: "RA-21 their clock ahead", date: at(5 * time.Minute), line: []string{at(5*time.Minute + 30*time.Second)}, want: 30 * time.Second},
		{name: "RA-22 their clock behind", date: at(-5 * time.Minute), line: []string{at(-5*time.Minute + 30*time.Second)}, want: 30 * time.Second},
		{name: "their clock lost", date: "Thu, 01 Jan 1970 00:00:10 GMT", line: []string{at(30 * time.Second)}, want: 30 * time.Second},
		{name: "their Date broken", date: "yesterday", line: []string{at(30 * time.Second)}, want: 30 * time.Second},
		{name: "RA-23 a day", line: []string{"86400"}, want: 24 * time.Hour},
		{name: "RA-25 NaN", line: []string{"NaN"}, want: none, odd: true},
		{name: "RA-25 Inf", line: []string{"Inf"}, want: none, odd: true},
		{name: "RA-25 exponent", line: []string{"1e3"}, want: none, odd: true},
		{name: "RA-25 underscore", line: []string{"1_000"}, want: none, odd: true},
		{name: "hexadecimal", line: []string{"0x10"}, want: none, odd: true},
		{name: "other digits", line: []string{"٣"}, want: none, odd: true},
		{name: "words", line: []string{"5 seconds"}, want: none, odd: true},
		{name: "RA-26 impossible date", line: []string{"Mon, 31 Nov 2026 12:00:30 GMT"}, want: none, odd: true},
		{name: "date in years", line: []string{"Mon, 30 Nov 2099 12:00:30 GMT"}, want: MaxRetryAfter, odd: true},
		{name: "a day's name alone", line: []string{"Mon"}, want: none, odd: true},
		{name: "a day's name and a comma", line: []string{"Mon,"}, want: none, odd: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			header := http.Header{"Retry-After": test.line}
			if test.date != "" {
				header.Set("Date", test.date)
			}
			got := readRetryAfter(header, now)
			want := max(test.want, 0)
			if got.wait != want || got.stated != (test.want != none) || (got.odd != "") != test.odd {
				t.Errorf("%+v, want wait %v, odd %v", got, test.want, test.odd)
			}
			for _, status := range []int{429, 503} {
				v := Judge(status, header, now, nil)
				if v.RetryAfter != want {
					t.Errorf("%d: waits %v", status, v.RetryAfter)
				}
			}
			if v := Judge(200, header, now, nil); v.RetryAfter != 0 || v.Odd != "" || v.Outcome != breaker.OK {
				t.Errorf("RA-27: a wait on a 200 has an effect: %+v", v)
			}
		})
	}
}

// TestRetryAfterNeverPanics feeds any text and checks the bounds.
func TestRetryAfterNeverPanics(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.String(), rapid.StringMatching(`[0-9.+\-eEsmhdMon, GTx_]{0,40}`))
		header := http.Header{
			"Retry-After": rapid.SliceOfN(text, 0, 4).Draw(t, "lines"),
			"Date":        {text.Draw(t, "date")},
		}
		got := readRetryAfter(header, now)
		if got.wait < 0 || got.wait > MaxRetryAfter || !got.stated && got.wait != 0 || len(got.odd) > 300 {
			t.Fatalf("%+v", got)
		}
	})
}
