package shaper

import (
	"math"
	"slices"
)

// placesCell: the requests in flight.
type placesCell struct{ places []place }

type place struct {
	name   string
	n, end int64
}

func (c *placesCell) at(now int64, p *lim) int64 {
	var newest int64
	for _, x := range c.places {
		newest = max(newest, x.end)
	}
	by := max(0, newest-p.lease-now) // the clock went back, or the lease was shortened
	mine := false
	c.places = slices.DeleteFunc(c.places, func(x place) bool { return x.end-by <= now })
	for i := range c.places {
		c.places[i].end -= by
		mine = mine || c.places[i].name == p.place
	}
	if mine {
		return p.n
	}
	return c.left(p)
}

func (c *placesCell) left(p *lim) int64 {
	n := p.n
	for _, x := range c.places {
		n -= x.n
	}
	return n
}

func (c *placesCell) wait(p *lim, n int64) int64 {
	if n > p.n {
		return -1
	}
	first := int64(math.MaxInt64)
	for _, x := range c.places {
		first = min(first, x.end)
	}
	if len(c.places) == 0 {
		first = p.now
	}
	return max(0, min(first-p.now, 1_000_000))
}

func (c *placesCell) take(p *lim, n int64) {
	if n > 0 {
		c.hold(p, n)
	}
}

// hold takes the place, or holds it for another lease.
func (c *placesCell) hold(p *lim, n int64) {
	for i := range c.places {
		if c.places[i].name == p.place {
			c.places[i].end = p.now + p.lease
			return
		}
	}
	c.places = append(c.places, place{p.place, n, p.now + p.lease})
}

func (c *placesCell) drop(name string) {
	c.places = slices.DeleteFunc(c.places, func(x place) bool { return x.name == name })
}

func (c *placesCell) reset(*lim) int64 { return 0 }
func (c *placesCell) end() int64 {
	var e int64
	for _, x := range c.places {
		e = max(e, x.end)
	}
	return e
}
