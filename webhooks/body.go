package webhooks

import (
	"errors"
	"io"
	"net/http"
	"os"
	"strconv"
	"time"
)

// readBody reads a request's whole body, at most limit bytes and for at most
// within. A body whose stated length is over the limit is not read at all.
func readBody(w http.ResponseWriter, r *http.Request, limit int64, within time.Duration) ([]byte, error) {
	if r.ContentLength > limit {
		return nil, errTooLarge(limit)
	}
	if r.Body == nil || r.Body == http.NoBody {
		return nil, nil
	}
	body := http.MaxBytesReader(w, r.Body, limit)
	ctl := http.NewResponseController(w)
	if ctl.SetReadDeadline(time.Now().Add(within)) != nil {
		return readAside(body, limit, within)
	}
	b, err := io.ReadAll(body)
	if err == nil {
		_ = ctl.SetReadDeadline(time.Time{}) // net/http sets its own for the next request
		return b, nil
	}
	return b, bodyError(err, limit, within)
}

// readAside reads where the connection's deadline is out of reach, because
// somebody's ResponseWriter has no Unwrap. The goroutine ends when the server
// closes the body, at the latest after the handler has returned.
func readAside(body io.Reader, limit int64, within time.Duration) ([]byte, error) {
	type result struct {
		b   []byte
		err error
	}
	done := make(chan result, 1)
	go func() {
		b, err := io.ReadAll(body)
		done <- result{b, err}
	}()
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case r := <-done:
		if r.err != nil {
			return r.b, bodyError(r.err, limit, within)
		}
		return r.b, nil
	case <-timer.C:
		return nil, bodyError(os.ErrDeadlineExceeded, limit, within)
	}
}

func bodyError(err error, limit int64, within time.Duration) error {
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return errTooLarge(limit)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return refuse(SlowBody, "the body did not arrive within "+within.String(), "")
	}
	// The cause names addresses only.
	return &Refusal{Reason: CutBody, Detail: "the connection ended before the whole body had arrived", cause: err}
}

func errTooLarge(limit int64) error {
	return refuse(TooLarge, "the body is larger than "+strconv.FormatInt(limit, 10)+" bytes", "raise the webhook's max_body if such deliveries are genuine")
}
