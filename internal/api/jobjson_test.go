package api

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/penstock-io/penstock/queue"
)

func TestDecodeJob(t *testing.T) {
	for _, tt := range []struct {
		name, src string
		want      queue.Job
	}{
		{"the contract's own", `{"provider":"sms","method":"POST","path":"/messages","headers":{"X-A":"1"},"body":"…","key":"tenant-7","id":"i","priority":"high","delay":"5s","max_age":"10m","attempts":8,"cost":1}`,
			queue.Job{Provider: "sms", Method: "POST", Path: "/messages", Headers: map[string]string{"X-A": "1"}, Body: []byte("…"), Key: "tenant-7", ID: "i",
				Priority: queue.PriorityHigh, Delay: 5 * time.Second, MaxAge: 10 * time.Minute, Attempts: 8, Cost: 1}},
		{"QUE-17 large numbers stay as they are", `{"provider":"p","body": {"id": 9007199254740993, "amount": 1e400, "big": 123456789012345678901234567890}  }`,
			queue.Job{Provider: "p", Headers: map[string]string{"Content-Type": "application/json"}, Body: []byte(`{"id": 9007199254740993, "amount": 1e400, "big": 123456789012345678901234567890}`)}},
		{"JSON keeps spaces, order, repeats and escapes", "{\"provider\":\"p\",\"body\":[ 1.0,\n{\"b\":1,\"a\":2,\"a\":3},\"\\u00e9\\/\" ]}",
			queue.Job{Provider: "p", Headers: map[string]string{"Content-Type": "application/json"}, Body: []byte("[ 1.0,\n{\"b\":1,\"a\":2,\"a\":3},\"\\u00e9\\/\" ]")}},
		{"a content type of the job's own, before and behind", `{"headers":{"content-type":"application/vnd.x+json"},"body":{},"provider":"p"}`,
			queue.Job{Provider: "p", Headers: map[string]string{"content-type": "application/vnd.x+json"}, Body: []byte("{}")}},
		{"other JSON", `{"provider":"p","body":false}`, queue.Job{Provider: "p", Headers: map[string]string{"Content-Type": "application/json"}, Body: []byte("false")}},
		{"null is nothing", `{"provider":"p","body":null,"id":null,"headers":null,"delay":null,"attempts":null,"callback":null}`, queue.Job{Provider: "p"}},
		{"text with escapes", `{"provider":"p","body":"a\n\u0000\ud83d\ude00\ufffd"}`, queue.Job{Provider: "p", Body: []byte("a\n\x00😀\uFFFD")}},
		{"binary", `{"provider":"p","body_base64":"/wD+"}`, queue.Job{Provider: "p", Body: []byte{0xff, 0, 0xfe}}},
		{"an idempotency key", `{"provider":"p","idempotency_key":"k"}`, queue.Job{Provider: "p", IdempotencyKey: "k"}},
		{"an empty body", `{"provider":"p","body":""}`, queue.Job{Provider: "p", Body: []byte{}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := DecodeJob([]byte(tt.src))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestDecodeJobRefuses(t *testing.T) {
	for _, tt := range []struct{ name, src, field, says string }{
		{"nothing", ``, "", "cut off or missing"},
		{"cut off", `{"provider":"p"`, "", "cut off"},
		{"not an object", `["p"]`, "", "must be a JSON object"},
		{"garbage behind it", `{"provider":"p"} x`, "", "behind"},
		{"two objects", `{"provider":"p"}{"provider":"p"}`, "", "jobs:batch"},
		{"an unknown field", `{"provder":"p"}`, "provder", "did you mean provider?"},
		{"another case", `{"Provider":"p"}`, "Provider", "did you mean provider?"},
		{"a plural", `{"provider":"p","priorities":"high"}`, "priorities", "known:"},
		{"a field twice", `{"provider":"p","path":"/a","path":"/b"}`, "path", "twice"},
		{"a header twice", `{"provider":"p","headers":{"A":"1","A":"2"}}`, "headers.A", "twice"},
		{"a header that is a number", `{"provider":"p","headers":{"A":1}}`, "headers.A", "quotes"},
		{"a header that is null", `{"provider":"p","headers":{"A":null}}`, "headers.A", "null"},
		{"headers that are a list", `{"provider":"p","headers":[]}`, "headers", "object"},
		{"text that is a number", `{"provider":5}`, "provider", "quotes"},
		{"a number that is text", `{"provider":"p","attempts":"8"}`, "attempts", "whole number"},
		{"a fraction", `{"provider":"p","cost":1.5}`, "cost", "whole number"},
		{"zero attempts", `{"provider":"p","attempts":0}`, "attempts", "at least 1"},
		{"negative cost", `{"provider":"p","cost":-1}`, "cost", "at least 1"},
		{"an overflowing number", `{"provider":"p","attempts":99999999999999999999}`, "attempts", "whole number"},
		{"a time without unit", `{"provider":"p","delay":5}`, "delay", "must be text"},
		{"not a time", `{"provider":"p","delay":"soon"}`, "delay", "not a time"},
		{"RET-15 max_age zero", `{"provider":"p","max_age":"0s"}`, "max_age", "longer than 0"},
		{"two bodies", `{"provider":"p","body":"","body_base64":""}`, "body_base64", "beside body"},
		{"not base64", `{"provider":"p","body_base64":"a"}`, "body_base64", "not base64"},
		{"base64 of URLs", `{"provider":"p","body_base64":"_w=="}`, "body_base64", "standard"},
		{"half a surrogate pair", `{"provider":"p","body":"\ud800"}`, "body", "surrogate"},
		{"the other half", `{"provider":"p","body":"\\\udc00 "}`, "body", "surrogate"},
		{"two first halves", `{"provider":"p","path":"\ud800\ud800"}`, "path", "surrogate"},
		{"a byte order mark", "\ufeff{\"provider\":\"p\"}", "", "byte order mark"},
		{"QUE-15 not UTF-8", "{\"provider\":\"p\",\"id\":\"\xff\"}", "", "not valid UTF-8"},
		{"an empty id", `{"provider":"p","id":""}`, "id", "empty"},
		{"a callback", `{"provider":"p","callback":{"provider":"app","path":"/done"}}`, "callback", "not built yet"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := DecodeJob([]byte(tt.src))
			p, ok := errors.AsType[*Problem](err)
			if !ok || p.Code != CodeInvalid || p.Field != tt.field || !strings.Contains(p.Error(), tt.says) {
				t.Errorf("got %#v, want field %q and %q", err, tt.field, tt.says)
			}
		})
	}
}

// The flags of `penstock enqueue` are made of JobFields: every field that the
// decoder knows must stand there, and the other way round.
func TestJobFieldsAreKnown(t *testing.T) {
	for _, f := range JobFields {
		if _, err := DecodeJob([]byte(`{"` + f + `":null}`)); err != nil {
			t.Errorf("%s: %v", f, err)
		}
	}
	if n := reflect.TypeFor[queue.Job]().NumField(); n < len(JobFields)-2 || !slices.Contains(JobFields, "provider") {
		t.Errorf("a job has %d fields", n)
	}
}

// FuzzDecodeJob: no text makes the decoder panic, and a JSON body that it takes
// stands in the source byte for byte.
func FuzzDecodeJob(f *testing.F) {
	for _, s := range []string{`{"provider":"p","body":{"a":[1,2.0,"\u00e9"]}}`, `{"provider":"p","headers":{"A":"1"},"body":"\ud83d\ude00"}`,
		`{"a":1,"a":2}`, `[`, `{"provider":"p","body_base64":"AAAA","delay":"5s"}`, "{\"id\":\"\xff\"}"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, src string) {
		j, err := DecodeJob([]byte(src))
		if err == nil && j.Headers["Content-Type"] == "application/json" && !strings.Contains(src, string(j.Body)) {
			t.Errorf("body %q is not in %q", j.Body, src)
		}
	})
}
