package queue

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/penstock-io/penstock/queue/internal/layout"
)

// TestRefused: each refusal names its field, says what to do, and quotes no value.
func TestRefused(t *testing.T) {
	long := strings.Repeat("x", 200)
	rows := []struct {
		name, field string
		job         Job
	}{
		{"QUE-14 task:email", "provider", Job{Provider: "task:email"}},
		{"QUE-14 acme/eu", "provider", Job{Provider: "acme/eu"}},
		{"QUE-14 a+b", "provider", Job{Provider: "a+b"}},
		{"QUE-14 x#1", "provider", Job{Provider: "x#1"}},
		{"QUE-14 café", "provider", Job{Provider: "café-☕"}},
		{"QUE-14 a b", "provider", Job{Provider: "a b"}},
		{"QUE-14 ..", "provider", Job{Provider: ".."}},
		{"QUE-14 upper case", "provider", Job{Provider: "SMS"}},
		{"QUE-14 brace", "provider", Job{Provider: "x}y"}},
		{"QUE-14 dash first", "provider", Job{Provider: "-a"}},
		{"QUE-14 newline", "provider", Job{Provider: "a\n"}},
		{"QUE-14 empty", "provider", Job{}},
		{"QUE-14 long", "provider", Job{Provider: strings.Repeat("a", 64)}},
		{"QUE-15 provider", "provider", Job{Provider: "a\xff"}},
		{"QUE-15 id", "id", Job{Provider: "p", ID: "a\xff"}},
		{"QUE-15 type", "type", Job{Provider: "p", Type: "a\xff"}},
		{"QUE-15 path", "path", Job{Provider: "p", Path: "/\xff"}},
		{"QUE-15 header", "headers.X-A", Job{Provider: "p", Headers: map[string]string{"X-A": "\xff"}}},
		{"QUE-15 idempotency key", "idempotency_key", Job{Provider: "p", IdempotencyKey: "\xff"}},
		{"id long", "id", Job{Provider: "p", ID: strings.Repeat("é", 129)}},
		{"id control", "id", Job{Provider: "p", ID: "a\x00"}},
		{"id newline", "id", Job{Provider: "p", ID: "a\nb"}},
		{"id blank", "id", Job{Provider: "p", ID: "   "}},
		{"id space at the end", "id", Job{Provider: "p", ID: "a "}},
		{"id dots", "id", Job{Provider: "p", ID: ".."}},
		{"id invisible", "id", Job{Provider: "p", ID: "a\u200bb"}},
		{"id right to left", "id", Job{Provider: "p", ID: "a\u202eb"}},
		{"type control", "type", Job{Provider: "p", Type: "a\n"}},
		{"priority", "priority", Job{Provider: "p", Priority: "urgent"}},
		{"key", "key", Job{Provider: "p", Key: "tenant-7"}},
		{"callback", "callback", Job{Provider: "p", Callback: &Callback{Provider: "app"}}},
		{"method space", "method", Job{Provider: "p", Method: "PO ST"}},
		{"method newline", "method", Job{Provider: "p", Method: "GET\r\n"}},
		{"method lower", "method", Job{Provider: "p", Method: "post"}},
		{"method CONNECT", "method", Job{Provider: "p", Method: "CONNECT"}},
		{"method trace", "method", Job{Provider: "p", Method: "TRACE"}},
		{"method long", "method", Job{Provider: "p", Method: strings.Repeat("X", 33)}},
		{"path relative", "path", Job{Provider: "p", Path: "messages"}},
		{"path URL", "path", Job{Provider: "p", Path: "http://169.254.169.254/"}},
		{"path host", "path", Job{Provider: "p", Path: "//evil.example/x"}},
		{"path backslash", "path", Job{Provider: "p", Path: `/\evil.example`}},
		{"path dots", "path", Job{Provider: "p", Path: "/a/../../b"}},
		{"path encoded dots", "path", Job{Provider: "p", Path: "/a/%2e%2E/b"}},
		{"path encoded backslash dots", "path", Job{Provider: "p", Path: "/a%5c..%5cb"}},
		{"path encoded slash dots", "path", Job{Provider: "p", Path: "/a%2f..%2fb"}},
		{"path dots encoded twice", "path", Job{Provider: "p", Path: "/a/%252e%252E/b"}},
		{"path dots with a parameter", "path", Job{Provider: "p", Path: "/a/..;x=1/b"}},
		{"path encoded often", "path", Job{Provider: "p", Path: "/%252525252525252541"}},
		{"path encoded NUL", "path", Job{Provider: "p", Path: "/a%00b"}},
		{"path encoded newline", "path", Job{Provider: "p", Path: "/a%0d%0aX:1"}},
		{"path newline", "path", Job{Provider: "p", Path: "/a\nHost: x"}},
		{"path space", "path", Job{Provider: "p", Path: "/a b"}},
		{"path fragment", "path", Job{Provider: "p", Path: "/a#b"}},
		{"path escape", "path", Job{Provider: "p", Path: "/a%zz"}},
		{"path query escape", "path", Job{Provider: "p", Path: "/a?x=%zz"}},
		{"path long", "path", Job{Provider: "p", Path: "/" + strings.Repeat("a", MaxPath)}},
		{"header name", "headers", Job{Provider: "p", Headers: map[string]string{"X A": "1"}}},
		{"header empty name", "headers", Job{Provider: "p", Headers: map[string]string{"": "1"}}},
		{"header injection", "headers.X-A", Job{Provider: "p", Headers: map[string]string{"X-A": "1\r\nHost: x"}}},
		{"header twice", "headers.X-A", Job{Provider: "p", Headers: map[string]string{"X-A": "1", "x-a": "2"}}},
		{"header Host", "headers.Host", Job{Provider: "p", Headers: map[string]string{"host": "x"}}},
		{"header length", "headers.Content-Length", Job{Provider: "p", Headers: map[string]string{"content-length": "1"}}},
		{"header encoding", "headers.Transfer-Encoding", Job{Provider: "p", Headers: map[string]string{"Transfer-Encoding": "chunked"}}},
		{"headers large", "headers", Job{Provider: "p", Headers: map[string]string{"X-A": strings.Repeat("x", MaxHeaderSize)}}},
		{"idempotency key twice", "headers.Idempotency-Key", Job{Provider: "p", IdempotencyKey: "a", Headers: map[string]string{"idempotency-key": "b"}}},
		{"idempotency key long", "idempotency_key", Job{Provider: "p", IdempotencyKey: long + long}},
		{"idempotency key newline", "idempotency_key", Job{Provider: "p", IdempotencyKey: "a\nb"}},
		{"RET-15 delay", "delay", Job{Provider: "p", Delay: -5 * time.Second}},
		{"RET-15 max_age", "max_age", Job{Provider: "p", MaxAge: -5 * time.Second}},
		{"delay one ns below 0", "delay", Job{Provider: "p", Delay: -1}},
		{"delay overflow", "delay", Job{Provider: "p", Delay: math.MaxInt64}},
		{"max_age overflow", "max_age", Job{Provider: "p", MaxAge: math.MaxInt64}},
		{"delay and due", "delay", Job{Provider: "p", Delay: 1, Due: time.Now()}},
		{"due far", "due", Job{Provider: "p", Due: time.Now().AddDate(500, 0, 0)}},
		{"due before 1970", "due", Job{Provider: "p", Due: time.Unix(-1e12, 0)}},
		{"attempts", "attempts", Job{Provider: "p", Attempts: -1}},
		{"attempts many", "attempts", Job{Provider: "p", Attempts: math.MaxInt}},
		{"cost", "cost", Job{Provider: "p", Cost: -1}},
		{"cost overflow", "cost", Job{Provider: "p", Cost: math.MaxInt}},
		{"QUE-16 body", "body", Job{Provider: "p", Body: make([]byte, MaxBody+1)}},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			err := row.job.Validate()
			fe, ok := errors.AsType[*FieldError](err)
			if !ok || !errors.Is(err, ErrInvalid) {
				t.Fatalf("accepted, or another error: %v", err)
			}
			if fe.Field != row.field {
				t.Errorf("names %s, not %s: %v", fe.Field, row.field, err)
			}
			if !utf8.ValidString(err.Error()) {
				t.Errorf("the error is not valid UTF-8: %q", err)
			}
			if strings.HasPrefix(row.name, "QUE-15") && !strings.Contains(err.Error(), "UTF-8") && row.field != "type" && row.field != "idempotency_key" {
				t.Errorf("does not say why: %v", err)
			}
		})
	}
}

// TestAccepted: the edges that are inside.
func TestAccepted(t *testing.T) {
	for name, job := range map[string]Job{
		"least":            {Provider: "p"},
		"name":             {Provider: "0a._-" + strings.Repeat("z", 58)},
		"id":               {Provider: "p", ID: strings.Repeat("é", 128)},
		"id with signs":    {Provider: "p", ID: "a b/c:{d}%#?☕"},
		"path":             {Provider: "p", Path: "/a%20b/ü?x=1;y=2&z=%2F..%2F&u=http://x/"},
		"path three dots":  {Provider: "p", Path: "/.../.well-known"},
		"own method":       {Provider: "p", Method: "PURGE"},
		"type":             {Provider: "p", Type: "mail.send"},
		"RET-15 short":     {Provider: "p", Delay: 500 * time.Millisecond, MaxAge: 500 * time.Millisecond},
		"delay":            {Provider: "p", Delay: MaxDelay},
		"due long ago":     {Provider: "p", Due: time.Unix(0, 0)},
		"header":           {Provider: "p", Headers: map[string]string{"content-type": "text/plain; charset=ü"}},
		"idempotency same": {Provider: "p", IdempotencyKey: "a", Headers: map[string]string{"idempotency-key": "a"}},
		"numbers":          {Provider: "p", Attempts: MaxAttempts, Cost: MaxCost},
		"body":             {Provider: "p", Body: []byte("\xff\x00")},
	} {
		if err := job.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestNormalLeavesTheJobAlone: what the caller's job points to is not changed.
func TestNormalLeavesTheJobAlone(t *testing.T) {
	h := map[string]string{"idempotency-key": "k", "x-b": " v "}
	n, err := Job{Provider: "p", Headers: h}.normal()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"idempotency-key": "k", "x-b": " v "}, h); diff != "" {
		t.Error(diff)
	}
	if n.IdempotencyKey != "k" || n.Method != "POST" || n.Cost != 1 || n.Priority != PriorityDefault {
		t.Errorf("%+v", n)
	}
	if diff := cmp.Diff(map[string]string{"X-B": "v"}, n.Headers); diff != "" {
		t.Error(diff)
	}
}

// TestContentHash: every field of the content counts, id, provider and keep do not,
// and spelling a default out does not.
func TestContentHash(t *testing.T) {
	hash := func(j Job) string {
		n, err := j.normal()
		if err != nil {
			t.Fatal(err)
		}
		return contentHash(n)
	}
	base := Job{Provider: "p"}
	same := []Job{
		{Provider: "q"}, {Provider: "p", ID: "x"}, {Provider: "p", Method: "POST"},
		{Provider: "p", Keep: time.Hour}, {Provider: "p", Cost: 1, Priority: PriorityDefault}, {Provider: "p", Headers: map[string]string{}}, {Provider: "p", Body: []byte{}},
	}
	for _, j := range same {
		if hash(j) != hash(base) {
			t.Errorf("%+v has another hash", j)
		}
	}
	now := time.Now()
	seen := map[string]Job{hash(base): base}
	for _, j := range []Job{
		{Method: "PUT"}, {Type: "t"}, {Path: "/a"}, {Body: []byte("a")}, {Headers: map[string]string{"a": "b"}}, {Headers: map[string]string{"a": "c"}},
		{Headers: map[string]string{"a": "b", "c": "d"}}, {IdempotencyKey: "k"}, {Priority: PriorityHigh}, {Delay: time.Second}, {Due: now},
		{MaxAge: time.Second}, {Attempts: 1}, {Cost: 2}, {Path: "/ab"}, {Body: []byte("ab")},
	} {
		j.Provider = "p"
		h := hash(j)
		if old, ok := seen[h]; ok {
			t.Errorf("%+v and %+v have one hash", old, j)
		}
		seen[h] = j
	}
	// Two releases may share a Redis: this is the hash of the first one.
	if got := hash(Job{Provider: "p", Path: "/m", Body: []byte("x")}); got != goldenHash {
		t.Errorf("the content hash has changed to %s: jobs in Redis would seem to have other content", got)
	}
}

const goldenHash = "Vgu6xw5m0JW9xRXeAYH1VQ"

// FuzzValidate: whatever is accepted can be stored and read back as it was.
func FuzzValidate(f *testing.F) {
	f.Add("sms", "id", "t", "POST", "/a?b=c", "X-A", "v", "key", "high", int64(1), int64(2), 3, 4)
	f.Add("a}b", "\xff", "\n", "GET ", "//x", "Host", "a\r\nb", "\x00", "urgent", int64(-1), int64(math.MaxInt64), -3, math.MaxInt)
	f.Add("p", "..", "", "", "/%2e%2e/", "", "", "", "", int64(math.MinInt64), int64(math.MinInt64), math.MinInt, 0)
	f.Add("p", "é☕", "", "PURGE", "/ü?q=%ff", "x-é", "ü", "", "low", int64(0), int64(0), 0, 0)
	f.Fuzz(func(t *testing.T, provider, id, typ, method, path, hk, hv, ik, prio string, delay, maxAge int64, attempts, cost int) {
		j := Job{Provider: provider, ID: id, Type: typ, Method: method, Path: path, IdempotencyKey: ik, Priority: Priority(prio),
			Delay: time.Duration(delay), MaxAge: time.Duration(maxAge), Attempts: attempts, Cost: cost, Headers: map[string]string{hk: hv}}
		n, err := j.normal()
		if err != nil {
			if _, ok := errors.AsType[*FieldError](err); !ok || !errors.Is(err, ErrInvalid) {
				t.Fatalf("%v names no field", err)
			}
			return
		}
		env := layout.Envelope{Version: layout.Version, Type: n.Type, Method: n.Method, Path: n.Path, Headers: n.Headers, Priority: n.Priority,
			Allowed: n.Attempts, Cost: n.Cost, MaxAge: ceilMS(n.MaxAge), Due: ceilMS(n.Delay), IdempotencyKey: n.IdempotencyKey}
		h, err := env.Encode()
		if err != nil {
			t.Fatalf("accepted, but not stored: %v", err)
		}
		back, err := layout.Decode(h)
		if err != nil {
			t.Fatalf("stored, but not read: %v", err)
		}
		if len(env.Headers) == 0 {
			env.Headers = nil
		}
		if diff := cmp.Diff(env, back); diff != "" {
			t.Fatal(diff)
		}
		again, err := n.normal()
		if err != nil || contentHash(again) != contentHash(n) {
			t.Fatalf("a normal job is not normal: %v", err)
		}
	})
}

func TestRedact(t *testing.T) {
	for in, want := range map[string]string{
		"/a":                            "/a",
		"/a?x=1":                        "/a?x=1",
		"/a?token=s&x=1":                "/a?token=" + Redacted + "&x=1",
		"/a?x=1&API%5FKey=s":            "/a?x=1&API%5FKey=" + Redacted,
		"/a?signature":                  "/a?signature=" + Redacted,
		"/a?x=1;password=s&password=s;": "/a?x=1;password=" + Redacted + "&password=" + Redacted + ";",
	} {
		if got := redactPath(in); got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
	got := redactHeaders(map[string]string{"Authorization": "s", "X-Auth": "s", "Cookie": "s", "X-Csrf-Token": "s", "Stripe-Signature": "s", "Accept": "v"})
	if fmt.Sprint(got) != fmt.Sprint(map[string]string{"Authorization": Redacted, "X-Auth": Redacted, "Cookie": Redacted, "X-Csrf-Token": Redacted, "Stripe-Signature": Redacted, "Accept": "v"}) {
		t.Error(got)
	}
}
