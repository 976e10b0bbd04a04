package queue

import (
	_ "embed"
	"errors"
	"log/slog"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/penstock-io/penstock/queue/internal/layout"
)

// asynqQueues is asynq's set of all queues.
const asynqQueues = "asynq:queues"

// Config of a Client.
type Config struct {
	// Redis is required: a client of one server, a Sentinel set or a Cluster.
	// The queue never closes it.
	Redis redis.UniversalClient
	// Namespace keeps several installations on one Redis apart. Empty: none.
	Namespace string
	// Logger hears of what an operator should know. Nil: slog.Default().
	Logger *slog.Logger
}

// Client puts jobs in, looks at them and takes them out: the producers' SDK.
// It starts nothing and needs no Close. Safe for several goroutines.
type Client struct {
	rdb       redis.UniversalClient
	namespace string
	log       *slog.Logger
	scripts   scripts
	specs     specCache

	mu       sync.Mutex
	samplers map[string]*sampler // by queue on a cluster, else one under ""
}

// NewClient checks the configuration; nothing is sent. See CheckServer for
// what the server must be.
func NewClient(cfg Config) (*Client, error) {
	if cfg.Redis == nil {
		return nil, errors.New("queue: Config.Redis is missing; give a client, e.g. redis.NewClient(...)")
	}
	if cfg.Namespace != "" {
		if err := CheckName("namespace", cfg.Namespace); err != nil {
			return nil, err
		}
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	return &Client{
		rdb:       cfg.Redis,
		namespace: cfg.Namespace,
		log:       cfg.Logger,
		scripts:   newScripts(),
		samplers:  make(map[string]*sampler),
	}, nil
}

func (c *Client) keys(provider string) layout.Keys { return layout.For(c.namespace, provider) }

// scripts of one client: whether its server knows script flags is found out once.
type scripts struct {
	enqueue, many, schedule, inspect, list, counts, cancel, replay, sweep, adopt, trim, strays, bodies *layout.Script
}

var (
	//go:embed enqueue.lua
	enqueueLua string
	//go:embed many.lua
	manyLua string
	//go:embed schedule.lua
	scheduleLua string
	//go:embed inspect.lua
	inspectLua string
	//go:embed list.lua
	listLua string
	//go:embed counts.lua
	countsLua string
	//go:embed cancel.lua
	cancelLua string
	//go:embed replay.lua
	replayLua string
	//go:embed sweep.lua
	sweepLua string
	//go:embed adopt.lua
	adoptLua string
	//go:embed trim.lua
	trimLua string
	//go:embed strays.lua
	straysLua string
	//go:embed bodies.lua
	bodiesLua string
)

func newScripts() scripts {
	return scripts{
		enqueue:  layout.NewScript(enqueueLua),
		many:     layout.NewScript(manyLua),
		schedule: layout.NewScript(scheduleLua),
		inspect:  layout.NewScript(inspectLua),
		list:     layout.NewScript(listLua),
		counts:   layout.NewScript(countsLua),
		cancel:   layout.NewScript(cancelLua),
		replay:   layout.NewScript(replayLua),
		sweep:    layout.NewScript(sweepLua),
		adopt:    layout.NewScript(adoptLua),
		trim:     layout.NewScript(trimLua),
		strays:   layout.NewScript(straysLua),
		bodies:   layout.NewScript(bodiesLua),
	}
}
