package webhooks

import (
	"errors"
	"net/http"
)

// ErrConfig is wrapped by every refusal of a configuration.
var ErrConfig = errors.New("bad webhook configuration")

// Reason is why a delivery was refused: one word for logs and metrics.
type Reason string

// The reasons, with the status that a sender is answered.
const (
	// NoSignature: a header that the scheme needs is missing or empty. 401.
	NoSignature Reason = "no_signature"
	// BadSignature: the signature header cannot be read, or stands twice. 401.
	BadSignature Reason = "bad_signature"
	// WrongSignature: no secret made the signature. 401.
	WrongSignature Reason = "wrong_signature"
	// NotCovered: the signature does not cover the body. 401.
	NotCovered Reason = "body_not_signed"
	// BadTimestamp: the signed time is not a time. 401.
	BadTimestamp Reason = "bad_timestamp"
	// Stale: signed longer ago than the tolerance. 401.
	Stale Reason = "stale"
	// Future: signed further ahead than the tolerance. 401.
	Future Reason = "future"
	// Algorithm: the sender names an algorithm that is not accepted. 403.
	Algorithm Reason = "algorithm"
	// NoKey: no secret is configured for what the sender used, or all have
	// expired. 500: ours to repair, and the sender repeats.
	NoKey Reason = "no_key"
	// NoEventID: genuine, but without a usable event id. 400.
	NoEventID Reason = "no_event_id"
	// BadBody: genuine, but not what its content type says. 400.
	BadBody Reason = "bad_body"

	// CutBody: the body ended before its stated length. 400.
	CutBody Reason = "cut_body"
	// TooLarge: the body is over the limit. 413.
	TooLarge Reason = "too_large"
	// SlowBody: the body did not arrive in time. 408.
	SlowBody Reason = "slow_body"
	// BadMethod: not a method of this webhook. 405.
	BadMethod Reason = "method"
	// BadType: a content type or encoding that is not accepted. 415.
	BadType Reason = "content_type"
	// StoreAway: Redis did not take the job. 503.
	StoreAway Reason = "store_away"
	// StoreFull: Redis has no memory for the job. 503.
	StoreFull Reason = "store_full"
	// NoDestination: nobody serves the destination's provider (yet). 503.
	NoDestination Reason = "no_destination"
	// SpoolFull: Redis is away and the spool has no room. 503.
	SpoolFull Reason = "spool_full"
	// SpoolFailed: Redis is away and the spool could not be written. 503.
	SpoolFailed Reason = "spool_failed"
	// Busy: too many deliveries are being read at once. 503.
	Busy Reason = "busy"
	// Closing: the handler is shutting down. 503.
	Closing Reason = "closing"
	// Misconfigured: the queue refuses such a job. 500.
	Misconfigured Reason = "misconfigured"
)

// Status returns the HTTP status of the answer; 500 for an unknown reason.
func (r Reason) Status() int {
	switch r {
	case NoSignature, BadSignature, WrongSignature, NotCovered, BadTimestamp, Stale, Future:
		return http.StatusUnauthorized
	case Algorithm:
		return http.StatusForbidden
	case NoEventID, BadBody, CutBody:
		return http.StatusBadRequest
	case TooLarge:
		return http.StatusRequestEntityTooLarge
	case SlowBody:
		return http.StatusRequestTimeout
	case BadMethod:
		return http.StatusMethodNotAllowed
	case BadType:
		return http.StatusUnsupportedMediaType
	case StoreAway, StoreFull, NoDestination, SpoolFull, SpoolFailed, Busy, Closing:
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}

// Reasons lists every reason, for metrics that show zeros.
func Reasons() []Reason {
	return []Reason{NoSignature, BadSignature, WrongSignature, NotCovered, BadTimestamp, Stale, Future,
		Algorithm, NoKey, NoEventID, BadBody, CutBody, TooLarge, SlowBody, BadMethod, BadType,
		StoreAway, StoreFull, NoDestination, SpoolFull, SpoolFailed, Busy, Closing, Misconfigured}
}

// Refusal is the error of a delivery that is not accepted.
type Refusal struct {
	// Reason in one word.
	Reason Reason
	// Genuine says that the signature was right: it was refused for something
	// else.
	Genuine bool
	// Detail in a sentence, without a secret, a signature or a body.
	Detail string
	// Fix is what the operator or the sender can do, where there is something.
	Fix string
	// cause is for the log only; the sender never sees it.
	cause error
}

// Error is the reason and the detail.
func (r *Refusal) Error() string { return "webhook refused: " + string(r.Reason) + ": " + r.Detail }

// Unwrap returns the cause, if any.
func (r *Refusal) Unwrap() error { return r.cause }

func refuse(r Reason, detail, fix string) *Refusal {
	return &Refusal{Reason: r, Detail: detail, Fix: fix}
}

// ReasonOf returns why err refused a delivery; "" where it is no Refusal.
func ReasonOf(err error) Reason {
	if r, ok := errors.AsType[*Refusal](err); ok {
		return r.Reason
	}
	return ""
}
