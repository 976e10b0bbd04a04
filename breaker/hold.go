package breaker

import "time"

// Hold is "nobody before Until". The zero value holds nobody.
type Hold struct {
	Until time.Time
	// Capped says that the provider asked for longer than Holding.Max: nobody
	// knows whether it is ready at Until, so the breaker probes then.
	Capped bool
}

// HoldFor returns the hold that a stated wait means, and whether it was cut to
// Holding.Max. chance is a random number from [0, 1): it makes the hold longer,
// never shorter. The zero Hold means that the wait concerns only the job that
// was told (it is at most Holding.Min), or is no wait at all.
func HoldFor(now time.Time, wait time.Duration, cfg Config, chance float64) Hold {
	h := cfg.Normal().Holding
	if wait <= h.Min {
		return Hold{}
	}
	length := min(wait, h.Max)
	length += time.Duration(float64(length) * h.Jitter * min(1, max(0, chance)))
	return Hold{Until: now.Add(length).Truncate(time.Microsecond), Capped: wait > h.Max}
}

// Extend returns the hold that lasts longer: one that stands is never shortened.
func (h Hold) Extend(o Hold) Hold {
	if o.Until.After(h.Until) {
		return o
	}
	return h
}
