package limithttp

import (
	"net/http"
	"net/netip"
	"time"

	"github.com/penstock-io/penstock/shaper"
)

// visit is one request at the door.
type visit struct {
	door   *Door
	w      http.ResponseWriter
	r      *http.Request
	now    time.Time
	client Client
	full   netip.Addr // with all its bits
	rules  []*rule    // those that apply
	asks   []shaper.Ask
	routes []string
	got    []shaper.Decision
}

type visitKey struct{}

// identify finds out who it is.
func (v *visit) identify() {
	if f := v.door.cfg.Identify; f != nil {
		v.client = f(v.r)
	} else {
		v.client.APIKey = keyOf(v.r)
	}
	if v.full = v.client.Address; !v.full.IsValid() {
		v.full = v.door.addresses.of(v.r)
	}
	v.client.Address = v.door.addresses.mask(v.full)
}

// decide reports whether the request may pass; if not, it was answered.
func (v *visit) decide() bool {
	d := v.door
	if d.cfg.Deny.has(v.r, v.client, v.full) {
		d.cfg.Observer.LimitDecided("deny", DeniedByList, shaper.FromStore)
		d.log.listed("deny", v)
		denied(v.w)
		return false
	}
	if d.cfg.Allow.has(v.r, v.client, v.full) {
		d.cfg.Observer.LimitDecided("allow", PassedByList, shaper.FromStore)
		return true
	}
	if v.ask(); len(v.asks) == 0 {
		return true
	}
	if ref, blocked := v.blocked(); blocked {
		v.refuse(ref)
		return false
	}
	var err error
	if v.got, err = d.store.Decide(v.r.Context(), v.asks); err != nil {
		// A bad Ask: refused rules would be refused at New, so this is our fault.
		d.log.failed(err)
		v.asks = nil
		return true
	}
	d.writeFields(v)
	ref, refused := v.judge()
	if refused {
		v.refuse(ref)
	}
	return !refused
}

// ask makes the questions of all rules that apply.
func (v *visit) ask() {
	place := ""
	for _, r := range v.door.rules {
		route, ok := r.applies(v.r)
		if !ok {
			continue
		}
		key := r.key(v.r, v.client, route)
		a := shaper.Ask{
			Limit: r.Name, Policy: r.policy(v.client.Plan), Key: key, Cost: min(r.cost(v.r), shaper.MaxPolicyN),
			Shadow: !r.enforced(key), SyncEvery: r.SyncEvery, Away: r.Away,
		}
		if a.Policy.Algorithm == shaper.Concurrency {
			if place == "" {
				place = v.door.places.name()
			}
			a.Place = place
		}
		v.rules, v.asks, v.routes = append(v.rules, r), append(v.asks, a), append(v.routes, route)
	}
}

// blocked reports whether a block of an earlier refusal stands.
func (v *visit) blocked() (Refusal, bool) {
	for i, r := range v.rules {
		if r.Escalation.Strikes == 0 || v.asks[i].Shadow {
			continue
		}
		if left := v.door.blocks.left(r.Name, v.asks[i].Key, v.now); left > 0 {
			v.got = make([]shaper.Decision, len(v.asks))
			v.got[i] = shaper.Decision{Limit: v.asks[i].Policy.Quota(), RetryAfter: left, Source: shaper.FromStore}
			v.door.writeFields(v)
			v.door.cfg.Observer.LimitDecided(r.Name, Blocked, shaper.FromStore)
			v.door.log.decided(v, i, Blocked, v.got[i])
			return v.door.refusal(r, left, true), true
		}
	}
	return Refusal{}, false
}

// judge tells everybody of the decisions and makes one refusal of those that
// refuse.
func (v *visit) judge() (ref Refusal, refused bool) {
	d := v.door
	for i, dec := range v.got {
		r, o := v.rules[i], Allowed
		switch {
		case dec.Source == "": // not asked: another rule had refused already
			continue
		case !dec.Allowed && v.asks[i].Shadow:
			o = WouldRefuse
		case !dec.Allowed:
			o = Refused
		}
		d.cfg.Observer.LimitDecided(r.Name, o, dec.Source)
		d.log.decided(v, i, o, dec)
		if o != Refused {
			continue
		}
		one := d.refusal(r, dec.RetryAfter, false)
		if dec.Source == shaper.FromClosed {
			one.Status = http.StatusServiceUnavailable
		}
		if left := v.strike(i); left > 0 {
			one.RetryAfter, one.Blocked = max(one.RetryAfter, left), true
		}
		ref = ref.with(one)
		refused = true
	}
	return ref, refused
}

// strike counts a refusal where the rule escalates, and returns how long the
// client is blocked.
func (v *visit) strike(i int) time.Duration {
	r, a := v.rules[i], v.asks[i]
	if r.Escalation.Strikes == 0 {
		return 0
	}
	o, now, err := v.door.store.Strike(v.r.Context(), r.Name, a.Key, r.Escalation)
	if err != nil {
		v.door.log.failed(err)
		return 0
	}
	left := o.Blocked(now)
	if left > 0 {
		v.door.blocks.set(r.Name, a.Key, v.now, left)
	}
	v.door.log.strike(v, i, o, now, left)
	return left
}

// taken are the questions whose units were really taken.
func (v *visit) taken() []shaper.Ask {
	var out []shaper.Ask
	for i, dec := range v.got {
		if dec.Taken > 0 {
			out = append(out, v.asks[i])
		}
	}
	return out
}

func (v *visit) holdsPlaces() bool {
	for i, dec := range v.got {
		if dec.Taken > 0 && v.asks[i].Policy.Algorithm == shaper.Concurrency {
			return true
		}
	}
	return false
}
