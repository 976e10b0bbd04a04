package fragile

import (
	"fmt"
	"time"
)

// Live is a snapshot for a live view.
type Live struct {
	Name string `json:"name"`
	// At is the provider's time.
	At time.Duration `json:"at_ns"`
	// Rate is how many calls arrived in the last second, to a tenth of it.
	Rate int `json:"rate"`
	// Limit is the rate in force; 0 for none.
	Limit    float64 `json:"limit_per_second"`
	InFlight int     `json:"in_flight"`
	// Calls, Accepted, Refused and Succeeded (jobs, and calls without a key) so far.
	Calls     int `json:"calls"`
	Accepted  int `json:"accepted"`
	Refused   int `json:"refused"`
	Succeeded int `json:"succeeded"`
	// Used share of the allowed between the first and the last accepted call.
	Used float64 `json:"used"`
	// Down says that the script has an outage now.
	Down bool `json:"down"`
}

// Live returns the snapshot.
func (p *Provider) Live() Live {
	p.mu.Lock()
	defer p.mu.Unlock()
	r, now := p.run, time.Since(p.run.zero)
	a := r.acc
	l := Live{
		Name: r.cfg.Name, At: now, Rate: a.recent.lastSecond(now), Limit: r.rateAt(now).PerSecond(),
		InFlight: a.inFlight, Calls: a.calls, Accepted: a.accepted, Refused: a.ends[RefusedRate] + a.ends[RefusedInFlight],
		Succeeded: a.succeeded + a.keylessOK, Down: r.down(now),
	}
	if a.accepted > 0 {
		if allowed := r.allowed(a.first, a.last); allowed > 0 {
			l.Used = float64(a.accepted) / allowed
		}
	}
	return l
}

// String is one line of a live view.
func (l Live) String() string {
	s := fmt.Sprintf("%s  %7s  %5d/s  in flight %4d  calls %7d  refused %5d", l.Name, l.At.Round(100*time.Millisecond), l.Rate, l.InFlight, l.Calls, l.Refused)
	if l.Used > 0 {
		s += fmt.Sprintf("  used %5.1f %%", 100*l.Used)
	}
	if l.Down {
		s += "  OUTAGE"
	}
	return s
}
