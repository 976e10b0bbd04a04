package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

// ErrNoRedis says that redis-server is not installed, and the remedy.
var ErrNoRedis = errors.New("redis-server is not installed, and the comparisons need a real one: apt-get install -y redis-server")

// redisServer is a redis-server process of our own, on a free loopback port,
// with nothing saved.
type redisServer struct {
	addr string
	dir  string
	cmd  *exec.Cmd
	gone chan struct{}
	// settings beside the usual ones, for one that is started again.
	settings []string
	// control is the driver's client for what must not be counted.
	control *redis.Client
}

// startRedis starts a server. Close it.
func startRedis(ctx context.Context) (*redisServer, error) {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, ErrNoRedis
	}
	// The port is free when asked for; should another process take it before
	// the server does, the next one is tried.
	for range 5 {
		var s *redisServer
		if s, err = tryRedis(ctx, path); err == nil {
			return s, nil
		}
	}
	return nil, fmt.Errorf("start redis-server: %w", err)
}

func tryRedis(ctx context.Context, path string) (*redisServer, error) {
	addr, err := freeAddr()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "penstock-bench-")
	if err != nil {
		return nil, err
	}
	_, port, _ := net.SplitHostPort(addr)
	var out bytes.Buffer
	s := &redisServer{addr: addr, dir: dir, gone: make(chan struct{})}
	s.cmd = exec.Command(path, "--port", port, "--bind", "127.0.0.1", "--dir", dir, "--save", "", "--appendonly", "no",
		"--maxmemory", "1gb", "--maxmemory-policy", "noeviction", "--loglevel", "warning")
	s.cmd.Stdout, s.cmd.Stderr = &out, &out
	endWithParent(s.cmd)
	if err := s.cmd.Start(); err != nil {
		os.RemoveAll(dir)
		return nil, err
	}
	go func() {
		_ = s.cmd.Wait() // how it ended is seen by who talks to it
		close(s.gone)
	}()
	s.control = redis.NewClient(&redis.Options{Addr: addr, DisableIdentity: true, MaxRetries: -1})
	if err := s.waitReady(ctx); err != nil {
		s.Close()
		return nil, fmt.Errorf("%w: %s", err, bytes.TrimSpace(out.Bytes()))
	}
	return s, nil
}

func freeAddr() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// endWithParent lets a child not outlive a driver that is killed.
func endWithParent(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

// waitReady waits until the server of our own process answers: another one on
// the same port would be somebody else's.
func (s *redisServer) waitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	for {
		info, err := s.control.InfoMap(ctx, "server").Result()
		if err == nil {
			if pid := info["Server"]["process_id"]; pid != strconv.Itoa(s.cmd.Process.Pid) {
				return fmt.Errorf("the port of %s belongs to process %s", s.addr, pid)
			}
			return nil
		}
		select {
		case <-s.gone:
			return errors.New("it ended at once")
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// client returns a new client; the caller closes it.
func (s *redisServer) client() *redis.Client { return redis.NewClient(&redis.Options{Addr: s.addr}) }

// version is what the server says it is.
func (s *redisServer) version(ctx context.Context) string {
	info, err := s.control.InfoMap(ctx, "server").Result()
	if err != nil {
		return "unknown"
	}
	return info["Server"]["redis_version"]
}

// flush removes everything but the scripts, and waits until it is gone.
func (s *redisServer) flush(ctx context.Context) error {
	if err := s.control.FlushAll(ctx).Err(); err != nil {
		return fmt.Errorf("flush: %w", err)
	}
	return nil
}

// Close ends the process and removes its directory.
func (s *redisServer) Close() error {
	err := s.control.Close()
	if kill := s.cmd.Process.Kill(); kill != nil && !errors.Is(kill, os.ErrProcessDone) {
		err = errors.Join(err, kill)
	}
	<-s.gone
	return errors.Join(err, os.RemoveAll(s.dir))
}
