// Package webhooks takes signed deliveries in: it proves that one is genuine,
// drops repeats, stores a job, and only then answers 2xx.
//
// The parts, from the inside out:
//
//   - [Verifier] decides on the exact bytes of one delivery ([Message]) by the
//     sender's [Scheme], and knows the scheme's event id. [Signer] is its
//     mirror: it makes what the sender would send.
//   - [Handler] is the http.Handler round it: bounded bodies, deadlines,
//     deduplication by job id, answers that a sender understands.
//   - [Spool] keeps deliveries on disk while Redis is away, where that is
//     wanted, and replays them in order.
//   - [SignCalls] is for the other direction: outgoing calls that are signed
//     anew for each attempt.
//
// What it is not for: WHEN the delivery goes on to the application. That is
// the destination provider's business, whose job a delivery becomes (package
// queue), and the limits at the door stand in shaper/limithttp.
//
// No secret, no signature and no body ever gets into an error or a log line.
package webhooks
