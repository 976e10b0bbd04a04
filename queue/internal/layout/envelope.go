package layout

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Names of the task headers that make the envelope. The payload is the body's
// bytes, nothing else.
const (
	hVersion  = "p-v"
	hType     = "p-ty"
	hMethod   = "p-m"
	hPath     = "p-p"
	hHeaders  = "p-h"
	hKey      = "p-k"
	hPriority = "p-pr"
	hAllowed  = "p-n"
	hAccepted = "p-at"
	hDue      = "p-due"
	hExpires  = "p-exp"
	hMaxAge   = "p-age"
	hKeep     = "p-keep"
	hCost     = "p-cost"
	hIdemKey  = "p-ik"
	hCallback = "p-cb"
	hHash     = "p-hash"
	hBody     = "p-b"
	hSize     = "p-len"

	hAttempts  = "p-a"
	hDeferrals = "p-d"
	hThrottles = "p-t"
	hCrashes   = "p-x"
	hError     = "p-e"
	hStatus    = "p-s"
	hStreak    = "p-ts"
	hRefused   = "p-rc"
)

// Version of the envelope that this code writes.
const Version = 1

// MaxError is the most bytes kept of an attempt's error.
const MaxError = 512

// Envelope is everything of a job but its body, its id and its provider, as it
// travels in the headers of asynq's task. Times are ms since 1970, by Redis TIME.
type Envelope struct {
	// Version of the writer. A later one than Version still decodes: fields
	// are only ever added within a major version of the module.
	Version  int
	Type     string // Go handler's type; empty for an HTTP call
	Method   string
	Path     string
	Headers  map[string]string // of the call; may hold secrets: never log them
	Key      string
	Priority Priority // never empty after Decode
	Allowed  int      // attempts allowed. 0: the provider's default
	Cost     int      // at least 1 after Decode
	Accepted int64    // when it was enqueued
	Due      int64    // not before; max_age runs from here
	Expires  int64    // not after. 0: Due + the provider's default max_age
	MaxAge   int64    // as the job said, ms. 0: the provider's default
	Keep     int64    // of its id, once final, ms. 0: the provider's keep
	// IdempotencyKey to send. Empty: the job's id.
	IdempotencyKey string
	Callback       string // JSON; not used yet
	Hash           string // content hash
	BodyKey        bool   // the body is in Keys.Body, the payload is empty
	Size           int    // bytes of a body with its own key; else the payload says it

	Progress
}

// Progress is what the worker keeps of a job through its retries.
type Progress struct {
	Attempts  int    // calls made
	Deferrals int    // put back without an attempt spent
	Throttles int    // of the deferrals: the provider said not now
	Streak    int    // throttles since the last attempt spent; the back-off counts it
	Refused   int    // answers 401, 403, 407 since the last attempt spent
	Crashes   int    // workers that died holding it
	LastError string // short, no secret
	Status    int    // of the last answer. 0: none
}

// Encode returns the headers, never nil (asynq keeps headers through a retry
// only where there were some). What most jobs have in common is left out: each
// header costs time to put in, and memory while it waits.
func (e Envelope) Encode() (map[string]string, error) {
	h := make(map[string]string, 12)
	err := e.each(func(k, v string) { h[k] = v })
	if err != nil {
		return nil, err
	}
	for k, v := range h {
		if !utf8.ValidString(v) {
			return nil, fmt.Errorf("%s: not valid UTF-8", k)
		}
	}
	return h, nil
}

// each calls set for every header of the envelope, in a fixed order.
func (e Envelope) each(set func(k, v string)) error {
	set(hVersion, strconv.Itoa(Version))
	str := func(k, v string) {
		if v != "" {
			set(k, v)
		}
	}
	num := func(k string, v int64) {
		if v != 0 {
			set(k, strconv.FormatInt(v, 10))
		}
	}
	str(hType, e.Type)
	if e.Method != "POST" || e.Type != "" {
		str(hMethod, e.Method)
	}
	str(hPath, e.Path)
	str(hKey, e.Key)
	str(hIdemKey, e.IdempotencyKey)
	str(hCallback, e.Callback)
	str(hHash, e.Hash)
	if len(e.Headers) > 0 {
		b, err := json.Marshal(e.Headers)
		if err != nil {
			return fmt.Errorf("headers: %w", err)
		}
		set(hHeaders, string(b))
	}
	if e.Priority != Default {
		str(hPriority, string(e.Priority))
	}
	num(hAllowed, int64(e.Allowed))
	if e.Cost > 1 {
		num(hCost, int64(e.Cost))
	}
	num(hAccepted, e.Accepted)
	if e.Due != e.Accepted {
		set(hDue, strconv.FormatInt(e.Due, 10))
	}
	num(hExpires, e.Expires)
	num(hMaxAge, e.MaxAge)
	num(hKeep, e.Keep)
	num(hSize, int64(e.Size))
	if e.BodyKey {
		set(hBody, "1")
	}
	e.Progress.put(str, num)
	return nil
}

func (p Progress) put(str func(k, v string), num func(k string, v int64)) {
	num(hAttempts, int64(p.Attempts))
	num(hDeferrals, int64(p.Deferrals))
	num(hThrottles, int64(p.Throttles))
	num(hStreak, int64(p.Streak))
	num(hRefused, int64(p.Refused))
	num(hCrashes, int64(p.Crashes))
	num(hStatus, int64(p.Status))
	str(hError, Short(p.LastError))
}

// Store writes the progress into a task's live headers (asynq stores them at
// the next retry); zero values are removed.
func (p Progress) Store(h map[string]string) {
	for _, k := range []string{hAttempts, hDeferrals, hThrottles, hStreak, hRefused, hCrashes, hStatus, hError} {
		delete(h, k)
	}
	p.put(func(k, v string) {
		if v != "" {
			h[k] = v
		}
	}, func(k string, v int64) {
		if v != 0 {
			h[k] = strconv.FormatInt(v, 10)
		}
	})
}

// Short cuts an error's text to MaxError bytes of valid UTF-8 on one line.
func Short(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD"))
	if len(s) <= MaxError {
		return s
	}
	cut := MaxError - len("…")
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "…"
}

// ErrNotAJob is wrapped by Decode's errors.
var ErrNotAJob = errors.New("not a job of Penstock")

// Decode reads the headers of a task. It refuses what Encode cannot have
// written: no version, numbers that are none, a priority that does not exist.
func Decode(h map[string]string) (Envelope, error) {
	d := decoder{h: h}
	e := Envelope{
		Version:  d.int(hVersion),
		Type:     h[hType],
		Method:   h[hMethod],
		Path:     h[hPath],
		Key:      h[hKey],
		Priority: Priority(h[hPriority]),
		Allowed:  d.int(hAllowed),
		Cost:     max(1, d.int(hCost)),
		Accepted: d.int64(hAccepted),
		Due:      d.int64(hDue),
		Expires:  d.int64(hExpires),
		MaxAge:   d.int64(hMaxAge),
		Keep:     d.int64(hKeep),

		IdempotencyKey: h[hIdemKey],
		Callback:       h[hCallback],
		Hash:           h[hHash],
		BodyKey:        h[hBody] == "1",
		Size:           d.int(hSize),
		Progress: Progress{
			Attempts:  d.int(hAttempts),
			Deferrals: d.int(hDeferrals),
			Throttles: d.int(hThrottles),
			Streak:    d.int(hStreak),
			Refused:   d.int(hRefused),
			Crashes:   d.int(hCrashes),
			LastError: h[hError],
			Status:    d.int(hStatus),
		},
	}
	if e.Priority == "" {
		e.Priority = Default
	}
	if _, ok := h[hDue]; !ok {
		e.Due = e.Accepted
	}
	if e.Method == "" && e.Type == "" {
		e.Method = "POST"
	}
	if s := h[hHeaders]; s != "" {
		if err := json.Unmarshal([]byte(s), &e.Headers); err != nil {
			d.fail(hHeaders, err)
		}
	}
	switch {
	case d.err != nil:
		return Envelope{}, d.err
	case e.Version < 1:
		return Envelope{}, fmt.Errorf("%w: no envelope version", ErrNotAJob)
	case !e.Priority.Valid():
		return Envelope{}, fmt.Errorf("%w: %s %q", ErrNotAJob, hPriority, e.Priority)
	}
	return e, nil
}

// KeepOr is how long the id is remembered once the job is final: its own keep,
// or the provider's.
func (e Envelope) KeepOr(provider time.Duration) time.Duration {
	if e.Keep > 0 {
		return time.Duration(e.Keep) * time.Millisecond
	}
	return provider
}

type decoder struct {
	h   map[string]string
	err error
}

func (d *decoder) fail(k string, err error) {
	if d.err == nil {
		d.err = fmt.Errorf("%w: %s: %w", ErrNotAJob, k, err)
	}
}

func (d *decoder) int64(k string) int64 {
	s, ok := d.h[k]
	if !ok {
		return 0
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err == nil && n < 0 {
		err = fmt.Errorf("%d is negative", n)
	}
	if err != nil {
		d.fail(k, err)
	}
	return n
}

func (d *decoder) int(k string) int {
	n := d.int64(k)
	if n > 1<<31-1 {
		d.fail(k, fmt.Errorf("%d is too large", n))
		return 0
	}
	return int(n)
}

// Changes returns the headers of a replay: counts at zero, a new due time and
// the expiry that follows from it. Put over the old ones by ReplaySuffix.
func (e Envelope) Changes(dueMS int64) map[string]string {
	c := map[string]string{hDue: strconv.FormatInt(dueMS, 10)}
	for _, k := range []string{hAttempts, hDeferrals, hThrottles, hStreak, hRefused, hCrashes, hStatus} {
		c[k] = "0"
	}
	c[hError] = ""
	c[hExpires] = "0"
	if e.MaxAge > 0 {
		c[hExpires] = strconv.FormatInt(dueMS+e.MaxAge, 10)
	}
	return c
}
