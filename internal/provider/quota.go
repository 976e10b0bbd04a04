package provider

import (
	"net/http"
	"strconv"
	"strings"
)

// remainingHeaders name what is left of a quota, as a plain number. Each
// dialect of rate limit headers that states a wait as well has its own reader;
// here only the question "is it used up?" is asked, which makes a throttling
// out of a 403.
var remainingHeaders = []string{"X-Ratelimit-Remaining", "X-Rate-Limit-Remaining", "Ratelimit-Remaining"}

// quotaExhausted reports whether a header says that nothing is left. A header
// stated more than once says nothing: the draft forbids to guess.
func quotaExhausted(header http.Header) bool {
	for _, name := range remainingHeaders {
		values := header[name]
		if len(values) != 1 {
			continue
		}
		if left, err := strconv.ParseUint(strings.Trim(values[0], " \t"), 10, 64); err == nil && left == 0 {
			return true
		}
	}
	return false
}
