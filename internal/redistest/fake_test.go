package redistest

import (
	"fmt"
	"runtime"
	"testing"
)

// fakeTB records how a test ends.
type fakeTB struct {
	testing.TB
	fatal   string
	skipped bool
}

func (f *fakeTB) Helper() {}
func (f *fakeTB) Fatal(args ...any) {
	f.fatal = fmt.Sprint(args...)
	runtime.Goexit()
}
func (f *fakeTB) Skip(...any) { f.skipped = true }
