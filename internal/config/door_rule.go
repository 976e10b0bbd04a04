package config

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/penstock-io/penstock/shaper"
	"github.com/penstock-io/penstock/shaper/limithttp"
)

// The modes of a rule.
const (
	ModeEnforce = "enforce"
	ModeShadow  = "shadow"
	ModeCanary  = "canary"
)

// DoorRule is one limit of the door.
type DoorRule struct {
	Name string
	// Line of the file where it stands.
	Line int
	// By what clients are told apart, as in the file: token, organisation,
	// address, route, header:NAME, or several with | between. Empty: one count
	// for all.
	By []string `json:",omitzero"`
	// Routes, as http.ServeMux patterns. Empty: all.
	Routes []string `json:",omitzero"`
	// Policy of clients without a plan, and those of plans.
	Policy shaper.Policy
	Plans  map[string]shaper.Policy `json:",omitzero"`
	// Cost of a request, and Costs by route.
	Cost  int64
	Costs map[string]int64 `json:",omitzero"`
	// PerRequest counts a batch as one; else each of its lines counts.
	PerRequest bool `json:",omitzero"`
	// Mode is ModeEnforce, ModeShadow or ModeCanary; Canary is its share in percent.
	Mode   string
	Canary float64 `json:",omitzero"`
	// Away is what happens while Redis is away.
	Away shaper.Away
	// SyncEvery lets each process take units ahead for so long.
	SyncEvery time.Duration `json:",omitzero"`
	// WarnAt is the share of the quota, in percent, from which answers warn.
	WarnAt     float64           `json:",omitzero"`
	Escalation shaper.Escalation `json:",omitzero"`
	Audit      bool              `json:",omitzero"`
	// Documentation of this rule, a URL.
	Documentation string `json:",omitzero"`
}

// rules reads the rules; there must be one.
func (r *doorReader) rules() {
	if !r.o.has("rules") {
		r.o.fault("rules", "is missing; write at least one, like {name: all, by: address, rate: 100/s}")
		return
	}
	before := len(r.faults)
	items := r.items(r.o.field("rules"))
	if len(items) == 0 && len(r.faults) == before {
		r.o.fault("rules", "is empty; write at least one, or take door out")
	}
	names := map[string]int{}
	for _, item := range items {
		rule := DoorRule{Line: item.line}
		r.rule(item, &rule)
		if first, ok := names[rule.Name]; ok && rule.Name != "" {
			r.fault(rule.Line, item.path+".name", "%s is the name of the rule on line %d, too; they would count together", rule.Name, first)
		} else {
			names[rule.Name] = rule.Line
		}
		r.d.Rules = append(r.d.Rules, rule)
	}
}

func (r *doorReader) rule(v value, rule *DoorRule) {
	before := len(r.faults)
	o := r.object(v, "door.rules", "name", "by", "routes", "algorithm", "rate", "burst", "concurrency", "lease", "plans", "cost", "costs", "count",
		"mode", "when_store_away", "sync_every", "warn_at", "escalation", "audit", "documentation")
	if !o.text("name", &rule.Name) {
		if !o.has("name") {
			o.fault("name", "is missing; answers, metrics and the log name the rule by it")
		}
	} else if !IsName(rule.Name) || rule.Name == "deny" || rule.Name == "allow" {
		o.fault("name", "must be [a-z0-9][a-z0-9._-]{0,62}, and not deny or allow")
	}
	r.by(o, rule)
	r.routes(o, rule)
	alg := r.algorithm(o)
	rule.Policy = r.policy(o, alg)
	r.plansOf(o, alg, rule)
	rule.Cost = 1
	o.units("cost", &rule.Cost)
	r.costs(o, rule)
	count := "jobs"
	o.word("count", &count, "jobs", "requests")
	rule.PerRequest = count == "requests"
	o.flag("audit", &rule.Audit)
	o.documentation(&rule.Documentation)
	o.duration("sync_every", &rule.SyncEvery, time.Millisecond, time.Minute)
	if s, ok := o.share("warn_at", 0); ok {
		rule.WarnAt = s
	}
	r.mode(o, rule)
	r.away(o, rule)
	r.escalation(o, rule)
	if len(r.faults) == before {
		r.ruleRelations(o, rule)
	}
}

// algorithm is what counts: gcra where it is left out.
func (r *doorReader) algorithm(o *object) shaper.Algorithm {
	name := string(shaper.GCRA)
	if o.has("concurrency") {
		name = string(shaper.Concurrency)
	}
	given := name
	var known []string
	for _, a := range shaper.Algorithms() {
		known = append(known, string(a))
	}
	o.word("algorithm", &given, known...)
	if o.has("concurrency") && given != name {
		o.fault("concurrency", "means nothing for algorithm %s; take one of the two out", given)
	}
	return shaper.Algorithm(given)
}

// policy reads rate and burst, or concurrency and lease, of a rule or a plan.
func (r *doorReader) policy(o *object, alg shaper.Algorithm) shaper.Policy {
	p := shaper.Policy{Algorithm: alg}
	before := len(r.faults)
	if alg == shaper.Concurrency {
		n := 0
		o.whole("concurrency", &n, 1, shaper.MaxPlaces)
		p.Places = int64(n)
		o.duration("lease", &p.Lease, time.Second, shaper.MaxPlaceLease)
		for _, f := range []string{"rate", "burst"} {
			if o.has(f) {
				o.fault(f, "means nothing beside concurrency, which limits requests at a time; write another rule for it")
			}
		}
		if !o.has("concurrency") {
			o.fault("concurrency", "is missing; it is how many requests a client may have under way, like 20")
		}
		return p
	}
	r.rate(o, &p.Rate)
	o.units("burst", &p.Burst)
	if o.has("lease") {
		o.fault("lease", "means nothing without concurrency; take it out")
	}
	if !o.has("rate") && !o.has("concurrency") {
		o.fault("rate", "is missing; it is how much a client may do, like 100/s, 1000/h or 5/10s (or concurrency: 20)")
	}
	if len(r.faults) > before {
		return p
	}
	if err := p.Validate(); err != nil && o.has("rate") {
		text := strings.TrimPrefix(err.Error(), shaper.ErrBadLimit.Error()+": ")
		field := "rate"
		if o.has("burst") && strings.Contains(text, "burst") {
			field = "burst"
		}
		o.fault(field, "%s", strings.TrimPrefix(text, field+" "))
	}
	return p
}

// rate reads a rate; what it says of nought is for callers, not for providers.
func (r *doorReader) rate(o *object, into *shaper.Rate) {
	before := len(r.faults)
	o.rate("rate", into)
	for i := range r.faults[before:] {
		f := &r.faults[before+i]
		f.Text = strings.Replace(f.Text, "leave it out for no limit, or pause the provider", "to let nobody pass, name them in door.deny", 1)
	}
}

// plansOf reads the policies of plans.
func (r *doorReader) plansOf(o *object, alg shaper.Algorithm, rule *DoorRule) {
	for _, e := range r.entries(o.field("plans")) {
		at := join(o.path, "plans."+e.key)
		switch {
		case !IsName(e.key):
			r.fault(e.line, at, "a plan's name must be [a-z0-9][a-z0-9._-]{0,62}")
			continue
		case e.val.node == nil:
			r.fault(e.line, at, "has no settings; it needs a rate, like {rate: 1000/s, burst: 2000}")
			continue
		}
		e.val.line = e.line
		p := r.object(e.val, "door.rules.plans", "rate", "burst", "concurrency", "lease")
		p.line = e.line
		if alg != shaper.Concurrency && p.has("concurrency") {
			p.fault("concurrency", "all plans of a rule count alike, and this one counts a rate; write another rule for it")
			continue
		}
		if rule.Plans == nil {
			rule.Plans = map[string]shaper.Policy{}
		}
		rule.Plans[e.key] = r.policy(p, alg)
	}
}

// units reads a number of units, at least 1.
func (o *object) units(name string, into *int64) {
	n := 0
	before := len(o.r.faults)
	o.whole(name, &n, 1, shaper.MaxPolicyN)
	if o.has(name) && len(o.r.faults) == before && n > 0 {
		*into = int64(n)
	}
}

// costs reads what requests cost by route.
func (r *doorReader) costs(o *object, rule *DoorRule) {
	for _, e := range r.entries(o.field("costs")) {
		at := join(o.path, "costs."+e.key)
		if why := r.checkRoute(e.key); why != "" {
			r.fault(e.line, at, "%s", why)
			continue
		}
		one := &object{r: r.reader, path: join(o.path, "costs"), line: e.line, vals: map[string]value{e.key: e.val}, lines: map[string]int{e.key: e.line}}
		var n int64
		if e.val.node == nil {
			r.fault(e.line, at, "has no value; give it one, or take the line out")
			continue
		}
		if one.units(e.key, &n); n == 0 {
			continue
		}
		if rule.Costs == nil {
			rule.Costs = map[string]int64{}
		}
		rule.Costs[e.key] = n
	}
}

// ruleRelations refuses what is fine by itself and is not together; package
// limithttp's word is the last.
func (r *doorReader) ruleRelations(o *object, rule *DoorRule) {
	bad := func(err error) string { return strings.TrimPrefix(err.Error(), shaper.ErrBadLimit.Error()+": ") }
	policies := append([]shaper.Policy{rule.Policy}, slices.Collect(maps.Values(rule.Plans))...)
	most := policies[0].Most()
	for _, p := range policies {
		most = min(most, p.Most())
		if err := shaper.CheckSync(p, rule.SyncEvery); err != nil {
			o.fault("sync_every", "%s", strings.TrimPrefix(bad(err), "sync_every "))
			return
		}
	}
	if rule.Cost > most {
		o.fault("cost", "%d could never be granted: at most %d are, at once", rule.Cost, most)
		return
	}
	for _, route := range slices.Sorted(maps.Keys(rule.Costs)) {
		if rule.Costs[route] > most {
			o.fault("costs", "%d of %s could never be granted: at most %d are, at once", rule.Costs[route], route, most)
			return
		}
	}
	if rule.Mode == ModeShadow && o.has("escalation") {
		o.fault("escalation", "means nothing for a shadow, which refuses nobody; take it out")
		return
	}
	for _, who := range []string{"token", "organisation"} {
		if slices.Equal(rule.By, []string{who}) {
			o.warn("by", "all requests without a known %s share one count; write %s|address to count them by address", who, who)
		}
	}
	if _, err := limithttp.New(limithttp.Config{Store: shaper.NewMemoryLimitStore(shaper.MemoryLimits{}), Rules: []limithttp.Rule{rule.HTTP()}}); err != nil {
		r.fault(rule.Line, o.path, "%s", bad(err))
	}
}

// HTTP is the rule as package limithttp takes it.
func (d DoorRule) HTTP() limithttp.Rule {
	out := limithttp.Rule{
		Name: d.Name, Routes: d.Routes, Policy: d.Policy, Plans: d.Plans, Cost: d.Cost, Costs: d.Costs, PerRequest: d.PerRequest,
		Shadow: d.Mode == ModeShadow, Enforce: d.Canary, Audit: d.Audit, Away: d.Away, SyncEvery: d.SyncEvery, WarnAt: d.WarnAt,
		Escalation: d.Escalation, Documentation: d.Documentation,
	}
	for _, b := range d.By {
		out.By = append(out.By, byKey(b))
	}
	return out
}

// byKey writes a part of by as package limithttp does: a token is its API key.
func byKey(part string) string {
	alts := strings.Split(part, "|")
	for i, a := range alts {
		if a == "token" {
			alts[i] = "api_key"
		}
	}
	return strings.Join(alts, "|")
}
