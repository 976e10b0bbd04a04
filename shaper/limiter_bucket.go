package shaper

import "math"

// ceilDiv is ceil(a/b) for a >= 0, b > 0.
func ceilDiv(a, b int64) int64 { return (a + b - 1) / b }

// drained is level after dt at n a microsecond.
func drained(level, dt, n int64) int64 {
	if dt >= ceilDiv(level, n) {
		return 0
	}
	return level - dt*n
}

// rescale is v·to/from, for a period that was changed.
func rescale(v, from, to int64, round func(float64) float64) int64 {
	return int64(round(float64(v) / float64(from) * float64(to)))
}

// floorDiv is floor(a/b) for b > 0.
func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

// tokenCell: what is missing of a full bucket, in 1/per.
type tokenCell struct {
	last, tokens, per, n, full int64
	fresh                      bool // never used: full
}

func (c *tokenCell) at(now int64, p *lim) int64 {
	full := p.burst * p.per
	var missing int64
	if !c.fresh {
		tokens := c.tokens
		if c.per != p.per {
			tokens = rescale(tokens, c.per, p.per, math.Floor)
		}
		missing = drained(max(0, full-tokens), max(0, now-c.last), p.n)
	}
	if p.back > 0 {
		missing = max(0, missing-p.back*p.per)
		p.back = 0
	}
	c.last, c.tokens, c.per, c.n, c.full, c.fresh = now, full-missing, p.per, p.n, full, false
	return c.left(p)
}

func (c *tokenCell) left(p *lim) int64 { return floorDiv(c.tokens, p.per) }

func (c *tokenCell) wait(p *lim, n int64) int64 {
	if n > p.burst {
		return -1
	}
	return ceilDiv(max(0, n*p.per-c.tokens), p.n)
}

func (c *tokenCell) take(p *lim, n int64) { c.tokens -= n * p.per }
func (c *tokenCell) reset(p *lim) int64   { return ceilDiv(max(0, c.left(p))*p.per, p.n) }
func (c *tokenCell) end() int64           { return c.last + ceilDiv(c.full-c.tokens, c.n) }

// leakyCell: a level, in 1/per.
type leakyCell struct{ last, level, per, n int64 }

func (c *leakyCell) at(now int64, p *lim) int64 {
	full := p.burst * p.per
	if c.per != 0 {
		if c.per != p.per {
			c.level = rescale(c.level, c.per, p.per, math.Ceil)
		}
		c.level = drained(min(c.level, full), max(0, now-c.last), p.n)
	}
	if p.back > 0 {
		c.level = max(0, c.level-p.back*p.per)
		p.back = 0
	}
	c.last, c.per, c.n = now, p.per, p.n
	return c.left(p)
}

func (c *leakyCell) left(p *lim) int64 { return floorDiv(p.burst*p.per-c.level, p.per) }

func (c *leakyCell) wait(p *lim, n int64) int64 {
	if n > p.burst {
		return -1
	}
	return ceilDiv(max(0, c.level+n*p.per-p.burst*p.per), p.n)
}

func (c *leakyCell) take(p *lim, n int64) { c.level += n * p.per }
func (c *leakyCell) reset(p *lim) int64   { return ceilDiv(max(0, c.left(p))*p.per, p.n) }
func (c *leakyCell) end() int64           { return c.last + ceilDiv(c.level, max(1, c.n)) }

// gcraCell: the theoretical arrival time with its fraction in 1/n.
type gcraCell struct{ tat, frac, last, n, per int64 }

// ahead is how far the theoretical arrival time lies ahead, in 1/n µs.
func (c *gcraCell) ahead(p *lim) int64 { return (c.tat-p.now)*p.n + c.frac }

func (c *gcraCell) at(now int64, p *lim) int64 {
	full := p.burst * p.per
	tat := c.tat
	if c.last > now {
		tat -= c.last - now
	}
	var ahead int64
	if c.n != 0 && tat >= now {
		if c.n == p.n && c.per == p.per {
			ahead = min(full, min(tat-now, ceilDiv(full, p.n))*p.n+c.frac)
		} else { // the rate was changed: the units stay owed
			ahead = min(full, rescale((tat-now)*c.n+c.frac, c.per, p.per, math.Ceil))
		}
	}
	if p.back > 0 {
		ahead = max(0, ahead-p.back*p.per)
		p.back = 0
	}
	c.set(p, ahead)
	return c.left(p)
}

func (c *gcraCell) set(p *lim, ahead int64) {
	us := ahead / p.n
	c.tat, c.frac, c.last, c.n, c.per = p.now+us, ahead-us*p.n, p.now, p.n, p.per
}

func (c *gcraCell) left(p *lim) int64 { return floorDiv(p.burst*p.per-c.ahead(p), p.per) }

func (c *gcraCell) wait(p *lim, n int64) int64 {
	if n > p.burst {
		return -1
	}
	return ceilDiv(max(0, c.ahead(p)+n*p.per-p.burst*p.per), p.n)
}

func (c *gcraCell) take(p *lim, n int64) { c.set(p, c.ahead(p)+n*p.per) }
func (c *gcraCell) reset(p *lim) int64   { return ceilDiv(max(0, c.left(p))*p.per, p.n) }
func (c *gcraCell) end() int64 {
	if c.frac > 0 {
		return c.tat + 1
	}
	return c.tat
}
