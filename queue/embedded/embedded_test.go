package embedded

import (
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

// TestTTLsRun fails without the ageing: miniredis never expires a key by itself.
func TestTTLsRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := Start()
		c := s.Client()
		if err := c.Set(t.Context(), "k", "v", 3*time.Second).Err(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2500 * time.Millisecond)
		if n := c.Exists(t.Context(), "k").Val(); n != 1 {
			t.Fatal("the key is gone before its time")
		}
		time.Sleep(2 * time.Second)
		if n := c.Exists(t.Context(), "k").Val(); n != 0 {
			t.Fatal("the key outlived its TTL")
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// TestCloseLeavesNothing: no goroutine, and a second Close is harmless.
func TestCloseLeavesNothing(t *testing.T) {
	defer goleak.VerifyNone(t)
	s := Start()
	other := s.NewClient()
	if err := other.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	ps := s.Client().Subscribe(t.Context(), "c")
	if _, err := ps.Receive(t.Context()); err != nil {
		t.Fatal(err)
	}
	ps.Close()
	other.Close()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}
