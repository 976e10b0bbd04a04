package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/penstock-io/penstock/internal/api"
	"github.com/penstock-io/penstock/internal/config"
	"github.com/penstock-io/penstock/queue"
)

// Times of the HTTP server. Bodies have their own (api.Config.SlowBody).
const (
	headerWait = 10 * time.Second
	answerWait = 2 * time.Minute
	idleWait   = 2 * time.Minute
	maxHeaders = 64 << 10
)

// listen opens the address to serve at; nil where nothing is served.
func listen(cfg *config.Config, opt Options) (net.Listener, error) {
	addr := opt.Listen
	if addr == "" {
		if opt.Role == RoleWorker {
			return nil, nil
		}
		addr = cfg.Listen
	}
	if !cfg.Auth.Any() && !config.IsLoopback(addr) {
		return nil, fmt.Errorf("listen %s: it can be reached from other machines, and there is no token; add auth.operators, or listen on 127.0.0.1", addr)
	}
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("listen: %w; choose another address with listen or --listen", err)
	}
	// A name may have resolved to anything.
	if tcp, ok := ln.Addr().(*net.TCPAddr); !cfg.Auth.Any() && (!ok || !tcp.IP.IsLoopback()) {
		return nil, errors.Join(fmt.Errorf("listen %s: it is not loopback, and there is no token", addr), ln.Close())
	}
	return ln, nil
}

func closeListener(ln net.Listener) {
	if ln != nil {
		_ = ln.Close()
	}
}

func addrOf(ln net.Listener) net.Addr {
	if ln == nil {
		return nil
	}
	return ln.Addr()
}

// web makes the API of this role.
func (a *app) web() (*api.Server, error) {
	cfg := api.Config{
		Jobs: a.queue, Fleet: a.fleet, Ready: a.ready, Metrics: a.metrics.Handler(), Logger: a.log,
		OnlyHealth: a.opt.Role == RoleWorker,
	}
	if a.cfg.Door.On() {
		cfg.Charge = charge
	}
	for _, p := range a.cfg.Providers {
		cfg.MaxBody = max(cfg.MaxBody, p.MaxBody)
	}
	for _, t := range a.cfg.Auth.Producers {
		cfg.Tokens = append(cfg.Tokens, api.Token{Name: t.Name, Secret: t.Secret.Reveal()})
	}
	for _, t := range a.cfg.Auth.Operators {
		cfg.Tokens = append(cfg.Tokens, api.Token{Name: t.Name, Secret: t.Secret.Reveal(), Operator: true})
	}
	if a.opt.Role != RoleWorker {
		var err error
		if a.queues, err = api.NewQueues(api.QueuesConfig{NewRedis: a.store.another}); err != nil {
			return nil, err
		}
		cfg.Queues = a.queues
	}
	return api.New(cfg)
}

// errStopping is why a process that stops is not ready.
var errStopping = &queue.UnavailableError{Err: errors.New("this process is stopping"), Fix: "use another one"}

// ready says why this process takes nothing. With room in the spool it takes
// webhooks though Redis is away, and must not be left out by a load balancer.
func (a *app) ready(ctx context.Context) error {
	if a.stopping.Load() {
		return errStopping
	}
	err := a.fleet.ready(ctx)
	if errors.Is(err, queue.ErrUnavailable) && a.hooks.spools() {
		return nil
	}
	return err
}

// webServer is the HTTP server under way.
type webServer struct {
	srv  *http.Server
	done chan struct{}
	log  *slog.Logger
}

// startWeb serves until stop; a fault of the listener goes to faults.
func startWeb(ln net.Listener, h http.Handler, log *slog.Logger, faults chan<- error) *webServer {
	s := &webServer{log: log, done: make(chan struct{}), srv: &http.Server{
		Handler: h, ReadHeaderTimeout: headerWait, WriteTimeout: answerWait, IdleTimeout: idleWait, MaxHeaderBytes: maxHeaders,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}}
	go func() {
		defer close(s.done)
		if err := s.srv.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
			faults <- fmt.Errorf("serving HTTP: %w", err)
		}
	}()
	return s
}

// stop takes no more requests, and gives those under way some time. A nil
// server is stopped.
func (s *webServer) stop(wait time.Duration) {
	if s == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	if err := s.srv.Shutdown(ctx); err != nil {
		s.log.Warn("requests under way were cut", "error", err)
		_ = s.srv.Close()
	}
	<-s.done
}
