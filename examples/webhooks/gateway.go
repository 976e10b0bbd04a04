package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/penstock-io/penstock/webhooks"
)

const (
	events  = 150
	repeats = 30 // of them are delivered twice
)

// gateway sends events as a payment provider does.
type gateway struct {
	url    string
	client *http.Client
}

// storm sends every event at once, and some of them twice.
func (g gateway) storm(ctx context.Context, out io.Writer) error {
	var mu sync.Mutex
	var faults []error
	results := map[string]int{}
	slowest := time.Duration(0)
	began := time.Now()
	var all sync.WaitGroup
	places := make(chan struct{}, 32)
	for i := range events + repeats {
		places <- struct{}{}
		all.Go(func() {
			defer func() { <-places }()
			start := time.Now()
			status, result, err := g.deliver(ctx, i%events, secret, start)
			mu.Lock()
			defer mu.Unlock()
			if err == nil && status != http.StatusOK {
				err = fmt.Errorf("event %d was answered %d %s", i%events, status, result)
			}
			faults = append(faults, err)
			results[result]++
			slowest = max(slowest, time.Since(start))
		})
	}
	all.Wait()
	if err := errors.Join(faults...); err != nil {
		return err
	}
	fmt.Fprintf(out, "the gateway sent %d deliveries in %s: %d accepted, %d known before, the slowest answer after %s\n",
		events+repeats, time.Since(began).Round(time.Millisecond), results["accepted"], results["duplicate"], slowest.Round(time.Millisecond))
	return nil
}

// forgeries are refused, and never reach the application.
func (g gateway) forgeries(ctx context.Context, out io.Writer) error {
	for what, f := range map[string]struct {
		secret string
		at     time.Time
	}{
		"a delivery signed with another secret": {"whsec_of_somebody_else", time.Now()},
		"a captured one of an hour ago":         {secret, time.Now().Add(-time.Hour)},
	} {
		status, _, err := g.deliver(ctx, 1_000_000, f.secret, f.at)
		if err != nil {
			return err
		}
		if status != http.StatusUnauthorized {
			return fmt.Errorf("%s was answered %d", what, status)
		}
		fmt.Fprintf(out, "%s was answered %d\n", what, status)
	}
	return nil
}

// deliver signs one event and sends it.
func (g gateway) deliver(ctx context.Context, event int, secret string, at time.Time) (status int, result string, err error) {
	signer, err := webhooks.NewSigner(webhooks.Options{Scheme: webhooks.Stripe, Secrets: webhooks.Secrets(secret)})
	if err != nil {
		return 0, "", err
	}
	m := &webhooks.Message{
		Method: http.MethodPost, URL: g.url, Header: http.Header{"Content-Type": {"application/json"}},
		Body: fmt.Appendf(nil, `{"id":"evt_%d","type":"charge.succeeded"}`, event),
	}
	if err := signer.Sign(m, "", at); err != nil {
		return 0, "", err
	}
	req, err := http.NewRequestWithContext(ctx, m.Method, m.URL, bytes.NewReader(m.Body))
	if err != nil {
		return 0, "", err
	}
	req.Header = m.Header
	resp, err := g.client.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, resp.Header.Get(webhooks.ResultHeader), err
}
