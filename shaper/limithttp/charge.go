package limithttp

import (
	"context"
	"fmt"
	"time"

	"github.com/penstock-io/penstock/shaper"
)

// LimitedError is a refusal by Charge or ChargeUpTo.
type LimitedError struct{ Refusal Refusal }

// Error names the rule and the wait.
func (e *LimitedError) Error() string {
	return fmt.Sprintf("limit %q: retry after %s", e.Refusal.Rule, e.Refusal.RetryAfter)
}

// Charge takes units more from every limit that counted the request of ctx,
// all or none: for what only the body tells, like the size of a batch (one
// unit was taken already). Concurrency and rules with PerRequest are left out.
// Call it before the answer is begun, so that the fields show it. A
// *LimitedError says that nothing was taken; its Refusal.Write answers the
// request. Where no door stands it does nothing.
func Charge(ctx context.Context, units int64) error {
	more, err := charge(ctx, units)
	if more == nil {
		return err
	}
	more.door.writeFields(more)
	if ref, refused := more.judge(); refused {
		return &LimitedError{Refusal: ref}
	}
	return nil
}

// ChargeUpTo is Charge for what may be served in part, like a stream of lines:
// it takes as many of the units as all limits have room for, and returns how
// many. If that is fewer, the error is a *LimitedError whose
// Refusal.RetryAfter is when one more could be taken. Where no door stands all
// are granted.
func ChargeUpTo(ctx context.Context, units int64) (taken int64, err error) {
	units = max(0, units)
	more, err := charge(ctx, units)
	if more == nil {
		return units, err
	}
	room, refused := more.room()
	if !refused {
		more.door.writeFields(more)
		more.judge() // counts and logs
		return min(units, shaper.MaxPolicyN), nil
	}
	after := more.got
	if room > 0 {
		part, err := charge(ctx, room)
		if err != nil {
			return 0, err
		}
		after = part.got
		part.door.writeFields(part)
		if _, refused := part.room(); !refused { // else others were quicker
			part.judge()
			taken = room
		}
	}
	if taken == 0 {
		more.door.writeFields(more)
	}
	more.onlyShort(after, taken > 0)
	ref, _ := more.judge()
	return taken, &LimitedError{Refusal: ref}
}

// charge asks for units more; nil where there is nothing to ask.
func charge(ctx context.Context, units int64) (*visit, error) {
	v, ok := ctx.Value(visitKey{}).(*visit)
	if !ok || units <= 0 {
		return nil, nil
	}
	more := &visit{door: v.door, w: v.w, r: v.r, now: time.Now(), client: v.client, full: v.full}
	for i, a := range v.asks {
		if a.Policy.Algorithm == shaper.Concurrency || v.rules[i].PerRequest {
			continue
		}
		a.Cost = min(units, shaper.MaxPolicyN)
		more.rules, more.asks, more.routes = append(more.rules, v.rules[i]), append(more.asks, a), append(more.routes, v.routes[i])
	}
	if len(more.asks) == 0 {
		return nil, nil
	}
	var err error
	if more.got, err = v.door.store.Decide(ctx, more.asks); err != nil {
		return nil, err
	}
	return more, nil
}

// room is what all enforced limits that refuse could still grant.
func (v *visit) room() (room int64, refused bool) {
	for i, d := range v.got {
		if d.Allowed || v.asks[i].Shadow || d.Source == "" {
			continue
		}
		if !refused || d.Remaining < room {
			room, refused = d.Remaining, true
		}
	}
	return room, refused
}

// onlyShort makes v's refusals those of the limits that have no room for one
// unit more, with the time until they have; after is what they said last, and
// heard says that the others were judged already.
func (v *visit) onlyShort(after []shaper.Decision, heard bool) {
	short := func(i int) bool { return !v.got[i].Allowed && !v.asks[i].Shadow }
	empty := false
	for i := range after {
		empty = empty || short(i) && after[i].Remaining == 0
	}
	for i := range v.got {
		switch d := &v.got[i]; {
		case !short(i):
			if heard {
				d.Source = ""
			}
		case empty && after[i].Remaining > 0: // not what is in the way
			d.Source = ""
		case after[i].Reset > 0:
			d.RetryAfter = after[i].Reset
		case d.RetryAfter == shaper.Never:
			d.RetryAfter = time.Second
		}
	}
}
