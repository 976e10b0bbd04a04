package guard

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/penstock-io/penstock/internal/redistest"
	"github.com/penstock-io/penstock/retrybudget"
	"github.com/penstock-io/penstock/shaper"
)

// RET-09: each provider has a budget of its own. One that is down and has none
// left takes nothing from its neighbour.
func TestBudgetsAreApart(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient, env *redistest.Env) {
		guardOf := func(name string) *Guard {
			return testGuard(t, rdb, func(c *Config) {
				c.Provider, c.Limits = name, shaper.Limits{Concurrency: 1}
				c.Budget = retrybudget.Budget{Cap: 2000, Contended: time.Minute}
			})
		}
		down, well := guardOf("down"), guardOf("well")
		for _, g := range []*Guard{down, well} {
			contend(t, g)
		}
		spent := 0
		for range 10 {
			err := down.Do(t.Context(), Request{Retry: true}, func(context.Context) error { return errDown })
			if _, none := errors.AsType[*Deferred](err); none {
				break
			}
			spent++
		}
		if spent == 0 || spent == 10 {
			t.Fatalf("%d retries went; the budget was 2", spent)
		}
		if err := well.Do(t.Context(), Request{Retry: true}, func(context.Context) error { return nil }); err != nil {
			t.Errorf("its neighbour's retry: %v", err)
		}
	})
}

// contend lets a first attempt wait for a place, so that retries need tokens.
func contend(t *testing.T, g *Guard) {
	t.Helper()
	busy, leave, left := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(left)
		_ = g.Do(t.Context(), Request{}, func(context.Context) error { close(busy); <-leave; return errDown })
	}()
	<-busy
	short, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_ = g.Do(short, Request{}, func(context.Context) error { return nil })
	close(leave)
	<-left
}
