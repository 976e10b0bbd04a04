package queue

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/penstock-io/penstock/internal/redistest"
	"github.com/penstock-io/penstock/queue/internal/layout"
)

// TestFull is cases QUE-16 (1,000 jobs of 1 MiB) and QUE-23: from 85 % on jobs
// are refused, long before Redis refuses; what frees memory still works; and
// when there is room again, jobs are accepted.
func TestFull(t *testing.T) {
	redistest.Real(t, func(t *testing.T, rdb redis.UniversalClient, env *redistest.Env) {
		f := newFixture(t, rdb, env)
		ctx := t.Context()
		const limit = 48 << 20
		env.Server.Config("maxmemory", fmt.Sprint(limit))
		f.put(Job{ID: "first"})
		var full error
		stored := 0
		for range 1000 {
			if _, full = f.Enqueue(ctx, Job{Provider: "sms", Body: make([]byte, 1<<20)}); full != nil {
				break
			}
			stored++
		}
		fe, ok := errors.AsType[*FullError](full)
		if !ok || !errors.Is(full, ErrFull) || fe.Max != limit || fe.RetryAfter <= 0 {
			t.Fatalf("QUE-16: after %d jobs: %v", stored, full)
		}
		used := parseInfo(rdb.Info(ctx, "memory").Val()).int("used_memory")
		if used > limit*95/100 || used < limit*70/100 {
			t.Errorf("QUE-16: refused at %d %% of maxmemory", used*100/limit)
		}

		env.Server.Config("maxmemory", fmt.Sprint(used/2))
		if err := rdb.Set(ctx, "x", "y", 0).Err(); err == nil || !strings.Contains(err.Error(), "OOM") {
			t.Fatalf("redis is not full: %v", err)
		}
		if got, err := f.Cancel(ctx, "sms", "first"); err != nil || got.State != Cancelled {
			t.Errorf("QUE-23: cancel: %+v, %v", got, err)
		}
		if _, err := f.sweeper().Sweep(ctx, time.Nanosecond); err != nil {
			t.Errorf("QUE-23: sweep: %v", err)
		}
		fresh, err := NewClient(Config{Redis: rdb}) // has no sample, and so asks Redis itself
		f.must(err)
		if _, err := fresh.Enqueue(ctx, Job{Provider: "sms"}); !errors.Is(err, ErrFull) {
			t.Errorf("QUE-23: enqueue: %v", err)
		}
		for _, p := range []Priority{PriorityDefault, PriorityHigh} {
			p, err := f.prepareUnchecked(Job{Provider: "sms", Priority: p})
			f.must(err)
			err = p.script.Run(ctx, rdb, p.keys, p.args...).Err()
			if !errors.Is(mapError(err), ErrFull) {
				t.Errorf("QUE-23: the script itself: %v", err)
			}
			if n := rdb.Exists(ctx, p.keys[0]).Val(); n != 0 {
				t.Error("QUE-23: half a job was stored")
			}
		}

		env.Server.Config("maxmemory", "0")
		time.Sleep(sampleEvery)
		if _, err := f.Enqueue(ctx, Job{Provider: "sms"}); err != nil {
			t.Errorf("QUE-23: with room again: %v", err)
		}
	})
}

// prepareUnchecked is prepare without asking for room.
func (f *fixture) prepareUnchecked(j Job) (*prepared, error) {
	j, err := j.normal()
	if err != nil {
		return nil, err
	}
	p := &prepared{job: j, hash: contentHash(j)}
	p.job.ID = "unchecked " + string(j.Priority)
	return p, f.pack(p, time.Now())
}

// TestReadOnly is case QUE-22: a primary that became a replica, and came back.
func TestReadOnly(t *testing.T) {
	redistest.Real(t, func(t *testing.T, rdb redis.UniversalClient, env *redistest.Env) {
		f := newFixture(t, rdb, env)
		ctx := t.Context()
		f.put(Job{})
		f.must(rdb.Do(ctx, "REPLICAOF", "127.0.0.1", "1").Err())
		_, err := f.Enqueue(ctx, Job{Provider: "sms"})
		ue, ok := errors.AsType[*UnavailableError](err)
		if !ok || !errors.Is(err, ErrUnavailable) || ue.Fix == "" {
			t.Errorf("QUE-22: %v", err)
		}
		for _, e := range []error{
			func() error { _, err := f.Cancel(ctx, "sms", "x"); return err }(),
			f.Publish(ctx, "other", Spec{}),
			f.PauseQueue(ctx, "sms"),
		} {
			if e == nil || errors.Is(e, ErrFull) {
				t.Errorf("QUE-22: %v", e)
			}
		}
		f.must(rdb.Do(ctx, "REPLICAOF", "NO", "ONE").Err())
		if _, err := f.Enqueue(ctx, Job{Provider: "sms"}); err != nil {
			t.Errorf("QUE-22: after the promotion: %v", err)
		}
	})
}

// TestStalled: a server that stands still; the caller's deadline ends the
// wait, the same id is sent again, and there is one job.
func TestStalled(t *testing.T) {
	redistest.Real(t, func(t *testing.T, rdb redis.UniversalClient, env *redistest.Env) {
		slow := env.Server.ClientWith(redis.Options{ContextTimeoutEnabled: true})
		f := newFixture(t, slow, env)
		f.put(Job{})
		env.Server.Stop()
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err := f.Enqueue(ctx, Job{Provider: "sms", ID: "a"})
		if !errors.Is(err, ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("stalled: %v", err)
		}
		env.Server.Continue()
		f.put(Job{ID: "a"})
		f.put(Job{ID: "a"})
		if n := rdb.LLen(t.Context(), f.k.Asynq("pending")).Val(); n != 2 {
			t.Errorf("%d jobs, want the first and a", n)
		}
	})
}

func TestMapError(t *testing.T) {
	for text, want := range map[string]error{
		"OOM command not allowed when used memory > 'maxmemory'. script: abc, on @user_script:1.":         ErrFull,
		"UNKNOWN: redis eval error: OOM command not allowed when used memory > 'maxmemory'.":              ErrFull,
		"READONLY You can't write against a read only replica.":                                           ErrUnavailable,
		"UNKNOWN: redis eval error: READONLY You can't write against a read only replica. script: x":      ErrUnavailable,
		"LOADING Redis is loading the dataset in memory":                                                  ErrUnavailable,
		"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.":                ErrUnavailable,
		"CLUSTERDOWN The cluster is down":                                                                 ErrUnavailable,
		"MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk": ErrUnavailable,
		"NOREPLICAS Not enough good replicas to write.":                                                   ErrUnavailable,
		"NOAUTH Authentication required.":                                                                 ErrUnavailable,
		"WRONGPASS invalid username-password pair or user is disabled.":                                   ErrUnavailable,
		"NOPERM this user has no permissions to run the 'evalsha' command":                                ErrUnavailable,
		"ERR max number of clients reached":                                                               ErrUnavailable,
	} {
		err := mapError(errors.New(text))
		if !errors.Is(err, want) {
			t.Errorf("%s: %v", text, err)
		}
		if u, ok := errors.AsType[*UnavailableError](err); ok && u.Fix == "" {
			t.Errorf("%s: no remedy", text)
		}
	}
	for _, err := range []error{io.EOF, net.ErrClosed, redis.ErrClosed, redis.ErrPoolTimeout, context.Canceled, context.DeadlineExceeded,
		&net.OpError{Op: "dial", Err: errors.New("refused")}} {
		got := mapError(fmt.Errorf("asynq says: %w", err))
		if !errors.Is(got, ErrUnavailable) || !errors.Is(got, err) {
			t.Errorf("%v: %v", err, got)
		}
	}
	if mapError(nil) != nil {
		t.Error("nil is an error")
	}
	if err := errors.New("ERR wrong kind"); mapError(err) != err {
		t.Error("another error was renamed")
	}
}

// TestCheckServer is case QUE-24, and what else makes a server unfit.
func TestCheckServer(t *testing.T) {
	redistest.Real(t, func(t *testing.T, rdb redis.UniversalClient, env *redistest.Env) {
		r, err := CheckServer(t.Context(), rdb)
		if err != nil || r.Name != "redis" || r.Version == "" || len(r.Warnings) != 2 {
			t.Errorf("%+v, %v", r, err)
		}
		env.Server.Config("maxmemory", "100mb")
		env.Server.Config("appendonly", "yes")
		if r, err = CheckServer(t.Context(), rdb); err != nil || len(r.Warnings) != 0 || !r.AOF {
			t.Errorf("a fit server: %+v, %v", r, err)
		}
		for _, policy := range []string{"allkeys-lru", "volatile-ttl"} {
			env.Server.Config("maxmemory-policy", policy)
			if _, err = CheckServer(t.Context(), rdb); !errors.Is(err, ErrServer) || !strings.Contains(err.Error(), "noeviction") {
				t.Errorf("QUE-24 %s: %v", policy, err)
			}
		}
		env.Server.Config("maxmemory", "0")
		if r, err = CheckServer(t.Context(), rdb); err != nil || !strings.Contains(strings.Join(r.Warnings, " "), "noeviction") {
			t.Errorf("QUE-24 without a limit: %+v, %v", r, err)
		}
		env.Server.Kill()
		if _, err = CheckServer(t.Context(), rdb); !errors.Is(err, ErrUnavailable) {
			t.Errorf("no server: %v", err)
		}
	})
	redistest.Virtual(t, func(t *testing.T, rdb redis.UniversalClient, _ *redistest.Env) {
		if r, err := CheckServer(t.Context(), rdb); err != nil || r.Name != "embedded" || len(r.Warnings) != 1 {
			t.Errorf("%+v, %v", r, err)
		}
	})
}

// TestOldServer: versions are compared as numbers, Valkey by its own.
func TestOldServer(t *testing.T) {
	for version, ok := range map[string]bool{"6.2.14": false, "5.0": false, "": false, "7.0.15": true, "8.2": true, "10.0.0": true} {
		r := ServerReport{Name: "redis", Version: version}
		if err := r.checkVersion(); (err == nil) != ok {
			t.Errorf("redis %q: %v", version, err)
		}
	}
	r := ServerReport{Name: "valkey", Version: "8.0.1"}
	if err := r.checkVersion(); err != nil {
		t.Error(err)
	}
}

// TestClockOff: due times are by Redis's clock, not by the producer's.
func TestClockOff(t *testing.T) {
	s := &sampler{offset: time.Hour}
	if d := time.Until(s.now()); d < 59*time.Minute {
		t.Errorf("now is %s ahead", d)
	}
	redistest.Real(t, func(t *testing.T, rdb redis.UniversalClient, env *redistest.Env) {
		f := newFixture(t, rdb, env)
		f.put(Job{ID: "a", Delay: time.Hour})
		server, err := rdb.Time(t.Context()).Result()
		f.must(err)
		due := time.UnixMilli(int64(rdb.ZScore(t.Context(), f.k.Lane(PriorityDefault), "a").Val()))
		if d := due.Sub(server); d < time.Hour-2*time.Second || d > time.Hour+time.Second {
			t.Errorf("due in %s", d)
		}
	})
}

// TestSpec: producers refuse by what workers published, with no file of their own.
func TestSpec(t *testing.T) {
	both(t, func(t *testing.T, f *fixture) {
		ctx := t.Context()
		f.must(f.Publish(ctx, "sms", Spec{MaxBody: 10, MaxCost: 5, Keep: time.Minute, Attempts: 3, MaxAge: time.Hour}))
		producer, err := NewClient(Config{Redis: f.env.Client()})
		f.must(err)
		for name, row := range map[string]struct {
			job  Job
			want error
		}{
			"QUE-16 limit":     {Job{Provider: "sms", Body: make([]byte, 10)}, nil},
			"QUE-16 limit + 1": {Job{Provider: "sms", Body: make([]byte, 11)}, ErrTooLarge},
			"cost":             {Job{Provider: "sms", Cost: 5}, nil},
			"cost + 1":         {Job{Provider: "sms", Cost: 6}, ErrInvalid},
			"unknown":          {Job{Provider: "nobody"}, ErrUnknownProvider},
		} {
			if _, err := producer.Enqueue(ctx, row.job); !errors.Is(err, row.want) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if got, err := producer.Spec(ctx, "sms"); err != nil || got.Keep != time.Minute || got.Attempts != 3 || got.MaxAge != time.Hour {
			t.Errorf("%+v, %v", got, err)
		}
		// What is published again is seen within the cache's 5 s, and a new
		// provider within one.
		f.must(f.Publish(ctx, "sms", Spec{MaxBody: 20}))
		f.must(f.Publish(ctx, "nobody", Spec{}))
		if f.env.Virtual {
			time.Sleep(specTTL)
			if _, err := producer.Enqueue(ctx, Job{Provider: "sms", Body: make([]byte, 20), Cost: 100}); err != nil {
				t.Error(err)
			}
			if _, err := producer.Enqueue(ctx, Job{Provider: "nobody"}); err != nil {
				t.Error(err)
			}
		}
		f.must(f.Unpublish(ctx, "nobody"))
		if _, err := f.Enqueue(ctx, Job{Provider: "nobody"}); !errors.Is(err, ErrUnknownProvider) {
			t.Errorf("unpublished: %v", err)
		}
		for _, s := range []Spec{{MaxBody: -1}, {MaxBody: MaxBody + 1}, {MaxCost: -1}, {Attempts: -1}, {MaxAge: -1}, {Keep: -1}, {Keep: MaxDelay + 1}} {
			if err := f.Publish(ctx, "sms", s); !errors.Is(err, ErrInvalid) {
				t.Errorf("%+v: %v", s, err)
			}
		}
		// A later release adds fields.
		f.must(f.rdb.Set(ctx, f.k.Own(layout.Spec), `{"v":2,"provider":"sms","max_body":7,"new":[1]}`, 0).Err())
		later, err := NewClient(Config{Redis: f.rdb})
		f.must(err)
		if got, err := later.Spec(ctx, "sms"); err != nil || got.MaxBody != 7 {
			t.Errorf("%+v, %v", got, err)
		}
	})
}

func TestNewClient(t *testing.T) {
	if _, err := NewClient(Config{}); err == nil {
		t.Error("no Redis")
	}
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer rdb.Close()
	if _, err := NewClient(Config{Redis: rdb, Namespace: "a}b"}); !errors.Is(err, ErrInvalid) {
		t.Errorf("namespace: %v", err)
	}
	if _, err := NewClient(Config{Redis: rdb}); err != nil {
		t.Errorf("nothing is asked at first: %v", err)
	}
}

// TestNoInfo: a user without the right to INFO can put jobs in; it is said once.
func TestNoInfo(t *testing.T) {
	redistest.Real(t, func(t *testing.T, rdb redis.UniversalClient, env *redistest.Env) {
		f := newFixture(t, rdb, env)
		f.must(rdb.Do(t.Context(), "ACL", "SETUSER", "app", "on", ">pw", "~*", "&*", "+@all", "-info").Err())
		var said strings.Builder
		c, err := NewClient(Config{
			Redis:  env.Server.ClientWith(redis.Options{Username: "app", Password: "pw"}),
			Logger: slog.New(slog.NewTextHandler(&said, nil)),
		})
		f.must(err)
		for range 3 {
			if _, err := c.Enqueue(t.Context(), Job{Provider: "sms"}); err != nil {
				t.Fatal(err)
			}
		}
		if n := strings.Count(said.String(), "level=WARN"); n != 1 || strings.Contains(said.String(), "pw") {
			t.Errorf("said %q", said.String())
		}
		if r, err := CheckServer(t.Context(), c.rdb); err != nil || len(r.Warnings) != 1 {
			t.Errorf("%+v, %v", r, err)
		}
	})
}
