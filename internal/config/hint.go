package config

import (
	"fmt"
	"slices"
	"strings"
)

// aliases are words people bring from elsewhere, each with where to say it
// here: the first whose head is known at that place is offered.
var aliases = map[string][]string{
	"host": {"base_url", "url"}, "endpoint": {"base_url", "path"}, "url": {"base_url", "path"}, "address": {"base_url", "url"}, "addr": {"url"},
	"rps": {"rate"}, "rate_limit": {"rate"}, "per_second": {"rate"}, "requests_per_second": {"rate"},
	"parallel": {"concurrency"}, "max_in_flight": {"concurrency"}, "workers": {"concurrency"},
	"retries": {"attempts", "retry.attempts"}, "max_retries": {"attempts", "retry.attempts"},
	"max_attempts": {"attempts", "retry.attempts"}, "backoff": {"base", "retry.base"}, "max_age": {"retry.max_age"},
	"ttl": {"keep", "max_age"}, "retention": {"keep"}, "user": {"username"}, "pass": {"password"},
	"database": {"db"}, "ca_cert": {"ca"}, "port": {"listen"}, "bind": {"listen"}, "tokens": {"auth"},
	"token": {"auth"}, "secret": {"secrets", "token", "value"}, "key": {"token", "secrets"}, "upstreams": {"providers"}, "hooks": {"webhooks"},
	"algorithm": {"digest"}, "algo": {"digest"}, "hash": {"digest"}, "signature_header": {"header"}, "provider": {"to"}, "target": {"to"},
	"forward": {"headers"}, "forward_headers": {"headers"}, "pass_headers": {"headers"}, "dedup": {"window"}, "dedup_window": {"window"}, "dedupe_window": {"window"},
	"id_header": {"event_id"}, "idempotency_header": {"event_id"}, "type": {"scheme"}, "kind": {"scheme"}, "base_url": {"public_url"},
	"directory": {"dir"}, "max_size": {"max_bytes", "max_body"}, "sync": {"fsync"}, "valid_until": {"expires"}, "name": {"label"},
	"limits": {"rules", "door"}, "rate_limits": {"door"}, "limiter": {"door"}, "limit": {"rate"}, "per": {"rate"}, "period": {"rate"},
	"enforce": {"mode"}, "shadow": {"mode"}, "canary": {"mode"}, "dry_run": {"mode"}, "fail_open": {"when_store_away"}, "fail_closed": {"when_store_away"},
	"whitelist": {"allow"}, "allowlist": {"allow"}, "blacklist": {"deny"}, "denylist": {"deny"}, "proxies": {"trusted_proxies"},
	"organization": {"organisation"}, "organizations": {"organisations"}, "paths": {"routes"}, "docs": {"documentation"}, "audit_log": {"audit_file"},
	"api_keys": {"tokens"}, "ips": {"addresses"}, "cidrs": {"addresses"}, "dialects": {"fields"},
}

// remarks are said instead of a hint, by the mapping and the field.
var remarks = map[string]string{
	"redis.tls.insecure":             noVerify,
	"redis.tls.insecure_skip_verify": noVerify,
	"redis.tls.skip_verify":          noVerify,
	"redis.tls.verify":               noVerify,
	"door.rules.window":              "the window is the rate's period: rate: 600/m counts 600 in a minute, 5/10s five in ten seconds",
	"door.rules.places":              "did you mean concurrency?",
	"door.rules.share":               "it is written behind its word: mode: canary 10%, when_store_away: local_share 25%",
	"webhooks.*.spool":               "one spool serves all webhooks: write spool: {dir: …} at the top of the file",
}

const noVerify = "verification cannot be turned off; name the authority's certificate as ca, or the name to expect as server_name"

// didYouMean names the known word nearest to the one given, or lists them all.
func didYouMean(kind, given string, known []string) string {
	low := strings.ReplaceAll(strings.ToLower(given), "-", "_")
	if s := remarks[kind+"."+low]; s != "" {
		return s
	}
	best, dist := "", 3
	for _, k := range known {
		if d := distance(low, k); d < dist && d < max(len(k)-1, 2) {
			best, dist = k, d
		}
	}
	for _, a := range aliases[low] {
		head, _, _ := strings.Cut(a, ".")
		if best == "" && slices.Contains(known, head) {
			best = a
		}
	}
	if best != "" {
		return fmt.Sprintf("did you mean %s?", best)
	}
	return "known here: " + strings.Join(known, ", ")
}

// distance counts the edits between two words: insert, delete, replace, and
// swap of neighbours (optimal string alignment).
func distance(a, b string) int {
	x, y := []rune(a), []rune(b)
	if len(x) > 64 {
		x = x[:64]
	}
	rows := make([][]int, len(x)+1)
	for i := range rows {
		rows[i] = make([]int, len(y)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(x); i++ {
		for j := 1; j <= len(y); j++ {
			cost := 1
			if x[i-1] == y[j-1] {
				cost = 0
			}
			d := min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+cost)
			if i > 1 && j > 1 && x[i-1] == y[j-2] && x[i-2] == y[j-1] {
				d = min(d, rows[i-2][j-2]+1)
			}
			rows[i][j] = d
		}
	}
	return rows[len(x)][len(y)]
}
