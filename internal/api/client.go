package api

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/penstock-io/penstock/queue"
)

// Client talks to a Server. Make it with NewClient. Safe for several
// goroutines. Its errors are *Problem where the server answered one, and wrap
// ErrServerAway where it did not answer.
type Client struct {
	base  *url.URL
	token string
	http  *http.Client
}

// ErrServerAway: the server could not be reached.
var ErrServerAway = errors.New("the server does not answer")

// maxAnswer bounds what is read of an answer.
const maxAnswer = 64 << 20

// NewClient returns a client of the server at base, like http://127.0.0.1:8080.
// token may be empty. It sends nothing yet.
func NewClient(base, token string) (*Client, error) {
	u, err := url.Parse(base)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return nil, errors.New("the server must be a URL like http://127.0.0.1:8080")
	}
	if u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, errors.New("the server's URL must have no user, query or fragment; the token goes into --token")
	}
	if strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, errors.New("the token holds a character that no header can carry")
	}
	return &Client{base: u, token: token, http: &http.Client{
		// A redirect would take the token along.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// Enqueue sends one job, as JSON in the form of the contract.
func (c *Client) Enqueue(ctx context.Context, job []byte) (Receipt, error) {
	return fetch[Receipt](ctx, c, http.MethodPost, "/v1/jobs", nil, job)
}

// Batch sends jobs, one JSON document a line, and yields the results as they
// come. An error ends it: what had no result until then may have been stored.
func (c *Client) Batch(ctx context.Context, lines io.Reader) iter.Seq2[BatchLine, error] {
	return func(yield func(BatchLine, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		resp, err := c.send(ctx, http.MethodPost, "/v1/jobs:batch", nil, lines)
		if err != nil {
			yield(BatchLine{}, err)
			return
		}
		defer resp.Body.Close()
		sc := bufio.NewScanner(resp.Body)
		sc.Buffer(make([]byte, 0, 64<<10), 1<<20)
		for sc.Scan() {
			var l BatchLine
			if err := json.Unmarshal(sc.Bytes(), &l); err != nil {
				yield(l, errors.New("the server answered a line that is not a result; check that --server is a Penstock server"))
				return
			}
			if !yield(l, nil) {
				return
			}
		}
		if err := sc.Err(); err != nil {
			yield(BatchLine{}, fmt.Errorf("%w: the answer was cut off: %w", ErrServerAway, bare(err)))
		}
	}
}

// Job returns what is known of one job.
func (c *Client) Job(ctx context.Context, provider, id string) (JobInfo, error) {
	return fetch[JobInfo](ctx, c, http.MethodGet, jobPath(provider, id), nil, nil)
}

// Jobs returns a page of a provider's jobs.
func (c *Client) Jobs(ctx context.Context, provider string, f queue.Filter) (JobPage, error) {
	q := url.Values{"provider": {provider}}
	if f.State != "" {
		q.Set("state", string(f.State))
	}
	if f.Limit > 0 {
		q.Set("limit", fmt.Sprint(f.Limit))
	}
	if f.Cursor != "" {
		q.Set("cursor", f.Cursor)
	}
	return fetch[JobPage](ctx, c, http.MethodGet, "/v1/jobs", q, nil)
}

// Cancel ends a job that is not final, or asks for it.
func (c *Client) Cancel(ctx context.Context, provider, id string) (Cancelled, error) {
	return fetch[Cancelled](ctx, c, http.MethodDelete, jobPath(provider, id), nil, nil)
}

// Replay puts a final job back.
func (c *Client) Replay(ctx context.Context, provider, id string) (Receipt, error) {
	return fetch[Receipt](ctx, c, http.MethodPost, jobPath(provider, id)+"/replay", nil, nil)
}

// Providers lists all providers.
func (c *Client) Providers(ctx context.Context) ([]ProviderStatus, error) {
	l, err := fetch[ProviderList](ctx, c, http.MethodGet, "/v1/providers", nil, nil)
	return l.Providers, err
}

// Provider returns one provider.
func (c *Client) Provider(ctx context.Context, name string) (ProviderStatus, error) {
	return fetch[ProviderStatus](ctx, c, http.MethodGet, providerPath(name), nil, nil)
}

// SetLimits sends a change, as JSON in the form of the contract.
func (c *Client) SetLimits(ctx context.Context, name string, change []byte, dryRun bool) (LimitsChange, error) {
	q := url.Values{}
	if dryRun {
		q.Set("dry_run", "true")
	}
	return fetch[LimitsChange](ctx, c, http.MethodPatch, providerPath(name), q, change)
}

// Pause stops a provider's calls over the whole fleet; Resume undoes it, and
// any hold.
func (c *Client) Pause(ctx context.Context, name string) (ProviderStatus, error) {
	return fetch[ProviderStatus](ctx, c, http.MethodPost, providerPath(name)+"/pause", nil, nil)
}

// Resume undoes Pause.
func (c *Client) Resume(ctx context.Context, name string) (ProviderStatus, error) {
	return fetch[ProviderStatus](ctx, c, http.MethodPost, providerPath(name)+"/resume", nil, nil)
}

func providerPath(name string) string { return "/v1/providers/" + url.PathEscape(name) }

// fetch sends a request and reads its JSON answer.
func fetch[T any](ctx context.Context, c *Client, method, path string, q url.Values, body []byte) (T, error) {
	var into T
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var r io.Reader
	if body != nil {
		r = bytes.NewReader(body)
	}
	resp, err := c.send(ctx, method, path, q, r)
	if err != nil {
		return into, err
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(&into); err != nil {
		return into, errors.New("the server's answer is not JSON; check that --server is a Penstock server")
	}
	return into, nil
}

// send returns a successful answer; the caller closes its body.
func (c *Client) send(ctx context.Context, method, path string, q url.Values, body io.Reader) (*http.Response, error) {
	u := *c.base
	raw := strings.TrimRight(u.EscapedPath(), "/") + path
	var err error
	if u.Path, err = url.PathUnescape(raw); err != nil {
		return nil, err
	}
	u.RawPath, u.RawQuery = raw, q.Encode()
	req, err := http.NewRequestWithContext(ctx, method, u.String(), body)
	if err != nil {
		return nil, err
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, fmt.Errorf("%w at %s: %w; is it running, and is --server right?", ErrServerAway, c.base.Host, bare(err))
	}
	if resp.StatusCode >= 300 {
		defer resp.Body.Close()
		b, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
		return nil, readProblem(resp.StatusCode, resp.Header.Get("Retry-After"), b)
	}
	return resp, nil
}

// bare drops the method and URL that net/http puts before an error.
func bare(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		return e.Err
	}
	return err
}
