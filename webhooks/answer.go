package webhooks

import (
	"encoding/json"
	"errors"
	"log/slog"
	"math"
	"net"
	"net/http"
	"strconv"
	"strings"
)

// answer writes the response.
func (t *taking) answer(err error) {
	hd := t.w.Header()
	hd.Set(ResultHeader, string(t.d.Result))
	hd.Set("Cache-Control", "no-store")
	r, _ := errors.AsType[*Refusal](err)
	if r == nil {
		if t.event.Challenge != "" {
			hd.Set("Content-Type", "text/plain; charset=utf-8")
			hd.Set("X-Content-Type-Options", "nosniff")
			_, _ = t.w.Write([]byte(t.event.Challenge))
			return
		}
		// No body: Slack would show it to the user, Twilio send it as a message.
		hd.Set("Content-Length", "0")
		t.w.WriteHeader(http.StatusOK)
		return
	}
	status := r.Reason.Status()
	switch r.Reason {
	case BadMethod:
		hd.Set("Allow", strings.Join(t.h.cfg.Methods, ", "))
	case TooLarge, SlowBody, CutBody:
		hd.Set("Connection", "close") // the rest of the body is not waited for
	}
	if status == http.StatusServiceUnavailable {
		hd.Set("Retry-After", strconv.Itoa(int(math.Ceil(t.h.cfg.RetryAfter.Seconds()))))
	}
	hd.Set("Content-Type", "application/problem+json")
	t.w.WriteHeader(status)
	_ = json.NewEncoder(t.w).Encode(problem{
		Title: http.StatusText(status), Status: status, Reason: r.Reason, Detail: r.Detail, Fix: r.Fix,
	})
}

// problem is the body of a refusal.
type problem struct {
	Title  string `json:"title"`
	Status int    `json:"status"`
	Reason Reason `json:"reason"`
	Detail string `json:"detail"`
	Fix    string `json:"fix,omitempty"`
}

// logLine tells the operator what they would act on.
func (t *taking) logLine(err error) {
	l := t.h.log
	from, _, _ := net.SplitHostPort(t.r.RemoteAddr)
	r, _ := errors.AsType[*Refusal](err)
	if r == nil {
		level := slog.LevelDebug
		switch t.d.Result {
		case Duplicate:
			level = slog.LevelInfo
		case Spooled:
			level = slog.LevelWarn
		}
		l.line(level, string(t.d.Result), "webhook "+string(t.d.Result), "job", t.job, "secret", t.d.Secret, "bytes", t.d.Bytes)
		return
	}
	level := slog.LevelWarn
	if r.Reason.Status() >= 500 {
		level = slog.LevelError
	}
	args := []any{"reason", r.Reason, "detail", r.Detail, "genuine", r.Genuine, "from", from, "bytes", t.d.Bytes}
	for _, a := range [][2]string{{"fix", r.Fix}, {"job", t.job}, {"cause", causeText(r.cause)}} {
		if a[1] != "" {
			args = append(args, a[0], a[1])
		}
	}
	l.line(level, string(r.Reason), "webhook refused", args...)
}

// causeText is what lies under a refusal, for the log.
func causeText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
