package layout

import (
	"fmt"
	"maps"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
)

// Field numbers of asynq's TaskMessage (internal/proto/asynq.proto, v0.26.0),
// which asynq exports neither encoder nor decoder for. Tests of package queue
// compare both with asynq's own.
const (
	fType        = 1
	fPayload     = 2
	fID          = 3
	fQueue       = 4
	fRetry       = 5
	fRetried     = 6
	fErrorMsg    = 7
	fTimeout     = 8
	fLastFailed  = 11
	fRetention   = 12
	fCompletedAt = 13
	fHeaders     = 15
)

// Message is what Penstock reads of asynq's stored task message.
type Message struct {
	Type      string
	Payload   []byte
	ID        string
	Queue     string
	Retried   int
	ErrorMsg  string
	Headers   map[string]string
	Retention int64 // s
	Completed int64 // Unix s
}

// NewMessage writes the task message that asynq's client would write for a new
// task with the envelope as its headers. Strings must be valid UTF-8.
func NewMessage(id, queue string, payload []byte, timeoutS int64, e Envelope) ([]byte, error) {
	b := make([]byte, 0, 256+len(id)+len(e.Path)+len(payload))
	typename := TaskHTTP
	if e.Type != "" {
		typename = TaskJob
	}
	b = appendString(b, fType, typename)
	if len(payload) > 0 {
		b = protowire.AppendTag(b, fPayload, protowire.BytesType)
		b = protowire.AppendBytes(b, payload)
	}
	b = appendString(b, fID, id)
	b = appendString(b, fQueue, queue)
	b = appendVarint(b, fRetry, AsynqMaxRetry)
	b = appendVarint(b, fTimeout, timeoutS)
	err := e.each(func(k, v string) { b = appendHeader(b, k, v) })
	return b, err
}

// ParseMessage reads asynq's protobuf. Unknown fields are skipped.
func ParseMessage(b []byte) (Message, error) {
	var m Message
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return m, fmt.Errorf("task message: %w", protowire.ParseError(n))
		}
		b = b[n:]
		switch typ {
		case protowire.BytesType:
			v, n := protowire.ConsumeBytes(b)
			if n < 0 {
				return m, fmt.Errorf("task message: %w", protowire.ParseError(n))
			}
			if err := m.setBytes(int(num), v); err != nil {
				return m, err
			}
			b = b[n:]
		case protowire.VarintType:
			v, n := protowire.ConsumeVarint(b)
			if n < 0 {
				return m, fmt.Errorf("task message: %w", protowire.ParseError(n))
			}
			m.setInt(int(num), int64(v))
			b = b[n:]
		default:
			n := protowire.ConsumeFieldValue(num, typ, b)
			if n < 0 {
				return m, fmt.Errorf("task message: %w", protowire.ParseError(n))
			}
			b = b[n:]
		}
	}
	return m, nil
}

func (m *Message) setBytes(num int, v []byte) error {
	switch num {
	case fType:
		m.Type = string(v)
	case fPayload:
		m.Payload = slices.Clone(v)
	case fID:
		m.ID = string(v)
	case fQueue:
		m.Queue = string(v)
	case fErrorMsg:
		m.ErrorMsg = string(v)
	case fHeaders:
		k, val, err := mapEntry(v)
		if err != nil {
			return err
		}
		if m.Headers == nil {
			m.Headers = make(map[string]string, 12)
		}
		m.Headers[k] = val
	}
	return nil
}

func (m *Message) setInt(num int, v int64) {
	switch num {
	case fRetried:
		m.Retried = int(v)
	case fRetention:
		m.Retention = v
	case fCompletedAt:
		m.Completed = v
	}
}

func mapEntry(b []byte) (k, v string, err error) {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 || typ != protowire.BytesType {
			return "", "", fmt.Errorf("task message: bad header entry")
		}
		b = b[n:]
		s, n := protowire.ConsumeBytes(b)
		if n < 0 {
			return "", "", fmt.Errorf("task message: %w", protowire.ParseError(n))
		}
		b = b[n:]
		switch num {
		case 1:
			k = string(s)
		case 2:
			v = string(s)
		}
	}
	return k, v, nil
}

// CompletedSuffix is what a script appends to a stored task message to make
// it one of a completed task, which asynq and asynqmon keep and show for
// retentionS seconds: in protobuf a later field wins.
func CompletedSuffix(atS, retentionS int64, errMsg string) []byte {
	var b []byte
	b = appendVarint(b, fRetention, retentionS)
	b = appendVarint(b, fCompletedAt, atS)
	if errMsg != "" {
		b = appendString(b, fErrorMsg, Short(errMsg))
		b = appendVarint(b, fLastFailed, atS)
	}
	return b
}

// ReplaySuffix is what a script appends to the message of a completed task to
// make it one that never ran, with the given headers in place of the old ones.
func ReplaySuffix(headers map[string]string) []byte {
	var b []byte
	for _, f := range []protowire.Number{fRetried, fLastFailed, fRetention, fCompletedAt} {
		b = appendVarint(b, f, 0)
	}
	b = appendString(b, fErrorMsg, "")
	for _, k := range slices.Sorted(maps.Keys(headers)) {
		b = appendHeader(b, k, headers[k])
	}
	return b
}

// appendHeader appends one entry of the map of headers.
func appendHeader(b []byte, k, v string) []byte {
	n := protowire.SizeTag(1) + protowire.SizeBytes(len(k)) + protowire.SizeTag(2) + protowire.SizeBytes(len(v))
	b = protowire.AppendTag(b, fHeaders, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(n))
	return appendString(appendString(b, 1, k), 2, v)
}

func appendString(b []byte, f protowire.Number, v string) []byte {
	return protowire.AppendString(protowire.AppendTag(b, f, protowire.BytesType), v)
}

func appendVarint(b []byte, f protowire.Number, v int64) []byte {
	b = protowire.AppendTag(b, f, protowire.VarintType)
	return protowire.AppendVarint(b, uint64(v))
}
