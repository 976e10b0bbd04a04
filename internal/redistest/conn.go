package redistest

import (
	"net"
	"sync"
	"time"
)

// buffered is queue/embedded's: it makes the writes of a net.Pipe's end wait for nobody. A pipe holds
// nothing: a client that writes a long pipeline before it reads, and a server
// that answers the first commands before it has read the last, would wait for
// each other for ever.
func buffered(c net.Conn) net.Conn {
	b := &bufferedConn{Conn: c, more: make(chan struct{}, 1), closed: make(chan struct{})}
	go b.flush()
	return b
}

// bufferedConn writes from a goroutine of its own, which Close ends.
type bufferedConn struct {
	net.Conn
	more   chan struct{}
	closed chan struct{}
	once   sync.Once

	mu      sync.Mutex
	pending []byte
	err     error // of an earlier write
}

// Write never blocks; a failure is returned by the next one.
func (b *bufferedConn) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err != nil {
		return 0, b.err
	}
	select {
	case <-b.closed:
		return 0, net.ErrClosed
	default:
	}
	b.pending = append(b.pending, p...)
	select {
	case b.more <- struct{}{}:
	default:
	}
	return len(p), nil
}

func (b *bufferedConn) flush() {
	for {
		select {
		case <-b.more:
		case <-b.closed:
			return
		}
		b.mu.Lock()
		out := b.pending
		b.pending = nil
		b.mu.Unlock()
		if _, err := b.Conn.Write(out); err != nil {
			b.mu.Lock()
			b.err = err
			b.mu.Unlock()
			return
		}
	}
}

// SetDeadline is about reads: writes do not wait.
func (b *bufferedConn) SetDeadline(t time.Time) error { return b.SetReadDeadline(t) }

// SetWriteDeadline does nothing: writes do not wait.
func (b *bufferedConn) SetWriteDeadline(time.Time) error { return nil }

func (b *bufferedConn) Close() error {
	b.once.Do(func() { close(b.closed) })
	return b.Conn.Close()
}
