package breaker

import "math"

// WilsonLower returns the lower end of Wilson's score interval for hits out of
// n with z standard deviations: a ratio that few calls do not easily reach.
// It is 0 where n is not positive, and never outside [0, hits/n].
//
// E. B. Wilson, "Probable inference, the law of succession, and statistical
// inference", JASA 22 (1927).
func WilsonLower(hits, n int, z float64) float64 {
	if n <= 0 || hits <= 0 {
		return 0
	}
	if hits > n {
		hits = n
	}
	p, m := float64(hits)/float64(n), float64(n)
	z2 := z * z
	mid := p + z2/(2*m)
	half := z * math.Sqrt(p*(1-p)/m+z2/(4*m*m))
	return min(p, max(0, (mid-half)/(1+z2/m)))
}
