package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"time"
)

// application is slow, and fails when more than places events come at once.
type application struct {
	url    string
	server *httptest.Server

	mu       sync.Mutex
	calls    []time.Time
	seen     map[string]int
	now, top int // in hand
}

func startApplication() *application {
	a := &application{seen: map[string]int{}}
	a.server = httptest.NewServer(a)
	a.url = a.server.URL
	return a
}

func (a *application) stop() { a.server.Close() }

// ServeHTTP takes one event.
func (a *application) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var event struct{ ID string }
	if err := json.NewDecoder(r.Body).Decode(&event); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	a.mu.Lock()
	a.calls = append(a.calls, time.Now())
	a.seen[event.ID]++
	a.now++
	a.top = max(a.top, a.now)
	over := a.now > places
	a.mu.Unlock()
	time.Sleep(10 * time.Millisecond) // the work on one event
	a.mu.Lock()
	a.now--
	a.mu.Unlock()
	if over {
		w.WriteHeader(http.StatusInternalServerError)
	}
}

// await waits until every event has come, and says what the application saw.
func (a *application) await(ctx context.Context, out io.Writer) error {
	for a.count() < events {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(20 * time.Millisecond):
		}
	}
	// Once more the time that a repeat would need to come through.
	time.Sleep(200 * time.Millisecond)
	a.mu.Lock()
	defer a.mu.Unlock()
	fmt.Fprintf(out, "the application saw %d events with %d calls, at most %d in any second and %d at once; it allows %d and %d\n",
		len(a.seen), len(a.calls), a.most(), a.top, pace, places)
	if len(a.seen) != events || len(a.calls) != events || a.top > places {
		return fmt.Errorf("%d events in %d calls, %d at once: not each once", len(a.seen), len(a.calls), a.top)
	}
	return nil
}

func (a *application) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.seen)
}

// most is the most calls in any second.
func (a *application) most() (most int) {
	slices.SortFunc(a.calls, time.Time.Compare)
	first := 0
	for i, at := range a.calls {
		for at.Sub(a.calls[first]) >= time.Second {
			first++
		}
		most = max(most, i-first+1)
	}
	return most
}
