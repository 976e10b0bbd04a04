package layout

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestKeys(t *testing.T) {
	k := For("shop", "sms")
	for got, want := range map[string]string{
		k.Queue:               "shop.sms",
		k.Own(Spec):           "penstock:{shop.sms}:spec",
		k.Asynq("pending"):    "asynq:{shop.sms}:pending",
		k.Task("a:b"):         "asynq:{shop.sms}:t:a:b",
		k.Tombstone("a"):      "penstock:{shop.sms}:id:a",
		k.Body("a"):           "penstock:{shop.sms}:body:a",
		k.Lane(High):          "penstock:{shop.sms}:lane:high",
		k.Owner("p"):          "penstock:{shop.sms}:owner:p",
		k.Done(Dead):          "penstock:{shop.sms}:done:dead",
		For("", "sms").Queue:  "sms",
		Providers(""):         "penstock:providers",
		Providers("shop"):     "penstock:shop:providers",
		DoneName(Expired):     "done:expired",
		TombstoneName("id/1"): "id:id/1",
	} {
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

func TestParkScore(t *testing.T) {
	const now = 1796040000_500
	for due, want := range map[int64]int64{
		0: Far, now: Far, now + 1: Far + 1796040001, now + 500: Far + 1796040001, now + 501: Far + 1796040002,
	} {
		if got := ParkScore(due, now); got != want {
			t.Errorf("due %d: %d, want %d", due, got, want)
		}
	}
}

func TestTombstone(t *testing.T) {
	in := Tombstone{State: Dead, Hash: "h", Attempts: 3, At: 1796040000123, Reason: "he said \"no\" ☕", Status: 422}
	out, err := ParseTombstone(in.Encode())
	if err != nil || out != in {
		t.Errorf("%+v, %v", out, err)
	}
	for _, bad := range []string{"", "{}", "null", "[]", `{"s":"running"}`, `{"s":"dead","a":"x"}`, "OK"} {
		if _, err := ParseTombstone(bad); err == nil {
			t.Errorf("%q was read", bad)
		}
	}
}

// TestEnvelopeRoundTrip: what is encoded is decoded, whatever it is.
func TestEnvelopeRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		num := rapid.IntRange(0, 1<<31-1)
		ms := rapid.Int64Range(0, 1<<53)
		s := rapid.String()
		in := Envelope{
			Version: Version, Type: s.Draw(t, "type"), Method: s.Draw(t, "method"), Path: s.Draw(t, "path"),
			Headers: rapid.MapOfN(s, s, 0, 5).Draw(t, "headers"), Key: s.Draw(t, "key"),
			Priority: rapid.SampledFrom([]Priority{High, Default, Low}).Draw(t, "priority"),
			Allowed:  num.Draw(t, "allowed"), Cost: max(1, num.Draw(t, "cost")),
			Accepted: ms.Draw(t, "accepted"), Due: ms.Draw(t, "due"), Expires: ms.Draw(t, "expires"), MaxAge: ms.Draw(t, "age"),
			IdempotencyKey: s.Draw(t, "ik"), Hash: s.Draw(t, "hash"), BodyKey: rapid.Bool().Draw(t, "bk"), Size: num.Draw(t, "size"),
			Progress: Progress{Attempts: num.Draw(t, "a"), Deferrals: num.Draw(t, "d"), Throttles: num.Draw(t, "t"),
				Crashes: num.Draw(t, "x"), Status: num.Draw(t, "s"), LastError: Short(s.Draw(t, "e"))},
		}
		if len(in.Headers) == 0 {
			in.Headers = nil
		}
		if in.Method == "" && in.Type == "" {
			in.Method = "POST"
		}
		if rapid.Bool().Draw(t, "at once") {
			in.Due = in.Accepted
		}
		h, err := in.Encode()
		if err != nil {
			t.Fatal(err)
		}
		out, err := Decode(h)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(in, out); diff != "" {
			t.Fatal(diff)
		}
		// And what the worker stores replaces what was there.
		p := Progress{Attempts: 1, LastError: "x"}
		p.Store(h)
		if out, err = Decode(h); err != nil || out.Progress != p {
			t.Fatalf("%+v, %v", out.Progress, err)
		}
	})
}

func TestDecodeRefuses(t *testing.T) {
	for name, h := range map[string]map[string]string{
		"nothing":        nil,
		"no version":     {"p-m": "POST"},
		"version 0":      {"p-v": "0"},
		"bad number":     {"p-v": "1", "p-n": "1e3"},
		"negative":       {"p-v": "1", "p-a": "-1"},
		"too large":      {"p-v": "1", "p-a": "99999999999"},
		"overflow":       {"p-v": "1", "p-due": "99999999999999999999"},
		"priority":       {"p-v": "1", "p-pr": "urgent"},
		"headers":        {"p-v": "1", "p-h": "{"},
		"headers' types": {"p-v": "1", "p-h": `{"a":1}`},
	} {
		if e, err := Decode(h); err == nil {
			t.Errorf("%s: read as %+v", name, e)
		}
	}
	// A later release adds fields; this one still reads the job.
	if e, err := Decode(map[string]string{"p-v": "2", "p-new": "x", "p-m": "PUT"}); err != nil || e.Method != "PUT" {
		t.Errorf("a later version: %+v, %v", e, err)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add("1", "15", "{}", "high", "9223372036854775807")
	f.Add("", "-1", "[", "", "0x10")
	f.Add("1", "2147483648", `{"a":"b"}`, "low", "-0")
	f.Fuzz(func(t *testing.T, v, n, h, pr, due string) {
		e, err := Decode(map[string]string{"p-v": v, "p-n": n, "p-h": h, "p-pr": pr, "p-due": due})
		if err == nil && (e.Version < 1 || e.Allowed < 0 || e.Due < 0 || e.Cost < 1 || !e.Priority.Valid()) {
			t.Fatalf("%+v", e)
		}
	})
}

func FuzzParseMessage(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte("\x0a\x03abc\x12\x01x\x7a\x06\x0a\x01k\x12\x01v"))
	f.Add([]byte("\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"))
	f.Add(CompletedSuffix(1, 2, "e"))
	f.Add(ReplaySuffix(map[string]string{"a": "b"}))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := ParseMessage(b)
		if err != nil {
			return
		}
		again, err := ParseMessage(append(b[:len(b):len(b)], CompletedSuffix(7, 8, "why")...))
		if err != nil || again.Completed != 7 || again.Retention != 8 || again.ErrorMsg != "why" || again.ID != m.ID {
			t.Fatalf("%+v, %v", again, err)
		}
		again, err = ParseMessage(append(b[:len(b):len(b)], ReplaySuffix(map[string]string{"p-a": "0"})...))
		if err != nil || again.Completed != 0 || again.Retention != 0 || again.Retried != 0 || again.ErrorMsg != "" || again.Headers["p-a"] != "0" {
			t.Fatalf("%+v, %v", again, err)
		}
	})
}

func TestShort(t *testing.T) {
	for _, in := range []string{"", "a", "a\r\nb\x00", strings.Repeat("é", MaxError), "a" + strings.Repeat("☕", MaxError), "\xff\xfe"} {
		got := Short(in)
		if len(got) > MaxError || !utf8.ValidString(got) || strings.ContainsAny(got, "\r\n\x00") {
			t.Errorf("%q: %q", in, got)
		}
	}
}

func TestStates(t *testing.T) {
	for _, s := range States() {
		if !s.Valid() {
			t.Errorf("%s is not valid", s)
		}
	}
	if len(States()) != 8 || len(FinalStates()) != 4 || State("").Valid() || Waiting.Final() {
		t.Error("the states have changed")
	}
}
