package shaper

import (
	"context"
	"sync"

	"github.com/redis/go-redis/v9"
)

// Waker shares one Redis subscription among all who wait for news in a
// process: gates for places, inlets for jobs. What is published is a hint and
// may be lost, so every listener also has a slow poll of its own.
//
// Safe for several goroutines. The subscription is opened with the first
// listener and closed with the last, so an unused Waker costs nothing.
type Waker struct {
	rdb redis.UniversalClient

	mu        sync.Mutex
	next      int
	listeners map[string]map[int]func(payload string)
	sub       *redis.PubSub
	done      chan struct{}
}

// NewWaker returns a Waker on rdb, which it never closes.
func NewWaker(rdb redis.UniversalClient) *Waker {
	return &Waker{rdb: rdb, listeners: map[string]map[int]func(string){}}
}

// Listen returns a channel that holds one element after anything was published
// on channel, and a function that ends listening. It never blocks.
func (w *Waker) Listen(channel string) (<-chan struct{}, func()) {
	c := make(chan struct{}, 1)
	stop := w.Messages(channel, func(string) {
		select {
		case c <- struct{}{}:
		default:
		}
	})
	return c, stop
}

// Messages calls f, which must not block, with each payload published on
// channel until the returned function is called.
func (w *Waker) Messages(channel string, f func(payload string)) (stop func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.next++
	id := w.next
	first := w.listeners[channel] == nil
	if first {
		w.listeners[channel] = map[int]func(string){}
	}
	w.listeners[channel][id] = f
	if w.sub == nil {
		w.sub = w.rdb.Subscribe(context.Background(), channel)
		w.done = make(chan struct{})
		go w.deliver(w.sub.Channel(), w.done)
	} else if first {
		// An error here is repaired by the subscription's own reconnect.
		_ = w.sub.Subscribe(context.Background(), channel)
	}
	return sync.OnceFunc(func() { w.forget(channel, id) })
}

func (w *Waker) deliver(messages <-chan *redis.Message, done chan struct{}) {
	defer close(done)
	for m := range messages {
		w.mu.Lock()
		fs := make([]func(string), 0, len(w.listeners[m.Channel]))
		for _, f := range w.listeners[m.Channel] {
			fs = append(fs, f)
		}
		w.mu.Unlock()
		for _, f := range fs {
			f(m.Payload)
		}
	}
}

func (w *Waker) forget(channel string, id int) {
	w.mu.Lock()
	delete(w.listeners[channel], id)
	if len(w.listeners[channel]) > 0 {
		w.mu.Unlock()
		return
	}
	delete(w.listeners, channel)
	sub, done := w.sub, w.done
	if len(w.listeners) > 0 {
		_ = sub.Unsubscribe(context.Background(), channel)
		w.mu.Unlock()
		return
	}
	w.sub, w.done = nil, nil
	w.mu.Unlock()
	_ = sub.Close()
	<-done
}
