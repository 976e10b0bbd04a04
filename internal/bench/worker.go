package bench

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"
)

// WorkerCommand is the hidden command of the binary that runs Worker.
const WorkerCommand = "bench-worker"

// The two sides of a comparison.
const (
	sidePenstock = "penstock"
	sidePlain    = "asynq"
)

// workerSpec is what a worker process is told, one JSON line on its stdin.
type workerSpec struct {
	Side string `json:"side"`
	// Process is sent as processHeader with each call.
	Process string `json:"process"`
	// Redis is host:port.
	Redis     string         `json:"redis"`
	Providers []providerSpec `json:"providers"`
	// Nothing runs a Go handler that does nothing instead of the HTTP call.
	Nothing bool `json:"nothing"`
	// Concurrency is asynq's: how many handlers a process runs at once.
	Concurrency int `json:"concurrency"`
	// InHand is the most calls that a worker of ours makes at once. Zero: its default.
	InHand int `json:"in_hand"`
}

// processHeader tells the provider which process called.
const processHeader = "X-Bench-Process"

// providerSpec is one provider of a worker process.
type providerSpec struct {
	Name string `json:"name"`
	URL  string `json:"url"`
	// Rate as shaper.ParseRate reads it; empty is none.
	Rate        string `json:"rate"`
	Concurrency int    `json:"concurrency"`
}

// usage is what a worker process says of itself, one JSON line each time.
type usage struct {
	Event string `json:"event"` // ready, usage, end
	// CPU is user and system time so far.
	CPU time.Duration `json:"cpu_ns"`
	// Handled counts the calls of the handler that does nothing; Span is
	// between the first and the last of them.
	Handled int64         `json:"handled"`
	Span    time.Duration `json:"span_ns"`
	Error   string        `json:"error,omitempty"`
}

// side is a running worker of either kind.
type side interface {
	// stop ends it in order; what it had not finished is left in Redis.
	stop() error
}

// counter counts the calls of a handler that does nothing else.
type counter struct {
	zero        time.Time
	n           atomic.Int64
	first, last atomic.Int64 // nanoseconds since zero
}

func newCounter() *counter { return &counter{zero: time.Now()} }

func (c *counter) count() {
	now := int64(time.Since(c.zero))
	if c.n.Add(1) == 1 {
		c.first.Store(now)
	}
	for last := c.last.Load(); now > last && !c.last.CompareAndSwap(last, now); last = c.last.Load() {
	}
}

func (c *counter) usage(event string) usage {
	var ru syscall.Rusage
	// It fails only for a pointer out of the address space.
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &ru)
	return usage{Event: event, CPU: time.Duration(ru.Utime.Nano() + ru.Stime.Nano()),
		Handled: c.n.Load(), Span: time.Duration(c.last.Load() - c.first.Load())}
}

// Worker is the worker process of a comparison: it reads what to run from in,
// says "ready" on out, answers each further line with its usage, and stops in
// order when in ends.
func Worker(in io.Reader, out io.Writer) error {
	enc := json.NewEncoder(out)
	lines := bufio.NewReader(in)
	first, err := lines.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("%s is started by penstock bench, with its task on stdin: %w", WorkerCommand, err)
	}
	var spec workerSpec
	if err := json.Unmarshal(first, &spec); err != nil {
		return fmt.Errorf("the task on stdin: %w", err)
	}
	count := newCounter()
	s, err := startSide(spec, count)
	if err != nil {
		return errors.Join(err, enc.Encode(usage{Event: "end", Error: err.Error()}))
	}
	if err := enc.Encode(count.usage("ready")); err != nil {
		return errors.Join(err, s.stop())
	}
	for {
		if _, err := lines.ReadBytes('\n'); err != nil {
			break // the driver closed it, or is gone
		}
		if err := enc.Encode(count.usage("usage")); err != nil {
			return errors.Join(err, s.stop())
		}
	}
	end := count.usage("end")
	if err := s.stop(); err != nil {
		end.Error = err.Error()
	}
	return enc.Encode(end)
}

func startSide(spec workerSpec, count *counter) (side, error) {
	switch spec.Side {
	case sidePenstock:
		return startPenstock(spec, count)
	case sidePlain:
		return startPlainSide(spec, count)
	}
	return nil, fmt.Errorf("side %q is not known", spec.Side)
}

func jobID(i int) string { return "job-" + strconv.Itoa(i) }

func newReader(b []byte) io.Reader { return bytes.NewReader(b) }
