package limithttp

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/penstock-io/penstock/shaper"
)

// Refusal says why a request was refused.
type Refusal struct {
	// Status of the answer: 429; 413 where the cost is more than could ever be
	// granted; 503 where a rule is closed because its store is away.
	Status int
	// Rule that keeps the client waiting longest, and all that refuse.
	Rule  string
	Rules []string
	// RetryAfter is when to come back; shaper.Never where that does not help.
	RetryAfter time.Duration
	// Blocked says that the client went on in spite of refusals.
	Blocked bool
	// Documentation of the rule, a URL; or "".
	Documentation string
}

// refusal of one rule.
func (d *Door) refusal(r *rule, wait time.Duration, blocked bool) Refusal {
	ref := Refusal{Status: http.StatusTooManyRequests, Rule: r.Name, Rules: []string{r.Name}, RetryAfter: wait, Blocked: blocked, Documentation: r.Documentation}
	if wait == shaper.Never {
		ref.Status = http.StatusRequestEntityTooLarge
	}
	if ref.Documentation == "" && d.cfg.Documentation != "" {
		ref.Documentation = d.cfg.Documentation + "#" + r.Name
	}
	return ref
}

// with adds another rule's refusal; the one that is worse leads.
func (r Refusal) with(o Refusal) Refusal {
	if len(r.Rules) == 0 {
		return o
	}
	rules := append(slices.Clone(r.Rules), o.Rules...)
	rank := func(x Refusal) (int, time.Duration) {
		return slices.Index([]int{http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusRequestEntityTooLarge}, x.Status), x.RetryAfter
	}
	a, aw := rank(r)
	b, bw := rank(o)
	if b > a || b == a && bw > aw {
		r, o = o, r
	}
	r.Rules, r.Blocked = rules, r.Blocked || o.Blocked
	return r
}

// Seconds is RetryAfter in whole seconds, rounded up, at least 1; 0 for Never.
func (r Refusal) Seconds() int64 {
	if r.RetryAfter == shaper.Never {
		return 0
	}
	return max(1, int64(math.Ceil(r.RetryAfter.Seconds())))
}

// refuse answers the request.
func (v *visit) refuse(ref Refusal) {
	if f := v.door.cfg.Challenge; f != nil && ref.Status == http.StatusTooManyRequests && f(v.w, v.r, ref) {
		return
	}
	ref.Write(v.w)
}

// problem types of the draft on RateLimit fields, section 5.
const (
	typeQuota    = "https://iana.org/assignments/http-problem-types#quota-exceeded"
	typeReduced  = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
	typeAbnormal = "https://iana.org/assignments/http-problem-types#abnormal-usage-detected"
)

// Write answers a request with the refusal: status, Retry-After, and a problem
// document (RFC 9457) that names the rules, the wait and the documentation.
func (r Refusal) Write(w http.ResponseWriter) {
	p := struct {
		Type          string   `json:"type"`
		Title         string   `json:"title"`
		Status        int      `json:"status"`
		Detail        string   `json:"detail"`
		Rule          string   `json:"rule"`
		Violated      []string `json:"violated-policies"`
		RetryAfter    int64    `json:"retry_after,omitempty"`
		Documentation string   `json:"documentation,omitempty"`
		Fix           string   `json:"fix"`
	}{
		Type: typeQuota, Title: "Quota exceeded", Status: r.Status, Rule: r.Rule, Violated: r.Rules,
		RetryAfter: r.Seconds(), Documentation: r.Documentation,
	}
	p.Detail = fmt.Sprintf("The limit %q is used up.", r.Rule)
	p.Fix = fmt.Sprintf("Come back in %d s, and read the RateLimit fields of each answer to stay below the limit.", p.RetryAfter)
	switch {
	case r.Status == http.StatusServiceUnavailable:
		p.Type, p.Title = typeReduced, "Temporarily reduced capacity"
		p.Detail = fmt.Sprintf("The limit %q cannot be counted at the moment.", r.Rule)
		p.Fix = fmt.Sprintf("Come back in %d s.", p.RetryAfter)
	case r.Status == http.StatusRequestEntityTooLarge:
		p.Title = "More than could ever be granted"
		p.Detail = fmt.Sprintf("This request costs more than the limit %q ever grants at once.", r.Rule)
		p.Fix = "Split the request."
	case r.Blocked:
		p.Type, p.Title = typeAbnormal, "Blocked for a time"
		p.Detail = fmt.Sprintf("Too many requests were sent in spite of refusals by the limit %q.", r.Rule)
		p.Fix = fmt.Sprintf("Send nothing for %d s; each block that follows is longer.", p.RetryAfter)
	}
	h := w.Header()
	if p.RetryAfter > 0 {
		h.Set("Retry-After", strconv.FormatInt(p.RetryAfter, 10))
	}
	writeProblem(w, r.Status, p)
}

func writeProblem(w http.ResponseWriter, status int, p any) {
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(p)
}

// denied answers who is on the deny list.
func denied(w http.ResponseWriter) {
	writeProblem(w, http.StatusForbidden, map[string]any{
		"title": "Denied", "status": http.StatusForbidden,
		"detail": "This client is not served.", "fix": "Ask whoever runs this service.",
	})
}
