package health

import (
	"cmp"
	"context"
	_ "embed"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/penstock-io/penstock/breaker"
	"github.com/penstock-io/penstock/shaper"
)

//go:embed sense.lua
var senseSource string

//go:embed publish.lua
var publishSource string

var (
	senseScript   = shaper.NewScript(senseSource)
	publishScript = shaper.NewScript(publishSource)
)

// sensed is the answer of sense.lua.
type sensed struct {
	now     time.Time
	mode    string
	record  record
	due     bool
	sample  breaker.Sample
	resumed bool
}

// flush is a window on its way, under a number of its own: a repetition of it
// adds nothing.
type flush struct {
	window window
	number int64
}

// sense sends f and reads the record; with the sample where the tick is ours.
func (h *Health) sense(ctx context.Context, f *flush, tick bool, set string) (sensed, error) {
	law := h.cfg.Law
	keys := []string{
		h.key("health"), h.key("buckets"), h.key("control"), h.key("gate"), h.key("permits"), h.key("held_until"),
		h.key("flush:" + h.proc + ":" + strconv.FormatInt(f.number, 36)),
	}
	args := []any{law.Tick.Microseconds(), (max(law.StretchMax, law.Window) + time.Minute).Milliseconds(), tick, set}
	res, err := senseScript.Run(ctx, h.cfg.Redis, keys, f.window.append(args)...).StringSlice()
	if err != nil {
		return sensed{}, err
	}
	return parseSensed(res)
}

func parseSensed(f []string) (s sensed, err error) {
	if len(f) < 4 {
		return s, fmt.Errorf("sense.lua answered %d values", len(f))
	}
	num := func(i int) int64 {
		n, e := strconv.ParseInt(f[i], 10, 64)
		if e != nil && err == nil {
			err = e
		}
		return n
	}
	s.now, s.mode, s.record, s.due = time.UnixMicro(num(0)).UTC(), f[1], readRecord(f[2]), f[3] == "1"
	if !s.due {
		return s, err
	}
	if len(f) < 12 || len(f)%3 != 0 {
		return s, fmt.Errorf("sense.lua answered %d values", len(f))
	}
	s.sample = breaker.Sample{
		Row: breaker.Row{Failures: int(num(4)), Since: uint64(num(5))}, InFlight: int(num(6)), Chance: rand.Float64(),
	}
	if held := num(7); held > 0 {
		s.sample.Held = breaker.Hold{Until: time.UnixMicro(held).UTC(), Capped: f[8] == "retry_after"}
	}
	if until := num(10); until > 0 {
		s.sample.Probe = breaker.Lease{Generation: uint64(num(9)), Until: time.UnixMicro(until).UTC()}
	}
	s.resumed = f[11] == "1"
	for i := 12; i < len(f); i += 3 {
		b := breaker.Bucket{At: time.UnixMicro(num(i)).UTC(), Generation: uint64(num(i + 1))}
		decode(f[i+2], &b)
		s.sample.Buckets = append(s.sample.Buckets, b)
	}
	slices.SortFunc(s.sample.Buckets, func(a, b breaker.Bucket) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Generation, b.Generation))
	})
	return s, err
}

// publish writes the record where nobody was faster. What the law does not look
// at any more goes from the buckets into the seconds; see Observe.
func (h *Health) publish(ctx context.Context, was record, c shaper.Control, s breaker.State, old []breaker.Bucket) (written bool, err error) {
	record, err := text(c, s)
	if err != nil {
		return false, err
	}
	wake := ""
	if c.Since != was.control.Since || c.Phase != was.control.Phase || c.Mode != was.control.Mode {
		wake = h.key("wake")
	}
	past := pastSeconds(old)
	args := []any{was.version, record, wake, mostSeconds, observedFor.Milliseconds(), len(past)}
	for _, sec := range past {
		args = append(args, sec.text())
	}
	for _, b := range old {
		args = append(args, strconv.FormatInt(b.At.UnixMicro(), 10)+":"+strconv.FormatUint(b.Generation, 10))
	}
	n, err := publishScript.Run(ctx, h.cfg.Redis, []string{h.key("control"), h.key("buckets"), h.key("seconds")}, args...).Int()
	return n == 1, err
}

func (h *Health) key(name string) string { return shaper.Prefix(h.cfg.Queue) + name }
