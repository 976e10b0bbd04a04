package shaper

import "slices"

// The algorithms in memory. Each is beside its Lua twin, limiter_<name>.lua,
// where the reasons stand; one suite holds them to the same answers.

// fixedCell: a counter for each window.
type fixedCell struct{ start, count, per int64 }

func (c *fixedCell) at(now int64, p *lim) int64 {
	start := now / p.per * p.per
	switch {
	case c.start == start && c.per == p.per:
	case c.start > now, c.per != p.per && c.start+c.per > now:
		// the clock went back, or the period was changed
	default:
		c.count = 0
	}
	c.start, c.per = start, p.per
	if p.back > 0 && p.backAt/p.per*p.per == start {
		c.count = max(0, c.count-p.back)
	}
	p.back = 0
	return p.n - c.count
}

func (c *fixedCell) wait(p *lim, n int64) int64 {
	switch {
	case n > p.n:
		return -1
	case c.count+n <= p.n:
		return 0
	}
	return c.start + p.per - p.now
}

func (c *fixedCell) take(_ *lim, n int64) { c.count += n }
func (c *fixedCell) left(p *lim) int64    { return p.n - c.count }
func (c *fixedCell) reset(p *lim) int64   { return c.start + p.per - p.now }
func (c *fixedCell) end() int64           { return c.start + c.per }

// logCell: the time of every unit, oldest first.
type logCell struct {
	times []int64
	per   int64
}

func (c *logCell) at(now int64, p *lim) int64 {
	c.per = p.per
	if k := len(c.times); k > 0 && c.times[k-1] > now { // the clock went back
		by := c.times[k-1] - now
		for i := range c.times {
			c.times[i] -= by
		}
	}
	gone, _ := slices.BinarySearch(c.times, now-p.per+1)
	if gone > 0 {
		c.times = c.times[:copy(c.times, c.times[gone:])]
	}
	return p.n - int64(len(c.times))
}

func (c *logCell) wait(p *lim, n int64) int64 {
	count := int64(len(c.times))
	switch {
	case n > p.n:
		return -1
	case count+n <= p.n:
		return 0
	}
	return c.times[count+n-p.n-1] + p.per - p.now
}

func (c *logCell) take(p *lim, n int64) {
	for range n {
		c.times = append(c.times, p.now)
	}
}
func (c *logCell) left(p *lim) int64 { return p.n - int64(len(c.times)) }
func (c *logCell) reset(p *lim) int64 {
	if len(c.times) == 0 {
		return 0
	}
	return c.times[len(c.times)-1] + p.per - p.now
}
func (c *logCell) end() int64 {
	if len(c.times) == 0 {
		return 0
	}
	return c.times[len(c.times)-1] + c.per
}

// counterCell: this window's count and the last one's.
type counterCell struct{ start, prev, cur, per int64 }

func (c *counterCell) at(now int64, p *lim) int64 {
	start := now / p.per * p.per
	switch {
	case c.start > now, c.per != p.per && c.start+c.per > now:
		if c.per != p.per {
			c.prev = 0
		}
	case c.per == p.per && c.start == start:
	case c.per == p.per && c.start == start-p.per:
		c.prev, c.cur = c.cur, 0
	default:
		c.prev, c.cur = 0, 0
	}
	c.start, c.per = start, p.per
	if p.back > 0 {
		switch p.backAt / p.per * p.per {
		case start:
			c.cur = max(0, c.cur-p.back)
		case start - p.per:
			c.prev = max(0, c.prev-p.back)
		}
		p.back = 0
	}
	return c.left(p)
}

func (c *counterCell) inside(p *lim) int64 { return c.start + p.per - p.now }

func (c *counterCell) left(p *lim) int64 {
	return p.n - c.cur - ceilDiv(c.prev*c.inside(p), p.per)
}

// cover is the longest part of a window of count units that leaves room.
func cover(p *lim, room, count int64) int64 {
	if count == 0 {
		return p.per
	}
	return min(p.per, room*p.per/count)
}

func (c *counterCell) wait(p *lim, n int64) int64 {
	switch {
	case n > p.n:
		return -1
	case c.cur+n <= p.n:
		return max(0, c.inside(p)-cover(p, p.n-c.cur-n, c.prev))
	}
	return c.inside(p) + p.per - cover(p, p.n-n, c.cur)
}

func (c *counterCell) take(_ *lim, n int64) { c.cur += n }
func (c *counterCell) reset(p *lim) int64   { return max(0, c.end()-p.now) }
func (c *counterCell) end() int64 {
	switch {
	case c.cur > 0:
		return c.start + 2*c.per
	case c.prev > 0:
		return c.start + c.per
	}
	return 0
}
