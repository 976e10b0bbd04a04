package fragile

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"time"
)

// Server is a Provider on a port.
type Server struct {
	*Provider
	listener net.Listener
	http     *http.Server
	cancel   context.CancelFunc
	served   chan error
}

// Start serves a provider on addr; "" is a free loopback port. Close it.
func Start(addr string, cfg Config) (*Server, error) {
	p, err := New(cfg)
	if err != nil {
		return nil, err
	}
	if addr == "" {
		addr = "127.0.0.1:0"
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("fragile provider: %w; choose another address to listen on", err)
	}
	return serve(p, l), nil
}

func serve(p *Provider, l net.Listener) *Server {
	ctx, cancel := context.WithCancel(context.Background())
	s := &Server{Provider: p, listener: l, cancel: cancel, served: make(chan error, 1)}
	s.http = &http.Server{
		Handler:           p,
		ReadHeaderTimeout: time.Minute,
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ErrorLog:          log.New(io.Discard, "", 0), // what callers do wrong is in the report
	}
	go func() { s.served <- s.http.Serve(l) }()
	return s
}

// Addr is where it listens, host:port.
func (s *Server) Addr() string { return s.listener.Addr().String() }

// URL is its base URL, without a slash at the end.
func (s *Server) URL() string { return "http://" + s.Addr() }

// Close ends every call, hanging ones too, and frees the port. The account
// stays readable. It returns once the handlers have ended, within seconds.
func (s *Server) Close() error {
	s.cancel()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	err := s.http.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		err = s.http.Close() // connections that never sent a request
	}
	if served := <-s.served; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}

// Options are what Run needs beside the provider's Config.
type Options struct {
	// Listen is host:port. Empty: a free loopback port.
	Listen string
	// Ready is told the base URL once calls are taken. Nil: nobody.
	Ready func(url string)
	// Every is how often Show is called. Zero: a second.
	Every time.Duration
	// Show is given the live snapshot, in Run's goroutine. Nil: nobody.
	Show func(Live)
}

// Run serves a provider until ctx ends and returns its report: the command
// `penstock fragile`.
func Run(ctx context.Context, cfg Config, opt Options) (Report, error) {
	s, err := Start(opt.Listen, cfg)
	if err != nil {
		return Report{}, err
	}
	if opt.Ready != nil {
		opt.Ready(s.URL())
	}
	if opt.Every <= 0 {
		opt.Every = time.Second
	}
	tick := time.NewTicker(opt.Every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			err := s.Close()
			return s.Series(), err
		case err := <-s.served:
			s.served <- err // for Close
			return s.Series(), errors.Join(err, s.Close())
		case <-tick.C:
			if opt.Show != nil {
				opt.Show(s.Live())
			}
		}
	}
}
