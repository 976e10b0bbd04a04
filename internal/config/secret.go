package config

import (
	"fmt"
	"log/slog"
)

// Secret is text that is never printed: every way to format it shows "***".
type Secret string

// Reveal returns the text itself, for the one place that needs it.
func (s Secret) Reveal() string { return string(s) }

// String shows "***", or nothing where there is nothing to hide.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return "***"
}

// Format shows what String does, whatever the verb.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(s.String())) }

// MarshalText shows what String does, so JSON and slog do.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// LogValue shows what String does.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }
