package shaper

import (
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/penstock-io/penstock/internal/redistest"
)

// The promise for any burst, cost and pattern of arrivals: in any window w at
// most w/interval + burst calls (of cost 1; dearer ones count their cost).
// LIM-01, LIM-03.
func TestAnyWindow(t *testing.T) {
	for seed := range uint64(8) {
		redistest.Virtual(t, func(t *testing.T, rdb redis.UniversalClient, env *redistest.Env) {
			r := rand.New(rand.NewPCG(seed, 7))
			l := Limits{Rate: Rate{N: 1 + r.Int64N(300), Per: time.Second}, Burst: 1 + r.IntN(12)}
			gates := []*Gate{testGate(t, rdb, l), testGate(t, env.Client(), l)}
			type call struct {
				at   time.Time
				cost int
			}
			var mu sync.Mutex
			var calls []call
			var wg sync.WaitGroup
			for range 150 {
				g, cost, pause := gates[r.IntN(2)], 1, time.Duration(r.Int64N(int64(3*time.Second)))
				if r.IntN(5) == 0 {
					cost = 1 + r.IntN(4)
				}
				wg.Go(func() {
					time.Sleep(pause)
					p, err := g.Acquire(t.Context(), Arrival{Cost: cost})
					if err != nil {
						t.Error(err)
						return
					}
					if rand.IntN(4) == 0 { // not used: its slot goes back, or is forfeited
						p.Release()
						return
					}
					mu.Lock()
					calls = append(calls, call{time.Now(), cost})
					mu.Unlock()
					p.Settle(Settlement{OK: true})
				})
			}
			wg.Wait()
			slices.SortFunc(calls, func(a, b call) int { return a.at.Compare(b.at) })
			iv := l.Interval() // the script counts whole microseconds: two are the rounding of two slots
			for i := range calls {
				sum := 0
				for j := i; j < len(calls); j++ {
					// The last call's own cost is paid after it.
					if most := int((calls[j].at.Sub(calls[i].at)+2*time.Microsecond)/iv) + l.Burst; sum+1 > most {
						t.Fatalf("seed %d, %+v: %d calls within %s, at most %d", seed, l, sum+1, calls[j].at.Sub(calls[i].at), most)
					}
					sum += calls[j].cost
				}
			}
		})
	}
}
