package api

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"sync"
)

// fed is a line of the input, with its ending.
type fed struct {
	line int
	text []byte
}

var errLongLine = errors.New("a line of the input is longer than any job may be")

// feed gives lines to one request after another, and takes back what has to be
// sent again.
type feed struct {
	lines chan fed
	err   error // of the input, once lines is closed; nil at its end
	done  chan struct{}

	mu    sync.Mutex
	again []fed
	more  chan struct{} // says that again has grown
}

// newFeed begins to read. Its goroutine ends with close, or, where a read of
// the input takes longer, with that.
func newFeed(in io.Reader) *feed {
	f := &feed{lines: make(chan fed), done: make(chan struct{}), more: make(chan struct{}, 1)}
	go f.run(bufio.NewReaderSize(in, 64<<10))
	return f
}

func (f *feed) close() { close(f.done) }

func (f *feed) run(in *bufio.Reader) {
	defer close(f.lines)
	for n := 1; ; n++ {
		text, err := readLine(in)
		if len(bytes.TrimSpace(text)) > 0 {
			if text[len(text)-1] != '\n' {
				text = append(text, '\n')
			}
			select {
			case f.lines <- fed{line: n, text: text}:
			case <-f.done:
				return
			}
		}
		if err != nil {
			if err != io.EOF {
				f.err = err
			}
			return
		}
	}
}

// readLine reads a line of at most maxClientLine.
func readLine(in *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := in.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case len(line) > maxClientLine:
			return nil, errLongLine
		case err != bufio.ErrBufferFull:
			return line, err
		}
	}
}

// back takes lines that have to be sent again.
func (f *feed) back(lines ...fed) {
	f.mu.Lock()
	f.again = append(f.again, lines...)
	f.mu.Unlock()
	select {
	case f.more <- struct{}{}:
	default:
	}
}

// repeat is a line that has to be sent again.
func (f *feed) repeat() (fed, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.again) == 0 {
		return fed{}, false
	}
	l := f.again[0]
	f.again = f.again[1:]
	return l, true
}

// next is a line to send; io.EOF at the end, or once stop is closed.
func (f *feed) next(stop <-chan struct{}) (fed, error) {
	for {
		if l, ok := f.repeat(); ok {
			return l, nil
		}
		select {
		case <-stop:
			return fed{}, io.EOF
		case <-f.more:
		case l, ok := <-f.lines:
			if ok {
				return l, nil
			}
			if l, ok := f.repeat(); ok {
				return l, nil
			}
			if f.err != nil {
				return fed{}, f.err
			}
			return fed{}, io.EOF
		}
	}
}

// giveUp yields the refusal of every line that was to be sent again.
func (f *feed) giveUp(why *Problem, yield func(BatchLine, error) bool) {
	for {
		l, ok := f.repeat()
		if !ok {
			yield(BatchLine{}, why) // what follows was not sent
			return
		}
		if !yield(BatchLine{Line: l.line, Status: why.Status, Error: why}, nil) {
			return
		}
	}
}

// part is the body of one request: lines, until one is refused by a limit, too
// many are unanswered, or the input ends.
type part struct {
	feed *feed
	rest []byte // of the line that is being read
	stop chan struct{}

	mu        sync.Mutex
	sent      []fed // not answered yet
	bytes     int
	done      int // lines answered
	stopped   bool
	full, eof bool
	err       error // of the input
}

func (f *feed) open() *part { return &part{feed: f, stop: make(chan struct{})} }

// Read gives the request its lines.
func (p *part) Read(b []byte) (int, error) {
	if len(p.rest) == 0 {
		if err := p.take(); err != nil {
			return 0, err
		}
	}
	n := copy(b, p.rest)
	p.rest = p.rest[n:]
	return n, nil
}

// take gets the next line.
func (p *part) take() error {
	p.mu.Lock()
	p.full = p.full || len(p.sent) >= maxUnanswered || p.bytes >= maxUnansweredBytes
	end := p.stopped || p.full
	p.mu.Unlock()
	if end {
		return io.EOF
	}
	l, err := p.feed.next(p.stop)
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.stopped: // meanwhile
		if err == nil {
			p.feed.back(l)
		}
		return io.EOF
	case err != nil:
		if p.eof = true; err != io.EOF {
			p.err = err
		}
		return io.EOF // what was sent is worth its answers
	}
	p.sent = append(p.sent, l)
	p.bytes += len(l.text)
	p.rest = l.text
	return nil
}

// answered takes the result of the request's line n, and returns which line of
// the input that was. again says that it has to be sent again, and that no more
// should follow. The server answers every line, in order.
func (p *part) answered(n int, again bool) (line int, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n != p.done+1 || len(p.sent) == 0 {
		return 0, false
	}
	l := p.sent[0]
	p.sent, p.done, p.bytes = p.sent[1:], p.done+1, p.bytes-len(l.text)
	if again {
		p.haltLocked()
		p.feed.back(l)
	}
	return l.line, true
}

func (p *part) haltLocked() {
	if !p.stopped {
		p.stopped = true
		close(p.stop)
	}
}

// How a request came to its end.
type partEnd int

const (
	partOpen partEnd = iota // by the server
	partFull                // with more to come
	partLast
)

// end takes back what has no answer, and says how the request ended.
func (p *part) end() (unanswered int, end partEnd, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.haltLocked()
	unanswered = len(p.sent)
	p.feed.back(p.sent...)
	p.sent = nil
	switch {
	case p.eof:
		end = partLast
	case p.full:
		end = partFull
	}
	return unanswered, end, p.err
}
