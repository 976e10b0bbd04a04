package shaper

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
)

var (
	//go:embed limiter_head.lua
	limiterHead string
	//go:embed limiter_fixed.lua
	limiterFixed string
	//go:embed limiter_log.lua
	limiterLog string
	//go:embed limiter_counter.lua
	limiterCounter string
	//go:embed limiter_token.lua
	limiterToken string
	//go:embed limiter_leaky.lua
	limiterLeaky string
	//go:embed limiter_gcra.lua
	limiterGCRA string
	//go:embed limiter_concurrency.lua
	limiterConcurrency string
	//go:embed limiter_main.lua
	limiterMain string
	//go:embed limiter_place.lua
	limiterPlace string
	//go:embed limiter_strike.lua
	limiterStrike string
)

// RedisLimitStore counts in Redis, for a whole fleet: each Decide is one
// script on Redis TIME. Its keys expire when they say nothing more.
//
// All limits of one store share a hash tag, since one script must see them
// together; on a Cluster they are in one slot. Stores of different names are
// in different slots.
type RedisLimitStore struct {
	rdb    redis.UniversalClient
	prefix string
	decide *Script
	place  *Script
	strike *Script
	// now gives the time in microseconds to the script; 0: its own TIME.
	now func() int64
}

// NewRedisLimitStore returns a store on rdb, which it never closes. name
// keeps stores apart; empty means "door".
func NewRedisLimitStore(rdb redis.UniversalClient, name string) *RedisLimitStore {
	if name == "" {
		name = "door"
	}
	src := strings.Join([]string{limiterHead, limiterFixed, limiterLog, limiterCounter, limiterToken,
		limiterLeaky, limiterGCRA, limiterConcurrency, limiterMain}, "\n")
	return &RedisLimitStore{
		rdb: rdb, prefix: "penstock:limit:{" + name + "}:",
		decide: NewScript(src), place: NewScript(limiterPlace), strike: NewScript(limiterStrike),
		now: func() int64 { return 0 },
	}
}

// key hides the client: 128 bits of SHA-256 in hex.
func (s *RedisLimitStore) key(a Ask) string {
	sum := sha256.Sum256([]byte(a.Key))
	return s.prefix + a.Limit + ":" + hex.EncodeToString(sum[:16])
}

// Decide implements LimitStore in one round trip.
func (s *RedisLimitStore) Decide(ctx context.Context, asks []Ask) ([]Decision, error) {
	asks, err := normalAsks(asks)
	if err != nil || len(asks) == 0 {
		return nil, err
	}
	keys := make([]string, len(asks))
	args := make([]any, 1, 1+11*len(asks))
	args[0] = s.now()
	for i, a := range asks {
		p, shadow := a.Policy, 0
		if a.Shadow {
			shadow = 1
		}
		keys[i] = s.key(a)
		args = append(args, string(p.Algorithm), p.Quota(), p.Rate.Per.Microseconds(), p.Burst, p.Lease.Microseconds(),
			a.Cost, a.atLeast, a.back, a.backAt, a.Place, shadow)
	}
	got, err := s.decide.Run(ctx, s.rdb, keys, args...).Int64Slice()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrStoreAway, err)
	}
	if len(got) != 1+5*len(asks) {
		return nil, fmt.Errorf("%w: the limiter's script answered %d numbers", ErrStoreAway, len(got))
	}
	out := make([]Decision, len(asks))
	for i, a := range asks {
		r := got[1+5*i:]
		out[i] = decision(a, got[0], r[0] == 1, r[1], r[2], r[3], r[4])
	}
	return out, nil
}

// Renew implements LimitStore.
func (s *RedisLimitStore) Renew(ctx context.Context, a Ask) error {
	if a.Policy.Algorithm != Concurrency {
		return nil
	}
	as, err := normalAsks([]Ask{a})
	if err != nil {
		return err
	}
	a = as[0]
	if err := s.place.Run(ctx, s.rdb, []string{s.key(a)}, s.now(), a.Policy.Lease.Microseconds(), a.Place, a.Cost).Err(); err != nil {
		return fmt.Errorf("%w: %w", ErrStoreAway, err)
	}
	return nil
}

// Release implements LimitStore.
func (s *RedisLimitStore) Release(ctx context.Context, a Ask) error {
	if a.Policy.Algorithm != Concurrency {
		return nil
	}
	places := make([]any, 0, 1)
	for i := range max(1, a.Cost) {
		places = append(places, fmt.Sprintf("%s:%d", a.Place, i+1))
	}
	if err := s.rdb.ZRem(ctx, s.key(a), places...).Err(); err != nil {
		return fmt.Errorf("%w: %w", ErrStoreAway, err)
	}
	return nil
}
