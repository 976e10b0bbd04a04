package limithttp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/penstock-io/penstock/shaper"
)

// Config of a Door.
type Config struct {
	// Store counts: a *shaper.RedisLimitStore for a fleet, or a
	// *shaper.MemoryLimitStore for one process. The door puts what Away and
	// SyncEvery need in front of it. Required.
	Store shaper.LimitStore
	// StoreTimeout is how long a decision may take before Away decides. Zero: 100 ms.
	StoreTimeout time.Duration
	// Rules, in the order in which they are shown. All that match a request
	// must have room for it.
	Rules []Rule
	// Deny lists who is refused (403), Allow who passes without being counted.
	// Deny goes first.
	Deny, Allow List
	// Identify says who sends a request, as the application knows it. Its
	// Address may be left empty. Nil: the API key is what X-Api-Key or a bearer
	// token holds, unverified, so put a rule by address beside one by key.
	Identify func(*http.Request) Client
	// TrustedProxies whose ProxyHeader is believed. None: the connection's
	// address is the client's.
	TrustedProxies []netip.Prefix
	// ProxyHeader is X-Forwarded-For or Forwarded, or one of that form. Empty:
	// X-Forwarded-For.
	ProxyHeader string
	// IPv6Prefix is how many bits of an IPv6 address make a client. Zero: 64.
	IPv6Prefix int
	// Fields of every answer. Nil: FieldsIETF. Empty: none.
	Fields []Dialect
	// Documentation of the limits, a URL. Empty: none.
	Documentation string
	// Challenge, if set, may answer a refusal in its own way (a captcha, a proof
	// of work) and return true. Who passes it is named by Allow.Match.
	Challenge func(http.ResponseWriter, *http.Request, Refusal) bool
	// Observer hears of every decision. Nil: nobody.
	Observer Observer
	// Logger. Nil: slog.Default().
	Logger *slog.Logger
	// Audit gets every decision of rules with Audit. Nil: Logger.
	Audit *slog.Logger
	// Sample is the share of all decisions, from 0 to 1, that Logger gets.
	Sample float64
	// LogKeys shows clients' keys in the log instead of their hashes.
	LogKeys bool
}

// Outcome of a rule for one request.
type Outcome string

// The outcomes.
const (
	Allowed      Outcome = "allowed"
	Refused      Outcome = "refused"
	WouldRefuse  Outcome = "would_refuse" // a shadow
	Blocked      Outcome = "blocked"      // by escalation, uncounted
	DeniedByList Outcome = "denied"       // rule "deny"
	PassedByList Outcome = "passed"       // rule "allow"
)

// Observer hears what a door decides. Methods are called from several
// goroutines at once and must not block.
type Observer interface {
	// LimitDecided is told once for each rule and request, with who decided:
	// everything but shaper.FromStore and FromBatch means that the store was away.
	LimitDecided(rule string, o Outcome, by shaper.Source)
	// LimitTook is told how long the decision delayed a request.
	LimitTook(d time.Duration)
}

type nobody struct{}

func (nobody) LimitDecided(string, Outcome, shaper.Source) {}
func (nobody) LimitTook(time.Duration)                     {}

// Door is middleware that limits what comes in. Safe for several goroutines;
// it starts none that outlive a request by more than StoreTimeout.
type Door struct {
	cfg       Config
	rules     []*rule
	addresses addresses
	store     store
	blocks    *blocks
	places    *places
	log       *doorLog
}

// store is what a door needs of one.
type store interface {
	shaper.LimitStore
	shaper.Striker
}

// New returns a Door, or what is wrong with the configuration: an error that
// wraps shaper.ErrBadLimit. Nothing is sent.
func New(cfg Config) (*Door, error) {
	bad := func(err error) (*Door, error) { return nil, fmt.Errorf("%w: %w", shaper.ErrBadLimit, err) }
	if cfg.Store == nil {
		return bad(errors.New("Config.Store is missing; give a *shaper.RedisLimitStore or a *shaper.MemoryLimitStore"))
	}
	if cfg.Fields == nil {
		cfg.Fields = []Dialect{FieldsIETF}
	}
	for _, f := range cfg.Fields {
		if !slices.Contains(Dialects(), f) {
			return bad(fmt.Errorf("fields: %q is unknown; use some of %v", f, Dialects()))
		}
	}
	if !(cfg.Sample >= 0 && cfg.Sample <= 1) {
		return bad(fmt.Errorf("sample must be from 0 to 1, not %v", cfg.Sample))
	}
	if cfg.Observer == nil {
		cfg.Observer = nobody{}
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	if cfg.Audit == nil {
		cfg.Audit = cfg.Logger
	}
	d := &Door{cfg: cfg, blocks: newBlocks(), places: newPlaces(), log: newDoorLog(cfg)}
	var err error
	if d.addresses, err = newAddresses(cfg); err != nil {
		return bad(err)
	}
	batched := false
	for _, in := range cfg.Rules {
		r, err := newRule(in)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(d.rules, func(o *rule) bool { return o.Name == r.Name }) {
			return bad(fmt.Errorf("rule %q stands twice", r.Name))
		}
		d.rules = append(d.rules, r)
		batched = batched || r.SyncEvery > 0
	}
	inner := cfg.Store
	if batched {
		inner = shaper.NewBatchLimitStore(inner)
	}
	d.store = shaper.NewFallbackLimitStore(shaper.FallbackLimits{Store: inner, Timeout: cfg.StoreTimeout, OnAway: d.log.away})
	return d, nil
}

// Describe says in order what a request is held against, one line each.
func (d *Door) Describe() []string {
	out := []string{"1 deny: " + d.cfg.Deny.describe(), "2 allow, uncounted: " + d.cfg.Allow.describe(), "3 blocks of clients that were refused too often"}
	for i, r := range d.rules {
		out = append(out, fmt.Sprintf("%d rule %s: %s", i+4, r.Name, r.describe()))
	}
	return append(out, "rules are decided together: a request that one of them refuses costs the others nothing")
}

func (l List) describe() string {
	s := fmt.Sprintf("%d addresses, %d API keys, %d organisations", len(l.Addresses), len(l.APIKeys), len(l.Organisations))
	if l.Match != nil {
		s += ", and whom the application names"
	}
	return s
}

func (r *rule) describe() string {
	who, where := "everybody together", "all requests"
	if len(r.By) > 0 {
		who = strings.Join(r.By, " and ")
	}
	if len(r.Routes) > 0 {
		where = strings.Join(r.Routes, ", ")
	}
	s := fmt.Sprintf("%s, by %s, for %s", r.Policy, who, where)
	for _, plan := range slices.Sorted(maps.Keys(r.Plans)) {
		s += fmt.Sprintf("; plan %s: %s", plan, r.Plans[plan])
	}
	if r.Shadow {
		s += "; shadow"
	} else if r.Enforce > 0 && r.Enforce < 100 {
		s += fmt.Sprintf("; enforced for %g %% of the clients", r.Enforce)
	}
	mode := r.Away.Mode
	if mode == "" {
		mode = shaper.FailOpen
	}
	s += "; store away: " + string(mode)
	if mode == shaper.LocalShare {
		s += fmt.Sprintf(" of %g", r.Away.Share)
	}
	return s
}

// Handler returns next behind the door.
func (d *Door) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { d.serve(w, r, next) })
}

func (d *Door) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	start := time.Now()
	v := &visit{door: d, w: w, r: r, now: start}
	v.identify()
	pass := v.decide()
	d.cfg.Observer.LimitTook(time.Since(start))
	if !pass {
		return
	}
	if v.holdsPlaces() {
		stop := d.places.hold(d.store, v.taken())
		defer stop()
	}
	if len(v.asks) > 0 {
		r = r.WithContext(context.WithValue(r.Context(), visitKey{}, v))
	}
	next.ServeHTTP(w, r)
}
