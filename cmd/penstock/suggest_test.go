package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/penstock-io/penstock/internal/config"
	"github.com/penstock-io/penstock/internal/redistest"
)

// As a user sees it: two minutes of calls stand in Redis, of one provider that
// is well, and of one that refuses.
func TestSuggest(t *testing.T) {
	server := redistest.Start(t)
	rdb := server.Client()
	now, err := rdb.Time(t.Context()).Result()
	if err != nil {
		t.Fatal(err)
	}
	for i := int64(120); i > 0; i-- {
		at := now.Unix() - i
		for queue, counts := range map[string]string{"sms": "40 40 0 0 0 0|20:40", "email": "10 8 2 0 0 0|30:8"} {
			if err := rdb.LPush(t.Context(), "penstock:{"+queue+"}:seconds", fmt.Sprintf("%d %s", at, counts)).Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	url, stop, err := serveHere(fmt.Sprintf(`redis: redis://%s
listen: 127.0.0.1:0
providers:
  sms: {base_url: "http://127.0.0.1:1", rate: 100/s, concurrency: 20}
  email: {base_url: "http://127.0.0.1:1", rate: 10/s}
`, server.Addr))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	}()
	suggest := func(args ...string) string {
		t.Helper()
		var out, errs bytes.Buffer
		if code := run(t.Context(), append([]string{"suggest", "--server", url}, args...), strings.NewReader(""), &out, &errs); code != exitDone || errs.Len() > 0 {
			t.Fatalf("exit code %d: %s", code, errs.String())
		}
		return out.String()
	}
	all := suggest()
	t.Logf("\n%s", all)
	plain := strings.Join(strings.Fields(strings.ReplaceAll(all, "#", "")), " ")
	for _, want := range []string{
		"demand p50 40/s p95 40/s p99 40/s limit 100/s", "calls 1200 refused 240 failed 0", "in flight about 1.2 now 0 limit 20",
		"accepted 8/s while it did", "rate: 456/m", "nothing was refused; a fifth above that", "rate: 48/s", "keeps 1.28 calls in flight", "concurrency: 2", "timeout: 1s",
	} {
		if !strings.Contains(plain, want) {
			t.Errorf("it does not say %q", want)
		}
	}
	if one := suggest("email", "--json"); !strings.Contains(one, `"provider":"email"`) || !strings.Contains(one, `"enough":true`) || strings.Count(one, "\n") != 1 {
		t.Errorf("as JSON %s", one)
	}
	// What is to be pasted is read.
	for _, part := range strings.Split(all, "\nproviders:\n")[1:] {
		block, _, _ := strings.Cut(part, "\n\n")
		name, rest, _ := strings.Cut(block, "\n")
		conf := "providers:\n" + name + "\n    base_url: https://provider.example\n" + rest + "\n"
		if cfg, rep := config.Parse("pasted.yaml", []byte(conf), func(string) (string, bool) { return "", false }); cfg == nil {
			t.Errorf("%s\n%s", conf, rep)
		}
	}
}
