package provider

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// Call is one call to make. The zero Method is POST.
type Call struct {
	// Method is sent as it is written. Empty: POST. CONNECT and TRACE are refused.
	Method string
	// Path, with an optional query, is joined to the base URL. It begins with /
	// or is empty; see the package's rules in target.go.
	Path string
	// Headers are the job's own. A name counts once, whatever its case. Those of
	// the configuration win over them. What belongs to the connection or to the
	// framing of the body (Host, Content-Length, Transfer-Encoding, Connection and
	// its kin, Expect, …) makes the call unsendable.
	Headers map[string]string
	// Body is sent whole on every attempt and not changed. May be empty.
	Body []byte
	// IdempotencyKey is sent as Idempotency-Key, unless Headers hold one: then the
	// job has set its own, and that one is sent. Empty: none.
	IdempotencyKey string
}

const (
	idempotencyKey  = "Idempotency-Key"
	xIdempotencyKey = "X-Idempotency-Key"
	userAgent       = "Penstock (+https://github.com/penstock-io/penstock)"
)

// framing are the headers that say how a message travels, not what it is. Set
// by a job they would tear connections that other jobs use (RFC 9110, 7.6.1),
// smuggle a second request, or address another host.
var framing = []string{
	"Host", "Content-Length", "Transfer-Encoding", "Connection", "Keep-Alive", "Proxy-Connection",
	"Proxy-Authenticate", "Proxy-Authorization", "Te", "Trailer", "Upgrade", "Http2-Settings", "Expect",
}

// checkHeader refuses a header that cannot or must not be sent. Its error
// names the header, never its value.
func checkHeader(name, value string) error {
	switch {
	case !httpguts.ValidHeaderFieldName(name):
		return fmt.Errorf("%q is no header name", shorten(name))
	case slices.Contains(framing, http.CanonicalHeaderKey(name)):
		return fmt.Errorf("header %s cannot be set; the connection decides it", name)
	case !httpguts.ValidHeaderFieldValue(value):
		return fmt.Errorf("header %s holds a control character, such as a line break", name)
	}
	return nil
}

// canonical copies headers with canonical names, each checked.
func canonical(headers map[string]string) (http.Header, error) {
	out := make(http.Header, len(headers)+4)
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		if err := checkHeader(name, headers[name]); err != nil {
			return nil, err
		}
		key := http.CanonicalHeaderKey(name)
		if _, twice := out[key]; twice {
			return nil, fmt.Errorf("header %s is set twice", key)
		}
		out[key] = []string{headers[name]}
	}
	return out, nil
}

// Check reports whether call could be sent at all: nil, or an error that wraps
// ErrUnsendable and says what to change. Nothing is sent.
func (p *Provider) Check(call Call) error {
	_, err := p.request(context.Background(), call)
	return err
}

// request builds the request of one attempt.
func (p *Provider) request(ctx context.Context, call Call) (*http.Request, error) {
	method := call.Method
	if method == "" {
		method = http.MethodPost
	}
	// A method and a header name are both an HTTP token.
	if !httpguts.ValidHeaderFieldName(method) || strings.EqualFold(method, http.MethodConnect) || strings.EqualFold(method, http.MethodTrace) {
		return nil, unsendable(fmt.Sprintf("the method %q is none that a job can use", shorten(method)))
	}
	target, err := p.base.join(call.Path)
	if err != nil {
		return nil, err
	}
	header, err := canonical(call.Headers)
	if err != nil {
		return nil, unsendable(err.Error())
	}
	if err := setKey(header, call.IdempotencyKey); err != nil {
		return nil, err
	}
	maps.Copy(header, p.headers)
	if _, set := header["User-Agent"]; !set {
		header["User-Agent"] = []string{userAgent}
	}
	req := (&http.Request{
		Method: method, URL: target, Host: target.Host, Header: header.Clone(),
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}).WithContext(ctx)
	return req, nil
}

// setKey sets the Idempotency-Key, unless the job's headers hold one.
func setKey(header http.Header, key string) error {
	if own, set := header[idempotencyKey]; set {
		key = own[0]
	}
	switch {
	case key == "" && header[idempotencyKey] == nil:
		return nil
	case !httpguts.ValidHeaderFieldValue(key) || key != strings.TrimSpace(key) || key == "":
		return unsendable("the idempotency key is empty, or begins or ends with a space, or holds a control character: it would not arrive as it is")
	}
	header[idempotencyKey] = []string{key}
	return nil
}

// sendOnce gives req its body in a form that net/http cannot repeat.
//
// When a connection that was idle turns out to be closed, http.Transport sends
// a request again by itself if it takes it for repeatable: a GET or the like,
// or anything with an Idempotency-Key, that has no body or a GetBody. But a
// server that read the whole request and died before it answered looks the
// same, and the second call would go out without a permit and unseen. So:
//
//   - a body is given without GetBody;
//   - GET and its kin get an empty body that is not known to be empty; the
//     transport looks into it, finds nothing, and sends none;
//   - other methods without a body send Content-Length: 0, which needs
//     http.NoBody, and their Idempotency-Key is spelled so that the transport's
//     look-up misses it. On the wire the case of a header's name means nothing.
//
// TestOneCallIsSeenOnce fails when a new Go thinks otherwise.
func sendOnce(req *http.Request, body []byte) {
	req.GetBody = nil
	switch {
	case len(body) > 0:
		req.Body = io.NopCloser(bytes.NewReader(body))
		req.ContentLength = int64(len(body))
	case req.Method == http.MethodGet, req.Method == http.MethodHead, req.Method == http.MethodOptions:
		req.Body = io.NopCloser(emptyBody{})
		req.ContentLength = 0
	default:
		req.Body = http.NoBody
		req.ContentLength = 0
		for _, name := range []string{idempotencyKey, xIdempotencyKey} {
			if values, set := req.Header[name]; set {
				delete(req.Header, name)
				req.Header[strings.ToLower(name)] = values
			}
		}
	}
}

// emptyBody is a body that nobody can tell to be empty without reading it.
type emptyBody struct{}

func (emptyBody) Read([]byte) (int, error) { return 0, io.EOF }
