package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/redis/go-redis/v9"
)

// receiver is a serve process that takes webhooks in and calls the application.
type receiver struct {
	command []string
	addr    string
	dir     string
	cmd     *exec.Cmd
	log     *os.File
}

// startReceiver writes a configuration and starts serve with it.
func startReceiver(ctx context.Context, command []string, redisAddr, app string, spool bool) (*receiver, error) {
	addr, err := freeAddr()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "penstock-bench-")
	if err != nil {
		return nil, err
	}
	r := &receiver{command: command, addr: addr, dir: dir}
	conf := fmt.Sprintf(`redis: redis://%s/0
listen: %s
providers:
  app: {base_url: %q, rate: %d/s, concurrency: %d, timeout: 10s}
webhooks:
  stripe: {path: /hooks/stripe, scheme: stripe, secrets: [%s], retry_after: 1s, to: {provider: app, path: /events}}
`, redisAddr, addr, app, stormInward, stormPlaces, hookSecret)
	if spool {
		conf += fmt.Sprintf("spool: {dir: %q}\n", filepath.Join(dir, "spool"))
	}
	err = os.WriteFile(r.config(), []byte(conf), 0o600)
	if err == nil {
		r.log, err = os.OpenFile(filepath.Join(dir, "log"), os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
	}
	if err == nil {
		err = r.start(ctx)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start the receiver: %w\n%s", err, r.tail()), r.Close())
	}
	return r, nil
}

func (r *receiver) config() string { return filepath.Join(r.dir, "penstock.yaml") }

// hook is where deliveries go.
func (r *receiver) hook() string { return "http://" + r.addr + "/hooks/stripe" }

// start starts the process and waits until it is ready.
func (r *receiver) start(ctx context.Context) error {
	args := append(r.command[1:len(r.command):len(r.command)], "--config", r.config(), "--log-level", "warn")
	r.cmd = exec.Command(r.command[0], args...)
	r.cmd.Stdout, r.cmd.Stderr = r.log, r.log
	endWithParent(r.cmd)
	if err := r.cmd.Start(); err != nil {
		return err
	}
	client := &http.Client{Timeout: time.Second}
	defer client.CloseIdleConnections()
	return awaitThat(ctx, receiverReady, "the receiver is ready", func() bool {
		resp, err := client.Get("http://" + r.addr + "/readyz")
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
}

// kill ends the process with SIGKILL.
func (r *receiver) kill() error {
	if r.cmd == nil || r.cmd.Process == nil {
		return nil
	}
	err := r.cmd.Process.Kill()
	if errors.Is(err, os.ErrProcessDone) {
		err = nil
	}
	_ = r.cmd.Wait() // "signal: killed" is what was asked for
	r.cmd = nil
	return err
}

// tail is the end of what the process said.
func (r *receiver) tail() string {
	b, err := os.ReadFile(filepath.Join(r.dir, "log"))
	if err != nil {
		return ""
	}
	return string(b[max(0, len(b)-4096):])
}

// Close ends the process and removes its files.
func (r *receiver) Close() error {
	err := r.kill()
	if r.log != nil {
		err = errors.Join(err, r.log.Close())
	}
	return errors.Join(err, os.RemoveAll(r.dir))
}

// startDurable starts a redis-server that keeps what it was given on disk.
func startDurable(ctx context.Context, fsync string) (*redisServer, error) {
	addr, err := freeAddr()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "penstock-bench-")
	if err != nil {
		return nil, err
	}
	s := &redisServer{addr: addr, dir: dir, gone: make(chan struct{}), settings: []string{"--appendonly", "yes", "--appendfsync", fsync}}
	s.control = redis.NewClient(&redis.Options{Addr: addr, DisableIdentity: true, MaxRetries: -1})
	if err := s.again(ctx); err != nil {
		return nil, errors.Join(err, s.control.Close(), os.RemoveAll(dir))
	}
	return s, nil
}

// again starts the server on its files.
func (s *redisServer) again(ctx context.Context) error {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return ErrNoRedis
	}
	_, port, _ := net.SplitHostPort(s.addr)
	s.cmd = exec.Command(path, append([]string{"--port", port, "--bind", "127.0.0.1", "--dir", s.dir, "--save", "",
		"--maxmemory", "1gb", "--maxmemory-policy", "noeviction", "--loglevel", "warning"}, s.settings...)...)
	endWithParent(s.cmd)
	s.gone = make(chan struct{})
	if err := s.cmd.Start(); err != nil {
		return err
	}
	cmd, gone := s.cmd, s.gone
	go func() {
		_ = cmd.Wait() // how it ended is seen by who talks to it
		close(gone)
	}()
	return s.waitReady(ctx)
}

// kill ends the server with SIGKILL; its files stay.
func (s *redisServer) kill() error {
	err := s.cmd.Process.Kill()
	<-s.gone
	return err
}
