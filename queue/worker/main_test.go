package worker

import (
	"testing"

	"go.uber.org/goleak"
)

// Nothing that a worker starts stays behind.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
