package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"
)

// process is a worker process, seen from the driver. Not for several
// goroutines at once.
type process struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
	said  chan usage // closed at the end of its stdout
	ended bool
}

// startProcess starts a worker process by command (its path and arguments)
// and waits until it is ready.
func startProcess(ctx context.Context, command []string, spec workerSpec) (*process, error) {
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stderr = os.Stderr
	endWithParent(cmd)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start a worker process: %w", err)
	}
	p := &process{cmd: cmd, stdin: stdin, said: make(chan usage, 16)}
	go p.listen(stdout)
	if err := json.NewEncoder(stdin).Encode(spec); err != nil {
		return nil, errors.Join(fmt.Errorf("tell the worker process: %w", err), p.kill())
	}
	if _, err := p.hear(ctx, "ready"); err != nil {
		return nil, errors.Join(err, p.kill())
	}
	return p, nil
}

func (p *process) listen(r io.Reader) {
	defer close(p.said)
	for in := bufio.NewScanner(r); in.Scan(); {
		var u usage
		if json.Unmarshal(in.Bytes(), &u) == nil {
			p.said <- u
		}
	}
}

// hear waits a minute for an event.
func (p *process) hear(ctx context.Context, event string) (usage, error) {
	timer := time.NewTimer(time.Minute)
	defer timer.Stop()
	for {
		select {
		case u, ok := <-p.said:
			switch {
			case !ok:
				return usage{}, errors.New("the worker process ended")
			case u.Error != "":
				return u, fmt.Errorf("worker process: %s", u.Error)
			case u.Event == event:
				return u, nil
			}
		case <-ctx.Done():
			return usage{}, context.Cause(ctx)
		case <-timer.C:
			return usage{}, fmt.Errorf("the worker process did not say %q within a minute", event)
		}
	}
}

// usage asks the process how it is.
func (p *process) usage(ctx context.Context) (usage, error) {
	if _, err := io.WriteString(p.stdin, "usage\n"); err != nil {
		return usage{}, fmt.Errorf("ask the worker process: %w", err)
	}
	return p.hear(ctx, "usage")
}

// stop ends the process in order; after a minute it is killed.
func (p *process) stop(ctx context.Context) error {
	if p.ended {
		return nil
	}
	p.ended = true
	err := p.stdin.Close()
	_, heard := p.hear(ctx, "end")
	if heard != nil {
		_ = p.cmd.Process.Kill() // it may be gone
	}
	waited := p.cmd.Wait()
	return errors.Join(err, heard, waited)
}

// kill ends the process with SIGKILL.
func (p *process) kill() error {
	if p.ended {
		return nil
	}
	p.ended = true
	err := p.cmd.Process.Kill()
	if errors.Is(err, os.ErrProcessDone) {
		err = nil
	}
	for range p.said { // until its stdout ends, which Wait asks for
	}
	_ = p.cmd.Wait() // "signal: killed" is what was asked for
	return err
}
