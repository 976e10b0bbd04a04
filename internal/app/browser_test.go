package app

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/penstock-io/penstock/internal/redistest"
	"github.com/penstock-io/penstock/queue"
)

// browser is a headless Chromium and what its pages did.
type browser struct {
	t   *testing.T
	ctx context.Context

	mu       sync.Mutex
	requests []string
	faults   []string // errors on the console, of scripts, of the content policy
}

// openBrowser starts a browser that can reach loopback only. Without Chromium
// the test is skipped, or fails where PENSTOCK_BROWSER=required (make test).
func openBrowser(t *testing.T) *browser {
	t.Helper()
	var path string
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if p, err := exec.LookPath(name); err == nil {
			path = p
			break
		}
	}
	if path == "" {
		const say = "there is no Chromium: apt-get install -y chromium"
		if os.Getenv("PENSTOCK_BROWSER") == "required" {
			t.Fatal(say)
		}
		t.Skip(say)
	}
	opts := []chromedp.ExecAllocatorOption{
		chromedp.ExecPath(path), chromedp.UserDataDir(t.TempDir()), chromedp.NoFirstRun, chromedp.NoDefaultBrowserCheck,
		chromedp.Headless, chromedp.NoSandbox, chromedp.DisableGPU, chromedp.WindowSize(1280, 800),
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-background-networking", true),
		chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-sync", true),
		chromedp.Flag("disable-dev-shm-usage", true),
		// Whatever asks for another host gets no address.
		chromedp.Flag("host-resolver-rules", "MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"),
		chromedp.WSURLReadTimeout(time.Minute),
	}
	alloc, endAlloc := chromedp.NewExecAllocator(context.Background(), opts...)
	ctx, endTab := chromedp.NewContext(alloc)
	ctx, endTime := context.WithTimeout(ctx, 3*time.Minute)
	b := &browser{t: t, ctx: ctx}
	t.Cleanup(func() { _ = chromedp.Cancel(ctx); endTime(); endTab(); endAlloc() })
	if err := chromedp.Listen(ctx, b.hear); err != nil {
		t.Fatal(err)
	}
	_, err1 := chromedp.Call(ctx, network.Enable, network.EnableParams{})
	_, err2 := chromedp.Call(ctx, runtime.Enable, cdp.Empty{})
	_, err3 := chromedp.Call(ctx, log.Enable, cdp.Empty{})
	if err := errors.Join(err1, err2, err3); err != nil {
		t.Fatal(err)
	}
	return b
}

// hear notes what the page asks for and what goes wrong in it.
func (b *browser) hear(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		b.requests = append(b.requests, e.Request.URL)
	case *runtime.EventExceptionThrown:
		b.faults = append(b.faults, e.ExceptionDetails.Text)
	case *log.EventEntryAdded:
		if e.Entry.Level == log.EntryLevelError {
			b.faults = append(b.faults, e.Entry.Text+" "+e.Entry.URL)
		}
	}
}

func (b *browser) run(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	if err := chromedp.Do(b.ctx, actions...); err != nil {
		b.t.Fatal(err)
	}
}

// shows waits until the page's text holds every one of the words.
func (b *browser) shows(words ...string) {
	b.t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		text, err := chromedp.Run(b.ctx, chromedp.Evaluate[string](`document.body ? document.body.innerText : ""`))
		if err != nil {
			b.t.Fatal(err)
		}
		missing := ""
		for _, w := range words {
			if !strings.Contains(text, w) {
				missing = w
			}
		}
		if missing == "" {
			return
		}
		if time.Now().After(end) {
			b.shot("missing")
			b.t.Fatalf("the page does not show %q but:\n%s", missing, text)
		}
	}
}

// shot keeps a picture in $PENSTOCK_SCREENSHOTS for a person to look at.
func (b *browser) shot(name string) {
	b.t.Helper()
	dir := os.Getenv("PENSTOCK_SCREENSHOTS")
	if dir == "" {
		return
	}
	png, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
	if err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name+".png"), png, 0o644); err != nil {
		b.t.Fatal(err)
	}
}

// moody answers by path.
func moody(t *testing.T) (base string, release func()) {
	t.Helper()
	hang := make(chan struct{})
	release = sync.OnceFunc(func() { close(hang) })
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/refused":
			w.WriteHeader(http.StatusUnprocessableEntity)
		case "/broken":
			w.WriteHeader(http.StatusInternalServerError)
		case "/hangs":
			<-hang
		}
	}))
	t.Cleanup(func() { release(); srv.Close() })
	return srv.URL, release
}

// A person logs in and looks at jobs of every state. The pages work, and ask
// nobody but this server for anything.
func TestQueuesInABrowser(t *testing.T) {
	store := redistest.Start(t)
	base, release := moody(t)
	r := serve(t, source("redis://"+store.Addr+"/0", base, "    retry: {base: 1h, max: 2h}\n    timeout: 2m"), Options{})
	t.Cleanup(release) // before the server stops: it waits for calls
	for id, path := range map[string]string{"done1": "/", "dead1": "/refused", "again1": "/broken", "runs1": "/hangs"} {
		r.enqueue(fmt.Sprintf(`{"provider":"sms","id":%q,"path":%q,"body":{"text":"<b>hello</b>"}}`, id, path))
	}
	r.enqueue(`{"provider":"sms","id":"later1","path":"/","delay":"1h"}`)
	r.until("sms", "done1", queue.Succeeded)
	r.until("sms", "dead1", queue.Dead)
	r.until("sms", "again1", queue.Retrying)
	r.until("sms", "runs1", queue.Running)
	if _, err := r.client.Pause(t.Context(), "sms"); err != nil {
		t.Fatal(err)
	}
	r.enqueue(`{"provider":"sms","id":"waits1","path":"/"}`)

	const token = chromedp.CSS("input[name=token]")
	b := openBrowser(t)
	b.run(chromedp.Navigate(r.url+"/queues/"), chromedp.WaitVisible(token))
	b.shot("login")
	b.run(chromedp.SendKeys(token, "not a token of an operator"), chromedp.Submit(token))
	b.shows("This is not an operator's token.")
	b.mu.Lock()
	b.faults = nil // the browser notes the 401
	b.mu.Unlock()
	b.run(chromedp.SendKeys(token, testToken), chromedp.Submit(token))
	b.shows("Queues", "sms", "paused")
	b.shot("queues")
	for state, id := range map[string]string{
		"active": "runs1", "pending": "waits1", "scheduled": "later1", "retry": "again1", "completed": "dead1",
	} {
		b.run(chromedp.Navigate(r.url + "/queues/queues/sms?status=" + state))
		b.shows(id, "penstock:http")
		b.shot(state)
	}
	b.run(chromedp.Navigate(r.url + "/queues/queues/sms/tasks/dead1"))
	b.shows("dead1", "penstock:http")
	b.shot("task")
	for _, page := range []string{"servers", "redis"} {
		b.run(chromedp.Navigate(r.url + "/queues/" + page))
		b.shows("Redis")
		b.shot(page)
	}

	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.requests) < 20 {
		t.Errorf("only %d requests: the pages did not load", len(b.requests))
	}
	for _, raw := range b.requests {
		u, err := url.Parse(raw)
		if err != nil || u.Scheme != "data" && "http://"+u.Host != r.url {
			t.Errorf("a page asks for %.200s", raw)
		}
	}
	for _, f := range b.faults {
		t.Errorf("in the browser: %s", f)
	}
}
