package fragile

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
)

// Config is one rehearsal provider. The zero value accepts everything at once.
// The names of the file's fields are those of the command's flags, with _ for -.
type Config struct {
	// Name is shown in reports. Empty: "fragile".
	Name string `yaml:"name"`
	// Limit is the hidden rate limit. Zero: none.
	Limit Rate `yaml:"limit"`
	// Kind says how Limit counts. Zero: Sliding, the strictest.
	Kind Kind `yaml:"kind"`
	// Burst is how many tokens a Bucket holds. Zero: the N of Limit. Only for Bucket.
	Burst int `yaml:"burst"`
	// InFlight caps the accepted calls in flight; one more is refused. Zero: no cap.
	InFlight int `yaml:"in_flight"`
	// Servers is how many calls are worked on at once; more are accepted and
	// wait in line, so latency rises. Zero: all at once.
	Servers int `yaml:"servers"`
	// Latency of an accepted call. Zero: none.
	Latency Latency `yaml:"latency"`
	// RetryAfter is the form of the header of a refusal. Zero: ReplySeconds.
	RetryAfter RetryAfter `yaml:"retry_after"`
	// Timeline is the script of troubles.
	Timeline []Trouble `yaml:"timeline"`
	// Seed of everything drawn: the same arrivals get the same answers. Zero is a seed, too.
	Seed uint64 `yaml:"seed"`
	// Remember is how many of the last calls Calls tells one by one. Zero: none.
	Remember int `yaml:"remember"`
	// CountBy is a request header whose values are counted apart (Report.By),
	// a thousand different ones at most. Empty: none.
	CountBy string `yaml:"count_by"`
}

// maxBurst keeps bucket.full below 2^62 for every period.
const maxBurst = 50_000

// Validate returns every fault, each naming the field and the remedy.
func (c Config) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if err := c.Limit.validate(); err != nil {
		bad("limit: %w; write calls per period, like 100/s", err)
	}
	if int(c.Kind) >= len(kindNames) {
		bad("kind: %s is not known; use one of %s", c.Kind, strings.Join(kindNames, ", "))
	}
	switch {
	case c.Burst < 0 || c.Burst > maxBurst:
		bad("burst: must be from 1 to %d (0 means the N of limit), not %d", maxBurst, c.Burst)
	case c.Burst > 0 && (c.Kind != Bucket || c.Limit.IsZero()):
		bad("burst: only a limit of kind bucket has one; set kind: bucket and limit, or leave burst out")
	case c.Kind == Bucket && c.Burst == 0 && c.Limit.N > maxBurst:
		bad("burst: set it (at most %d); without it the bucket would hold %d", maxBurst, c.Limit.N)
	}
	for _, f := range []struct {
		name string
		n    int
	}{{"in_flight", c.InFlight}, {"servers", c.Servers}, {"remember", c.Remember}} {
		if f.n < 0 || f.n > maxCalls {
			bad("%s: must be from 0 (none) to %d, not %d", f.name, maxCalls, f.n)
		}
	}
	if err := c.Latency.validate(); err != nil {
		bad("latency: %w", err)
	}
	if err := c.RetryAfter.validate(); err != nil {
		bad("%w", err)
	}
	for i, t := range c.Timeline {
		if err := t.validate(); err != nil {
			bad("timeline[%d]: %w", i, err)
		}
	}
	return errors.Join(errs...)
}

// normal returns c with its defaults filled in.
func (c Config) normal() Config {
	if c.Name == "" {
		c.Name = "fragile"
	}
	if c.Kind == Bucket && c.Burst == 0 {
		c.Burst = max(1, c.Limit.N)
	}
	c.Timeline = slices.Clone(c.Timeline)
	return c
}

// window is the period in which Report counts the most.
func (c Config) window() time.Duration {
	if c.Limit.IsZero() {
		return time.Second
	}
	return c.Limit.Per
}

// String describes the limits in a few words.
func (c Config) String() string {
	var parts []string
	if !c.Limit.IsZero() {
		parts = append(parts, fmt.Sprintf("%s %s", c.Kind, c.Limit))
		if c.Kind == Bucket {
			parts = append(parts, fmt.Sprintf("burst %d", c.normal().Burst))
		}
	}
	if c.InFlight > 0 {
		parts = append(parts, fmt.Sprintf("%d in flight", c.InFlight))
	}
	if c.Servers > 0 {
		parts = append(parts, fmt.Sprintf("%d servers", c.Servers))
	}
	if parts == nil {
		return "no limit"
	}
	return strings.Join(parts, ", ")
}

// Parse reads a YAML document with the fields of Config. An unknown field, or
// one given twice, is an error that shows the line.
func Parse(doc []byte) (Config, error) {
	var c Config
	if len(strings.TrimSpace(string(doc))) == 0 {
		return c, nil
	}
	if err := yaml.UnmarshalWithOptions(doc, &c, yaml.Strict()); err != nil {
		return Config{}, err
	}
	return c, c.Validate()
}

// Load reads the file at path as Parse does.
func Load(path string) (Config, error) {
	doc, err := os.ReadFile(path)
	if err != nil {
		return Config{}, err
	}
	c, err := Parse(doc)
	if err != nil {
		return Config{}, fmt.Errorf("%s: %w", path, err)
	}
	return c, nil
}
