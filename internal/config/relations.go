package config

import (
	"fmt"
	"time"
)

// relations warns of settings that each are fine and together surprise.
func (r *reader) relations(o *object, p *Provider) {
	l := p.Limits
	rate := l.Rate.PerSec()
	if l.Rate.IsZero() && !o.has("rate") {
		if l.Concurrency == 0 && !o.has("concurrency") {
			o.r.warn(p.Line, o.path, "has neither rate nor concurrency: its calls are not limited at all")
		} else {
			o.r.warn(p.Line, o.path, "has no rate: only the calls in flight are limited")
		}
		if o.has("burst") || o.has("headroom") {
			o.fault(pick(o, "burst", "headroom"), "means nothing without a rate; add one, or take it out")
		}
	}
	if n := int64(l.Burst); rate > 0 && n > l.Rate.N {
		o.warn("burst", "%d is more than the rate allows in its period (%s): a provider that counts exactly will refuse some", n, l.Rate)
	}
	if h := max(0, l.Normal().Headroom); rate > 0 && h > l.Rate.Per/2 {
		o.warn("headroom", "%s beside a period of %s leaves %d%% of %s; write the same rate over a longer period, or less headroom",
			FormatDuration(h), FormatDuration(l.Rate.Per), 100*l.Rate.Per/(l.Rate.Per+h), l.Rate)
	}
	if rate > 0 && l.Concurrency > 0 {
		each := time.Duration(float64(l.Concurrency) / rate * float64(time.Second))
		most := rate * p.Timeout.Seconds()
		switch {
		case each < 10*time.Millisecond:
			o.warn("concurrency", "%d in flight reach %s only if a call takes at most %s; more will be needed", l.Concurrency, l.Rate, each.Round(time.Microsecond))
		case most >= 1 && float64(l.Concurrency) > most+float64(l.Burst):
			o.warn("concurrency", "%d can never be in flight: %s with a timeout of %s are at most %d", l.Concurrency, l.Rate, FormatDuration(p.Timeout), int(most)+l.Burst)
		}
	}
	r.retryRelations(o, p)
}

func (r *reader) retryRelations(o *object, p *Provider) {
	if p.Retry.MaxAge < p.Retry.Base && p.Retry.Attempts > 1 {
		o.warn("retry", "max_age %s ends a job before its first retry (base %s)", FormatDuration(p.Retry.MaxAge), FormatDuration(p.Retry.Base))
	}
	if p.Retry.MaxAge < p.Timeout {
		o.warn("timeout", "%s is longer than a job lives (max_age %s)", FormatDuration(p.Timeout), FormatDuration(p.Retry.MaxAge))
	}
	if p.Keep < p.Retry.MaxAge && o.has("keep") {
		o.warn("keep", "%s is shorter than max_age %s: a producer that repeats a late job may have it done twice", FormatDuration(p.Keep), FormatDuration(p.Retry.MaxAge))
	}
}

func pick(o *object, names ...string) string {
	for _, n := range names {
		if o.has(n) {
			return n
		}
	}
	panic(fmt.Sprintf("none of %v is set", names))
}
