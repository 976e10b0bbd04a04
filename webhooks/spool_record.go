package webhooks

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/penstock-io/penstock/queue"
)

// recordVersion of what stands in a record. A newer one is left in place.
const recordVersion = 1

// recordMeta is what a record says of a delivery beside its body: a uvarint
// with the length of this JSON, the JSON, and the body's raw bytes.
type recordMeta struct {
	V        int               `json:"v"`
	Webhook  string            `json:"webhook"`
	At       int64             `json:"at"` // ms, when it was acknowledged
	Provider string            `json:"provider"`
	ID       string            `json:"id"`
	Method   string            `json:"method,omitempty"`
	Path     string            `json:"path,omitempty"`
	Headers  map[string]string `json:"headers,omitempty"`
	Priority queue.Priority    `json:"priority,omitempty"`
	MaxAge   time.Duration     `json:"max_age,omitempty"`
	Attempts int               `json:"attempts,omitempty"`
	Keep     time.Duration     `json:"keep,omitempty"`
}

func encodeRecord(webhook string, j queue.Job, at time.Time) ([]byte, error) {
	meta, err := json.Marshal(recordMeta{
		V: recordVersion, Webhook: webhook, At: at.UnixMilli(), Provider: j.Provider, ID: j.ID,
		Method: j.Method, Path: j.Path, Headers: j.Headers, Priority: j.Priority, MaxAge: j.MaxAge, Attempts: j.Attempts,
		Keep: j.Keep,
	})
	if err != nil {
		return nil, fmt.Errorf("spool: %w", err)
	}
	b := binary.AppendUvarint(make([]byte, 0, 8+len(meta)+len(j.Body)), uint64(len(meta)))
	return append(append(b, meta...), j.Body...), nil
}

func decodeRecord(b []byte) (recordMeta, queue.Job, error) {
	n, k := binary.Uvarint(b)
	if k <= 0 || n > uint64(len(b)-k) {
		return recordMeta{}, queue.Job{}, errors.New("spool: a record that cannot be read")
	}
	var m recordMeta
	if err := json.Unmarshal(b[k:k+int(n)], &m); err != nil {
		return recordMeta{}, queue.Job{}, fmt.Errorf("spool: a record that cannot be read: %w", err)
	}
	if m.V != recordVersion {
		return m, queue.Job{}, fmt.Errorf("spool: a record of version %d, which this release does not know", m.V)
	}
	return m, queue.Job{
		Provider: m.Provider, ID: m.ID, Method: m.Method, Path: m.Path, Headers: m.Headers, Body: b[k+int(n):],
		Priority: m.Priority, MaxAge: m.MaxAge, Attempts: m.Attempts, Keep: m.Keep,
	}, nil
}
