package breaker

import (
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestDefaultsAreValid(t *testing.T) {
	for _, c := range []Config{{}, {Rate: 100, Concurrency: 20}, {Rate: 10. / 3600}, {Rate: 20_000}} {
		if err := c.Validate(); err != nil {
			t.Errorf("%+v: %v", c, err)
		}
		if n := c.Normal(); n != n.Normal() {
			t.Error("Normal changes what is normal")
		}
	}
}

// leaves calls f for each number of a Config, with its name in a file.
func leaves(v reflect.Value, prefix string, f func(name string, v reflect.Value)) {
	for i := range v.NumField() {
		field := v.Type().Field(i)
		name := field.Tag.Get("yaml")
		if name == "-" {
			name = strings.ToLower(field.Name)
		}
		if v.Field(i).Kind() == reflect.Struct {
			leaves(v.Field(i), prefix+name+".", f)
			continue
		}
		f(prefix+name, v.Field(i))
	}
}

// TestEveryConstantIsChecked: each one can be set, has a default, and refuses
// nonsense by its own name with a remedy.
func TestEveryConstantIsChecked(t *testing.T) {
	n := 0
	normal := Config{}.Normal()
	leaves(reflect.ValueOf(&normal).Elem(), "", func(name string, v reflect.Value) {
		n++
		if name == "" || strings.HasSuffix(name, ".") {
			t.Errorf("a field without a name in files: %s", name)
		}
		if v.IsZero() && name != "rate" && name != "concurrency" {
			t.Errorf("%s has no default", name)
		}
	})
	for i := range n {
		for _, nonsense := range []float64{-1, math.NaN(), math.Inf(1)} {
			c, at, name := Config{}.Normal(), 0, ""
			leaves(reflect.ValueOf(&c).Elem(), "", func(field string, v reflect.Value) {
				if at == i {
					name = field
					if v.CanFloat() {
						v.SetFloat(nonsense)
					} else {
						v.SetInt(-1)
					}
				}
				at++
			})
			err := c.Validate()
			if !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), name+" ") {
				t.Errorf("%s = %v: got %v, want a refusal that names it", name, nonsense, err)
			}
			if field, ok := errors.AsType[*FieldError](err); !ok || field.Remedy == "" {
				t.Errorf("%s: no remedy: %v", name, err)
			}
		}
	}
	if n < 50 {
		t.Errorf("only %d constants looked at", n)
	}
}

// TestWhatCannotWorkTogether is refused by the field that a person would change.
func TestWhatCannotWorkTogether(t *testing.T) {
	for _, test := range []struct {
		field string
		set   func(c *Config)
	}{
		{"refusals.beta_min", func(c *Config) { c.Refusals.BetaMin, c.Refusals.BetaMax = 0.8, 0.6 }},
		{"refusals.lead", func(c *Config) { c.Refusals.Lead = 1.2 }},
		{"refusals.rate_short", func(c *Config) { c.Refusals.RateShort, c.Refusals.RateLong = 6*time.Second, 2*time.Second }},
		{"refusals.rate_long", func(c *Config) { c.Refusals.RateLong = time.Minute }},
		{"refusals.many", func(c *Config) { c.Refusals.Many, c.Refusals.Calls = 20, 30 }},
		{"failures.tolerated", func(c *Config) { c.Failures.Tolerated = 0.6 }},
		{"failures.calls", func(c *Config) { c.Failures.Calls = 11 }},
		{"latency.calls", func(c *Config) { c.Latency.Calls = 11 }},
		{"latency.stall", func(c *Config) { c.Latency.Stall = 11 * time.Second }},
		{"opening.calls", func(c *Config) { c.Opening.Calls = 11 }},
		{"opening.confidence", func(c *Config) { c.Opening.Calls = 5 }},
		{"opening.row_slow", func(c *Config) { c.Opening.Row = 5 }},
		{"opening.first", func(c *Config) { c.Opening.First = time.Minute }},
		{"probing.apart", func(c *Config) { c.Probing.Apart = 100 * time.Millisecond }},
		{"slow_start.double", func(c *Config) { c.SlowStart.Double = 100 * time.Millisecond }},
		{"holding.max", func(c *Config) { c.Holding.Min, c.Holding.Max = 10*time.Minute, time.Minute }},
		{"window", func(c *Config) { c.Window = 100 * time.Millisecond }},
	} {
		t.Run(test.field, func(t *testing.T) {
			c := Config{Rate: 100}
			test.set(&c)
			err := c.Validate()
			if err == nil || !strings.Contains(err.Error(), ": "+test.field+" ") {
				t.Errorf("got %v", err)
			}
		})
	}
	c := Config{}
	c.Refusals.BetaMin, c.Opening.Row, c.Failures.Tolerated = 2, -3, 7
	if got := len(strings.Split(c.Validate().Error(), "\n")); got < 3 {
		t.Errorf("only %d of the faults found", got)
	}
}
