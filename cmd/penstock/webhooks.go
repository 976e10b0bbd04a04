package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/penstock-io/penstock/internal/config"
	"github.com/penstock-io/penstock/webhooks"
)

const (
	maxRepeat = 1000
	// maxShown is how much of an answer's body is printed.
	maxShown = 64 << 10
	// secretVariable holds the secret where no flag does.
	secretVariable = "PENSTOCK_WEBHOOK_SECRET"
)

func (c *cli) webhooks() *cobra.Command {
	cmd := &cobra.Command{
		Use: "webhooks", Short: "Try webhooks", Args: cobra.NoArgs, RunE: needsCommand,
	}
	cmd.AddCommand(c.webhooksSend())
	return cmd
}

// sending are the flags of webhooks send.
type sending struct {
	file, webhook            string // configuration
	scheme, url, publicURL   string
	secrets, headers         []string
	key, method, contentType string
	body, bodyFile, eventID  string
	options                  webhooks.Options
	repeat                   int
	age, timeout             time.Duration
	json                     bool
	hasBody, hasScheme       bool
	hasType                  bool
}

func (c *cli) webhooksSend() *cobra.Command {
	s := &sending{}
	cmd := &cobra.Command{
		Use: "send", Short: "Sign a test event as a sender would, and send it", Args: cobra.NoArgs,
		Long: `Send signs an event by a scheme, sends it, and prints the status, what Penstock says
became of it, and the body of the answer. It exits with 1 when an answer was not
2xx. With --repeat the same event is sent several times, each time signed anew,
as senders do that heard no answer. --age signs with an older time (or, negative,
one to come), to see it refused.

Scheme and secrets come from flags, or from a webhook of a configuration file. A
secret on the command line can be seen by others on this machine: set
` + secretVariable + ` instead.`,
		Example: `  penstock webhooks send --scheme stripe --url http://127.0.0.1:8080/hooks/stripe
  penstock webhooks send --config penstock.yaml --webhook stripe --repeat 2
  penstock webhooks send --scheme hmac --header X-Signature --prefix sha256= --url … --file event.json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			f := cmd.Flags()
			s.hasBody, s.hasScheme, s.hasType = f.Changed("body") || f.Changed("file"), f.Changed("scheme"), f.Changed("content-type")
			return c.send(cmd.Context(), s)
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&s.scheme, "scheme", "", "how it is signed: "+schemeNames())
	f.StringArrayVar(&s.secrets, "secret", nil, "secret as the sender's console shows it; may be given several times (default $"+secretVariable+")")
	f.StringVar(&s.url, "url", "", "where it is sent to")
	f.StringVar(&s.body, "body", "", "body (default: a test event of the scheme)")
	f.StringVarP(&s.bodyFile, "file", "f", "", `file with the body; "-" is stdin`)
	f.StringVar(&s.eventID, "event-id", "", "id of the event (default: a new one)")
	f.IntVar(&s.repeat, "repeat", 1, "how often the same event is sent")
	f.DurationVar(&s.age, "age", 0, "sign as if it were sent so long ago; negative: so far ahead")
	f.StringVar(&s.method, "method", "", "HTTP method (default POST)")
	f.StringVar(&s.contentType, "content-type", "", "content type (default: the scheme's)")
	f.StringArrayVar(&s.headers, "headers", nil, `further header "Name: value"; may be given several times`)
	f.StringVar(&s.publicURL, "public-url", "", "scheme and host that Twilio would call, where they are not --url's")
	f.StringVar(&s.key, "key", "", "twilio: name of the shared key that the secret is")
	f.StringVar(&s.options.Header, "header", "", "hmac, shared_secret: header of the signature or the secret")
	f.StringVar(&s.options.Prefix, "prefix", "", "hmac, shared_secret: what stands before it")
	f.StringVar(&s.options.Digest, "digest", "", "hmac: sha256, sha512, sha384 or sha1")
	f.StringVar(&s.options.Encoding, "encoding", "", "hmac: hex, base64 or base64url")
	f.StringVar(&s.options.TimestampHeader, "timestamp-header", "", "hmac: header of the signed time")
	f.StringVar(&s.options.Signed, "signed", "", "hmac: the signed text, like {timestamp}.{body}")
	f.StringVarP(&s.file, "config", "c", "", "configuration file to take scheme, secrets and path of --webhook from")
	f.StringVar(&s.webhook, "webhook", "", "name of a webhook of --config")
	f.DurationVar(&s.timeout, "timeout", 30*time.Second, "how long an answer is waited for")
	f.BoolVar(&s.json, "json", false, "print JSON, one line for each delivery")
	cmd.MarkFlagsMutuallyExclusive("body", "file")
	return cmd
}

func schemeNames() string {
	var names []string
	for _, s := range webhooks.Schemes() {
		names = append(names, string(s))
	}
	return strings.Join(names, ", ")
}

// sent is the JSON of one delivery.
type sent struct {
	EventID    string  `json:"event_id"`
	Try        int     `json:"try"`
	Status     int     `json:"status"`
	Result     string  `json:"result,omitempty"`
	RetryAfter string  `json:"retry_after,omitempty"`
	TookMS     float64 `json:"took_ms"`
	Body       string  `json:"body,omitempty"`
}

func (c *cli) send(ctx context.Context, s *sending) error {
	ev, err := c.prepareSend(s)
	if err != nil {
		return err
	}
	client := &http.Client{Timeout: s.timeout, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	defer client.CloseIdleConnections()
	failed := 0
	for try := 1; try <= s.repeat; try++ {
		got, err := ev.deliver(ctx, client, s.age)
		if err != nil {
			return err
		}
		got.Try = try
		if got.Status < 200 || got.Status > 299 {
			failed++
		}
		if s.json {
			err = printJSON(c.out, got)
		} else {
			err = c.printSent(got)
		}
		if err != nil {
			return err
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d deliveries not accepted", failed, s.repeat)
	}
	return nil
}

func (c *cli) printSent(s sent) error {
	line := fmt.Sprintf("%d %s", s.Status, http.StatusText(s.Status))
	if s.Result != "" {
		line += ", " + oneLine(s.Result)
	}
	if s.RetryAfter != "" {
		line += ", retry after " + oneLine(s.RetryAfter)
	}
	if _, err := fmt.Fprintf(c.out, "%s: %s in %.1fms\n", s.EventID, line, s.TookMS); err != nil {
		return err
	}
	if s.Body == "" {
		return nil
	}
	_, err := fmt.Fprintln(c.out, strings.TrimRight(printable(s.Body), "\n"))
	return err
}

// printable keeps an answer from moving the cursor; lines stay.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || unicode.IsPrint(r) {
			return r
		}
		return '.'
	}, s)
}

// prepareSend checks the flags and makes the event.
func (c *cli) prepareSend(s *sending) (*event, error) {
	if s.repeat < 1 || s.repeat > maxRepeat {
		return nil, wrongUse("--repeat must be from 1 to %d", maxRepeat)
	}
	if s.timeout <= 0 {
		return nil, wrongUse("--timeout must be more than 0")
	}
	if (s.file == "") != (s.webhook == "") {
		return nil, wrongUse("--config and --webhook go together")
	}
	if s.file != "" {
		if err := c.fromConfig(s); err != nil {
			return nil, err
		}
	} else if err := c.fromFlags(s); err != nil {
		return nil, err
	}
	target, err := url.Parse(s.url)
	switch {
	case s.url == "":
		return nil, wrongUse("--url is missing; it is where the event is sent to")
	case err != nil || target.Scheme != "http" && target.Scheme != "https" || target.Host == "":
		return nil, wrongUse("--url must be like http://127.0.0.1:8080/hooks/stripe")
	}
	signer, err := webhooks.NewSigner(s.options)
	if err != nil {
		return nil, wrongUse("%s", strings.TrimPrefix(err.Error(), webhooks.ErrConfig.Error()+": "))
	}
	ev, err := newEvent(s, signer, target)
	if err != nil {
		return nil, err
	}
	if s.hasBody {
		if ev.body, err = c.readBody(s); err != nil {
			return nil, err
		}
	}
	return ev, nil
}

func (c *cli) readBody(s *sending) ([]byte, error) {
	switch s.bodyFile {
	case "":
		return []byte(s.body), nil
	case "-":
		return io.ReadAll(c.in)
	}
	b, err := os.ReadFile(s.bodyFile)
	if err != nil {
		return nil, usageError{err}
	}
	return b, nil
}

// fromFlags makes the options of flags.
func (c *cli) fromFlags(s *sending) error {
	if s.scheme == "" {
		return wrongUse("--scheme is missing: %s", schemeNames())
	}
	scheme, err := webhooks.ParseScheme(s.scheme)
	if err != nil {
		return wrongUse("--scheme: there is no %q; use one of %s", s.scheme, schemeNames())
	}
	s.options.Scheme = scheme
	secrets := s.secrets
	if v := c.env(secretVariable); len(secrets) == 0 && v != "" && scheme != webhooks.None {
		secrets = []string{v}
	}
	if len(secrets) == 0 && scheme != webhooks.None {
		return wrongUse("--secret is missing; or set %s", secretVariable)
	}
	s.options.Secrets = webhooks.Secrets(secrets...)
	for i := range s.options.Secrets {
		s.options.Secrets[i].Key = s.key
	}
	return nil
}

// fromConfig takes what a webhook of a file says; its own path is the default.
func (c *cli) fromConfig(s *sending) error {
	o := s.options
	if s.hasScheme || len(s.secrets) > 0 || s.key != "" || o.Header+o.Prefix+o.Digest+o.Encoding+o.TimestampHeader+o.Signed != "" {
		return wrongUse("--config has scheme, secrets and their options; leave their flags out")
	}
	cfg, rep := config.Load(s.file)
	if cfg == nil {
		fmt.Fprint(c.err, rep.Faults())
		return fmt.Errorf("%s cannot be used: %s", s.file, count(len(rep.Faults()), "fault"))
	}
	i := slices.IndexFunc(cfg.Webhooks, func(w config.Webhook) bool { return w.Config.Name == s.webhook })
	if i < 0 {
		return wrongUse("%s has no webhook %q", s.file, s.webhook)
	}
	w := cfg.Webhooks[i]
	s.options = w.Config.Options
	now := time.Now()
	s.options.Secrets = slices.DeleteFunc(slices.Clone(s.options.Secrets), func(k webhooks.Secret) bool { return !k.Expires.IsZero() && now.After(k.Expires) })
	s.publicURL = cmp.Or(s.publicURL, w.Config.PublicURL)
	s.url = cmp.Or(s.url, "http://"+cfg.Listen+w.Path)
	if s.method == "" && len(w.Config.Methods) > 0 {
		s.method = w.Config.Methods[0]
	}
	if s.contentType == "" && len(w.Config.ContentTypes) > 0 {
		s.contentType, s.hasType = w.Config.ContentTypes[0], true
	}
	return nil
}

// cause drops the URL from an error: it may hold a password.
func cause(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		return e.Err
	}
	return err
}
