// Door puts limits in front of a handler of your own.
//
//	go run ./examples/door
//	REDIS_URL=redis://127.0.0.1:6379/0 go run ./examples/door
//
// It serves an API on a free loopback port and calls it as two customers
// would: one stays below its limit, the other does not, and is told when to
// come back. With REDIS_URL several instances of the server share the limits.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/penstock-io/penstock/shaper"
	"github.com/penstock-io/penstock/shaper/limithttp"
)

func main() {
	if err := run(context.Background(), os.Getenv("REDIS_URL"), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "door:", err)
		os.Exit(1)
	}
}

// customers by their API keys. In earnest they stand in a database.
var customers = map[string]limithttp.Client{
	"key-of-acme":  {APIKey: "key-of-acme", Organisation: "acme", Plan: "gold"},
	"key-of-other": {APIKey: "key-of-other", Organisation: "other"},
}

func run(ctx context.Context, redisURL string, out io.Writer) (err error) {
	store, closeStore, err := openStore(redisURL)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeStore()) }()

	door, err := limithttp.New(limithttp.Config{
		Store: store, StoreTimeout: time.Second,
		Rules: []limithttp.Rule{
			{ // 10 requests an hour, 100 with the plan gold; unknown keys by address
				Name: "per-key", By: []string{"api_key|address"},
				Policy: shaper.Policy{Algorithm: shaper.SlidingCounter, Rate: shaper.Rate{N: 10, Per: time.Hour}},
				Plans:  map[string]shaper.Policy{"gold": {Algorithm: shaper.SlidingCounter, Rate: shaper.Rate{N: 100, Per: time.Hour}}},
				Costs:  map[string]int64{"POST /reports": 5},
				WarnAt: 80,
			},
			{ // and this is only looked at, for now
				Name: "everybody", Shadow: true,
				Policy: shaper.Policy{Algorithm: shaper.GCRA, Rate: shaper.PerSecond(1000)},
			},
		},
		Identify: func(r *http.Request) limithttp.Client { return customers[r.Header.Get("X-Api-Key")] },
		Fields:   []limithttp.Dialect{limithttp.FieldsIETF, limithttp.FieldsX}, Documentation: "https://docs.example/limits",
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	for _, line := range door.Describe() {
		fmt.Fprintln(out, line)
	}
	api := http.NewServeMux()
	api.HandleFunc("GET /", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "hello") })
	api.HandleFunc("POST /reports", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "a report") })
	return serve(ctx, door.Handler(api), func(base string) error { return visit(ctx, base, out) })
}

// openStore counts in Redis, for a fleet, or in this process.
func openStore(url string) (shaper.LimitStore, func() error, error) {
	if url == "" {
		return shaper.NewMemoryLimitStore(shaper.MemoryLimits{}), func() error { return nil }, nil
	}
	opt, err := redis.ParseURL(url)
	if err != nil {
		return nil, nil, err
	}
	rdb := redis.NewClient(opt)
	return shaper.NewRedisLimitStore(rdb, "example"), rdb.Close, nil
}

// serve serves h while f runs.
func serve(ctx context.Context, h http.Handler, f func(base string) error) error {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	srv := &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second}
	done := make(chan error, 1)
	go func() { done <- srv.Serve(ln) }()
	err = f("http://" + ln.Addr().String())
	err = errors.Join(err, srv.Shutdown(ctx))
	if e := <-done; !errors.Is(e, http.ErrServerClosed) {
		err = errors.Join(err, e)
	}
	return err
}

// visit calls the server as customers would.
func visit(ctx context.Context, base string, out io.Writer) error {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for _, key := range []string{"key-of-acme", "key-of-other"} {
		for _, call := range [][2]string{{"POST", "/reports"}, {"GET", "/"}, {"POST", "/reports"}} {
			req, err := http.NewRequestWithContext(ctx, call[0], base+call[1], nil)
			if err != nil {
				return err
			}
			req.Header.Set("X-Api-Key", key)
			resp, err := client.Do(req)
			if err != nil {
				return err
			}
			body, err := io.ReadAll(resp.Body)
			if err = errors.Join(err, resp.Body.Close()); err != nil {
				return err
			}
			fmt.Fprintf(out, "%s %s %s: %d, %s left", key, call[0], call[1], resp.StatusCode, resp.Header.Get("X-RateLimit-Remaining"))
			if resp.StatusCode == http.StatusTooManyRequests {
				fmt.Fprintf(out, ", come back in %s s\n%s", resp.Header.Get("Retry-After"), body)
			}
			fmt.Fprintln(out)
		}
	}
	return nil
}
