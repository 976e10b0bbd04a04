package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/penstock-io/penstock/queue"
	"github.com/penstock-io/penstock/shaper"
)

// Code is one kind of error, the same word on both sides of the wire.
type Code string

// The codes. Each has one HTTP status; see Code.Status.
const (
	CodeInvalid         Code = "invalid"
	CodeUnauthorized    Code = "unauthorized"
	CodeForbidden       Code = "forbidden"
	CodeUnknownProvider Code = "unknown_provider"
	CodeNotFound        Code = "not_found"
	CodeMethod          Code = "method_not_allowed"
	CodeTooSlow         Code = "too_slow"
	CodeConflict        Code = "conflict"
	CodeState           Code = "state"
	CodeTooLarge        Code = "too_large"
	CodeMediaType       Code = "media_type"
	CodeTooMany         Code = "too_many"
	CodeInternal        Code = "internal"
	CodeNotBuilt        Code = "not_built"
	CodeStoreAway       Code = "store_away"
	CodeFull            Code = "full"
)

// codes is the one table of errors, for the server and the client.
var codes = []struct {
	code   Code
	status int
	title  string
	// is are the errors of the rooms that the code stands for.
	is []error
}{
	{CodeTooLarge, http.StatusRequestEntityTooLarge, "too large", []error{queue.ErrTooLarge}},
	{CodeInvalid, http.StatusBadRequest, "invalid request", []error{queue.ErrInvalid, shaper.ErrBadLimit}},
	{CodeUnauthorized, http.StatusUnauthorized, "who are you?", nil},
	{CodeForbidden, http.StatusForbidden, "not allowed", nil},
	{CodeUnknownProvider, http.StatusNotFound, "unknown provider", []error{queue.ErrUnknownProvider}},
	{CodeNotFound, http.StatusNotFound, "not found", []error{queue.ErrNotFound}},
	{CodeMethod, http.StatusMethodNotAllowed, "method not allowed", nil},
	{CodeTooSlow, http.StatusRequestTimeout, "request too slow", nil},
	{CodeConflict, http.StatusConflict, "id conflict", []error{queue.ErrConflict}},
	{CodeState, http.StatusConflict, "not possible in this state", []error{queue.ErrState}},
	{CodeMediaType, http.StatusUnsupportedMediaType, "encoding not read", nil},
	{CodeTooMany, http.StatusTooManyRequests, "too many requests", nil},
	{CodeInternal, http.StatusInternalServerError, "internal error", nil},
	{CodeNotBuilt, http.StatusNotImplemented, "not built yet", nil},
	{CodeStoreAway, http.StatusServiceUnavailable, "the store is away", []error{queue.ErrUnavailable}},
	{CodeFull, http.StatusInsufficientStorage, "the store is full", []error{queue.ErrFull}},
}

// storeRetryAfter is what a caller is asked to wait where nothing better is known.
const storeRetryAfter = 2 * time.Second

// Status is the HTTP status of a code; 500 for one that is not in the table.
func (c Code) Status() int {
	for _, e := range codes {
		if e.code == c {
			return e.status
		}
	}
	return http.StatusInternalServerError
}

// Problem is an RFC 9457 problem document, and the error that the client
// returns. errors.Is knows the error of queue or shaper that its code stands for.
type Problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	// Code is the word of the table.
	Code Code `json:"code"`
	// Detail says what happened; Fix says what to do.
	Detail string `json:"detail,omitempty"`
	Fix    string `json:"fix,omitempty"`
	// Field of the request that is wrong.
	Field string `json:"field,omitempty"`
	// RetryAfter in whole seconds, also sent as the header.
	RetryAfter int `json:"retry_after,omitempty"`
}

func (p *Problem) Error() string {
	s := p.Detail
	if s == "" {
		s = p.Title
	}
	if p.Field != "" {
		s = p.Field + ": " + s
	}
	if p.Fix != "" {
		s += "; " + p.Fix
	}
	return s
}

// Is makes a Problem the error that its code stands for.
func (p *Problem) Is(target error) bool {
	for _, e := range codes {
		if e.code != p.Code {
			continue
		}
		for _, is := range e.is {
			if is == target {
				return true
			}
		}
	}
	return false
}

// problem makes a document of a code.
func problem(code Code, fix, format string, args ...any) *Problem {
	p := &Problem{Code: code, Detail: fmt.Sprintf(format, args...), Fix: fix}
	return p.complete()
}

// complete fills in what follows from the code.
func (p *Problem) complete() *Problem {
	p.Type = "urn:penstock:problem:" + string(p.Code)
	p.Status = p.Code.Status()
	for _, e := range codes {
		if e.code == p.Code {
			p.Title = e.title
		}
	}
	if p.RetryAfter == 0 && (p.Code == CodeStoreAway || p.Code == CodeFull || p.Code == CodeTooMany) {
		p.RetryAfter = seconds(storeRetryAfter)
	}
	return p
}

// problemOf makes a document of an error of the rooms.
func problemOf(err error) *Problem {
	if p, ok := errors.AsType[*Problem](err); ok {
		return p
	}
	p := &Problem{Code: codeOf(err), Detail: err.Error()}
	if e, ok := errors.AsType[*queue.FieldError](err); ok {
		p.Field, p.Detail, p.Fix = e.Field, e.Reason, e.Fix
	}
	if e, ok := errors.AsType[*queue.FullError](err); ok {
		p.RetryAfter = seconds(e.RetryAfter)
		p.Fix = "send it again later; nothing was stored"
	}
	switch p.Code {
	case CodeInternal:
		// The text may hold anything; the log has it.
		p.Detail, p.Fix = "the request could not be served", "look into the server's log"
	case CodeStoreAway:
		p.Detail = "Redis does not answer or cannot write now"
		p.Fix = "send it again with the same id: if it was stored, it is not stored twice"
	case CodeConflict:
		p.Fix = "use another id, or send exactly what was sent first"
	case CodeUnknownProvider:
		p.Fix = "check its name; providers are listed at /v1/providers"
	}
	return p.complete()
}

func codeOf(err error) Code {
	for _, e := range codes {
		for _, is := range e.is {
			if errors.Is(err, is) {
				return e.code
			}
		}
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return CodeStoreAway
	}
	return CodeInternal
}

// seconds rounds up to whole seconds, at least 1 where d is positive.
func seconds(d time.Duration) int {
	if d <= 0 {
		return 0
	}
	return int(min(math.Ceil(d.Seconds()), 1<<30))
}

// write sends the document.
func (p *Problem) write(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	h.Set("Cache-Control", "no-store")
	if p.RetryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(p.RetryAfter))
	}
	if p.Code == CodeUnauthorized {
		h.Set("WWW-Authenticate", `Bearer realm="penstock"`)
	}
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p)
}

// readProblem makes an error of an answer that is not a success. A document of
// the door has no code of ours, and one of a proxy may have anything.
func readProblem(status int, retryAfter string, body []byte) *Problem {
	p := &Problem{}
	if err := json.Unmarshal(body, p); err == nil && p.Code != "" {
		p.Status = status
		return p
	}
	code := CodeInternal
	for _, e := range codes {
		if e.status == status {
			code = e.code
			break
		}
	}
	if p.Fix == "" || p.Detail == "" {
		p = problem(code, "check that --server is a Penstock server", "the server answered %d %s", status, http.StatusText(status))
	}
	p.Code, p.Status = code, status
	if n, err := strconv.Atoi(retryAfter); err == nil && n >= 0 {
		p.RetryAfter = n
	}
	return p
}
