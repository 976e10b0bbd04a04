package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/penstock-io/penstock/internal/config"
	"github.com/penstock-io/penstock/shaper"
)

// door prints what a request is held against, in its order.
func door(w io.Writer, d config.Door) error {
	if !d.On() {
		return nil
	}
	var fields []string
	for _, f := range d.Fields {
		fields = append(fields, string(f))
	}
	fmt.Fprintf(w, "\nthe door, in its order; the rules are decided together, and one that refuses costs the others nothing (fields: %s)\n", list(fields, "none"))
	rows := [][]string{
		{"ORDER", "RULE", "LIMIT", "BY", "ROUTES", "MODE", "REDIS AWAY", "MORE"},
		{"1", "deny", "-", named(d.Deny), "all", "403", "-", "-"},
		{"2", "allow", "uncounted", named(d.Allow), "all", "-", "-", "-"},
		{"3", "blocks", "of clients that were refused too often", "-", "-", "-", "-", "-"},
	}
	for i, r := range d.Rules {
		rows = append(rows, []string{
			strconv.Itoa(i + 4), r.Name, r.Policy.String(), by(r.By), list(r.Routes, "all"), mode(r), away(r.Away), more(r),
		})
	}
	return table(w, rows...)
}

// list writes words, or none.
func list(words []string, none string) string {
	if len(words) == 0 {
		return none
	}
	return strings.Join(words, ", ")
}

func named(l config.DoorList) string {
	var out []string
	for _, a := range l.Addresses {
		s := a.String()
		if a.IsSingleIP() {
			s = a.Addr().String()
		}
		out = append(out, s)
	}
	for _, t := range l.Tokens {
		out = append(out, "token "+t)
	}
	for _, o := range l.Organisations {
		out = append(out, "organisation "+o)
	}
	return list(out, "nobody")
}

// by says what clients are told apart by.
func by(parts []string) string {
	if len(parts) == 0 {
		return "all together"
	}
	return strings.ReplaceAll(strings.Join(parts, " and "), "|", " or ")
}

func mode(r config.DoorRule) string {
	if r.Mode == config.ModeCanary {
		return fmt.Sprintf("canary %g%%", r.Canary)
	}
	return r.Mode
}

func away(a shaper.Away) string {
	switch a.Mode {
	case shaper.FailClosed:
		return "closed"
	case shaper.LocalShare:
		return fmt.Sprintf("local_share %g%%", a.Share*100)
	}
	return "open"
}

// more is what not every rule has.
func more(r config.DoorRule) string {
	var out []string
	add := func(yes bool, format string, args ...any) {
		if yes {
			out = append(out, fmt.Sprintf(format, args...))
		}
	}
	for _, plan := range slices.Sorted(maps.Keys(r.Plans)) {
		add(true, "plan %s %s", plan, r.Plans[plan])
	}
	add(r.Cost > 1, "cost %d", r.Cost)
	for _, route := range slices.Sorted(maps.Keys(r.Costs)) {
		add(true, "%s costs %d", route, r.Costs[route])
	}
	add(r.PerRequest, "a batch counts once")
	add(r.SyncEvery > 0, "sync every %s", r.SyncEvery)
	add(r.WarnAt > 0, "warns at %g%%", r.WarnAt)
	add(r.Escalation.Strikes > 0, "blocks after %d refusals in %s for %s up to %s", r.Escalation.Strikes, config.FormatDuration(r.Escalation.Within),
		config.FormatDuration(r.Escalation.Block), config.FormatDuration(r.Escalation.Longest))
	add(r.Audit, "audit")
	return list(out, "-")
}
