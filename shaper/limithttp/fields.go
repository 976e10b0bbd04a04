package limithttp

import (
	"fmt"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/dunglas/httpsfv"

	"github.com/penstock-io/penstock/shaper"
)

// Dialect is a family of header fields that tell a client its limits.
type Dialect string

// The dialects. Every answer carries those that are configured, whether the
// request passed or not. Rules that are not enforced for the client are not
// shown.
const (
	// FieldsIETF: RateLimit-Policy and RateLimit of the current draft
	// (draft-ietf-httpapi-ratelimit-headers-10 and -11), one item for each rule.
	FieldsIETF Dialect = "ietf"
	// FieldsThree: RateLimit-Limit, -Remaining and -Reset (seconds from now) of
	// the drafts up to -06, of the rule that has least left.
	FieldsThree Dialect = "ratelimit"
	// FieldsX: X-RateLimit-Limit, -Remaining and -Reset (seconds since 1970, as
	// GitHub has it), of the same rule.
	FieldsX Dialect = "x-ratelimit"
	// FieldsXDelta: as FieldsX, with Reset in seconds from now.
	FieldsXDelta Dialect = "x-ratelimit-delta"
)

// Dialects lists every dialect.
func Dialects() []Dialect { return []Dialect{FieldsIETF, FieldsThree, FieldsX, FieldsXDelta} }

// WarningHeader is on answers to clients that have used much of a quota
// (Rule.WarnAt): the rule and the share used, like `"per-key";used=85`.
const WarningHeader = "Penstock-Limit-Warning"

// effective is the draft's effective window of a decision in seconds: how
// long no more than Remaining is to be had. -1: none.
func effective(d shaper.Decision) int64 {
	w := d.Reset
	if !d.Allowed {
		w = d.RetryAfter
	}
	if w <= 0 {
		return -1
	}
	return int64(math.Ceil(w.Seconds()))
}

// writeFields sets the configured fields of an answer.
func (d *Door) writeFields(v *visit) {
	var policies, limits, warnings httpsfv.List
	least, leastUsed := -1, 0.0
	for i, dec := range v.got {
		if v.asks[i].Shadow {
			continue
		}
		policies = append(policies, policyItem(v.rules[i].Name, v.asks[i].Policy))
		switch dec.Source {
		case "", shaper.FromOpen, shaper.FromClosed:
			continue // nobody knows what is left
		}
		limits = append(limits, limitItem(v.rules[i].Name, dec))
		used := usedPercent(v.asks[i].Policy, dec)
		if least < 0 || lessLeft(dec, v.got[least], used, leastUsed) {
			least, leastUsed = i, used
		}
		if v.rules[i].WarnAt > 0 && used >= v.rules[i].WarnAt {
			w := httpsfv.NewItem(v.rules[i].Name)
			w.Params.Add("used", int64(used))
			warnings = append(warnings, w)
		}
	}
	h := v.w.Header()
	for _, f := range d.cfg.Fields {
		switch {
		case f == FieldsIETF:
			setList(h, "RateLimit-Policy", policies)
			setList(h, "RateLimit", limits)
		case least >= 0:
			setThree(h, f, v.got[least], v.now)
		}
	}
	setList(h, WarningHeader, warnings)
}

// lessLeft reports that a is nearer to its end than b.
func lessLeft(a, b shaper.Decision, aUsed, bUsed float64) bool {
	if a.Allowed != b.Allowed {
		return !a.Allowed
	}
	if !a.Allowed {
		return a.RetryAfter > b.RetryAfter
	}
	return aUsed > bUsed
}

// usedPercent is the used share of what could be taken at once: of a bucket's
// burst, else of the quota.
func usedPercent(p shaper.Policy, d shaper.Decision) float64 {
	most := float64(p.Most()) * float64(d.Limit) / float64(p.Quota()) // of a local share, that part
	return max(0, 100-100*float64(d.Remaining)/most)
}

// policyItem is "name";q=100;w=60. A window that is no whole number of seconds
// cannot be said, and is left out.
func policyItem(name string, p shaper.Policy) httpsfv.Item {
	it := httpsfv.NewItem(name)
	it.Params.Add("q", p.Quota())
	switch {
	case p.Algorithm == shaper.Concurrency:
		it.Params.Add("qu", "concurrent-requests")
	case p.Rate.Per%time.Second == 0:
		it.Params.Add("w", int64(p.Rate.Per/time.Second))
	}
	return it
}

// limitItem is "name";r=50;t=30.
func limitItem(name string, d shaper.Decision) httpsfv.Item {
	it := httpsfv.NewItem(name)
	it.Params.Add("r", d.Remaining)
	if t := effective(d); t >= 0 {
		it.Params.Add("t", t)
	}
	return it
}

func setList(h http.Header, name string, l httpsfv.List) {
	if len(l) == 0 {
		return
	}
	s, err := httpsfv.Marshal(l)
	if err != nil { // names are checked and numbers bounded
		panic(fmt.Sprintf("limithttp: %s: %v", name, err))
	}
	h.Set(name, s)
}

// setThree sets limit, remaining and reset of one decision.
func setThree(h http.Header, f Dialect, d shaper.Decision, now time.Time) {
	prefix := "X-RateLimit-"
	if f == FieldsThree {
		prefix = "RateLimit-"
	}
	reset := max(0, effective(d))
	if f == FieldsX {
		reset += now.Unix()
	}
	h.Set(prefix+"Limit", strconv.FormatInt(d.Limit, 10))
	h.Set(prefix+"Remaining", strconv.FormatInt(d.Remaining, 10))
	h.Set(prefix+"Reset", strconv.FormatInt(reset, 10))
}
