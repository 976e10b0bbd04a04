package breaker

import "fmt"

// Outcome is what one attempt showed of the provider. The zero value is no
// outcome at all and is refused wherever an outcome is expected.
type Outcome uint8

const (
	// OK: the provider answered. A 404 is an answer, too.
	OK Outcome = iota + 1
	// Throttled: the provider said that it is too much (429, 503 with Retry-After).
	Throttled
	// Failed: the provider could not be reached or could not answer (5xx, refused, reset, DNS, TLS).
	Failed
	// Timeout: our own deadline ended the call.
	Timeout
	// Excluded: it says nothing about the provider (our cancellation, a local denial, 425, 501).
	Excluded
)

// Outcomes lists every outcome, in the order of their values.
func Outcomes() []Outcome { return []Outcome{OK, Throttled, Failed, Timeout, Excluded} }

// String returns the word used in logs, metrics and documents.
func (o Outcome) String() string {
	switch o {
	case OK:
		return "ok"
	case Throttled:
		return "throttled"
	case Failed:
		return "failed"
	case Timeout:
		return "timeout"
	case Excluded:
		return "excluded"
	}
	return fmt.Sprintf("outcome(%d)", uint8(o))
}
