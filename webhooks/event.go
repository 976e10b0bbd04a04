package webhooks

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// EventID says where an event's id stands. The zero value: where the scheme
// keeps it.
type EventID struct {
	// Header that holds the id.
	Header string
	// Pointer (RFC 6901) to the id in a JSON body: a string or a number.
	Pointer string
	// Off: events have no id, and repeats are not recognised.
	Off bool
}

// IsZero reports that nothing is said.
func (e EventID) IsZero() bool { return e == EventID{} }

func (e EventID) check() error {
	said := 0
	for _, b := range []bool{e.Header != "", e.Pointer != "", e.Off} {
		if b {
			said++
		}
	}
	switch {
	case said > 1:
		return fmt.Errorf("%w: event_id: name one of header, pointer and off", ErrConfig)
	case e.Header != "":
		return headerName("event_id: header", e.Header)
	case e.Pointer != "" && !strings.HasPrefix(e.Pointer, "/"):
		return fmt.Errorf("%w: event_id: pointer %q must begin with a slash, like /id or /data/id (RFC 6901)", ErrConfig, e.Pointer)
	}
	return nil
}

// Event is a genuine delivery, opened.
type Event struct {
	Proof
	// ID of the event: the same for every delivery of it. "" where there is
	// none, so that repeats cannot be recognised.
	ID string
	// Challenge is what the sender wants to read back instead of a plain 200
	// (Slack's url_verification); such a delivery is no event. Usually "".
	Challenge string
}

// Open verifies m at now and reads its event id. Its error is a *Refusal; one
// that is Genuine had a right signature.
func (v *Verifier) Open(m *Message, now time.Time) (Event, error) {
	p, err := v.Verify(m, now)
	if err != nil {
		return Event{}, err
	}
	ev := Event{Proof: p}
	if c, ok := v.scheme.(interface {
		challenge(*Message) (string, bool)
	}); ok {
		if text, is := c.challenge(m); is {
			ev.Challenge = text
			return ev, nil
		}
	}
	if isJSON(m.Header) && !utf8.Valid(m.Body) {
		return Event{}, genuine(refuse(BadBody, "the body calls itself JSON and is not valid UTF-8", ""))
	}
	ev.ID, err = v.eventID(m)
	if err != nil {
		return Event{}, genuine(err)
	}
	return ev, nil
}

// genuine marks a refusal of what had a right signature.
func genuine(err error) error {
	if r, ok := err.(*Refusal); ok {
		r.Genuine = true
	}
	return err
}

func (v *Verifier) eventID(m *Message) (string, error) {
	switch e := v.opts.EventID; {
	case e.Off:
		return "", nil
	case e.Header != "":
		return headerID(m.Header, e.Header)
	case e.Pointer != "":
		return pointerID(m.Body, e.Pointer)
	}
	return v.scheme.eventID(m)
}

// headerID reads an id from a header that must stand there just once.
func headerID(h http.Header, name string) (string, error) {
	vs := h.Values(name)
	if len(vs) != 1 || strings.TrimSpace(vs[0]) == "" {
		return "", refuse(NoEventID, "the header "+name+", which holds the event's id, is missing, empty or not alone",
			"if this sender has no such header, set event_id to one that it has, to a JSON pointer, or to off")
	}
	return strings.TrimSpace(vs[0]), nil
}

// setID sets a header to the event's id, if there is one.
func setID(h http.Header, name, id string) {
	if id != "" {
		h.Set(name, id)
	}
}

// pointerID reads a string or a number from a JSON body.
func pointerID(body []byte, pointer string) (string, error) {
	miss := func(why string) (string, error) {
		return "", refuse(NoEventID, "no event id at "+pointer+" of the body: "+why,
			"see that this is the sender's usual body; event_id can name another place")
	}
	if len(bytes.TrimSpace(body)) == 0 {
		return miss("the body is empty")
	}
	v := json.RawMessage(body)
	for _, part := range strings.Split(pointer[1:], "/") {
		part = strings.NewReplacer("~1", "/", "~0", "~").Replace(part)
		next, why := child(v, part)
		if why != "" {
			return miss(why)
		}
		v = next
	}
	d := json.NewDecoder(bytes.NewReader(v))
	d.UseNumber()
	var id any
	if d.Decode(&id) != nil {
		return miss("it is not JSON")
	}
	switch id := id.(type) {
	case string:
		if id != "" {
			return id, nil
		}
	case json.Number:
		return id.String(), nil
	}
	return miss("what stands there is neither a text nor a number")
}

// child returns the member or element part of v, or why there is none.
func child(v json.RawMessage, part string) (json.RawMessage, string) {
	var obj map[string]json.RawMessage
	if json.Unmarshal(v, &obj) == nil && obj != nil {
		if next, ok := obj[part]; ok {
			return next, ""
		}
		return nil, "there is no such member"
	}
	var arr []json.RawMessage
	if json.Unmarshal(v, &arr) != nil {
		return nil, "it is not a JSON object"
	}
	if n, err := strconv.Atoi(part); err == nil && n >= 0 && n < len(arr) && strconv.Itoa(n) == part {
		return arr[n], ""
	}
	return nil, "there is no such element"
}

// contentID names an event that has no id by what it says.
func contentID(parts ...[]byte) string {
	h := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(h, "%d:", len(p))
		h.Write(p)
	}
	return "sha256-" + hex.EncodeToString(h.Sum(nil))
}

// mediaType returns the content type without its parameters, in lower case.
func mediaType(h http.Header) string {
	ct := h.Get("Content-Type")
	t, _, err := mime.ParseMediaType(ct)
	if err != nil {
		t, _, _ = strings.Cut(ct, ";")
	}
	return strings.ToLower(strings.TrimSpace(t))
}

func isForm(h http.Header) bool { return mediaType(h) == "application/x-www-form-urlencoded" }

func isJSON(h http.Header) bool {
	t := mediaType(h)
	return t == "application/json" || strings.HasPrefix(t, "application/") && strings.HasSuffix(t, "+json")
}
