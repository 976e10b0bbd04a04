package queue

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/penstock-io/penstock/queue/internal/layout"
)

// Bounds of a page of List.
const (
	DefaultPage = 50
	MaxPage     = 200
)

// Get returns what is known of one job; ErrNotFound where that is nothing.
func (c *Client) Get(ctx context.Context, provider, id string) (Info, error) {
	i, _, err := c.get(ctx, provider, id)
	return i, err
}

func (c *Client) get(ctx context.Context, provider, id string) (Info, record, error) {
	if err := checkRef(provider, id); err != nil {
		return Info{}, record{}, err
	}
	k := c.keys(provider)
	keys := append([]string{k.Task(id), k.Tombstone(id)}, k.Lanes()...)
	v, err := c.scripts.inspect.Run(ctx, c.rdb, append(keys, k.Own(layout.Cancel)), id).Slice()
	if err != nil {
		return Info{}, record{}, mapError(err)
	}
	if len(v) != 8 {
		return Info{}, record{}, fmt.Errorf("the inspect script answered %d values", len(v))
	}
	a := answer(v)
	r := record{id: id, msg: a.text(1), state: a.text(2), result: a.text(3), stone: a.text(4),
		stoneMS: a.int(5), dueMS: a.text(6), cancelMS: a.text(7)}
	if r.state == "" && r.stone == "" {
		return Info{}, r, notFound(provider, id)
	}
	i, err := c.info(provider, r, time.UnixMilli(a.int(0)))
	return i, r, err
}

func checkRef(provider, id string) error {
	if err := CheckName("provider", provider); err != nil {
		return err
	}
	return CheckID(id)
}

// answer is a script's list of values.
type answer []any

func (a answer) text(i int) string {
	switch v := a[i].(type) {
	case string:
		return v
	case int64:
		return strconv.FormatInt(v, 10)
	}
	return ""
}

func (a answer) int(i int) int64 {
	n, err := strconv.ParseInt(a.text(i), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// Counts is how many jobs of a provider are in each state. Final ones are
// counted for the provider's keep.
type Counts map[State]int64

// Counts counts by state, at a cost that does not grow with the number of
// jobs. Delayed and waiting are told apart to the second.
func (c *Client) Counts(ctx context.Context, provider string) (Counts, error) {
	if err := CheckName("provider", provider); err != nil {
		return nil, err
	}
	k := c.keys(provider)
	keys := []string{k.Asynq("pending"), k.Asynq("active"), k.Asynq("scheduled"), k.Asynq("retry"), k.Asynq("archived")}
	for _, s := range layout.FinalStates() {
		keys = append(keys, k.Done(s))
	}
	n, err := c.scripts.counts.Run(ctx, c.rdb, keys, layout.Far).Int64Slice()
	if err != nil {
		return nil, mapError(err)
	}
	states := layout.States()
	if len(n) != len(states) {
		return nil, fmt.Errorf("the counts script answered %d values", len(n))
	}
	out := make(Counts, len(states))
	for i, s := range states {
		out[s] = n[i]
	}
	return out, nil
}

// Filter chooses jobs of one provider.
type Filter struct {
	// State. Empty: all, in the order of States.
	State State
	// Limit of a page. Zero: DefaultPage; at most MaxPage.
	Limit int
	// Cursor is the Next of the page before. Empty: the first page.
	Cursor string
}

// Page is a part of a list.
type Page struct {
	Jobs []Info
	// Next is the cursor of the page after this one; empty: there is none.
	// A page may be short, or even empty, and still have a next one.
	Next string
}

// segment is one set that holds jobs of a state.
type segment struct {
	state State
	kind  string // list, zset, zrev
	part  string // of asynq's scheduled
	key   func(layout.Keys) string
}

// segments in the order that List goes through them.
func segments() []segment {
	asynq := func(name string) func(layout.Keys) string {
		return func(k layout.Keys) string { return k.Asynq(name) }
	}
	s := []segment{
		{Waiting, "list", "", asynq("pending")},
		{Waiting, "zset", "due", asynq("scheduled")},
		{Delayed, "zset", "foreign", asynq("scheduled")},
		{Delayed, "zset", "parked", asynq("scheduled")},
		{Retrying, "zset", "", asynq("retry")},
		{Running, "list", "", asynq("active")},
	}
	for _, f := range layout.FinalStates() {
		s = append(s, segment{f, "zrev", "", func(k layout.Keys) string { return k.Done(f) }})
		if f == Dead {
			s = append(s, segment{Dead, "zrev", "", asynq("archived")})
		}
	}
	return s
}

// List returns jobs page by page: those to be called oldest first, final ones
// newest first. Each call looks at no more than Limit jobs. Jobs that change
// their state between two pages may be missed, or come twice, never any others.
// ErrUnknownProvider: nobody serves it, and it has no jobs.
func (c *Client) List(ctx context.Context, provider string, f Filter) (Page, error) {
	if err := CheckName("provider", provider); err != nil {
		return Page{}, err
	}
	switch {
	case f.State != "" && !f.State.Valid():
		return Page{}, invalid("state", "use one of "+joinStates(), "%q does not exist", f.State)
	case f.Limit < 0 || f.Limit > MaxPage:
		return Page{}, invalid("limit", fmt.Sprintf("from 1 to %d", MaxPage), "%d is out of range", f.Limit)
	case f.Limit == 0:
		f.Limit = DefaultPage
	}
	at, err := parseCursor(f.Cursor)
	if err != nil {
		return Page{}, err
	}
	var page Page
	all := segments()
	for ; at.segment < len(all); at = (cursor{segment: at.segment + 1}) {
		seg := all[at.segment]
		if f.State != "" && seg.state != f.State {
			continue
		}
		left := f.Limit - len(page.Jobs)
		if left == 0 {
			page.Next = at.String()
			return page, nil
		}
		last, more, err := c.listSegment(ctx, provider, seg, at, left, &page)
		if err != nil {
			return Page{}, err
		}
		if more {
			page.Next = last.String()
			return page, nil
		}
	}
	if len(page.Jobs) == 0 && f.Cursor == "" {
		if _, err := c.Spec(ctx, provider); errors.Is(err, ErrUnknownProvider) {
			return Page{}, err // a misspelt name must not look like an empty queue
		}
	}
	return page, nil
}

func joinStates() string {
	var s []string
	for _, st := range States() {
		s = append(s, string(st))
	}
	return strings.Join(s, ", ")
}

const listFields = 8

// listSegment adds up to limit jobs of one set and says where it stopped.
func (c *Client) listSegment(ctx context.Context, provider string, seg segment, at cursor, limit int, page *Page) (cursor, bool, error) {
	k := c.keys(provider)
	keys := append([]string{seg.key(k), k.Task(""), k.Tombstone("")}, k.Lanes()...)
	v, err := c.scripts.list.Run(ctx, c.rdb, keys, seg.kind, at.id, at.score, limit, seg.part, layout.Far).Slice()
	if err != nil {
		return at, false, mapError(err)
	}
	if len(v) < 2 || (len(v)-2)%listFields != 0 {
		return at, false, fmt.Errorf("the list script answered %d values", len(v))
	}
	a := answer(v)
	now, more := time.UnixMilli(a.int(0)), a.int(1) == 1
	for o := 2; o < len(a); o += listFields {
		at.id, at.score = a.text(o), a.text(o+1)
		r := record{id: at.id, msg: a.text(o + 2), state: a.text(o + 3), result: a.text(o + 4),
			stone: a.text(o + 5), stoneMS: a.int(o + 6), dueMS: a.text(o + 7)}
		if r.state == "" && r.stone == "" {
			continue // gone: deleted in asynqmon, or forgotten and not trimmed yet
		}
		i, err := c.info(provider, r, now)
		if err != nil {
			continue // another program's
		}
		if i.State != seg.state && seg.part == "" {
			continue // it moved on; where it is final already, it stands among the final ones
		}
		page.Jobs = append(page.Jobs, i)
	}
	return at, more, nil
}

// cursor is where a list goes on: in which set, after which job.
type cursor struct {
	segment   int
	score, id string
}

// String is opaque to callers.
func (c cursor) String() string {
	return base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, "1 %d %s %s", c.segment, c.score, c.id))
}

func parseCursor(s string) (cursor, error) {
	if s == "" {
		return cursor{}, nil
	}
	bad := invalid("cursor", "use the next of the page before, or none", "not a cursor")
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil {
		return cursor{}, bad
	}
	part := strings.SplitN(string(b), " ", 4)
	if len(part) != 4 || part[0] != "1" {
		return cursor{}, bad
	}
	n, err := strconv.Atoi(part[1])
	if err != nil || n < 0 || n >= len(segments()) {
		return cursor{}, bad
	}
	if part[2] != "" {
		if _, err := strconv.ParseFloat(part[2], 64); err != nil {
			return cursor{}, bad
		}
	}
	if part[3] != "" && CheckID(part[3]) != nil {
		return cursor{}, bad
	}
	return cursor{segment: n, score: part[2], id: part[3]}, nil
}
