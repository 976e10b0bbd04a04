package api

import (
	"encoding/json"
	"strings"

	"github.com/penstock-io/penstock/queue"
)

// JobFields are the fields of a job, in the order of the contract; the flags
// of `penstock enqueue` have these names too.
var JobFields = []string{"provider", "method", "path", "headers", "body", "body_base64", "key", "id", "priority",
	"delay", "max_age", "attempts", "cost", "callback", "idempotency_key"}

// DecodeJob reads one job as JSON. It is strict: unknown and repeated fields,
// text that is not UTF-8 and anything behind the object are refused with a
// Problem that names the field. A body given as JSON stays as it was written,
// byte for byte: nothing decodes its numbers.
func DecodeJob(src []byte) (queue.Job, error) {
	var j queue.Job
	fields, err := object(src, "a job")
	if err != nil {
		return j, err
	}
	var body, base, isJSON bool
	for _, f := range fields {
		switch f.name {
		case "body":
			body = true
			isJSON, err = jobBody(&j, f.raw)
		case "body_base64":
			base = true
			err = f.base64(&j.Body)
		default:
			err = jobField(&j, f)
		}
		if err != nil {
			return j, err
		}
	}
	if body && base {
		return j, wrong("body_base64", "give one of them", "stands beside body")
	}
	if isJSON && !hasHeader(j.Headers, "Content-Type") {
		if j.Headers == nil {
			j.Headers = map[string]string{}
		}
		j.Headers["Content-Type"] = "application/json"
	}
	return j, nil
}

func jobField(j *queue.Job, f field) error {
	switch f.name {
	case "provider":
		return f.text(&j.Provider)
	case "method":
		return f.text(&j.Method)
	case "path":
		return f.text(&j.Path)
	case "headers":
		return f.texts(&j.Headers)
	case "key":
		return f.text(&j.Key)
	case "id":
		if err := f.text(&j.ID); err != nil || j.ID != "" || f.null() {
			return err
		}
		return wrong("id", "leave it out for a new one", "is empty")
	case "priority":
		return f.text((*string)(&j.Priority))
	case "idempotency_key":
		return f.text(&j.IdempotencyKey)
	case "delay":
		return f.duration(&j.Delay)
	case "max_age":
		return f.positive(&j.MaxAge)
	case "attempts":
		return f.whole(&j.Attempts)
	case "cost":
		return f.whole(&j.Cost)
	case "callback":
		if f.null() {
			return nil
		}
		return wrong("callback", "leave it out, and ask for the job's state instead", "not built yet")
	}
	return wrong(f.name, nearest(f.name, JobFields), "is not a field of a job")
}

// jobBody takes text as its characters, and everything else as it stands: that
// is JSON, and is sent as such unless the job has a Content-Type of its own.
func jobBody(j *queue.Job, raw json.RawMessage) (isJSON bool, err error) {
	if string(raw) == "null" {
		return false, nil
	}
	if raw[0] != '"' {
		j.Body = raw
		return true, nil
	}
	s, err := unquote("body", raw)
	j.Body = []byte(s)
	return false, err
}

func hasHeader(h map[string]string, name string) bool {
	for k := range h {
		if strings.EqualFold(k, name) {
			return true
		}
	}
	return false
}
