package main

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"time"
)

// shop is the provider: it remembers when it was called, and fails the first
// call of every tenth order, so that there is something to try again.
type shop struct {
	url    string
	server *httptest.Server

	mu    sync.Mutex
	calls []time.Time
	seen  map[string]bool
}

func startShop() *shop {
	s := &shop{seen: map[string]bool{}}
	s.server = httptest.NewServer(s)
	s.url = s.server.URL
	return s
}

func (s *shop) stop() { s.server.Close() }

func (s *shop) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, time.Now())
	// The job's id, the same at each attempt.
	id := r.Header.Get("Idempotency-Key")
	if first := !s.seen[id]; first && len(s.seen)%10 == 0 {
		w.WriteHeader(http.StatusInternalServerError)
	}
	s.seen[id] = true
}

// report returns how many calls there were, and the most in any second.
func (s *shop) report() (calls, most int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	slices.SortFunc(s.calls, time.Time.Compare)
	first := 0
	for i, at := range s.calls {
		for at.Sub(s.calls[first]) >= time.Second {
			first++
		}
		most = max(most, i-first+1)
	}
	return len(s.calls), most
}
