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
// Safe for several goroutines; no method waits for Redis. The subscription is
// opened for the first listener and closed after the last, so an unused Waker
// costs nothing and need not be closed.
type Waker struct {
	rdb redis.UniversalClient

	mu        sync.Mutex
	next      int
	listeners map[string]map[int]func(payload string)
	running   bool
	changed   chan struct{}
}

// NewWaker returns a Waker on rdb, which it never closes.
func NewWaker(rdb redis.UniversalClient) *Waker {
	return &Waker{rdb: rdb, listeners: map[string]map[int]func(string){}, changed: make(chan struct{}, 1)}
}

// Listen returns a channel that holds one element after anything was published
// on channel, and a function that ends listening.
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
	if w.listeners[channel] == nil {
		w.listeners[channel] = map[int]func(string){}
	}
	w.listeners[channel][id] = f
	if !w.running {
		w.running = true
		go w.run()
	}
	w.signalLocked()
	return sync.OnceFunc(func() { w.forget(channel, id) })
}

func (w *Waker) signalLocked() {
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

func (w *Waker) forget(channel string, id int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.listeners[channel], id)
	if len(w.listeners[channel]) == 0 {
		delete(w.listeners, channel)
		w.signalLocked()
	}
}

// run holds the subscription and talks to Redis about it, outside the lock.
// Errors of single subscriptions are repaired by go-redis when it reconnects.
func (w *Waker) run() {
	ctx := context.Background()
	sub := w.rdb.Subscribe(ctx)
	defer func() { _ = sub.Close() }()
	have := map[string]bool{}
	var messages <-chan *redis.Message
	for {
		add, drop, done := w.difference(have)
		if done {
			return
		}
		if len(add) > 0 {
			_ = sub.Subscribe(ctx, add...)
		}
		if len(drop) > 0 {
			_ = sub.Unsubscribe(ctx, drop...)
		}
		if messages == nil {
			messages = sub.Channel()
		}
		select {
		case m, ok := <-messages:
			if ok { // it is closed by Close alone, which is ours
				w.deliver(m)
			}
		case <-w.changed:
		}
	}
}

// difference compares what is subscribed with what is listened to, and brings
// have up to date. Where nobody listens any more, the run is over.
func (w *Waker) difference(have map[string]bool) (add, drop []string, done bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.listeners) == 0 {
		w.running = false
		return nil, nil, true
	}
	for c := range w.listeners {
		if !have[c] {
			have[c] = true
			add = append(add, c)
		}
	}
	for c := range have {
		if w.listeners[c] == nil {
			delete(have, c)
			drop = append(drop, c)
		}
	}
	return add, drop, false
}

func (w *Waker) deliver(m *redis.Message) {
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
