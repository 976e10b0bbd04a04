package queue

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/penstock-io/penstock/queue/internal/layout"
)

// Info is what is known of one job. Of a succeeded one only the tombstone is
// kept: its state, attempts, status and times. Values of headers and of query
// parameters that look like secrets are replaced by Redacted.
type Info struct {
	Provider string
	ID       string
	State    State

	// Type, Method, Path, Headers, BodySize and Priority are the job's own.
	// They are empty where only the tombstone is left.
	Type     string
	Method   string
	Path     string
	Headers  map[string]string
	BodySize int
	Priority Priority
	Cost     int

	// Attempts are the calls made.
	Attempts int
	// Allowed is how many attempts the job allows. Zero: the provider's default.
	Allowed int
	// Deferrals is how often it was put back with no attempt spent; Throttles
	// how often of these because the provider said so. Crashes is how many
	// workers died holding it.
	Deferrals, Throttles, Crashes int

	// Accepted is when it was enqueued; Due not before when it may be called
	// (next); Expires after when not (zero: the provider's default max_age
	// from its first due time); Final when it became final. By Redis's clock.
	Accepted, Due, Expires, Final time.Time
	// KeptUntil is when the id of a final job is forgotten. Zero: not final.
	KeptUntil time.Time

	// LastError is of the last failed attempt, short.
	LastError string
	// Status is of the last HTTP answer. Zero: none.
	Status int
	// Reason says why a final job is final. Empty for a plain success.
	Reason string
	// CancelAsked says that a running job is to be stopped.
	CancelAsked bool

	hash string        // of the content
	keep time.Duration // the job's own; zero: the provider's
}

// Redacted stands in Info where a secret may have been.
const Redacted = "[redacted]"

// record is what the scripts say of one job, as text; "" is missing.
type record struct {
	id, msg, state, result, stone string
	stoneMS                       int64
	dueMS, cancelMS               string
}

// info puts together what is known. now is the server's time.
func (c *Client) info(provider string, r record, now time.Time) (Info, error) {
	i := Info{Provider: provider, ID: r.id}
	var msg layout.Message
	if r.msg != "" {
		var err error
		if msg, err = layout.ParseMessage([]byte(r.msg)); err != nil {
			return i, fmt.Errorf("%s/%s: %w", provider, r.id, err)
		}
		i.fill(msg)
	}
	if due, err := strconv.ParseFloat(r.dueMS, 64); err == nil {
		i.Due = time.UnixMilli(int64(due))
	}
	i.CancelAsked = r.cancelMS != "" && r.state == "active"
	raw := r.stone
	if raw == "" && r.state == "completed" {
		raw = r.result
	}
	if raw != "" {
		return i, i.final(raw, r, now)
	}
	switch r.state {
	case "pending":
		i.State = Waiting
	case "active":
		i.State = Running
	case "retry":
		i.State = Retrying
	case "scheduled", "aggregating":
		i.State = Waiting
		if i.Due.After(now) || r.dueMS == "" && r.state == "scheduled" {
			i.State = Delayed
		}
	case "archived":
		i.State, i.Reason = Dead, "archived by asynq or by hand: "+msg.ErrorMsg
		i.Reason = strings.TrimSuffix(i.Reason, ": ")
	case "completed":
		i.State = Succeeded // by another program's worker
	default:
		return i, notFound(provider, r.id)
	}
	return i, nil
}

func notFound(provider, id string) error {
	return fmt.Errorf("%w: %s/%s is unknown, or was final longer ago than its provider's keep", ErrNotFound, provider, id)
}

// final fills in what the tombstone says.
func (i *Info) final(raw string, r record, now time.Time) error {
	stone, err := layout.ParseTombstone(raw)
	if err != nil {
		// Another program's result: it ran, that is all we know.
		i.State = Succeeded
		return nil
	}
	i.State, i.Reason, i.Attempts = stone.State, stone.Reason, stone.Attempts
	i.Final = time.UnixMilli(stone.At)
	i.Deferrals, i.Throttles = max(i.Deferrals, stone.Deferrals), max(i.Throttles, stone.Throttles)
	if stone.Status != 0 {
		i.Status = stone.Status
	}
	if r.stone != "" && r.stoneMS > 0 {
		i.KeptUntil = now.Add(time.Duration(r.stoneMS) * time.Millisecond)
	}
	return nil
}

// fill takes over what the task's message says.
func (i *Info) fill(m layout.Message) {
	i.Type, i.BodySize, i.LastError = m.Type, len(m.Payload), m.ErrorMsg
	env, err := layout.Decode(m.Headers)
	if err != nil {
		return // not ours: type and size are all there is
	}
	i.Type, i.Method, i.Path = env.Type, env.Method, redactPath(env.Path)
	i.Headers, i.Priority, i.Cost = redactHeaders(env.Headers), env.Priority, env.Cost
	if env.BodyKey {
		i.BodySize = env.Size
	}
	i.Attempts, i.Allowed = env.Attempts, env.Allowed
	i.Deferrals, i.Throttles, i.Crashes = env.Deferrals, env.Throttles, env.Crashes
	i.Status, i.hash, i.keep = env.Status, env.Hash, env.KeepOr(0)
	if env.LastError != "" {
		i.LastError = env.LastError
	}
	i.Accepted, i.Due, i.Expires = msTime(env.Accepted), msTime(env.Due), msTime(env.Expires)
}

func msTime(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}

// secretWords in a name make its value a secret.
var secretWords = []string{"auth", "token", "secret", "password", "passwd", "pwd", "cookie", "key", "signature", "credential", "session", "sig"}

// secretName reports that what stands under a name may be a secret. The key
// in Idempotency-Key is none: it names a job.
func secretName(name string) bool {
	n := strings.ToLower(name)
	if strings.Contains(n, "idempotency") {
		return false
	}
	for _, w := range secretWords {
		if strings.Contains(n, w) {
			return true
		}
	}
	return false
}

func redactHeaders(h map[string]string) map[string]string {
	if len(h) == 0 {
		return nil
	}
	out := make(map[string]string, len(h))
	for k, v := range h {
		if secretName(k) {
			v = Redacted
		}
		out[k] = v
	}
	return out
}

// redactPath replaces the values of query parameters that may be secrets.
func redactPath(p string) string {
	path, query, ok := strings.Cut(p, "?")
	if !ok {
		return p
	}
	var b strings.Builder
	b.WriteString(path + "?")
	for query != "" {
		end := strings.IndexAny(query, "&;")
		if end < 0 {
			end = len(query)
		}
		part := query[:end]
		name, _, _ := strings.Cut(part, "=")
		if n, err := url.QueryUnescape(name); err == nil && secretName(n) {
			part = name + "=" + Redacted
		}
		b.WriteString(part)
		if end < len(query) {
			b.WriteByte(query[end])
			end++
		}
		query = query[end:]
	}
	return b.String()
}
