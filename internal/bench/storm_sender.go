package bench

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/penstock-io/penstock/webhooks"
)

// hookSecret is what storms are signed with.
const hookSecret = "whsec_of_a_storm_in_a_benchmark"

const (
	// resendAfter is how long a sender waits that got no answer; one that was
	// given a Retry-After waits for that.
	resendAfter = 500 * ms
	// sendersMost bounds how long a sender tries one delivery.
	sendersMost = 3 * time.Minute
	// answerMost is how long a sender waits for an answer, as Shopify does.
	answerMost = 5 * time.Second
)

// plan is a storm's deliveries: events, and repeats of some of them.
type plan struct {
	events     int
	deliveries []delivery
}

// delivery of an event at a time from the start on.
type delivery struct {
	at    time.Duration
	event int
}

// newPlan spreads n deliveries evenly; a share of them repeats an event of the
// second before.
func newPlan(n int, repeats float64, perSecond int) *plan {
	p := &plan{events: n - int(float64(n)*repeats)}
	gap := time.Second / time.Duration(perSecond)
	length := time.Duration(n) * gap
	draw := rand.New(rand.NewPCG(1, 2))
	for e := range p.events {
		at := length * time.Duration(e) / time.Duration(p.events)
		p.deliveries = append(p.deliveries, delivery{at, e})
	}
	for len(p.deliveries) < n {
		first := p.deliveries[draw.IntN(p.events)]
		at := min(first.at+time.Duration(draw.Int64N(int64(time.Second))), length)
		p.deliveries = append(p.deliveries, delivery{at, first.event})
	}
	slices.SortStableFunc(p.deliveries, func(a, b delivery) int { return cmp.Compare(a.at, b.at) })
	return p
}

// length is the time from the first delivery to the last.
func (p *plan) length() time.Duration { return p.deliveries[len(p.deliveries)-1].at }

// acks are what the senders saw.
type acks struct {
	acknowledged int
	refused      map[string]int // tries without a 2xx, by reason
	results      map[string]int // what Penstock said became of the others
	took         []float64      // of the acknowledged tries, in ms
}

// send sends everything at its time; each delivery is tried until it is
// acknowledged.
func (p *plan) send(ctx context.Context, url string) (acks, error) {
	signer, err := webhooks.NewSigner(webhooks.Options{Scheme: webhooks.Stripe, Secrets: webhooks.Secrets(hookSecret)})
	if err != nil {
		return acks{}, err
	}
	s := &senders{url: url, signer: signer, seen: acks{results: map[string]int{}, refused: map[string]int{}}, client: &http.Client{
		Timeout: answerMost, Transport: &http.Transport{MaxIdleConns: 0, MaxIdleConnsPerHost: 512, DisableCompression: true},
	}}
	defer s.client.CloseIdleConnections()
	start := time.Now()
	var all sync.WaitGroup
	for _, d := range p.deliveries {
		if err := pause(ctx, time.Until(start.Add(d.at))); err != nil {
			break
		}
		all.Go(func() { s.deliver(ctx, d.event) })
	}
	all.Wait()
	return s.seen, errors.Join(s.err, ctx.Err())
}

// senders share what they saw.
type senders struct {
	url    string
	signer *webhooks.Signer
	client *http.Client

	mu   sync.Mutex
	seen acks
	err  error
}

func (s *senders) deliver(ctx context.Context, event int) {
	body := fmt.Appendf(nil, `{"id":"evt_%d","object":"event","type":"charge.succeeded","data":{"object":{"id":"ch_%d","amount":%d,"note":"%0256d"}}}`, event, event, event, event)
	for deadline := time.Now().Add(sendersMost); time.Now().Before(deadline); {
		begun := time.Now()
		try, err := s.once(ctx, body)
		if err != nil {
			s.mu.Lock()
			s.err = err
			s.mu.Unlock()
			return
		}
		s.mu.Lock()
		if try.result != "" {
			s.seen.acknowledged++
			s.seen.results[try.result]++
			s.seen.took = append(s.seen.took, float64(time.Since(begun).Microseconds())/1000)
			s.mu.Unlock()
			return
		}
		s.seen.refused[try.reason]++
		s.mu.Unlock()
		if pause(ctx, try.wait) != nil {
			return
		}
	}
}

// try is what came of one: a result, or the reason of a refusal and how long to
// wait.
type try struct {
	result, reason string
	wait           time.Duration
}

// once is one try. An error is a fault that no repeating repairs.
func (s *senders) once(ctx context.Context, body []byte) (try, error) {
	m := &webhooks.Message{Method: "POST", Header: http.Header{"Content-Type": {"application/json"}}, Body: body}
	if err := s.signer.Sign(m, "", time.Now()); err != nil {
		return try{}, err
	}
	req, err := http.NewRequestWithContext(ctx, "POST", s.url, bytes.NewReader(body))
	if err != nil {
		return try{}, err
	}
	req.Header = m.Header
	resp, err := s.client.Do(req)
	if err != nil {
		return try{reason: noAnswer(err), wait: resendAfter}, nil
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<16)) // cut: the status is what counts
	switch {
	case resp.StatusCode == http.StatusOK:
		return try{result: cmp.Or(resp.Header.Get(webhooks.ResultHeader), "unknown")}, nil
	case resp.StatusCode < 500:
		return try{}, fmt.Errorf("a genuine delivery was answered %d: %s", resp.StatusCode, text)
	}
	t := try{reason: fmt.Sprintf("%d", resp.StatusCode), wait: resendAfter}
	var problem struct{ Reason string }
	if json.Unmarshal(text, &problem) == nil && problem.Reason != "" {
		t.reason = problem.Reason
	}
	if after, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil {
		t.wait = time.Duration(after) * time.Second
	}
	return t, nil
}

// noAnswer is why there was none, in a word.
func noAnswer(err error) string {
	if e, ok := errors.AsType[net.Error](err); ok && e.Timeout() {
		return "timeout"
	}
	return "no connection"
}

// sum adds up what was counted.
func sum(counts map[string]int) (n int) {
	for _, c := range counts {
		n += c
	}
	return n
}

// variation is the standard deviation of the values divided by their mean; 0
// for fewer than two.
func variation(values []float64) float64 {
	if len(values) < 2 {
		return 0
	}
	var sum, square float64
	for _, v := range values {
		sum += v
	}
	mean := sum / float64(len(values))
	for _, v := range values {
		square += (v - mean) * (v - mean)
	}
	return math.Sqrt(square/float64(len(values))) / mean
}
