package provider

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/penstock-io/penstock/breaker"
)

// TestJudge is CONTROL.md's table, status by status.
func TestJudge(t *testing.T) {
	wait := http.Header{"Retry-After": {"60"}}
	for _, test := range []struct {
		name   string
		status []int
		header http.Header
		again  []int
		want   Verdict
	}{
		{name: "success", status: []int{200, 201, 202, 204, 206, 226, 299},
			want: Verdict{Outcome: breaker.OK, Fate: Succeeded}},
		{name: "RA-27 success with Retry-After", status: []int{200}, header: wait,
			want: Verdict{Outcome: breaker.OK, Fate: Succeeded}},
		{name: "RET-12 redirect", status: []int{300, 301, 302, 303, 304, 307, 308, 399}, header: wait,
			want: Verdict{Outcome: breaker.OK, Fate: Dead, Reason: "redirected (http %d); redirects are not followed"}},
		{name: "other 4xx", status: []int{400, 402, 404, 405, 406, 409, 410, 411, 412, 413, 414, 415, 416, 417, 418, 421, 422, 423, 424, 426, 428, 431, 451, 499},
			header: wait, want: Verdict{Outcome: breaker.OK, Fate: Dead, Reason: "http %d"}},
		{name: "4xx configured as again", status: []int{409, 423}, again: []int{409, 423}, header: wait,
			want: Verdict{Outcome: breaker.OK, Fate: Again, Reason: "http %d", RetryAfter: time.Minute}},
		{name: "credentials", status: []int{401, 403, 407}, again: []int{401, 403, 407},
			want: Verdict{Outcome: breaker.OK, Fate: AgainFree, Reason: "http %d", Credentials: true}},
		{name: "401 with Retry-After", status: []int{401, 407}, header: wait,
			want: Verdict{Outcome: breaker.OK, Fate: AgainFree, Reason: "http %d", Credentials: true}},
		{name: "RA-24 403 with Retry-After", status: []int{403}, header: wait,
			want: Verdict{Outcome: breaker.Throttled, Fate: AgainFree, Reason: "http %d", RetryAfter: time.Minute}},
		{name: "HDR-GITHUB-5 403 with a used-up quota", status: []int{403}, header: http.Header{"X-Ratelimit-Remaining": {"0"}},
			want: Verdict{Outcome: breaker.Throttled, Fate: AgainFree, Reason: "http %d"}},
		{name: "403 with another dialect's used-up quota", status: []int{403}, header: http.Header{"Ratelimit-Remaining": {" 0"}},
			want: Verdict{Outcome: breaker.Throttled, Fate: AgainFree, Reason: "http %d"}},
		{name: "HDR-GITHUB-3 403 with some quota left", status: []int{403}, header: http.Header{"X-Ratelimit-Remaining": {"4990"}},
			want: Verdict{Outcome: breaker.OK, Fate: AgainFree, Reason: "http %d", Credentials: true}},
		{name: "IETF-05b 403 with two minds", status: []int{403}, header: http.Header{"Ratelimit-Remaining": {"0", "5"}},
			want: Verdict{Outcome: breaker.OK, Fate: AgainFree, Reason: "http %d", Credentials: true}},
		{name: "403 with a Retry-After that is none", status: []int{403}, header: http.Header{"Retry-After": {""}},
			want: Verdict{Outcome: breaker.OK, Fate: AgainFree, Reason: "http %d", Credentials: true}},
		{name: "HDR-STRIPE-1 throttled, own back-off", status: []int{429},
			want: Verdict{Outcome: breaker.Throttled, Fate: AgainFree, Reason: "http %d"}},
		{name: "HDR-SLACK-1 throttled", status: []int{429}, header: wait,
			want: Verdict{Outcome: breaker.Throttled, Fate: AgainFree, Reason: "http %d", RetryAfter: time.Minute}},
		{name: "RA-28 503 with Retry-After", status: []int{503}, header: wait,
			want: Verdict{Outcome: breaker.Throttled, Fate: AgainFree, Reason: "http %d", RetryAfter: time.Minute}},
		{name: "503 with Retry-After 0", status: []int{503}, header: http.Header{"Retry-After": {"0"}},
			want: Verdict{Outcome: breaker.Throttled, Fate: AgainFree, Reason: "http %d"}},
		{name: "failures", status: []int{408, 500, 502, 503, 504, 507, 508, 511, 520, 599},
			want: Verdict{Outcome: breaker.Failed, Fate: Again, Reason: "http %d"}},
		{name: "failures with Retry-After", status: []int{408, 500, 502, 504}, header: wait,
			want: Verdict{Outcome: breaker.Failed, Fate: Again, Reason: "http %d", RetryAfter: time.Minute}},
		{name: "no answers", status: []int{0, 100, 101, 600, 999, -1},
			want: Verdict{Outcome: breaker.Failed, Fate: Again, Reason: "http %d"}},
		{name: "too early", status: []int{425},
			want: Verdict{Outcome: breaker.Excluded, Fate: Again, Reason: "http %d"}},
		{name: "RET-12 not able to", status: []int{501, 505}, header: wait,
			want: Verdict{Outcome: breaker.Excluded, Fate: Dead, Reason: "http %d"}},
	} {
		for _, status := range test.status {
			t.Run(fmt.Sprintf("%s/%d", test.name, status), func(t *testing.T) {
				want := test.want
				switch want.Reason {
				case "http %d", "redirected (http %d); redirects are not followed":
					want.Reason = fmt.Sprintf(want.Reason, status)
				}
				if diff := cmp.Diff(want, Judge(status, test.header, now, test.again)); diff != "" {
					t.Error(diff)
				}
			})
		}
	}
}

// TestEveryStatusHasAMeaning also holds where headers and lists are at their worst.
func TestEveryStatusHasAMeaning(t *testing.T) {
	for status := -1; status <= 1000; status++ {
		for _, header := range []http.Header{nil, {"Retry-After": {"-1"}, "X-Ratelimit-Remaining": nil}} {
			v := Judge(status, header, now, []int{418})
			if !slices.Contains(breaker.Outcomes(), v.Outcome) || v.Fate < Succeeded || v.Fate > Dead {
				t.Errorf("%d: %+v", status, v)
			}
			if v.Outcome == breaker.Throttled && v.Fate != AgainFree {
				t.Errorf("RET-01: %d: throttled spends an attempt: %+v", status, v)
			}
		}
	}
}

func TestJudgeError(t *testing.T) {
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	late, cancel := context.WithDeadline(t.Context(), now.Add(-1000*time.Hour))
	defer cancel()
	for _, test := range []struct {
		name string
		ctx  context.Context
		err  error
		want Verdict
	}{
		{"cancelled", cancelled, context.Canceled, Verdict{Outcome: breaker.Excluded, Fate: AgainFree, Reason: "cancelled"}},
		{"cancelled, seen as a closed connection", cancelled, errors.New("closed"), Verdict{Outcome: breaker.Excluded, Fate: AgainFree, Reason: "cancelled"}},
		{"deadline", late, context.DeadlineExceeded, Verdict{Outcome: breaker.Timeout, Fate: Again, Reason: "timeout"}},
		{"unsendable", t.Context(), unsendable("why"), Verdict{Outcome: breaker.Excluded, Fate: Dead, Reason: "the request cannot be sent: why"}},
		{"unsendable and cancelled", cancelled, unsendable("why"), Verdict{Outcome: breaker.Excluded, Fate: Dead, Reason: "the request cannot be sent: why"}},
		{"address", t.Context(), fmt.Errorf("dial: %w", ErrRefusedAddress), Verdict{Outcome: breaker.Excluded, Fate: AgainFree, Reason: "dial: address refused"}},
		{"anything else", t.Context(), errors.New("?"), Verdict{Outcome: breaker.Failed, Fate: Again, Reason: "connection lost before an answer"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, JudgeError(test.ctx, test.err)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestFateWords(t *testing.T) {
	want := []string{"fate(0)", "succeeded", "again", "again, none spent", "dead", "fate(5)"}
	var got []string
	for f := range Fate(6) {
		got = append(got, f.String())
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
