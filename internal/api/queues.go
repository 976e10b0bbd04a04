package api

import (
	"bytes"
	"errors"
	"net/http"
	"path"
	"regexp"
	"strconv"
	"strings"

	"github.com/hibiken/asynqmon"
	"github.com/redis/go-redis/v9"
)

// queuesRoot is where asynqmon stands.
const queuesRoot = "/queues"

// QueuesConfig of asynqmon's pages.
type QueuesConfig struct {
	// NewRedis makes a client; it is called twice, and the handler closes what
	// it made. asynqmon shows Redis's own figures only for a *redis.Client or
	// *redis.ClusterClient, so it must not be wrapped. Required.
	NewRedis func() (redis.UniversalClient, error)
}

// Queues is asynqmon, made fit to be served: read only (its buttons would move
// jobs past their lanes), without requests to other hosts, with right content
// types and a strict content policy. It has no protection of its own: Server
// puts it behind the operator's session. Safe for several goroutines.
type Queues struct {
	mon    *asynqmon.HTTPHandler
	page   []byte
	policy string
}

// NewQueues makes the handler. Close closes its Redis clients.
func NewQueues(cfg QueuesConfig) (*Queues, error) {
	if cfg.NewRedis == nil {
		return nil, errors.New("api: QueuesConfig.NewRedis is missing")
	}
	clients := &clientSource{}
	for range 2 {
		c, err := cfg.NewRedis()
		if err != nil {
			clients.closeRest()
			return nil, err
		}
		clients.ready = append(clients.ready, c)
	}
	q := &Queues{mon: asynqmon.New(asynqmon.Options{RootPath: queuesRoot, RedisConnOpt: clients, ReadOnly: true})}
	said := q.render("/")
	page, err := cleanPage(said.body.Bytes())
	if err != nil || said.status != http.StatusOK {
		return nil, errors.Join(errors.New("api: asynqmon's page is not what it was"), err, q.Close())
	}
	q.page, q.policy = page, pagePolicy(page)
	return q, nil
}

// clientSource hands out clients to asynqmon and its inspector.
type clientSource struct{ ready []redis.UniversalClient }

// MakeRedisClient makes it an asynq.RedisConnOpt.
func (c *clientSource) MakeRedisClient() any {
	first := c.ready[0]
	c.ready = c.ready[1:]
	return first
}

func (c *clientSource) closeRest() {
	for _, r := range c.ready {
		_ = r.Close()
	}
}

// Close closes the Redis clients. No request may follow.
func (q *Queues) Close() error { return q.mon.Close() }

// ServeHTTP answers pages, files and asynqmon's API.
func (q *Queues) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET")
		problem(CodeMethod, "pause, resume and cancel with penstock providers, penstock jobs or /v1", "asynqmon is read only here").write(w)
		return
	}
	rel := strings.TrimPrefix(r.URL.Path, queuesRoot)
	switch ext := path.Ext(rel); {
	case strings.HasPrefix(rel, "/api/"):
		q.api(w, r)
	case fileTypes[ext] != "" && !strings.HasPrefix(rel, "/queues/"):
		q.file(w, rel, fileTypes[ext])
	default:
		pageHeaders(w.Header(), q.policy)
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = w.Write(q.page)
	}
}

// fileTypes of what asynqmon ships; its own guesses call CSS and SVG plain text.
var fileTypes = map[string]string{
	".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml",
	".png": "image/png", ".ico": "image/x-icon", ".json": "application/json", ".map": "application/json",
	".txt": "text/plain; charset=utf-8",
}

// file sends one of asynqmon's files. The names hold a hash of the content.
func (q *Queues) file(w http.ResponseWriter, rel, kind string) {
	said := q.render(rel)
	if said.status != http.StatusOK || bytes.HasPrefix(said.body.Bytes(), []byte("<!doctype")) {
		problem(CodeNotFound, "", "asynqmon has no such file").write(w)
		return
	}
	h := w.Header()
	h.Set("Content-Type", kind)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
	h.Set("Content-Length", strconv.Itoa(said.body.Len()))
	if strings.HasPrefix(rel, "/static/") {
		h.Set("Cache-Control", "private, max-age=86400")
	}
	_, _ = w.Write(said.body.Bytes())
}

// api passes a request to asynqmon's API, whose answers are JSON; it may refuse
// in plain text.
func (q *Queues) api(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", "default-src 'none'")
	q.mon.ServeHTTP(&jsonWriter{ResponseWriter: w}, r)
}

// jsonWriter names the content of successes.
type jsonWriter struct {
	http.ResponseWriter
	sent bool
}

func (j *jsonWriter) WriteHeader(status int) {
	if !j.sent {
		kind := "text/plain; charset=utf-8"
		if status < 300 {
			kind = "application/json"
		}
		j.Header().Set("Content-Type", kind)
	}
	j.sent = true
	j.ResponseWriter.WriteHeader(status)
}

func (j *jsonWriter) Write(b []byte) (int, error) {
	if !j.sent {
		j.WriteHeader(http.StatusOK)
	}
	return j.ResponseWriter.Write(b)
}

// render takes asynqmon's answer to a GET below its root.
func (q *Queues) render(rel string) *recorded {
	said := &recorded{discard: discard{header: http.Header{}, status: http.StatusOK}}
	r, err := http.NewRequest(http.MethodGet, queuesRoot+"/", nil)
	if err != nil { // a constant: cannot happen
		panic(err)
	}
	r.URL.Path = queuesRoot + rel
	q.mon.ServeHTTP(said, r)
	return said
}

// recorded is a discard that keeps the body.
type recorded struct {
	discard
	body bytes.Buffer
}

func (r *recorded) Write(b []byte) (int, error) { return r.body.Write(b) }

var (
	foreignLink  = regexp.MustCompile(`<link\b[^>]*href="(?:https?:)?//[^>]*>`)
	manifestLink = regexp.MustCompile(`<link\b[^>]*rel="manifest"[^>]*>`)
	foreignLoad  = regexp.MustCompile(`(?:src|href)="(?:https?:)?//`)
	inlineScript = regexp.MustCompile(`(?s)<script>(.*?)</script>`)
)

// cleanPage takes links to other hosts (its web fonts) out of asynqmon's page;
// the manifest too, which a browser would fetch without the session.
func cleanPage(page []byte) ([]byte, error) {
	page = manifestLink.ReplaceAll(foreignLink.ReplaceAll(page, nil), nil)
	if foreignLoad.Match(page) {
		return nil, errors.New("it loads something from another host")
	}
	if len(inlineScript.FindAll(page, -1)) == 0 {
		return nil, errors.New("it has no inline script")
	}
	return page, nil
}

// pagePolicy lets the page load from this server only, and run the inline
// scripts it has now, by their hashes. Its styles are made by its scripts.
func pagePolicy(page []byte) string {
	scripts := "'self'"
	for _, m := range inlineScript.FindAllSubmatch(page, -1) {
		scripts += " 'sha256-" + sha256Of(string(m[1])) + "'"
	}
	return "default-src 'none'; script-src " + scripts + "; style-src 'self' 'unsafe-inline'; img-src 'self' data:; " +
		"font-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
}
