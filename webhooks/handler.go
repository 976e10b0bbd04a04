package webhooks

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	"golang.org/x/net/http/httpguts"

	"github.com/penstock-io/penstock/queue"
)

// ResultHeader of an answer tells a person what became of the delivery.
const ResultHeader = "Penstock-Webhook"

// Handler takes the deliveries of one webhook. An accepted one is answered 200
// without a body, once its job is stored; a refused one with a problem
// document (RFC 9457). Safe for several goroutines; it starts none that
// outlive a request by more than the store's timeout, and needs no Close.
type Handler struct {
	cfg    Config
	verify *Verifier
	store  *store
	places chan struct{}
	log    *sparse
}

// New returns a Handler, or what is wrong with the configuration: an error
// that wraps ErrConfig and repeats no secret. Nothing is sent. What weakens
// the webhook is logged here, once: scheme none loudly.
func New(cfg Config) (*Handler, error) {
	v, err := NewVerifier(cfg.Options)
	if err == nil {
		cfg, err = cfg.normal(v.scheme)
	}
	if err != nil {
		return nil, fmt.Errorf("webhook %q: %w", cfg.Name, err)
	}
	h := &Handler{
		cfg: cfg, verify: v,
		store:  newStore(cfg.Queue, cfg.StoreTimeout),
		places: make(chan struct{}, cfg.MaxInFlight),
		log:    newSparse(cfg.Logger.With("webhook", cfg.Name)),
	}
	h.warn()
	return h, nil
}

// warn says what an operator should know of this configuration.
func (h *Handler) warn() {
	l := h.cfg.Logger.With("webhook", h.cfg.Name)
	o := h.cfg.Options
	if o.Scheme == None {
		l.Error("THIS WEBHOOK PROVES NOTHING: scheme none accepts whatever anybody sends; configure the sender's scheme, or let nobody else reach it")
	}
	if o.EventID.Off || o.EventID.IsZero() && slices.Contains([]Scheme{HMAC, SharedSecret, None}, o.Scheme) {
		l.Warn("repeats are not recognised: events of this webhook have no id; set event_id to a header or a JSON pointer")
	}
	if o.Scheme == HMAC && o.TimestampHeader == "" {
		l.Warn("a captured delivery can be sent again for ever: nothing signed says when it was made; set timestamp_header if the sender has one")
	}
}

// Check asks, where Config.Queue is a *queue.Client, whether the destination's
// provider exists and takes bodies as large as the webhook does: the answer is
// nil, or says what to change.
func (h *Handler) Check(ctx context.Context) error {
	c, ok := h.cfg.Queue.(interface {
		Spec(ctx context.Context, provider string) (queue.Spec, error)
	})
	if !ok {
		return nil
	}
	spec, err := c.Spec(ctx, h.cfg.To.Provider)
	switch {
	case err != nil:
		return fmt.Errorf("webhook %q: to: %w", h.cfg.Name, err)
	case spec.MaxBody < h.cfg.MaxBody:
		return fmt.Errorf("%w: webhook %q: it takes bodies of up to %d bytes, but provider %s only %d; raise its max_body, or lower the webhook's",
			ErrConfig, h.cfg.Name, h.cfg.MaxBody, h.cfg.To.Provider, spec.MaxBody)
	}
	return nil
}

// JobID is the id of the job that an event becomes: "<webhook>:<event id>",
// with a digest in place of an event id that is too long or not printable.
func JobID(webhook, event string) string {
	id := webhook + ":" + event
	if queue.CheckID(id) == nil {
		return id
	}
	sum := sha256.Sum256([]byte(event))
	return webhook + ":" + hex.EncodeToString(sum[:])
}

// ServeHTTP takes one delivery.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	t := &taking{h: h, w: w, r: r, start: time.Now()}
	res, err := t.take()
	t.d.Result, t.d.Reason, t.d.Took = res, ReasonOf(err), time.Since(t.start)
	h.cfg.Observer.WebhookDelivery(h.cfg.Name, t.d)
	t.logLine(err)
	t.answer(err)
}

// taking is one delivery on its way in.
type taking struct {
	h     *Handler
	w     http.ResponseWriter
	r     *http.Request
	start time.Time
	d     Delivery
	event Event
	job   string
}

// take decides what becomes of the delivery; an error is a *Refusal.
func (t *taking) take() (Result, error) {
	h := t.h
	if err := t.admissible(); err != nil {
		return Refused, err
	}
	select {
	case h.places <- struct{}{}:
		defer func() { <-h.places }()
	default:
		return Refused, refuse(Busy, "too many deliveries are being worked on", "deliver again later")
	}
	body, err := readBody(t.w, t.r, h.cfg.MaxBody, h.cfg.BodyTimeout)
	t.d.Bytes = len(body)
	if err != nil {
		return Refused, err
	}
	m := &Message{Method: t.r.Method, URL: h.url(t.r), Header: t.r.Header, Body: body}
	if t.event, err = h.verify.Open(m, t.start); err != nil {
		return Refused, err
	}
	t.d.Secret = t.event.Label
	if t.event.Challenge != "" {
		return Challenged, nil
	}
	return t.keep(m)
}

// admissible refuses what need not be read.
func (t *taking) admissible() error {
	c := &t.h.cfg
	if !slices.Contains(c.Methods, t.r.Method) {
		return refuse(BadMethod, "this webhook takes "+strings.Join(c.Methods, ", "), "")
	}
	if e := t.r.Header.Get("Content-Encoding"); e != "" && !strings.EqualFold(e, "identity") {
		return refuse(BadType, "an encoded body cannot be verified", "send it without Content-Encoding")
	}
	if mt := mediaType(t.r.Header); mt != "" && len(c.ContentTypes) > 0 && !slices.Contains(c.ContentTypes, mt) {
		return refuse(BadType, "this webhook takes "+strings.Join(c.ContentTypes, ", "), "")
	}
	return nil
}

// keep stores the job, or spools it.
func (t *taking) keep(m *Message) (Result, error) {
	h := t.h
	if t.event.ID != "" {
		t.job = JobID(h.cfg.Name, t.event.ID)
	} else {
		id, err := uuid.NewV7()
		if err != nil {
			return Refused, unstored(err)
		}
		t.job = JobID(h.cfg.Name, id.String())
	}
	j := h.cfg.job(t.job, chosen(m.Header, h.cfg.Headers), m.Body)
	// What is spooled goes first: order is kept as long as the spool is not empty.
	if h.cfg.Spool == nil || h.cfg.Spool.empty() {
		res, err := h.store.put(t.r.Context(), j)
		if err == nil {
			return res, nil
		}
		refusal := unstored(err)
		if h.cfg.Spool == nil || refusal.Reason != StoreAway && refusal.Reason != StoreFull {
			return Refused, refusal
		}
	}
	switch err := h.cfg.Spool.add(h.cfg.Name, j); {
	case err == nil:
		return Spooled, nil
	case errors.Is(err, ErrSpoolFull):
		return Refused, &Refusal{Reason: SpoolFull, Genuine: true, Detail: "the store does not answer, and the spool is full", Fix: "deliver again later", cause: err}
	default:
		return Refused, &Refusal{Reason: SpoolFailed, Genuine: true, Detail: "the store does not answer, and the spool cannot be written", Fix: "deliver again later", cause: err}
	}
}

// chosen picks the headers that are passed on. Values that no request can
// carry on are left out.
func chosen(h http.Header, names []string) map[string]string {
	out := map[string]string{}
	for _, n := range names {
		if v := strings.Join(h.Values(n), ", "); v != "" && utf8.ValidString(v) && httpguts.ValidHeaderFieldValue(v) {
			out[http.CanonicalHeaderKey(n)] = v
		}
	}
	return out
}

// url is the URL that the sender called, as far as it can be known here: the
// request target is kept byte for byte.
func (h *Handler) url(r *http.Request) string {
	target := r.RequestURI
	if !strings.HasPrefix(target, "/") { // absolute, or not from a server
		target = r.URL.RequestURI()
	}
	if h.cfg.PublicURL != "" {
		return strings.TrimSuffix(h.cfg.PublicURL, "/") + target
	}
	if r.TLS != nil {
		return "https://" + r.Host + target
	}
	return "http://" + r.Host + target
}
