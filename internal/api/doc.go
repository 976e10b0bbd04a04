// Package api is the HTTP face of Penstock: producers enqueue and ask for their
// jobs, operators look at providers and change their limits, asynqmon stands at
// /queues. It also holds the client that the command line uses; both sides share
// one table of errors ([Code]).
//
// It is an adapter: it is given its rooms as small interfaces ([Jobs], [Fleet])
// and knows neither configuration, workers nor metrics. Errors are RFC 9457
// problem documents with a member `fix` that says what to do.
//
// Who may do what: with tokens, producers use /v1/jobs and operators everything;
// a browser gets an operator's session from /login. Without tokens everyone who
// reaches the server may do everything, so it serves only loopback names then,
// and refuses requests that another site's page sends.
//
// Where to read: server.go for the routes, auth.go and session.go for who may
// pass, jobjson.go and field.go for what a job looks like, batch.go for NDJSON, problem.go
// for errors, queues.go for asynqmon, client.go for the client.
package api
