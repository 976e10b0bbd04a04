package webhooks

import (
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"
)

// Secret is one of a webhook's secrets. It is never printed: every way to
// format it shows its label.
type Secret struct {
	// Value as the sender's console shows it. Required.
	Value string
	// Label names the secret in metrics and log lines. Empty: its place in the
	// list, "1" for the first.
	Label string
	// Expires is when it stops being accepted, for the end of a rotation.
	// Zero: never.
	Expires time.Time
	// Key is the name under which Twilio announces a shared key ("K1" in
	// X-Twilio-Webhooks-Signature-Settings). As soon as one secret has a Key,
	// those without are auth tokens only. Other schemes refuse it.
	Key string
}

// Secrets makes unlabelled secrets of plain values.
func Secrets(values ...string) []Secret {
	out := make([]Secret, len(values))
	for i, v := range values {
		out[i].Value = v
	}
	return out
}

// String shows the label.
func (s Secret) String() string { return "secret(" + s.Label + ")" }

// Format shows what String does, whatever the verb.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(s.String())) }

// MarshalText shows what String does.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// LogValue shows what String does.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// check refuses a value that no sender can have given out. The error does not
// repeat it.
func (s Secret) check() error {
	switch v := s.Value; {
	case strings.TrimSpace(v) == "":
		return fmt.Errorf("is empty: everybody could sign with an empty key; set it to what the sender's console shows (is the variable set?)")
	case strings.TrimSpace(v) != v:
		return fmt.Errorf("begins or ends with white space; remove it (a newline often comes with a secret read from a file)")
	case strings.HasPrefix(v, "${") && strings.HasSuffix(v, "}"):
		return fmt.Errorf("is an unexpanded variable; set it in the environment")
	}
	return nil
}

// labelled returns the secrets with their labels filled in, or what is wrong
// with them.
func labelled(in []Secret, sch Scheme) ([]Secret, error) {
	out := make([]Secret, len(in))
	seen := map[string]bool{}
	for i, s := range in {
		if s.Label == "" {
			s.Label = strconv.Itoa(i + 1)
		}
		if seen[s.Label] {
			return nil, fmt.Errorf("%w: secrets: the label %q stands twice; give each secret its own", ErrConfig, s.Label)
		}
		seen[s.Label] = true
		if err := s.check(); err != nil {
			return nil, fmt.Errorf("%w: secrets: secret %s %w", ErrConfig, s.Label, err)
		}
		if s.Key != "" && sch != Twilio {
			return nil, fmt.Errorf("%w: secrets: secret %s has a key name, which only scheme twilio knows; remove it", ErrConfig, s.Label)
		}
		out[i] = s
	}
	return out, nil
}
