package main

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// isTerminal reports that a person looks at, or types into, a stream.
func isTerminal(v any) bool {
	f, ok := v.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// bar shows on a terminal how much of the input is read; elsewhere nothing.
// Safe for the two goroutines of a batch: one reads, one counts.
type bar struct {
	mu  sync.Mutex
	pb  *progressbar.ProgressBar
	num int
}

// progress makes a bar on stderr; size is -1 where it is not known.
func (c *cli) progress(size int64) *bar {
	if !isTerminal(c.err) {
		return &bar{}
	}
	return &bar{pb: progressbar.NewOptions64(size, progressbar.OptionSetWriter(c.err), progressbar.OptionShowBytes(true),
		progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionSetWidth(30), progressbar.OptionClearOnFinish(),
		progressbar.OptionSetDescription("0 jobs"))}
}

var _ io.Writer = (*bar)(nil)

// Write counts what was read.
func (b *bar) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.pb != nil {
		_ = b.pb.Add(len(p))
	}
	return len(p), nil
}

// jobs shows how many results there are.
func (b *bar) jobs(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.pb != nil && (n < 100 || n-b.num >= 100) {
		b.num = n
		b.pb.Describe(fmt.Sprintf("%d jobs", n))
	}
}

// clear makes room for a line.
func (b *bar) clear() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.pb != nil {
		_ = b.pb.Clear()
	}
}

// end takes the bar away.
func (b *bar) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.pb != nil {
		_ = b.pb.Finish()
		b.pb = nil
	}
}
