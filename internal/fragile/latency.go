package fragile

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
)

// Shape is the distribution of a Latency.
type Shape uint8

const (
	// Uniform draws from Mean-Jitter to Mean+Jitter. The zero value.
	Uniform Shape = iota
	// Normal draws with standard deviation Jitter, cut at 0.
	Normal
	// Exponential has a floor of Mean-Jitter and a tail of mean Jitter.
	Exponential
)

var shapeNames = []string{"uniform", "normal", "exponential"}

// String returns "uniform", "normal" or "exponential".
func (s Shape) String() string {
	if int(s) < len(shapeNames) {
		return shapeNames[s]
	}
	return fmt.Sprintf("shape(%d)", uint8(s))
}

// Latency is how long an accepted call takes. The zero value is no time.
type Latency struct {
	Mean, Jitter time.Duration
	Shape        Shape
}

// ParseLatency reads "20ms", "20ms±10ms" (or +-), and an optional shape after
// it: "20ms±10ms exponential".
func ParseLatency(s string) (Latency, error) {
	bad := func(why string) (Latency, error) {
		return Latency{}, fmt.Errorf("latency %q: %s; write a time, a jitter and a shape, like 20ms±10ms normal (shapes: %s)",
			s, why, strings.Join(shapeNames, ", "))
	}
	var l Latency
	words := strings.Fields(s)
	if len(words) == 0 {
		return l, nil
	}
	if len(words) > 2 {
		return bad("too many words")
	}
	mean, jitter, has := strings.Cut(strings.Replace(words[0], "+-", "±", 1), "±")
	var err error
	if l.Mean, err = time.ParseDuration(mean); err != nil {
		return bad("the mean is not a time")
	}
	if has {
		if l.Jitter, err = time.ParseDuration(jitter); err != nil {
			return bad("the jitter is not a time")
		}
	}
	if len(words) == 2 {
		i := indexOf(shapeNames, words[1])
		if i < 0 {
			return bad("the shape is not known")
		}
		l.Shape = Shape(i)
	}
	if err := l.validate(); err != nil {
		return bad(err.Error())
	}
	return l, nil
}

func indexOf(list []string, s string) int {
	for i, v := range list {
		if v == s {
			return i
		}
	}
	return -1
}

func (l Latency) validate() error {
	switch {
	case l.Mean < 0 || l.Mean > time.Hour:
		return fmt.Errorf("the mean must be from 0 to 1h, not %s", l.Mean)
	case l.Jitter < 0 || l.Jitter > l.Mean:
		return fmt.Errorf("the jitter must be from 0 to the mean, not %s", l.Jitter)
	case int(l.Shape) >= len(shapeNames):
		return fmt.Errorf("%s is not known", l.Shape)
	}
	return nil
}

// String writes the form that ParseLatency reads.
func (l Latency) String() string {
	switch {
	case l.Jitter == 0:
		return l.Mean.String()
	case l.Shape == Uniform:
		return fmt.Sprintf("%s±%s", l.Mean, l.Jitter)
	}
	return fmt.Sprintf("%s±%s %s", l.Mean, l.Jitter, l.Shape)
}

// MarshalText writes the form that ParseLatency reads.
func (l Latency) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// UnmarshalText reads as ParseLatency does.
func (l *Latency) UnmarshalText(b []byte) (err error) {
	*l, err = ParseLatency(string(b))
	return err
}

// draw takes exactly one value from rnd whatever the shape's parameters are,
// so that a run with another jitter has the same shares of troubles.
func (l Latency) draw(rnd *rand.Rand) time.Duration {
	switch l.Shape {
	case Normal:
		return max(0, l.Mean+time.Duration(rnd.NormFloat64()*float64(l.Jitter)))
	case Exponential:
		return l.Mean - l.Jitter + time.Duration(rnd.ExpFloat64()*float64(l.Jitter))
	}
	return l.Mean + time.Duration((2*rnd.Float64()-1)*float64(l.Jitter))
}
