package worker

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/penstock-io/penstock/queue/internal/layout"
)

// Fields of asynq's TaskMessage that a retry changes (asynq.proto, v0.26.0).
// The others are copied byte by byte, those of later versions too.
const (
	fieldRetried    protowire.Number = 6
	fieldError      protowire.Number = 7
	fieldLastFailed protowire.Number = 11
	fieldLock       protowire.Number = 10
	fieldHeaders    protowire.Number = 15
)

// change is what a retry changes in a stored message.
type change struct {
	headers map[string]string
	errMsg  string
	atS     int64
	retried bool // one more
}

// rewrite applies a change to a stored message, as asynq's own Retry would.
func rewrite(raw string, c change) (string, error) {
	in := []byte(raw)
	out := make([]byte, 0, len(in)+64)
	retried := int64(0)
	for len(in) > 0 {
		num, typ, n := protowire.ConsumeTag(in)
		if n < 0 {
			return "", fmt.Errorf("task message: %w", protowire.ParseError(n))
		}
		m := protowire.ConsumeFieldValue(num, typ, in[n:])
		if m < 0 {
			return "", fmt.Errorf("task message: %w", protowire.ParseError(m))
		}
		switch num {
		case fieldRetried:
			v, _ := protowire.ConsumeVarint(in[n:])
			retried = int64(v)
		case fieldError, fieldLastFailed, fieldHeaders:
		default:
			out = append(out, in[:n+m]...)
		}
		in = in[n+m:]
	}
	if c.retried {
		retried++
	}
	number := func(f protowire.Number, v int64) {
		if v != 0 {
			out = protowire.AppendTag(out, f, protowire.VarintType)
			out = protowire.AppendVarint(out, uint64(v))
		}
	}
	number(fieldRetried, retried)
	number(fieldLastFailed, c.atS)
	if c.errMsg != "" {
		out = protowire.AppendTag(out, fieldError, protowire.BytesType)
		out = protowire.AppendString(out, layout.Short(c.errMsg))
	}
	for _, k := range slices.Sorted(maps.Keys(c.headers)) {
		var e []byte
		e = protowire.AppendTag(e, 1, protowire.BytesType)
		e = protowire.AppendString(e, k)
		e = protowire.AppendTag(e, 2, protowire.BytesType)
		e = protowire.AppendString(e, c.headers[k])
		out = protowire.AppendTag(out, fieldHeaders, protowire.BytesType)
		out = protowire.AppendBytes(out, e)
	}
	return string(out), nil
}

// expiresMark is how the header p-exp stands in a stored message; take.lua
// looks for the same bytes.
const expiresMark = "\n\x05p-exp\x12"

// expiresOf finds the header p-exp (ms) without decoding the message.
func expiresOf(raw string) (int64, bool) {
	at := strings.LastIndex(raw, expiresMark) // a replay appends its headers
	if at < 0 {
		return 0, false
	}
	rest := raw[at+len(expiresMark):]
	if len(rest) < 2 {
		return 0, false
	}
	n := int(rest[0])
	if n > 20 || len(rest) < 1+n {
		return 0, false
	}
	ms, err := strconv.ParseInt(rest[1:1+n], 10, 64)
	return ms, err == nil
}

// lockOf is the key of asynq's unique lock in a stored message; empty: none.
func lockOf(raw string) string {
	for in := []byte(raw); len(in) > 0; {
		num, typ, n := protowire.ConsumeTag(in)
		if n < 0 {
			return ""
		}
		m := protowire.ConsumeFieldValue(num, typ, in[n:])
		if m < 0 {
			return ""
		}
		if num == fieldLock && typ == protowire.BytesType {
			key, _ := protowire.ConsumeString(in[n:])
			return key
		}
		in = in[n+m:]
	}
	return ""
}
