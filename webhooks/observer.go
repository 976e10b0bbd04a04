package webhooks

import "time"

// Result is what became of a delivery.
type Result string

// The results. All but Refused are answered 200.
const (
	// Accepted: the job is stored.
	Accepted Result = "accepted"
	// Duplicate: the event was accepted before.
	Duplicate Result = "duplicate"
	// Spooled: on disk, Redis being away.
	Spooled Result = "spooled"
	// Challenged: not an event; the sender's challenge was answered.
	Challenged Result = "challenged"
	// Refused: see the Reason.
	Refused Result = "refused"
)

// Results lists every result, for metrics that show zeros.
func Results() []Result { return []Result{Accepted, Duplicate, Spooled, Challenged, Refused} }

// Delivery is what an Observer is told of one request.
type Delivery struct {
	Result Result
	// Reason of a refusal, else "".
	Reason Reason
	// Secret is the label of the secret that matched, "" where none did.
	Secret string
	// Bytes of the body that were read.
	Bytes int
	// Took is the time from the request's arrival to the answer.
	Took time.Duration
}

// Observer hears what handlers and spools do. Methods are called from several
// goroutines at once and must not block.
type Observer interface {
	// WebhookDelivery is told once for each request.
	WebhookDelivery(webhook string, d Delivery)
	// WebhookSpool is told the spool's size after each change.
	WebhookSpool(events int, bytes int64)
	// WebhookReplayed is told of each delivery that left the spool: Accepted,
	// Duplicate, or Refused where the queue will never take it.
	WebhookReplayed(webhook string, r Result)
}

type nobody struct{}

func (nobody) WebhookDelivery(string, Delivery) {}
func (nobody) WebhookSpool(int, int64)          {}
func (nobody) WebhookReplayed(string, Result)   {}
