// Package limithttp puts the shaper between HTTP and the world, on both sides.
//
// Outbound, [Transport] shapes any vendor's SDK: an http.RoundTripper on a
// guard.
//
// Inbound, a [Door] is middleware in front of one's own handlers: [Rule]s say
// what a client may do, counted in a shaper.LimitStore; every answer carries
// the RateLimit fields, a refusal says which rule it was and when to come back.
// What was asked is decided in this order, which Door.Describe prints: deny
// list, allow list, blocks, then all rules that match, together, so that a
// request that one of them refuses costs the others nothing. What only the body
// tells, like the size of a batch, a handler charges itself: [Charge] all or
// nothing, [ChargeUpTo] what there is room for.
//
// Who a client is (its API key, its organisation, its plan) is the
// application's knowledge: Config.Identify. [ReadFields] reads what others'
// doors say.
package limithttp
