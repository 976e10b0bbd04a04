package queue

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// ServerReport is what CheckServer found.
type ServerReport struct {
	// Name is redis, valkey or embedded; Version as the server says it.
	Name, Version string
	// Policy is maxmemory-policy; MaxMemory bytes, 0 for no limit.
	Policy    string
	MaxMemory int64
	// AOF says that appendonly is on: what was accepted survives a restart.
	AOF bool
	// Warnings are for the operator's eyes at every start.
	Warnings []string
}

// MinRedis is the oldest major version of Redis that knows the flags our
// scripts need to work when its memory is full.
const MinRedis = 7

// CheckServer looks at the server, or at every master of a cluster, before
// anything is started on it. It refuses (ErrServer) what would lose jobs or
// stand still: a Redis older than 7, and a maxmemory with a policy that evicts.
// What may lose jobs is warned of. The embedded store passes with a warning.
func CheckServer(ctx context.Context, rdb redis.UniversalClient) (ServerReport, error) {
	cluster, ok := rdb.(interface {
		ForEachMaster(context.Context, func(context.Context, *redis.Client) error) error
	})
	if !ok {
		return checkNode(ctx, rdb)
	}
	var mu sync.Mutex
	var report ServerReport // of one of them
	err := cluster.ForEachMaster(ctx, func(ctx context.Context, c *redis.Client) error {
		r, err := checkNode(ctx, c)
		mu.Lock()
		defer mu.Unlock()
		report = r
		if err != nil {
			return fmt.Errorf("%s: %w", c.Options().Addr, err)
		}
		return nil
	})
	return report, mapError(err)
}

func checkNode(ctx context.Context, rdb redis.UniversalClient) (ServerReport, error) {
	if err := rdb.Ping(ctx).Err(); err != nil {
		return ServerReport{}, mapError(err)
	}
	raw, err := rdb.Info(ctx, "server").Result()
	if err != nil {
		if embeddedStore(err) {
			return ServerReport{Name: "embedded", Warnings: []string{"the store is in memory only: every job is lost when this process ends"}}, nil
		}
		if strings.Contains(err.Error(), "NOPERM") {
			return ServerReport{Warnings: []string{"this user may not ask for INFO: version, memory policy and memory in use are not checked"}}, nil
		}
		return ServerReport{}, mapError(err)
	}
	server := parseInfo(raw)
	r := ServerReport{Name: "redis", Version: server["redis_version"]}
	if v, ok := server["valkey_version"]; ok {
		r.Name, r.Version = "valkey", v
	}
	if err := r.checkVersion(); err != nil {
		return r, err
	}
	for _, section := range []string{"memory", "persistence"} {
		raw, err := rdb.Info(ctx, section).Result()
		if err != nil {
			return r, mapError(err)
		}
		m := parseInfo(raw)
		switch section {
		case "memory":
			r.Policy, r.MaxMemory = m["maxmemory_policy"], m.int("maxmemory")
		case "persistence":
			r.AOF = m["aof_enabled"] == "1"
		}
	}
	return r, r.judge()
}

// embeddedStore reports that a refusal of INFO is miniredis's.
func embeddedStore(err error) bool {
	return strings.Contains(err.Error(), "is not supported") && strings.Contains(err.Error(), "section (")
}

// checkVersion refuses a Redis that is too old; every Valkey is new enough.
func (r *ServerReport) checkVersion() error {
	if r.Name == "valkey" {
		return nil
	}
	if major, err := strconv.Atoi(strings.SplitN(r.Version, ".", 2)[0]); err != nil || major < MinRedis {
		return fmt.Errorf("%w: Redis %q is older than %d, whose script flags let workers drain when its memory is full; use Redis %d or later, or Valkey",
			ErrServer, r.Version, MinRedis, MinRedis)
	}
	return nil
}

// judge adds the warnings, and refuses.
func (r *ServerReport) judge() error {
	evicts := r.Policy != "" && r.Policy != "noeviction"
	if evicts && r.MaxMemory > 0 {
		return fmt.Errorf("%w: maxmemory-policy is %s, so Redis would throw jobs away when its memory is full; set it to noeviction", ErrServer, r.Policy)
	}
	if evicts {
		r.Warnings = append(r.Warnings, "maxmemory-policy is "+r.Policy+": as soon as maxmemory is set, Redis would throw jobs away; set it to noeviction")
	}
	if r.MaxMemory == 0 {
		r.Warnings = append(r.Warnings, "maxmemory is not set: a growing queue ends with the system's out-of-memory killer instead of refused jobs; set it below the machine's memory")
	}
	if !r.AOF {
		r.Warnings = append(r.Warnings, "appendonly is off: jobs accepted since the last snapshot are lost when Redis restarts; set appendonly yes")
	}
	return nil
}
