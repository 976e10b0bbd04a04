package api

import "net/http"

// Refuse answers a request with the problem document of an error, for whoever
// stands before the Server and lets nothing through yet.
func Refuse(w http.ResponseWriter, err error) { problemOf(err).write(w) }
