package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// proxy forwards TCP connections and delivers each byte a fixed time after it
// was read, each way: a Redis that is further away, with the bandwidth it had.
type proxy struct {
	listener net.Listener
	target   string
	oneWay   time.Duration
	ctx      context.Context
	cancel   context.CancelFunc
	all      sync.WaitGroup
}

// startProxy listens on a free loopback port. Close it.
func startProxy(target string, oneWay time.Duration) (*proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("delaying proxy: %w", err)
	}
	p := &proxy{listener: l, target: target, oneWay: oneWay}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.all.Go(p.accept)
	return p, nil
}

func (p *proxy) addr() string { return p.listener.Addr().String() }

// Close ends every connection and waits for all goroutines.
func (p *proxy) Close() error {
	p.cancel()
	err := p.listener.Close()
	p.all.Wait()
	return err
}

func (p *proxy) accept() {
	for {
		near, err := p.listener.Accept()
		if err != nil {
			return // closed
		}
		p.all.Go(func() { p.connect(near) })
	}
}

func (p *proxy) connect(near net.Conn) {
	defer near.Close()
	far, err := net.Dial("tcp", p.target)
	if err != nil {
		return // the client sees its connection close
	}
	defer far.Close()
	stop := context.AfterFunc(p.ctx, func() { near.Close(); far.Close() })
	defer stop()
	var both sync.WaitGroup
	both.Go(func() { p.carry(near, far) })
	both.Go(func() { p.carry(far, near) })
	both.Wait()
}

// parcel is what was read at once, and when it is to arrive.
type parcel struct {
	data []byte
	due  time.Time
}

// carry reads without waiting for what is under way, so that a pipeline is
// delayed once and not once per command. When one side ends, both do.
func (p *proxy) carry(from, to net.Conn) {
	defer to.Close()
	defer from.Close()
	road := make(chan parcel, 4096)
	var deliver sync.WaitGroup
	deliver.Go(func() {
		failed := false
		for x := range road {
			if failed {
				continue // the reader must not block
			}
			time.Sleep(time.Until(x.due))
			if _, err := to.Write(x.data); err != nil {
				failed = true
				from.Close()
			}
		}
	})
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			road <- parcel{append([]byte(nil), buf[:n]...), time.Now().Add(p.oneWay)}
		}
		if err != nil {
			break
		}
	}
	close(road)
	deliver.Wait()
}

// roundTrip is the least of a few PINGs at addr.
func roundTrip(ctx context.Context, addr string) (time.Duration, error) {
	c := redis.NewClient(&redis.Options{Addr: addr, DisableIdentity: true, MaxRetries: -1, DialerRetries: 1})
	defer c.Close()
	least := time.Duration(-1)
	for range 20 {
		begun := time.Now()
		if err := c.Ping(ctx).Err(); err != nil {
			if errors.Is(err, io.EOF) {
				err = fmt.Errorf("%w; is redis-server still there?", err)
			}
			return 0, fmt.Errorf("PING %s: %w", addr, err)
		}
		if took := time.Since(begun); least < 0 || took < least {
			least = took
		}
	}
	return least, nil
}
