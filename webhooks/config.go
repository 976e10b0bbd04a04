package webhooks

import (
	"context"
	"fmt"
	"log/slog"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/penstock-io/penstock/queue"
)

// Defaults of Config.
const (
	DefaultMaxBody      = 1 << 20
	DefaultBodyTimeout  = 5 * time.Second
	DefaultStoreTimeout = 2 * time.Second
	DefaultMaxInFlight  = 1024
	DefaultRetryAfter   = 5 * time.Second
	// DefaultWindow is longer than the senders' own retries: three days of
	// Stripe, 75 hours in the Standard Webhooks specification.
	DefaultWindow = 96 * time.Hour
)

// Enqueuer stores jobs: a *queue.Client.
type Enqueuer interface {
	Enqueue(ctx context.Context, j queue.Job) (queue.Receipt, error)
}

// Destination is where a delivery goes on to.
type Destination struct {
	// Provider whose job a delivery becomes. Required.
	Provider string
	// Method of the call. Empty: POST.
	Method string
	// Path below the provider's base_url. Empty: the base_url itself.
	Path string
	// Priority. Empty: default.
	Priority queue.Priority
	// MaxAge and Attempts of the job. Zero: the provider's defaults.
	MaxAge   time.Duration
	Attempts int
}

// Config of a Handler.
type Config struct {
	// Name of the webhook: [a-z0-9][a-z0-9._-]{0,62}. It is part of the job's
	// id. Required.
	Name string
	// Options of its scheme. Required.
	Options Options
	// PublicURL is the scheme and host that the sender calls, like
	// https://hooks.example.com, and the part of the path that a proxy takes
	// away. Only Twilio signs it. Empty: what arrives here.
	PublicURL string
	// To is where deliveries go. Required.
	To Destination
	// Headers of the request that are passed on unchanged. Nil: Content-Type
	// and what the scheme says of the event, but no signature. Empty: none.
	Headers []string
	// Methods. Nil: POST.
	Methods []string
	// ContentTypes, without parameters. A request without a content type is
	// taken in any case. Nil: what the scheme's sender sends, or any.
	ContentTypes []string
	// MaxBody in bytes. Zero: 1 MiB.
	MaxBody int64
	// BodyTimeout is how long a body may take to arrive. Zero: 5 s.
	BodyTimeout time.Duration
	// StoreTimeout is how long Redis may take to store a job. Senders give up
	// soon: Slack after 3 s, Shopify after 5 s. Zero: 2 s.
	StoreTimeout time.Duration
	// MaxInFlight is how many deliveries are worked on at once. Zero: 1024.
	MaxInFlight int
	// RetryAfter is what a sender is told to wait while Redis is away, in
	// whole seconds. Zero: 5 s.
	RetryAfter time.Duration
	// Window is how long an event's repeats are recognised once its job is
	// final; before that they always are. It is the job's keep, whatever the
	// destination's provider has. At least a second. Zero: 96 h.
	Window time.Duration
	// Queue stores the jobs: a *queue.Client. Required.
	Queue Enqueuer
	// Spool takes deliveries while Redis is away. Several handlers may share
	// one. Nil: they are answered 503.
	Spool *Spool
	// Observer hears of every delivery. Nil: nobody.
	Observer Observer
	// Logger. Nil: slog.Default().
	Logger *slog.Logger
}

// normal returns the configuration with its defaults, checked.
func (c Config) normal(sch scheme) (Config, error) {
	if c.Queue == nil {
		return c, fmt.Errorf("%w: Config.Queue is missing; give a *queue.Client", ErrConfig)
	}
	defaults(&c.MaxBody, DefaultMaxBody)
	defaults(&c.BodyTimeout, DefaultBodyTimeout)
	defaults(&c.StoreTimeout, DefaultStoreTimeout)
	defaults(&c.MaxInFlight, DefaultMaxInFlight)
	defaults(&c.RetryAfter, DefaultRetryAfter)
	defaults(&c.Window, DefaultWindow)
	if c.Observer == nil {
		c.Observer = nobody{}
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Methods == nil {
		c.Methods = []string{http.MethodPost}
	}
	if c.ContentTypes == nil {
		c.ContentTypes = c.Options.Scheme.contentTypes()
	}
	if c.Headers == nil {
		c.Headers = append([]string{"Content-Type"}, sch.headers()...)
	}
	return c, c.check(sch)
}

// defaults fills a zero value.
func defaults[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

func (c Config) check(sch scheme) error {
	if err := queue.CheckName("name", c.Name); err != nil {
		return fmt.Errorf("%w: %w", ErrConfig, err)
	}
	for _, n := range []struct {
		field string
		v     int64
		max   int64
	}{
		{"max_body", c.MaxBody, queue.MaxBody},
		{"body_timeout", int64(c.BodyTimeout), int64(time.Hour)},
		{"store_timeout", int64(c.StoreTimeout), int64(time.Minute)},
		{"max_in_flight", int64(c.MaxInFlight), 1 << 20},
		{"retry_after", int64(c.RetryAfter), int64(24 * time.Hour)},
		{"window", int64(c.Window), int64(queue.MaxDelay)},
	} {
		if n.v < 0 || n.v > n.max {
			return fmt.Errorf("%w: %s is out of bounds; leave it out for the default", ErrConfig, n.field)
		}
	}
	if c.RetryAfter < time.Second {
		return fmt.Errorf("%w: retry_after %s is below a second, which Retry-After cannot say", ErrConfig, c.RetryAfter)
	}
	if err := c.job("x", nil, nil).Validate(); err != nil {
		return fmt.Errorf("%w: to: %w", ErrConfig, err)
	}
	if err := c.checkURL(); err != nil {
		return err
	}
	return c.checkHTTP(sch)
}

func (c Config) checkURL() error {
	if c.PublicURL == "" {
		return nil
	}
	u, err := url.Parse(c.PublicURL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
		return fmt.Errorf("%w: public_url must be a scheme and a host, like https://hooks.example.com", ErrConfig)
	}
	return nil
}

func (c Config) checkHTTP(sch scheme) error {
	if len(c.Methods) == 0 {
		return fmt.Errorf("%w: methods is empty, so nothing would be accepted; leave it out for POST", ErrConfig)
	}
	for _, m := range c.Methods {
		if m != strings.ToUpper(m) || !slices.Contains([]string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"}, m) {
			return fmt.Errorf("%w: methods: %q is not a method that a webhook has", ErrConfig, m)
		}
	}
	for _, t := range c.ContentTypes {
		if m, p, err := mime.ParseMediaType(t); err != nil || m != t || len(p) > 0 {
			return fmt.Errorf("%w: content_types: %q is not a content type in lower case without parameters, like application/json", ErrConfig, t)
		}
	}
	for _, h := range c.Headers {
		if err := headerName("headers", h); err != nil {
			return err
		}
		if slices.ContainsFunc(sch.private(), func(p string) bool { return strings.EqualFold(p, h) }) {
			return fmt.Errorf("%w: headers: %s holds the secret and is not passed on; let the provider's own headers authenticate", ErrConfig, h)
		}
		if strings.EqualFold(h, "Content-Encoding") {
			return fmt.Errorf("%w: headers: Content-Encoding is never accepted, so it cannot be passed on", ErrConfig)
		}
	}
	return nil
}

// contentTypes is what the scheme's sender sends; nil where that is anything.
func (s Scheme) contentTypes() []string {
	const js, form = "application/json", "application/x-www-form-urlencoded"
	switch s {
	case Stripe:
		return []string{js}
	case GitHub, Slack, Twilio:
		return []string{js, form}
	case Shopify:
		return []string{js, "application/xml", "text/xml"}
	}
	return nil
}

// job makes the job that a delivery becomes.
func (c Config) job(id string, headers map[string]string, body []byte) queue.Job {
	return queue.Job{
		Provider: c.To.Provider, ID: id, Method: c.To.Method, Path: c.To.Path,
		Headers: headers, Body: body, Priority: c.To.Priority,
		MaxAge: c.To.MaxAge, Attempts: c.To.Attempts, Keep: c.Window,
	}
}
