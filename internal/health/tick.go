package health

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/penstock-io/penstock/breaker"
	"github.com/penstock-io/penstock/shaper"
)

const (
	requestTime = 2 * time.Second // for one beat
	longestPoll = 2 * time.Second // between two looks of a process without calls
	restPoll    = time.Second     // the same while nothing but a caller who waits is a reason to look
)

// loop beats until there is nothing to do for a while, or Close.
func (h *Health) loop(stopped chan struct{}) {
	defer close(stopped)
	timer := time.NewTimer(h.pause())
	defer timer.Stop()
	for {
		select {
		case <-h.kick: // a call came into a long pause
			timer.Reset(h.jitter(h.cfg.Law.Tick))
			continue
		case <-timer.C:
		case <-h.quit:
			h.beat()
			return
		}
		h.beat()
		h.mu.Lock()
		if h.idleLocked(time.Now()) {
			h.running = false
			h.mu.Unlock()
			return
		}
		h.mu.Unlock()
		timer.Reset(h.pause())
	}
}

// idleLocked reports that this process has nothing to flush, and nothing for
// which somebody must tick.
func (h *Health) idleLocked(now time.Time) bool {
	quiet := len(h.window.gens) == 0 && h.pending == nil && h.inFlight <= 0 && now.Sub(h.lastCall) > h.cfg.Law.Window+h.cfg.Law.Tick
	waits := h.cfg.Waiting != nil && h.cfg.Waiting() > 0
	return quiet && !waits && h.failures == 0 && (h.view.Mode == Off || h.view.State.AtRest())
}

// pause until the next beat: a tick, with jitter so that a fleet does not beat
// as one; longer for a process that is one of many and has nothing to flush.
func (h *Health) pause() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	d, failures := h.cfg.Law.Tick, h.failures
	empty := len(h.window.gens) == 0 && h.inFlight <= 0 && time.Since(h.lastCall) > 2*d
	rests := h.view.Mode == Off || h.view.State.AtRest()
	if empty && h.cfg.Processes != nil {
		d = max(d, min(longestPoll, d*time.Duration(h.cfg.Processes())/4))
	}
	if empty && rests {
		d = max(d, restPoll)
	}
	if failures > 0 {
		d = max(d, min(longestPoll, d<<min(failures, 4)))
	}
	h.long = d > h.cfg.Law.Tick && failures == 0
	return h.jitter(d)
}

func (h *Health) jitter(d time.Duration) time.Duration { return d*9/10 + rand.N(d/5+1) }

// beat flushes the window, and ticks where a tick is due.
func (h *Health) beat() {
	ctx, cancel := context.WithTimeout(context.Background(), requestTime)
	defer cancel()
	h.mu.Lock()
	if h.pending == nil {
		h.requests++
		h.pending = &flush{window: h.window, number: h.requests}
		h.window = window{}
	}
	f := h.pending
	h.mu.Unlock()
	s, err := h.sense(ctx, f, true, "")
	h.mu.Lock()
	if err != nil { // it may have arrived: it is sent again as it is
		h.failures++
		if h.failures == 1 {
			h.cfg.Logger.Warn("health: redis does not answer; the limits stay as they are", "provider", h.cfg.Provider, "error", err)
		}
		h.mu.Unlock()
		return
	}
	h.failures, h.pending = 0, nil
	h.mu.Unlock()
	h.learn(s)
	if s.due {
		h.tick(ctx, s)
	}
}

// learn keeps what an answer said.
func (h *Health) learn(s sensed) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.learnLocked(modeOf(s.mode, h.cfg.Mode), s.record.control, s.record.state, s.now)
}

func (h *Health) learnLocked(mode Mode, c shaper.Control, state breaker.State, now time.Time) {
	h.seen = max(h.seen, c.Generation)
	v := View{Mode: mode, State: state, Phase: shaper.PhaseClosed}
	if c.Mode == shaper.ControlOn && c.Phase != "" {
		v.Phase = c.Phase
		if c.Phase == shaper.PhaseOpen {
			v.OpenUntil = time.Now().Add(c.OpenUntil.Sub(now))
		}
	}
	h.view = v
}

// tick steps the law and publishes what it says.
func (h *Health) tick(ctx context.Context, s sensed) {
	mode, r := modeOf(s.mode, h.cfg.Mode), s.record
	switch {
	case r.newer:
		return
	case mode == Off:
		if err := h.putOut(ctx, s); err != nil {
			h.cfg.Logger.Debug("health: a record stays in force for now", "provider", h.cfg.Provider, "error", err)
		}
		return
	}
	law := h.law()
	was := r.begin(mode, h.known())
	if open, ok := was.Phase.(breaker.Open); ok && s.resumed {
		open.Until = s.now // an operator wants it tried now
		was.Phase = open
	}
	state := breaker.Step(s.now, was, s.sample, law)
	c := control(state, law, mode, r.control.Version+1)
	written, err := h.publish(ctx, r, c, state, stale(s.sample.Buckets, s.now, law))
	if err != nil || !written {
		return // another was faster, or the next tick is
	}
	h.mu.Lock()
	h.learnLocked(mode, c, state, s.now)
	h.mu.Unlock()
	h.announce(was, state, law, mode)
}
