package embedded

import (
	"net"
	"os"
	"sync"
	"time"
)

// buffered gives a net.Pipe's end what a socket has: room. A pipe holds
// nothing, so that a client that writes a long pipeline before it reads, and a
// server that answers the first commands before it has read the last, would
// wait for each other for ever; and so would a server that publishes to a
// subscriber who is busy, with everybody else waiting behind it.
//
// (internal/redistest has a copy: neither package may import the other.)
func buffered(c net.Conn) net.Conn {
	b := &bufferedConn{Conn: c, written: make(chan struct{}, 1), arrived: make(chan struct{}, 1), closed: make(chan struct{})}
	go b.flush()
	go b.fill()
	return b
}

// bufferedConn reads and writes the pipe from goroutines of its own, which
// Close ends. At most one Read at a time.
type bufferedConn struct {
	net.Conn
	written chan struct{} // there is something to send
	arrived chan struct{} // there is something to read, or the deadline changed
	closed  chan struct{}
	once    sync.Once

	mu       sync.Mutex
	out, in  []byte
	outErr   error // of an earlier write
	inErr    error // after what is in in
	deadline time.Time
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Write never blocks; a failure is returned by the next one.
func (b *bufferedConn) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.outErr != nil {
		return 0, b.outErr
	}
	select {
	case <-b.closed:
		return 0, net.ErrClosed
	default:
	}
	b.out = append(b.out, p...)
	poke(b.written)
	return len(p), nil
}

func (b *bufferedConn) flush() {
	for {
		select {
		case <-b.written:
		case <-b.closed:
			return
		}
		b.mu.Lock()
		out := b.out
		b.out = nil
		b.mu.Unlock()
		if _, err := b.Conn.Write(out); err != nil {
			b.mu.Lock()
			b.outErr = err
			b.mu.Unlock()
			return
		}
	}
}

func (b *bufferedConn) fill() {
	buf := make([]byte, 16<<10)
	for {
		n, err := b.Conn.Read(buf)
		b.mu.Lock()
		b.in = append(b.in, buf[:n]...)
		b.inErr = err
		b.mu.Unlock()
		poke(b.arrived)
		if err != nil {
			return
		}
	}
}

// Read returns what has arrived, or waits for it until the deadline.
func (b *bufferedConn) Read(p []byte) (int, error) {
	for {
		b.mu.Lock()
		if len(b.in) > 0 {
			n := copy(p, b.in)
			if b.in = b.in[n:]; len(b.in) == 0 {
				b.in = nil
			}
			b.mu.Unlock()
			return n, nil
		}
		err, deadline := b.inErr, b.deadline
		b.mu.Unlock()
		if err != nil {
			return 0, err
		}
		if err := b.wait(deadline); err != nil {
			return 0, err
		}
	}
}

// wait until something has changed.
func (b *bufferedConn) wait(deadline time.Time) error {
	var late <-chan time.Time
	if !deadline.IsZero() {
		left := time.Until(deadline)
		if left <= 0 {
			return os.ErrDeadlineExceeded
		}
		t := time.NewTimer(left)
		defer t.Stop()
		late = t.C
	}
	select {
	case <-b.arrived:
	case <-b.closed:
		return net.ErrClosed
	case <-late:
		return os.ErrDeadlineExceeded
	}
	return nil
}

// SetDeadline is about reads: writes do not wait.
func (b *bufferedConn) SetDeadline(t time.Time) error { return b.SetReadDeadline(t) }

// SetReadDeadline holds for a Read that waits already, too.
func (b *bufferedConn) SetReadDeadline(t time.Time) error {
	b.mu.Lock()
	b.deadline = t
	b.mu.Unlock()
	poke(b.arrived)
	return nil
}

// SetWriteDeadline does nothing: writes do not wait.
func (b *bufferedConn) SetWriteDeadline(time.Time) error { return nil }

func (b *bufferedConn) Close() error {
	b.once.Do(func() { close(b.closed) })
	return b.Conn.Close()
}
