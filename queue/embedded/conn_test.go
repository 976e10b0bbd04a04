package embedded

import (
	"strconv"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

// A pipeline far longer than every buffer gets through. On a bare net.Pipe it
// ends in "write pipe: i/o timeout".
func TestLongPipeline(t *testing.T) {
	defer goleak.VerifyNone(t)
	s := Start()
	defer s.Close()
	c := s.Client()
	value := strings.Repeat("x", 1000)
	pipe := c.Pipeline()
	for i := range 2000 {
		pipe.Set(t.Context(), strconv.Itoa(i), value, 0)
		pipe.Get(t.Context(), strconv.Itoa(i))
	}
	if _, err := pipe.Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := c.DBSize(t.Context()).Val(); n != 2000 {
		t.Errorf("%d keys", n)
	}
}

// A subscriber that does not read holds nobody up. On a bare net.Pipe the
// second publish waits for ever, and everybody behind it.
func TestIdleSubscriber(t *testing.T) {
	defer goleak.VerifyNone(t)
	s := Start()
	defer s.Close()
	ctx := t.Context()
	ps := s.Client().Subscribe(ctx, "c")
	defer ps.Close()
	if _, err := ps.Receive(ctx); err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		if err := s.Client().Publish(ctx, "c", strings.Repeat("x", 1000)).Err(); err != nil {
			t.Fatal(i, err)
		}
	}
	for i := range 100 {
		if _, err := ps.ReceiveMessage(ctx); err != nil {
			t.Fatal(i, err)
		}
	}
}
