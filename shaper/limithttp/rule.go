package limithttp

import (
	"fmt"
	"hash/fnv"
	"maps"
	"math"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/penstock-io/penstock/shaper"
)

// Rule is one limit: for whom, for which requests, how much.
type Rule struct {
	// Name in RateLimit fields, answers, metrics and logs: [a-z0-9][a-z0-9._-]{0,62}. Required.
	Name string
	// By is what a client is told apart by, of:
	//
	//	api_key       Client.APIKey
	//	organisation  Client.Organisation
	//	address       Client.Address, an IPv6 one by its /64
	//	route         the pattern of Routes that matched
	//	header:Name   a header's value
	//
	// "api_key|address" is the first of them that the request has. Several
	// parts make one key. Who has none of a part shares one count with all
	// others who have not. Empty: one count for everybody.
	//
	// A hierarchy is several rules: by key, by organisation, and by nothing.
	By []string
	// Routes the rule is for, as http.ServeMux patterns ("POST /v1/jobs").
	// Empty: all.
	Routes []string
	// Policy of clients without a plan of their own. Required.
	Policy shaper.Policy
	// Plans by Client.Plan.
	Plans map[string]shaper.Policy
	// Cost of a request. Zero: 1.
	Cost int64
	// Costs by route (a pattern, as in Routes), the most specific first.
	Costs map[string]int64
	// CostOf, if set, is asked for a request's cost instead; below 1 means 1.
	// It must not read the body: see Charge for what only the body tells.
	CostOf func(*http.Request) int64
	// PerRequest keeps Charge and ChargeUpTo from this rule: it counts requests,
	// whatever they hold.
	PerRequest bool

	// Shadow decides, counts and logs, and refuses nobody.
	Shadow bool
	// Enforce is the share of clients, in percent, that the rule is enforced
	// for, chosen by a stable hash; for the others it is a shadow. Zero: 100.
	Enforce float64
	// Audit writes every decision of the rule to Config.Audit.
	Audit bool
	// Away is what happens while the store is away: see shaper.Away.
	Away shaper.Away
	// SyncEvery lets each process take units ahead for so long: see
	// shaper.BatchLimitStore, and its error bound. Zero: exact.
	SyncEvery time.Duration
	// WarnAt is the share of the quota, in percent, above whose use an answer
	// carries the header Penstock-Limit-Warning. Zero: never.
	WarnAt float64
	// Escalation blocks who goes on in spite of refusals. Zero: never.
	Escalation shaper.Escalation
	// Documentation of this rule, a URL. Empty: Config.Documentation with the
	// rule's name as fragment.
	Documentation string
}

var ruleName = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,62}$`)

// part is one of By, read: alternatives in their order.
type part []source

// source is where a value comes from.
type source struct{ kind, header string }

// rule is a Rule, ready.
type rule struct {
	Rule
	by     []part
	routes *patterns // nil: all
	costs  *patterns
}

// patterns finds which of some http.ServeMux patterns a request matches.
type patterns struct{ mux *http.ServeMux }

func newPatterns(field string, ps []string) (p *patterns, err error) {
	defer func() { // ServeMux has no other way to refuse a pattern
		if r := recover(); r != nil {
			p, err = nil, fmt.Errorf("%s: %v", field, r)
		}
	}()
	mux := http.NewServeMux()
	for _, s := range ps {
		mux.Handle(s, http.NotFoundHandler())
	}
	return &patterns{mux}, nil
}

// match returns the pattern that r matches, "" for none.
func (p *patterns) match(r *http.Request) string {
	_, pattern := p.mux.Handler(r)
	return pattern
}

// newRule checks a rule; the error wraps shaper.ErrBadLimit and names the field.
func newRule(in Rule) (*rule, error) {
	bad := func(format string, args ...any) (*rule, error) {
		return nil, fmt.Errorf("%w: rule %q: %s", shaper.ErrBadLimit, in.Name, fmt.Sprintf(format, args...))
	}
	if !ruleName.MatchString(in.Name) {
		return bad("a name is 1 to 63 of a-z 0-9 . _ - and begins with a letter or digit")
	}
	r := &rule{Rule: in}
	for _, b := range in.By {
		p, err := readPart(b)
		if err != nil {
			return bad("by: %v", err)
		}
		r.by = append(r.by, p)
	}
	var err error
	if len(in.Routes) > 0 {
		if r.routes, err = newPatterns("routes", in.Routes); err != nil {
			return bad("%v", err)
		}
	}
	if r.costs, err = newPatterns("costs", slices.Sorted(maps.Keys(in.Costs))); err != nil {
		return bad("%v", err)
	}
	if err := in.checkPolicies(); err != nil {
		return nil, fmt.Errorf("rule %q: %w", in.Name, err)
	}
	if err := in.checkNumbers(); err != nil {
		return bad("%v", err)
	}
	if slices.ContainsFunc(r.by, func(p part) bool { return slices.Contains(p, source{kind: "route"}) }) && len(in.Routes) == 0 {
		return bad("by route needs routes: the patterns that tell them apart")
	}
	return r, nil
}

func readPart(s string) (part, error) {
	var p part
	for _, alt := range strings.Split(s, "|") {
		name, header, isHeader := strings.Cut(alt, ":")
		switch {
		case isHeader && name == "header" && header != "" && !strings.ContainsAny(header, " \t\r\n:"):
			p = append(p, source{"header", http.CanonicalHeaderKey(header)})
		case !isHeader && slices.Contains([]string{"api_key", "organisation", "address", "route"}, alt):
			p = append(p, source{kind: alt})
		default:
			return nil, fmt.Errorf("%q is unknown; use api_key, organisation, address, route, header:Name, or several with | between", alt)
		}
	}
	return p, nil
}

// policies are the rule's own and those of its plans.
func (r Rule) policies() map[string]shaper.Policy {
	out := map[string]shaper.Policy{"policy": r.Policy}
	for plan, p := range r.Plans {
		out["plan "+plan] = p
	}
	return out
}

func (r Rule) checkPolicies() error {
	for name, p := range r.policies() {
		if err := p.Validate(); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if p.Algorithm != r.Policy.Algorithm {
			return fmt.Errorf("%w: %s: all plans of a rule have one algorithm, %s", shaper.ErrBadLimit, name, r.Policy.Algorithm)
		}
		if err := shaper.CheckSync(p, r.SyncEvery); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		for route, c := range r.Costs {
			if c > p.Most() {
				return fmt.Errorf("%w: %s: the cost %d of %s could never be granted, at most %d", shaper.ErrBadLimit, name, c, route, p.Most())
			}
		}
		if r.Cost > p.Most() {
			return fmt.Errorf("%w: %s: the cost %d could never be granted, at most %d", shaper.ErrBadLimit, name, r.Cost, p.Most())
		}
	}
	if err := r.Away.Validate(); err != nil {
		return fmt.Errorf("away: %w", err)
	}
	return r.Escalation.Validate()
}

func (r Rule) checkNumbers() error {
	for route, c := range r.Costs {
		if c < 1 {
			return fmt.Errorf("costs: %s must cost at least 1, not %d; to exempt it, leave it out of the rule's routes", route, c)
		}
	}
	switch {
	case r.Cost < 0:
		return fmt.Errorf("cost must be at least 1, not %d", r.Cost)
	case !(r.Enforce >= 0 && r.Enforce <= 100): // NaN, too
		return fmt.Errorf("enforce must be from 0 to 100 percent of the clients (0 means 100), not %v", r.Enforce)
	case r.Shadow && r.Enforce != 0:
		return fmt.Errorf("a shadow is enforced for nobody; leave out shadow, or enforce")
	case !(r.WarnAt >= 0 && r.WarnAt <= 100):
		return fmt.Errorf("warn_at must be from 0 to 100 percent of the quota (0 means never), not %v", r.WarnAt)
	case r.Shadow && r.Escalation.Strikes > 0:
		return fmt.Errorf("a shadow blocks nobody; leave out shadow, or escalation")
	}
	return nil
}

// applies returns the route that matched, and whether the rule is for r.
func (r *rule) applies(req *http.Request) (route string, ok bool) {
	if r.routes == nil {
		return "", true
	}
	route = r.routes.match(req)
	return route, route != ""
}

// key is what the client is counted under: every part with its length, so
// that no two clients are written alike.
func (r *rule) key(req *http.Request, c Client, route string) string {
	var b strings.Builder
	for _, p := range r.by {
		kind, v := "", ""
		for _, s := range p {
			if v = s.value(req, c, route); v != "" {
				kind = s.kind
				break
			}
		}
		fmt.Fprintf(&b, "%s:%d:%s;", kind, len(v), v)
	}
	return b.String()
}

func (s source) value(req *http.Request, c Client, route string) string {
	switch s.kind {
	case "api_key":
		return c.APIKey
	case "organisation":
		return c.Organisation
	case "address":
		if c.Address.IsValid() {
			return c.Address.String()
		}
		return ""
	case "route":
		return route
	}
	return strings.Join(req.Header.Values(s.header), ",")
}

// cost of a request, at least 1.
func (r *rule) cost(req *http.Request) int64 {
	if r.CostOf != nil {
		return max(1, r.CostOf(req))
	}
	if len(r.Costs) > 0 {
		if c := r.Costs[r.costs.match(req)]; c > 0 {
			return c
		}
	}
	return max(1, r.Cost)
}

// policy of a client's plan.
func (r *rule) policy(plan string) shaper.Policy {
	if p, ok := r.Plans[plan]; ok {
		return p
	}
	return r.Policy
}

// enforced tells whether the rule is enforced for a client: always the same
// answer for the same rule, share and key, and a larger share keeps all whom a
// smaller one had.
func (r *rule) enforced(key string) bool {
	switch {
	case r.Shadow:
		return false
	case r.Enforce == 0 || r.Enforce == 100:
		return true
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(r.Name + "\x00" + key))
	x := h.Sum64()
	x ^= x >> 33 // fnv's high bits are poor for short inputs: MurmurHash3's finaliser
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	return float64(x)/math.MaxUint64*100 < r.Enforce
}
