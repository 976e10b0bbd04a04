package shaper

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/penstock-io/penstock/internal/redistest"
)

// A process that was stopped for longer than its lease comes with the end of a
// call that another has made meanwhile: the first end of a job stands. Take NX
// out of record in gate.lua and a job that succeeded is dead.
func TestFirstRecordStands(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient, _ *redistest.Env) {
		stopped := testGate(t, rdb, Limits{Concurrency: 1})
		other := testGate(t, rdb, Limits{Concurrency: 1})
		end := func(g *Gate, p *Permit, state string) {
			t.Helper()
			if err := p.SettleWait(t.Context(), Settlement{OK: state == "succeeded", Record: &Record{
				Name: "id:j", Value: state, TTL: time.Minute, Index: "done:" + state, Member: "j",
			}}, 0); err != nil {
				t.Fatal(err)
			}
		}
		late := mustAcquire(t, stopped, Arrival{Job: "j", Record: "id:j"})
		// What the script does when the lease has run out.
		if err := rdb.Del(t.Context(), "penstock:{sms}:permits", "penstock:{sms}:running").Err(); err != nil {
			t.Fatal(err)
		}
		end(other, mustAcquire(t, other, Arrival{Job: "j", Record: "id:j"}), "succeeded")
		end(stopped, late, "dead")
		if got := rdb.Get(t.Context(), "penstock:{sms}:id:j").Val(); got != "succeeded" {
			t.Errorf("the record says %q", got)
		}
		if n := rdb.ZCard(t.Context(), "penstock:{sms}:done:dead").Val(); n != 0 {
			t.Error("the job is listed as dead, too")
		}
		if n := rdb.ZCard(t.Context(), "penstock:{sms}:done:succeeded").Val(); n != 1 {
			t.Error("the job is not listed as succeeded")
		}
	})
}
