package provider

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/penstock-io/penstock/breaker"
)

// Fate is what becomes of a job after an attempt. The zero value is no fate.
type Fate uint8

const (
	// Succeeded: the job is done.
	Succeeded Fate = iota + 1
	// Again: the job is tried again; an attempt is spent.
	Again
	// AgainFree: the job is tried again; no attempt is spent. Only its age bounds it.
	AgainFree
	// Dead: trying again would change nothing.
	Dead
)

// String returns the word used in logs and documents.
func (f Fate) String() string {
	switch f {
	case Succeeded:
		return "succeeded"
	case Again:
		return "again"
	case AgainFree:
		return "again, none spent"
	case Dead:
		return "dead"
	}
	return fmt.Sprintf("fate(%d)", uint8(f))
}

// Verdict is what an answer, or its absence, means.
type Verdict struct {
	// Outcome is what the attempt showed of the provider.
	Outcome breaker.Outcome
	// Fate is what becomes of the job, as far as one attempt can tell. Where
	// Credentials is set it is AgainFree, and a job's second such answer in a row
	// is the caller's to make final.
	Fate Fate
	// Reason says why in a few words ("http 404", "connection refused"). It never
	// holds a secret, a URL or a body. Empty for a plain success.
	Reason string
	// RetryAfter is the wait that the provider asked for, at most MaxRetryAfter.
	// Zero: none, or none that made sense. It is read only where the job is tried
	// again; only a Throttled outcome should hold the whole provider.
	RetryAfter time.Duration
	// Odd, if not empty, says that the stated wait made no sense and what was done
	// about it. It is worth one line in the log.
	Odd string
	// Credentials says that the provider refused who we are (401, 403, 407).
	Credentials bool
}

// decided are the 4xx statuses whose meaning no configuration changes.
var decided = []int{
	http.StatusUnauthorized, http.StatusForbidden, http.StatusProxyAuthRequired,
	http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests,
}

// Judge says what an answer with this status and header means at the moment
// now. again lists other 4xx statuses after which this provider's jobs are to
// be tried again (an attempt spent) instead of being dead.
func Judge(status int, header http.Header, now time.Time, again []int) Verdict {
	v := Verdict{Outcome: breaker.OK, Reason: "http " + strconv.Itoa(status)}
	wait := readRetryAfter(header, now)
	switch {
	case status >= 200 && status < 300:
		v.Fate, v.Reason = Succeeded, ""
	case status >= 300 && status < 400:
		v.Fate, v.Reason = Dead, "redirected ("+v.Reason+"); redirects are not followed"
	case status == http.StatusTooManyRequests,
		status == http.StatusForbidden && (wait.stated || quotaExhausted(header)),
		status == http.StatusServiceUnavailable && wait.stated:
		v.Outcome, v.Fate = breaker.Throttled, AgainFree
	case status == http.StatusUnauthorized, status == http.StatusForbidden, status == http.StatusProxyAuthRequired:
		v.Fate, v.Credentials = AgainFree, true
	case status == http.StatusTooEarly:
		v.Outcome, v.Fate = breaker.Excluded, Again
	case status == http.StatusNotImplemented, status == http.StatusHTTPVersionNotSupported:
		v.Outcome, v.Fate = breaker.Excluded, Dead
	case status == http.StatusRequestTimeout:
		v.Outcome, v.Fate = breaker.Failed, Again
	case status >= 400 && status < 500 && slices.Contains(again, status):
		v.Fate = Again
	case status >= 400 && status < 500:
		v.Fate = Dead
	default: // 5xx, and numbers that are no answer to a call (101, 999)
		v.Outcome, v.Fate = breaker.Failed, Again
	}
	if v.Fate == Again || v.Fate == AgainFree && !v.Credentials {
		v.RetryAfter, v.Odd = wait.wait, wait.odd
	}
	return v
}

// Errors that end a call before or while it is made. Every error of this
// package is free of secrets and URLs.
var (
	// ErrUnsendable: the job's method, path or headers cannot be sent.
	ErrUnsendable = errors.New("the request cannot be sent")
	// ErrRefusedAddress: the provider's name leads to an address that its
	// configuration does not allow.
	ErrRefusedAddress = errors.New("address refused")
)

// JudgeError says what it means that a call ended in err and without an
// answer. ctx is the context the call was made with: its end tells our deadline
// and our cancellation from the provider's failures.
func JudgeError(ctx context.Context, err error) Verdict {
	switch {
	case errors.Is(err, ErrUnsendable):
		return Verdict{Outcome: breaker.Excluded, Fate: Dead, Reason: err.Error()}
	case errors.Is(ctx.Err(), context.Canceled):
		return Verdict{Outcome: breaker.Excluded, Fate: AgainFree, Reason: "cancelled"}
	case ctx.Err() != nil:
		return Verdict{Outcome: breaker.Timeout, Fate: Again, Reason: "timeout"}
	case errors.Is(err, ErrRefusedAddress):
		return Verdict{Outcome: breaker.Excluded, Fate: AgainFree, Reason: err.Error()}
	case isCertificate(err):
		return Verdict{Outcome: breaker.Failed, Fate: Dead, Reason: "certificate does not verify"}
	}
	return Verdict{Outcome: breaker.Failed, Fate: Again, Reason: failure(err)}
}

// isCertificate reports whether the provider's certificate was refused.
func isCertificate(err error) bool {
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return true
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return true
	}
	if _, ok := errors.AsType[x509.HostnameError](err); ok {
		return true
	}
	_, ok := errors.AsType[x509.CertificateInvalidError](err)
	return ok
}

// failure names a failure in a few words that an operator knows.
func failure(err error) string {
	if dns, ok := errors.AsType[*net.DNSError](err); ok {
		if dns.IsNotFound {
			return "dns: no such host"
		}
		return "dns: no answer"
	}
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return "tls: the provider does not speak TLS"
	}
	if _, ok := errors.AsType[tls.AlertError](err); ok {
		return "tls: handshake refused"
	}
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return "connection reset"
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return "unreachable"
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		return "no connection"
	}
	if slow, ok := errors.AsType[net.Error](err); ok && slow.Timeout() {
		return "no connection in time"
	}
	return "connection lost before an answer"
}
