package api

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/penstock-io/penstock/queue"
	"github.com/penstock-io/penstock/shaper"
)

// Limits as the API writes them. A rate that is left out means no rate limit,
// a concurrency that is left out no limit of calls in flight.
type Limits struct {
	Rate        string `json:"rate,omitempty"`
	Burst       int    `json:"burst"`
	Headroom    string `json:"headroom"`
	Concurrency int    `json:"concurrency,omitempty"`
}

// LimitsOf writes limits.
func LimitsOf(l shaper.Limits) Limits {
	l = l.Normal()
	return Limits{Rate: l.Rate.String(), Burst: l.Burst, Headroom: max(0, l.Headroom).String(), Concurrency: l.Concurrency}
}

// ProviderStatus is what operators see of a provider.
type ProviderStatus struct {
	Name   string `json:"name"`
	Limits Limits `json:"limits"`
	// Version of the limits; it grows with each change.
	Version int64 `json:"version"`
	// InFlight calls now, over the whole fleet.
	InFlight int  `json:"in_flight"`
	Paused   bool `json:"paused"`
	// HeldUntil, if set, is until when nobody may call; HeldReason says why.
	HeldUntil  time.Time `json:"held_until,omitzero"`
	HeldReason string    `json:"held_reason,omitempty"`
	// Health is how the provider stands; absent where nothing is known yet.
	Health *Health `json:"health,omitempty"`
	// Observed is what was seen of it in the last ten minutes at most; only
	// where one provider was asked for, and absent where nothing was seen.
	Observed *Observed `json:"observed,omitempty"`
	// Cautious, if set, says why only one call at a time goes.
	Cautious string `json:"cautious,omitempty"`
	// LearningUntil, if set, is until when it goes at half its rate, after Redis
	// lost writes.
	LearningUntil time.Time `json:"learning_until,omitzero"`
	// Processes that used the gate lately.
	Processes int `json:"processes"`
	// Jobs by state; final ones for the provider's keep.
	Jobs map[queue.State]int64 `json:"jobs"`
	// Defaults of the provider's jobs.
	Defaults Defaults `json:"defaults"`

	// InForce are the same limits for the program.
	InForce shaper.Limits `json:"-"`
}

// Health is how a provider stands, and what follows from it.
type Health struct {
	// Adaptive is on, shadow (computed, and changes nothing) or off.
	Adaptive string `json:"adaptive"`
	// State is open, half_open, slow_start, shedding, throttled or closed.
	State string `json:"state"`
	// Factor is the share of the rate that failures leave, from (0, 1].
	Factor float64 `json:"factor"`
	// Ceiling is what refusals left of the rate, in calls a second; absent: none.
	Ceiling float64 `json:"ceiling,omitzero"`
	// Rate and Concurrency are in force now; absent: no limit.
	Rate        float64 `json:"rate,omitzero"`
	Concurrency int     `json:"concurrency,omitzero"`
	// OpenUntil is when an open breaker begins to probe.
	OpenUntil time.Time `json:"open_until,omitzero"`
	// Reason and ChangedAt say why and when it changed last.
	Reason    string    `json:"reason,omitempty"`
	ChangedAt time.Time `json:"changed_at,omitzero"`
}

// Observed is what was seen of a provider lately, over the whole fleet. Rates
// are calls a second, each a mean over five seconds.
type Observed struct {
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
	// Starts are calls that began; the others came back so.
	Starts    int `json:"starts"`
	Succeeded int `json:"succeeded"`
	Refused   int `json:"refused"`
	Failed    int `json:"failed"`
	TimedOut  int `json:"timed_out"`
	// Quantiles of the rate of starts, over the time in which there were any.
	RateP50 float64 `json:"rate_p50"`
	RateP95 float64 `json:"rate_p95"`
	RateP99 float64 `json:"rate_p99"`
	// Accepted is the rate that the provider took while it refused other calls;
	// absent: it refused none.
	Accepted float64 `json:"accepted,omitzero"`
	// Latency of successes, in seconds.
	LatencyP50 float64 `json:"latency_p50_s"`
	LatencyP95 float64 `json:"latency_p95_s"`
	LatencyP99 float64 `json:"latency_p99_s"`
	// InFlight is what rate and latency come to at their medians.
	InFlight float64 `json:"in_flight"`
}

// Defaults of a provider's jobs, where they do not say otherwise.
type Defaults struct {
	MaxBody  int64  `json:"max_body"`
	MaxCost  int    `json:"max_cost,omitempty"`
	Attempts int    `json:"attempts,omitempty"`
	MaxAge   string `json:"max_age,omitempty"`
	Keep     string `json:"keep,omitempty"`
}

// ProviderList is the answer to GET /v1/providers.
type ProviderList struct {
	Providers []ProviderStatus `json:"providers"`
}

// LimitsChange is the answer to PATCH /v1/providers/{p}.
type LimitsChange struct {
	Provider string `json:"provider"`
	Before   Limits `json:"before"`
	After    Limits `json:"after"`
	// DryRun says that nothing was changed.
	DryRun bool `json:"dry_run"`
}

func (s *Server) listProviders(w http.ResponseWriter, r *http.Request) {
	list, err := s.cfg.Fleet.Providers(r.Context())
	if err != nil {
		s.fail(w, r, err)
		return
	}
	if list == nil {
		list = []ProviderStatus{}
	}
	reply(w, http.StatusOK, ProviderList{Providers: list})
}

func (s *Server) getProvider(w http.ResponseWriter, r *http.Request) {
	p, err := s.cfg.Fleet.Provider(r.Context(), r.PathValue("provider"))
	if err != nil {
		s.fail(w, r, err)
		return
	}
	reply(w, http.StatusOK, p)
}

// patchProvider changes the limits that the body names; null takes a rate or a
// concurrency away.
func (s *Server) patchProvider(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("provider")
	dry, err := dryRun(r)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	body, err := readBody(w, r, maxPatch)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	status, err := s.cfg.Fleet.Provider(r.Context(), name)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	after, err := patchLimits(status.InForce, body)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	out := LimitsChange{Provider: name, Before: LimitsOf(status.InForce), After: LimitsOf(after), DryRun: dry}
	if !dry && out.Before != out.After {
		if err := s.cfg.Fleet.SetLimits(r.Context(), name, after); err != nil {
			s.fail(w, r, err)
			return
		}
		s.log.Info("limits changed", "provider", name, "by", callerOf(r.Context()).name, "before", out.Before, "after", out.After)
	}
	reply(w, http.StatusOK, out)
}

func dryRun(r *http.Request) (bool, error) {
	q, err := query(r, "dry_run")
	if err != nil {
		return false, err
	}
	v, given := q["dry_run"]
	switch v {
	case "", "true", "1":
		return given, nil
	case "false", "0":
		return false, nil
	}
	return false, wrong("dry_run", "write ?dry_run or ?dry_run=true", "must be true or false")
}

// patchLimits applies a change to l, and refuses what cannot be kept.
func patchLimits(l shaper.Limits, body []byte) (shaper.Limits, error) {
	fields, err := object(body, "a change of limits")
	if err != nil {
		return l, err
	}
	if len(fields) == 0 {
		return l, problem(CodeInvalid, `send e.g. {"rate": "50/s"}`, "nothing to change was sent")
	}
	for _, f := range fields {
		if err := patchField(&l, f); err != nil {
			return l, err
		}
	}
	l = l.Normal()
	if err := l.Validate(); err != nil {
		return l, problem(CodeInvalid, "", "%s", strings.TrimPrefix(err.Error(), shaper.ErrBadLimit.Error()+": "))
	}
	return l, nil
}

func patchField(l *shaper.Limits, f field) error {
	switch f.name {
	case "rate":
		l.Rate = shaper.Rate{}
		var s string
		if err := f.text(&s); err != nil || f.null() {
			return err
		}
		r, err := shaper.ParseRate(s)
		if err != nil {
			return wrong(f.name, "write calls per period, like 100/s, 12/m or 5/10s; null takes the limit away", "%s", strings.TrimPrefix(err.Error(), shaper.ErrBadLimit.Error()+": "))
		}
		l.Rate = r
	case "burst":
		l.Burst = 0
		return f.whole(&l.Burst)
	case "concurrency":
		l.Concurrency = 0
		return f.whole(&l.Concurrency)
	case "headroom":
		l.Headroom = 0
		if err := f.duration(&l.Headroom); err != nil || f.null() {
			return err
		}
		switch {
		case l.Headroom < 0:
			return wrong(f.name, "write 0s for none", "must not be negative")
		case l.Headroom == 0:
			l.Headroom = shaper.NoHeadroom
		}
	case "quotas", "limits", "adaptive", "when_store_away":
		return problem(CodeNotBuilt, "leave it out", "%s is not built yet", f.name)
	case "base_url", "headers", "timeout", "max_body", "allow_private", "retry", "keep":
		return wrong(f.name, "change it in the configuration file and restart; live are rate, burst, headroom and concurrency", "cannot be changed while running")
	default:
		return wrong(f.name, nearest(f.name, []string{"rate", "burst", "headroom", "concurrency"}), "is not a limit")
	}
	return nil
}

func (s *Server) pauseProvider(w http.ResponseWriter, r *http.Request) {
	s.switchProvider(w, r, "paused", s.cfg.Fleet.Pause)
}

func (s *Server) resumeProvider(w http.ResponseWriter, r *http.Request) {
	s.switchProvider(w, r, "resumed", s.cfg.Fleet.Resume)
}

// switchProvider pauses or resumes, and answers with what it came to.
func (s *Server) switchProvider(w http.ResponseWriter, r *http.Request, done string, f func(ctx context.Context, name string) error) {
	name := r.PathValue("provider")
	if err := f(r.Context(), name); err != nil {
		s.fail(w, r, err)
		return
	}
	s.log.Info("a provider was "+done, "provider", name, "by", callerOf(r.Context()).name)
	s.getProvider(w, r)
}
