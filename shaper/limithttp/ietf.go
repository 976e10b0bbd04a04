package limithttp

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/dunglas/httpsfv"
)

// This file reads RateLimit fields; fields.go writes them. It depends on
// nothing else here.

// Unknown stands for what an answer does not say, in Advertised.
const Unknown = -1

// maxSeconds bounds a stated time: ten years.
const maxSeconds = 10 * 366 * 24 * 3600

// Advertised is what one quota policy says of itself in RateLimit fields.
type Advertised struct {
	// Policy is its name; "" in the older drafts, which had one.
	Policy string
	// Limit is its quota, Remaining what is left of it; Unknown where not said.
	// A large Remaining is a hint, not a promise, and must never make a client
	// faster than it would be.
	Limit, Remaining int64
	// Window of the quota, and Reset: how long no more than Remaining is to be
	// had. Unknown (-1 ns) where not said.
	Window, Reset time.Duration
}

// ReadFields reads the RateLimit fields of an answer, whichever draft of the
// IETF they follow: -00 to -06 (RateLimit-Limit, -Remaining, -Reset), -07 (a
// dictionary), -08 and later (a list of policies, several lines of it being
// one list). Malformed fields are ignored, as the drafts demand, and so is a
// field of the older ones that stands twice.
func ReadFields(h http.Header) []Advertised {
	out := readCurrent(h.Values("Ratelimit"))
	if out == nil {
		out = readDictionary(h.Values("Ratelimit"))
	}
	if out == nil {
		out = readThree(h)
	}
	for _, p := range readPolicies(h.Values("Ratelimit-Policy")) {
		for i := range out {
			if out[i].Policy == p.Policy {
				if out[i].Limit == Unknown {
					out[i].Limit = p.Limit
				}
				out[i].Window = p.Window
			}
		}
	}
	return out
}

// Wait is how long the fields say that nothing is to be had: the longest Reset
// of the policies that are used up. How long a client really waits is its own
// decision: a stated time may be wrong or hostile.
func Wait(as []Advertised) time.Duration {
	var wait time.Duration
	for _, a := range as {
		if a.Remaining == 0 {
			wait = max(wait, a.Reset)
		}
	}
	return wait
}

// readCurrent reads -08 and later: "name";r=50;t=30, …
func readCurrent(lines []string) []Advertised {
	return readItems(lines, "r", "t", func(a *Advertised, n int64, d time.Duration) { a.Remaining, a.Reset = n, d })
}

// readPolicies reads RateLimit-Policy: "name";q=100;w=60, …, or the older
// 100;w=60, which has no name.
func readPolicies(lines []string) []Advertised {
	out := readItems(lines, "q", "w", func(a *Advertised, n int64, d time.Duration) { a.Limit, a.Window = n, d })
	if out != nil {
		return out
	}
	list, err := httpsfv.UnmarshalList(lines)
	if err != nil || len(list) == 0 {
		return nil
	}
	item, ok := list[0].(httpsfv.Item)
	if !ok {
		return nil
	}
	n, ok := item.Value.(int64)
	if !ok || n < 0 {
		return nil
	}
	a := Advertised{Limit: n, Remaining: Unknown, Window: Unknown, Reset: Unknown}
	if w, ok := seconds(item.Params, "w"); ok {
		a.Window = w
	}
	return []Advertised{a}
}

// readItems reads a list of names with a required number and an optional time.
// nil: it is not such a list.
func readItems(lines []string, number, wait string, set func(*Advertised, int64, time.Duration)) []Advertised {
	list, err := httpsfv.UnmarshalList(lines)
	if err != nil || len(list) == 0 {
		return nil
	}
	var out []Advertised
	for _, m := range list {
		item, ok := m.(httpsfv.Item)
		if !ok {
			return nil
		}
		a := Advertised{Limit: Unknown, Remaining: Unknown, Window: Unknown, Reset: Unknown}
		switch name := item.Value.(type) {
		case string:
			a.Policy = name
		case httpsfv.Token: // the draft's own examples had it
			a.Policy = string(name)
		default:
			return nil
		}
		v, ok := item.Params.Get(number)
		n, isInt := v.(int64)
		if !ok || !isInt || n < 0 {
			return nil
		}
		d := time.Duration(Unknown)
		if _, said := item.Params.Get(wait); said {
			if d, ok = seconds(item.Params, wait); !ok {
				return nil
			}
		}
		set(&a, n, d)
		out = append(out, a)
	}
	return out
}

// seconds returns a parameter that is a whole number of seconds.
func seconds(p *httpsfv.Params, name string) (time.Duration, bool) {
	v, ok := p.Get(name)
	n, isInt := v.(int64)
	if !ok || !isInt || n < 0 {
		return 0, false
	}
	return time.Duration(min(n, maxSeconds)) * time.Second, true
}

// readDictionary reads -07: limit=100, remaining=0, reset=5.
func readDictionary(lines []string) []Advertised {
	if len(lines) == 0 {
		return nil
	}
	dict, err := httpsfv.UnmarshalDictionary(lines)
	if err != nil {
		return nil
	}
	number := func(name string) int64 {
		m, ok := dict.Get(name)
		item, isItem := m.(httpsfv.Item)
		if !ok || !isItem {
			return Unknown
		}
		n, isInt := item.Value.(int64)
		if !isInt || n < 0 {
			return Unknown
		}
		return n
	}
	return one(number("limit"), number("remaining"), number("reset"))
}

// readThree reads -00 to -06.
func readThree(h http.Header) []Advertised {
	number := func(name string) int64 {
		vs := h.Values(name)
		if len(vs) != 1 {
			return Unknown
		}
		first, _, _ := strings.Cut(vs[0], ",") // policies may follow in -00 to -03
		first, _, _ = strings.Cut(first, ";")
		first = strings.TrimSpace(first)
		if first == "" || strings.Trim(first, "0123456789") != "" {
			return Unknown
		}
		n, err := strconv.ParseInt(first, 10, 64)
		if err != nil {
			return Unknown
		}
		return n
	}
	for _, name := range []string{"Ratelimit-Limit", "Ratelimit-Remaining", "Ratelimit-Reset"} {
		if len(h.Values(name)) > 1 {
			return nil // must not occur more than once: nothing of it is believed
		}
	}
	return one(number("Ratelimit-Limit"), number("Ratelimit-Remaining"), number("Ratelimit-Reset"))
}

// one is the single policy of the older drafts; nil without a remaining and a
// reset, which is what they are for.
func one(limit, remaining, reset int64) []Advertised {
	if remaining == Unknown || reset == Unknown {
		return nil
	}
	return []Advertised{{
		Limit: limit, Remaining: remaining, Window: Unknown,
		Reset: time.Duration(min(reset, maxSeconds)) * time.Second,
	}}
}
