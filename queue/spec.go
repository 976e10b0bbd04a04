package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/penstock-io/penstock/queue/internal/layout"
)

// Spec is what workers and servers publish of a provider for its producers, so
// that a producer without a configuration file refuses the same jobs.
type Spec struct {
	// MaxBody is the most bytes of a job's body. Zero: DefaultMaxBody.
	MaxBody int64
	// MaxCost is the largest cost that the provider's limits could ever grant.
	// Zero: no bound but MaxCost of the package.
	MaxCost int
	// Attempts and MaxAge are the defaults of jobs that do not say. They are
	// applied by the worker, at the moment they matter; here for display. Zero: unknown.
	Attempts int
	MaxAge   time.Duration
	// Keep is how long a final job's id is remembered. Zero: DefaultKeep.
	Keep time.Duration
}

// specTTL is how long a producer goes by what it read.
const specTTL = 5 * time.Second

// maxSpecs bounds what a producer remembers: names may come from outside.
const maxSpecs = 4096

type specJSON struct {
	V         int    `json:"v"`
	Provider  string `json:"provider"`
	Namespace string `json:"namespace,omitempty"`
	MaxBody   int64  `json:"max_body,omitempty"`
	MaxCost   int    `json:"max_cost,omitempty"`
	Attempts  int    `json:"attempts,omitempty"`
	MaxAgeMS  int64  `json:"max_age_ms,omitempty"`
	KeepMS    int64  `json:"keep_ms,omitempty"`
}

func (s Spec) normal() Spec {
	if s.MaxBody == 0 {
		s.MaxBody = DefaultMaxBody
	}
	s.MaxBody = min(s.MaxBody, MaxBody)
	if s.Keep == 0 {
		s.Keep = DefaultKeep
	}
	return s
}

func (s Spec) validate() error {
	switch {
	case s.MaxBody < 0:
		return invalid("max_body", "", "%d is negative", s.MaxBody)
	case s.MaxBody > MaxBody:
		return invalid("max_body", fmt.Sprintf("at most %d bytes", MaxBody), "%d is too large", s.MaxBody)
	case s.MaxCost < 0:
		return invalid("max_cost", "", "%d is negative", s.MaxCost)
	case s.Attempts < 0 || s.Attempts > MaxAttempts:
		return invalid("attempts", fmt.Sprintf("from 1 to %d", MaxAttempts), "%d is out of range", s.Attempts)
	case s.MaxAge < 0 || s.MaxAge > MaxDelay:
		return invalid("max_age", fmt.Sprintf("at most %s", MaxDelay), "%s is out of range", s.MaxAge)
	case s.Keep < 0 || s.Keep > MaxDelay:
		return invalid("keep", fmt.Sprintf("at most %s", MaxDelay), "%s is out of range", s.Keep)
	}
	return nil
}

// Publish makes a provider known to producers, or changes what they know of
// it, and registers its queue with asynq. Workers and servers call it at start
// and now and then, so that it comes back after a loss of data. It does not
// expire: while every worker is down, producers can still enqueue.
func (c *Client) Publish(ctx context.Context, provider string, spec Spec) error {
	if err := CheckName("provider", provider); err != nil {
		return err
	}
	if err := spec.validate(); err != nil {
		return err
	}
	b, err := json.Marshal(specJSON{
		V: 1, Provider: provider, Namespace: c.namespace,
		MaxBody: spec.MaxBody, MaxCost: spec.MaxCost, Attempts: spec.Attempts,
		MaxAgeMS: spec.MaxAge.Milliseconds(), KeepMS: spec.Keep.Milliseconds(),
	})
	if err != nil {
		return err
	}
	k := c.keys(provider)
	if old, err := c.readSpec(ctx, provider); err != nil && errors.Is(err, errForeignSpec) {
		return err
	} else if err == nil && old == spec.normal() {
		// Written before; only the registrations are made sure of.
		b = nil
	}
	_, err = c.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		if b != nil {
			p.Set(ctx, k.Own(layout.Spec), b, 0)
		}
		p.SAdd(ctx, layout.Providers(c.namespace), provider)
		p.SAdd(ctx, asynqQueues, k.Queue)
		return nil
	})
	if err == nil {
		c.specs.forget(provider)
	}
	return mapError(err)
}

// Unpublish makes a provider unknown to producers: nothing more is accepted
// for it. Jobs that are in its queue stay.
func (c *Client) Unpublish(ctx context.Context, provider string) error {
	if err := CheckName("provider", provider); err != nil {
		return err
	}
	_, err := c.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.Del(ctx, c.keys(provider).Own(layout.Spec))
		p.SRem(ctx, layout.Providers(c.namespace), provider)
		return nil
	})
	c.specs.forget(provider)
	return mapError(err)
}

// Providers are the names of all published providers, sorted.
func (c *Client) Providers(ctx context.Context) ([]string, error) {
	names, err := c.rdb.SMembers(ctx, layout.Providers(c.namespace)).Result()
	if err != nil {
		return nil, mapError(err)
	}
	slices.Sort(names)
	return names, nil
}

// Spec returns what is published of a provider, with defaults filled in. It
// may be 5 s old. ErrUnknownProvider: nothing is published.
func (c *Client) Spec(ctx context.Context, provider string) (Spec, error) {
	if err := CheckName("provider", provider); err != nil {
		return Spec{}, err
	}
	if e, ok := c.specs.get(provider); ok {
		return e.spec, e.err
	}
	s, err := c.readSpec(ctx, provider)
	if err != nil && !errors.Is(err, ErrUnknownProvider) {
		return Spec{}, err
	}
	c.specs.put(provider, s, err)
	return s, err
}

// errForeignSpec: namespace a.b with provider c has the queue of namespace a
// with provider b.c.
var errForeignSpec = errors.New("the queue's name is another provider's")

func (c *Client) readSpec(ctx context.Context, provider string) (Spec, error) {
	k := c.keys(provider)
	raw, err := c.rdb.Get(ctx, k.Own(layout.Spec)).Bytes()
	if errors.Is(err, redis.Nil) {
		return Spec{}, fmt.Errorf("%w: provider %q is served by no worker of this Redis%s; check its name, or start a worker for it",
			ErrUnknownProvider, provider, inNamespace(c.namespace))
	}
	if err != nil {
		return Spec{}, mapError(err)
	}
	var s specJSON
	if err := json.Unmarshal(raw, &s); err != nil {
		return Spec{}, fmt.Errorf("the published spec of %s cannot be read: %w", provider, err)
	}
	if s.Provider != "" && (s.Provider != provider || s.Namespace != c.namespace) {
		return Spec{}, fmt.Errorf("%w: %q belongs to provider %q%s; rename one of them",
			errForeignSpec, k.Queue, s.Provider, inNamespace(s.Namespace))
	}
	return Spec{
		MaxBody: s.MaxBody, MaxCost: s.MaxCost, Attempts: s.Attempts,
		MaxAge: time.Duration(s.MaxAgeMS) * time.Millisecond,
		Keep:   time.Duration(s.KeepMS) * time.Millisecond,
	}.normal(), nil
}

func inNamespace(ns string) string {
	if ns == "" {
		return ""
	}
	return " in namespace " + ns
}

// specCache remembers specs, and that there is none, for specTTL.
type specCache struct {
	mu sync.Mutex
	m  map[string]specEntry
}

type specEntry struct {
	spec Spec
	err  error
	at   time.Time
}

func (s *specCache) get(provider string) (specEntry, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := s.m[provider]
	// What is unknown may be started any moment: asked for again sooner.
	ttl := specTTL
	if e.err != nil {
		ttl = time.Second
	}
	return e, ok && time.Since(e.at) < ttl
}

func (s *specCache) put(provider string, spec Spec, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.m == nil || len(s.m) >= maxSpecs {
		s.m = make(map[string]specEntry)
	}
	s.m[provider] = specEntry{spec: spec, err: err, at: time.Now()}
}

func (s *specCache) forget(provider string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.m, provider)
}
