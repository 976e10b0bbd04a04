package limithttp

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

func header(kv ...string) http.Header {
	h := http.Header{}
	for i := 0; i < len(kv); i += 2 {
		h.Add(kv[i], kv[i+1])
	}
	return h
}

func TestReadFields(t *testing.T) {
	for _, c := range []struct {
		id     string
		h      http.Header
		wait   time.Duration
		limit  int64
		policy string
		none   bool
	}{
		{id: "IETF-03", h: header("RateLimit-Limit", "100, 100;w=60;burst=1000, 5000;w=3600", "RateLimit-Remaining", "0", "RateLimit-Reset", "50"), limit: 100, wait: 50 * time.Second},
		{id: "IETF-05", h: header("RateLimit-Limit", "100", "RateLimit-Remaining", "0", "RateLimit-Reset", "50", "RateLimit-Policy", "100;w=60"), limit: 100, wait: 50 * time.Second},
		{id: "IETF-05b", h: header("RateLimit-Remaining", "0", "RateLimit-Remaining", "5", "RateLimit-Reset", "50"), none: true},
		{id: "IETF-07", h: header("RateLimit", "limit=100, remaining=0, reset=5", "RateLimit-Policy", "100;w=60"), limit: 100, wait: 5 * time.Second},
		{id: "IETF-10a", h: header("RateLimit", `"default";r=0;t=30`, "RateLimit-Policy", `"default";q=100;w=60`), limit: 100, wait: 30 * time.Second, policy: "default"},
		{id: "IETF-10b", h: header("RateLimit", `"burst";r=0;t=7, "daily";r=412;t=36000`), limit: Unknown, wait: 7 * time.Second, policy: "burst"},
		{id: "IETF-10c", h: header("RateLimit", `"burst";r=0;t=7`, "RateLimit", `"daily";r=0;t=36000`), limit: Unknown, wait: 36000 * time.Second, policy: "burst"},
		{id: "IETF-10g", h: header("RateLimit", `"a;b,c=1";r=0;t=9;acme-x="1;2,3"`), limit: Unknown, wait: 9 * time.Second, policy: "a;b,c=1"},
		// 10i: a huge remaining is read as it stands; Wait can only slow a client down.
		{id: "IETF-10i", h: header("RateLimit", `"default";r=999999999;t=1`), limit: Unknown, policy: "default"},
		// 10j: the value is the parser's, how long to wait is the client's.
		{id: "IETF-10j", h: header("RateLimit", `"default";r=0;t=1000000`), limit: Unknown, wait: 1000000 * time.Second, policy: "default"},
		{id: "IETF-10k", h: header("RateLimit", `default;r=0;t=30`), limit: Unknown, wait: 30 * time.Second, policy: "default"},
		{id: "IETF-10l", h: header("RateLimit", `"default";r=50;t=30`), limit: Unknown, policy: "default"},

		{id: "no t", h: header("RateLimit", `"default";r=0;pk=:dHJpYWw=:`), limit: Unknown, policy: "default"},
		{id: "no r", h: header("RateLimit", `"default";t=3`), none: true},
		{id: "negative r", h: header("RateLimit", `"default";r=-1;t=3`), none: true},
		{id: "decimal t", h: header("RateLimit", `"default";r=0;t=3.5`), none: true},
		{id: "text t", h: header("RateLimit", `"default";r=0;t="3"`), none: true},
		{id: "inner list", h: header("RateLimit", `("default");r=0;t=3`), none: true},
		{id: "malformed", h: header("RateLimit", `"default;r=0;t=30`), none: true},
		{id: "trailing comma", h: header("RateLimit", `"default";r=0;t=30,`), none: true},
		{id: "too many digits", h: header("RateLimit", `"default";r=0;t=9999999999999999`), none: true},
		{id: "fifteen digits", h: header("RateLimit", `"default";r=0;t=999999999999999`), limit: Unknown, wait: maxSeconds * time.Second, policy: "default"},
		{id: "three, negative", h: header("RateLimit-Remaining", "-1", "RateLimit-Reset", "50"), none: true},
		{id: "three, plus", h: header("RateLimit-Remaining", "0", "RateLimit-Reset", "+50"), none: true},
		{id: "three, huge", h: header("RateLimit-Remaining", "0", "RateLimit-Reset", "99999999999999999999"), none: true},
		{id: "dictionary, no reset", h: header("RateLimit", "limit=100, remaining=0"), none: true},
		{id: "nothing", h: header(), none: true},
		{id: "empty", h: header("RateLimit", ""), none: true},
	} {
		t.Run(c.id, func(t *testing.T) {
			got := ReadFields(c.h)
			if c.none {
				if len(got) != 0 || Wait(got) != 0 {
					t.Errorf("%+v, want nothing", got)
				}
				return
			}
			if len(got) == 0 {
				t.Fatal("nothing read")
			}
			if Wait(got) != c.wait || got[0].Limit != c.limit || got[0].Policy != c.policy {
				t.Errorf("%+v, wait %s; want limit %d, wait %s, policy %q", got, Wait(got), c.limit, c.wait, c.policy)
			}
		})
	}
}

func FuzzReadFields(f *testing.F) {
	f.Add(`"default";r=0;t=30`, `"default";q=100;w=60`, "0", "50")
	f.Add("limit=100, remaining=0, reset=5", "100;w=60", "", "")
	f.Add(`("a" 1);r=1, ;;`, ":aa=:;q=?1", "100, 100;w=60", "@1")
	f.Fuzz(func(t *testing.T, limit, policy, remaining, reset string) {
		h := http.Header{"Ratelimit": strings.Split(limit, "\n"), "Ratelimit-Policy": {policy}, "Ratelimit-Remaining": {remaining}, "Ratelimit-Reset": {reset}}
		as := ReadFields(h)
		if w := Wait(as); w < 0 || w > maxSeconds*time.Second {
			t.Fatalf("wait %s of %+v", w, as)
		}
		for _, a := range as {
			if a.Remaining < Unknown || a.Limit < Unknown || a.Reset < Unknown || a.Window < Unknown {
				t.Fatalf("%+v", a)
			}
		}
	})
}
