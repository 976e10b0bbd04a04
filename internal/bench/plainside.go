package bench

import (
	"context"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

// plainSide is a worker process of plain asynq: one server per provider, as
// ours has, so that the two are alike.
type plainSide struct {
	client  *redis.Client
	servers []*PlainServer
}

func startPlainSide(spec workerSpec, count *counter) (side, error) {
	s := &plainSide{client: redis.NewClient(&redis.Options{Addr: spec.Redis})}
	for _, p := range spec.Providers {
		cfg := PlainConfig{Redis: s.client, Queue: p.Name, Concurrency: spec.Concurrency,
			URL: p.URL + "/messages", Headers: map[string]string{processHeader: spec.Process}}
		if spec.Nothing {
			cfg.Handler = asynq.HandlerFunc(func(context.Context, *asynq.Task) error { count.count(); return nil })
		}
		server, err := StartPlain(cfg)
		if err != nil {
			return nil, err
		}
		s.servers = append(s.servers, server)
	}
	return s, nil
}

func (s *plainSide) stop() error {
	for _, server := range s.servers {
		server.Close()
	}
	return s.client.Close()
}
