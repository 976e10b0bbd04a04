package api

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/penstock-io/penstock/queue"
)

// BatchLine is the result of one line of /v1/jobs:batch.
type BatchLine struct {
	// Line of the request, from 1.
	Line int `json:"line"`
	// Status is what POST /v1/jobs would have answered.
	Status   int         `json:"status"`
	Provider string      `json:"provider,omitempty"`
	ID       string      `json:"id,omitempty"`
	State    queue.State `json:"state,omitempty"`
	Known    bool        `json:"known,omitzero"`
	// Error is set where the job was not accepted.
	Error *Problem `json:"error,omitempty"`
}

// maxPending bounds the results that wait to be sent to a caller who sends
// everything before it reads anything; about 160,000 lines.
const maxPending = 16 << 20

// batch reads a job a line and answers a result a line, while it reads. A bad
// line does not end the rest. Empty lines have no result. A line beyond what
// the caller may do is refused like any other, with 429.
func (s *Server) batch(w http.ResponseWriter, r *http.Request) {
	if e := r.Header.Get("Content-Encoding"); e != "" && e != "identity" {
		s.fail(w, r, problem(CodeMediaType, "send the lines as they are", "Content-Encoding %q is not read", e))
		return
	}
	rc := http.NewResponseController(w)
	// Without it an HTTP/1 server stops reading at the first line it sends.
	if err := rc.EnableFullDuplex(); err != nil && !errors.Is(err, http.ErrNotSupported) {
		s.log.Debug("no full duplex", "error", err)
	}
	lines := lineReader{r: bufio.NewReaderSize(r.Body, 64<<10), max: int(s.maxRequest())}
	toll := &toll{charge: s.cfg.Charge, credit: 1}
	if s.cfg.Charge != nil {
		toll.ahead(r.Context(), lines.begin())
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusOK)

	out := newLineWriter(w, rc, s.cfg.SlowBody)
	defer out.close()
	res := &results{out: out}
	jobs := func(yield func(queue.Job) bool) {
		for {
			line, n, err := lines.next()
			if err == io.EOF {
				return
			}
			var j queue.Job
			if err == nil {
				if len(line) == 0 {
					continue
				}
				if p := toll.pass(r.Context(), lines.arrived()); p != nil {
					err = p
				} else {
					j, err = DecodeJob(line)
				}
			}
			if err != nil {
				res.bad(n, err)
				if lines.ended {
					return
				}
				continue
			}
			res.expect(n)
			if !yield(j) {
				return
			}
		}
	}
	// What was read is stored even when the caller goes away meanwhile: reading
	// ends by itself then.
	for got, err := range s.cfg.Jobs.EnqueueAll(context.WithoutCancel(r.Context()), jobs) {
		res.done(got, err)
	}
}

// results puts the results of good lines, which come from the queue, and of bad
// ones, which are known at once, into the order of the lines.
type results struct {
	out *lineWriter

	mu    sync.Mutex
	slots []slot
}

// slot is one line whose result cannot be sent yet. bad is nil while the queue
// has not answered.
type slot struct {
	line int
	bad  error
}

func (r *results) expect(line int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.slots = append(r.slots, slot{line: line})
}

func (r *results) bad(line int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.slots = append(r.slots, slot{line: line, bad: err})
	r.flushLocked()
}

// done is the queue's answer to the first line that waits for one.
func (r *results) done(got queue.Receipt, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.slots) == 0 {
		return
	}
	l := BatchLine{Line: r.slots[0].line, Provider: got.Provider, ID: got.ID}
	if err != nil {
		l.Error = problemOf(err)
		l.Status = l.Error.Status
	} else {
		rec := receipt(got)
		l.State, l.Known, l.Status = rec.State, rec.Known, rec.status()
	}
	r.out.write(l)
	r.slots = r.slots[1:]
	r.flushLocked()
}

// flushLocked sends the bad lines at the head.
func (r *results) flushLocked() {
	for len(r.slots) > 0 && r.slots[0].bad != nil {
		p := problemOf(r.slots[0].bad)
		r.out.write(BatchLine{Line: r.slots[0].line, Status: p.Status, Error: p})
		r.slots = r.slots[1:]
	}
}

// lineReader splits a body into lines of at most max bytes.
type lineReader struct {
	r     *bufio.Reader
	max   int
	line  int
	ended bool
}

// begin waits for the first bytes and returns what has arrived.
func (l *lineReader) begin() []byte {
	_, _ = l.r.Peek(1) // next tells of an error
	return l.arrived()
}

// arrived is what was received and not read yet.
func (l *lineReader) arrived() []byte {
	b, _ := l.r.Peek(l.r.Buffered())
	return b
}

// next returns a line without its ending and white space around it. A line that
// is too long is skipped, in constant memory, and is an error; so is the end of
// a body that was cut, after which ended is set.
func (l *lineReader) next() ([]byte, int, error) {
	l.line++
	var buf []byte
	for long := false; ; {
		part, err := l.r.ReadSlice('\n')
		if !long && len(buf)+len(part) > l.max {
			long, buf = true, nil
		}
		if !long {
			buf = append(buf, part...)
		}
		switch {
		case err == bufio.ErrBufferFull:
			continue
		case err != nil && err != io.EOF:
			l.ended = true
			if p, ok := errors.AsType[*Problem](err); ok {
				return nil, l.line, p
			}
			return nil, l.line, problem(CodeInvalid, "send the lines from here on again", "the body is cut off in this line")
		case long:
			return nil, l.line, problem(CodeTooLarge, "store it elsewhere and send a reference, or raise the provider's max_body", "the line is longer than %d bytes", l.max)
		case err == io.EOF && len(bytes.TrimSpace(buf)) == 0:
			return nil, l.line, io.EOF
		}
		return bytes.TrimSpace(buf), l.line, nil
	}
}

// lineWriter sends lines in a goroutine of its own, so that a caller who reads
// nothing until everything is sent does not stop the reading.
type lineWriter struct {
	w    io.Writer
	rc   *http.ResponseController
	wait time.Duration

	mu     sync.Mutex
	more   *sync.Cond
	buf    []byte
	closed bool
	err    error
	done   sync.WaitGroup
}

func newLineWriter(w io.Writer, rc *http.ResponseController, wait time.Duration) *lineWriter {
	l := &lineWriter{w: w, rc: rc, wait: wait}
	l.more = sync.NewCond(&l.mu)
	l.done.Go(l.run)
	return l
}

// write adds a line; it waits only while too much is pending.
func (l *lineWriter) write(v BatchLine) {
	b, err := json.Marshal(v)
	if err != nil { // plain fields: cannot happen
		panic(err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.buf) > maxPending && l.err == nil {
		l.more.Wait()
	}
	if l.err == nil {
		l.buf = append(append(l.buf, b...), '\n')
		l.more.Broadcast()
	}
}

// close sends what is left and ends the goroutine.
func (l *lineWriter) close() {
	l.mu.Lock()
	l.closed = true
	l.more.Broadcast()
	l.mu.Unlock()
	l.done.Wait()
}

func (l *lineWriter) run() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		for len(l.buf) == 0 && !l.closed {
			l.more.Wait()
		}
		if len(l.buf) == 0 {
			return
		}
		b := l.buf
		l.buf = nil
		l.mu.Unlock()
		_ = l.rc.SetWriteDeadline(time.Now().Add(l.wait))
		_, err := l.w.Write(b)
		if err == nil {
			err = l.rc.Flush()
		}
		l.mu.Lock()
		if err != nil && !errors.Is(err, http.ErrNotSupported) {
			l.err = err // the caller is gone: what is stored is stored
			l.buf = nil
		}
		l.more.Broadcast()
	}
}
