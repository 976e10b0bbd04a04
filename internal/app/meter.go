package app

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/penstock-io/penstock/breaker"
	"github.com/penstock-io/penstock/internal/config"
	"github.com/penstock-io/penstock/internal/metrics"
)

// meterSeconds is the window of the rate used.
const meterSeconds = 10

// meters holds one meter for each provider.
type meters struct {
	mu sync.Mutex
	by map[string]*meter
}

func (m *meters) of(provider string) *meter {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.by == nil {
		m.by = map[string]*meter{}
	}
	if m.by[provider] == nil {
		m.by[provider] = &meter{}
	}
	return m.by[provider]
}

// meter counts this process's calls of the last whole seconds.
type meter struct {
	mu     sync.Mutex
	counts [meterSeconds + 1]struct{ second, n int64 }
}

func (m *meter) add() {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now().Unix()
	c := &m.counts[now%int64(len(m.counts))]
	if c.second != now {
		c.second, c.n = now, 0
	}
	c.n++
}

// perSecond is the mean over the last 10 whole seconds.
func (m *meter) perSecond() float64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now().Unix()
	var n int64
	for _, c := range m.counts {
		if c.second < now && c.second >= now-meterSeconds {
			n += c.n
		}
	}
	return float64(n) / meterSeconds
}

// observer hears a provider's guard and worker.
type observer struct {
	*metrics.Metrics
	meter *meter
}

// Attempt counts a call.
func (o *observer) Attempt(provider string, outcome breaker.Outcome, took time.Duration) {
	o.meter.add()
	o.Metrics.Attempt(provider, outcome, took)
}

// credentialsTag tells one set of headers from another. It is stored in Redis:
// 32 bits, so that nothing can be worked out from it.
func credentialsTag(p config.Provider) string {
	h := sha256.New()
	h.Write([]byte("penstock credentials\x00" + p.Name + "\x00" + p.BaseURL))
	for _, k := range slices.Sorted(maps.Keys(p.Headers)) {
		h.Write([]byte("\x00" + k + "\x00" + p.Headers[k].Reveal()))
	}
	for _, s := range p.Sign {
		h.Write([]byte("\x00sign\x00" + s.Value))
	}
	return hex.EncodeToString(h.Sum(nil)[:4])
}
