package redistest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// ErrNoServer says that redis-server is not installed, and the remedy.
var ErrNoServer = errors.New("redis-server is not installed, and the tests need a real one: apt-get install -y redis-server")

// Server is a redis-server process of one test. Methods fail the test they
// were started for; they are not for several goroutines at once.
type Server struct {
	// Addr is host:port, on loopback. It stays the same over Restart.
	Addr string
	// Dir holds the server's files.
	Dir string

	t    testing.TB
	args []string
	cmd  *exec.Cmd
	out  *output
	gone chan struct{}
}

// Start starts a redis-server with its data in a new directory and nothing
// saved, and ends it with the test. More settings come as pairs, e.g.
// "maxmemory", "64mb", "appendonly", "yes".
func Start(t testing.TB, settings ...string) *Server {
	t.Helper()
	if len(settings)%2 != 0 {
		t.Fatalf("redistest.Start: settings come in pairs, not %q", settings)
	}
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Fatal(ErrNoServer)
	}
	dir := t.TempDir()
	// The port is free when asked for; should another process take it before
	// the server does, the next one is tried.
	var err error
	for range 5 {
		s := &Server{t: t, Dir: dir}
		s.Addr, err = freeAddr()
		if err != nil {
			break
		}
		_, port, _ := net.SplitHostPort(s.Addr)
		s.args = []string{"--port", port, "--bind", "127.0.0.1", "--dir", dir,
			"--save", "", "--appendonly", "no", "--maxmemory-policy", "noeviction", "--loglevel", "warning"}
		for i := 0; i < len(settings); i += 2 {
			s.args = append(s.args, "--"+settings[i], settings[i+1])
		}
		if err = s.start(); err == nil {
			t.Cleanup(s.Kill)
			return s
		}
	}
	t.Fatalf("cannot start redis-server: %v", err)
	return nil
}

func freeAddr() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

func (s *Server) start() error {
	s.out = &output{}
	s.cmd = exec.Command("redis-server", s.args...)
	s.cmd.Stdout, s.cmd.Stderr = s.out, s.out
	// The server must not outlive a test process that is killed.
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := s.cmd.Start(); err != nil {
		return err
	}
	gone := make(chan struct{})
	s.gone = gone
	go func(cmd *exec.Cmd) {
		_ = cmd.Wait()
		close(gone)
	}(s.cmd)
	if err := s.waitReady(); err != nil {
		s.Kill()
		return fmt.Errorf("%w\n%s", err, s.out)
	}
	return nil
}

// waitReady waits until the server of our own process answers: another one on
// the same port would be somebody else's.
func (s *Server) waitReady() error {
	c := redis.NewClient(&redis.Options{Addr: s.Addr, DisableIdentity: true, MaxRetries: -1})
	defer c.Close()
	deadline := time.Now().Add(20 * time.Second)
	for {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		info, err := c.InfoMap(ctx, "server").Result()
		cancel()
		if err == nil {
			if pid := info["Server"]["process_id"]; pid != strconv.Itoa(s.cmd.Process.Pid) {
				return fmt.Errorf("port of %s belongs to process %s", s.Addr, pid)
			}
			return nil
		}
		select {
		case <-s.gone:
			return errors.New("redis-server ended at once")
		case <-time.After(5 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("redis-server did not answer within 20s: %w", err)
		}
	}
}

// Client returns a new client, closed with the test.
func (s *Server) Client() *redis.Client {
	s.t.Helper()
	return s.ClientWith(redis.Options{})
}

// ClientWith returns a new client with the given options and the server's
// address, closed with the test.
func (s *Server) ClientWith(o redis.Options) *redis.Client {
	o.Addr = s.Addr
	if o.MaintNotificationsConfig == nil { // it leaves a goroutine behind
		o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	}
	c := redis.NewClient(&o)
	s.t.Cleanup(func() { _ = c.Close() })
	return c
}

// URL is redis://host:port/0.
func (s *Server) URL() string { return "redis://" + s.Addr + "/0" }

// PID is the process's id.
func (s *Server) PID() int { return s.cmd.Process.Pid }

// Config sets a value in the running server.
func (s *Server) Config(name, value string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	c := redis.NewClient(&redis.Options{Addr: s.Addr})
	defer c.Close()
	if err := c.ConfigSet(ctx, name, value).Err(); err != nil {
		s.t.Fatalf("CONFIG SET %s %s: %v", name, value, err)
	}
}

// Kill ends the process with SIGKILL and waits for its end.
func (s *Server) Kill() {
	if s.cmd == nil || s.cmd.Process == nil {
		return
	}
	_ = s.cmd.Process.Signal(syscall.SIGCONT)
	_ = s.cmd.Process.Kill()
	<-s.gone
}

// Stop stops the process with SIGSTOP: connections stay open, nothing answers.
func (s *Server) Stop() { s.signal(syscall.SIGSTOP) }

// Continue undoes Stop.
func (s *Server) Continue() { s.signal(syscall.SIGCONT) }

func (s *Server) signal(sig os.Signal) {
	s.t.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		s.t.Fatalf("redis-server: %v", err)
	}
}

// Restart kills the process if it lives and starts it again on the same port
// and directory. Without appendonly, everything is lost.
func (s *Server) Restart() {
	s.t.Helper()
	s.Kill()
	if err := s.start(); err != nil {
		s.t.Fatalf("cannot start redis-server again: %v", err)
	}
}

// File returns the path of a file in the server's directory.
func (s *Server) File(name string) string { return filepath.Join(s.Dir, name) }

// output keeps the end of what the server says.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.buf.Len() < 64<<10 {
		o.buf.Write(p)
	}
	return len(p), nil
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}
