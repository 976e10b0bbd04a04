package limithttp

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock-io/penstock/shaper"
)

// places names the places of concurrency limits and holds them while their
// requests run.
type places struct {
	process string
	n       atomic.Uint64
}

func newPlaces() *places {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return &places{process: hex.EncodeToString(b[:])}
}

// name is unlike any other place's, in any process.
func (p *places) name() string { return p.process + "-" + strconv.FormatUint(p.n.Add(1), 36) }

// hold renews the asks' places three times a lease, until the returned
// function gives them back.
func (p *places) hold(s shaper.LimitStore, asks []shaper.Ask) (stop func()) {
	ctx := context.Background() // a client that goes away still has to give back
	var mine []shaper.Ask
	every := shaper.MaxPlaceLease
	for _, a := range asks {
		if a.Policy.Algorithm == shaper.Concurrency {
			mine = append(mine, a)
			every = min(every, a.Policy.Normal().Lease/3)
		}
	}
	var mu sync.Mutex
	ended := false
	var timer *time.Timer
	mu.Lock()
	defer mu.Unlock()
	timer = time.AfterFunc(every, func() {
		mu.Lock()
		defer mu.Unlock()
		if ended {
			return
		}
		for _, a := range mine {
			_ = s.Renew(ctx, a) // away: the lease runs out, and the limit is too generous for that long
		}
		timer.Reset(every)
	})
	return func() {
		mu.Lock()
		defer mu.Unlock()
		ended = true
		timer.Stop()
		for _, a := range mine {
			_ = s.Release(ctx, a)
		}
	}
}
