// Package config reads the one file that says what Penstock does.
//
// It is strict: an unknown field, a field of the contract that is not built
// yet, a value out of bounds or a setting that cannot work together with
// another is refused, and every fault of a file is found in one reading, each
// with its line. `${NAME}` in a value is replaced from the environment after
// the YAML is parsed, so a variable can never change the file's structure.
// No fault ever repeats a secret.
//
// It knows what a setting means, but starts nothing: internal/app wires what
// is read here. Limits are checked by shaper, whose words they are.
package config

import (
	"fmt"
	"os"
	"time"

	"github.com/penstock-io/penstock/breaker"
	"github.com/penstock-io/penstock/retrybudget"
	"github.com/penstock-io/penstock/shaper"
	"github.com/penstock-io/penstock/webhooks"
)

// Defaults of what a file leaves out.
const (
	DefaultListen   = "127.0.0.1:8080"
	DefaultRedis    = "redis://127.0.0.1:6379/0"
	DefaultTimeout  = 30 * time.Second
	DefaultMaxBody  = 1 << 20
	DefaultKeep     = 24 * time.Hour
	DefaultAttempts = 15
	DefaultBase     = 2 * time.Second
	DefaultMax      = 10 * time.Minute
	DefaultMaxAge   = 24 * time.Hour
)

// Bounds of what a file may ask for.
const (
	MaxTimeout  = time.Hour
	MaxMaxBody  = 64 << 20
	MaxKeep     = 366 * 24 * time.Hour
	MaxAttempts = 1000
	MaxFile     = 4 << 20
)

// Config is a file that was read without a fault, with its defaults filled in.
// It is not changed after Load and may be shared.
type Config struct {
	// File is the name the file was read under.
	File string
	// Redis is the store.
	Redis Redis
	// Listen is host:port of the HTTP API.
	Listen string
	// Auth are the tokens. None at all: only loopback is served.
	Auth Auth
	// LogKeys shows jobs' keys in the log instead of their hashes.
	LogKeys bool
	// Providers, in the order of the file. Never empty.
	Providers []Provider
	// Webhooks, in the order of the file.
	Webhooks []Webhook `json:",omitzero"`
	// Spool of the webhooks.
	Spool Spool `json:",omitzero"`
	// Door is what callers are held against.
	Door Door `json:",omitzero"`
}

// Auth are the bearer tokens that the API accepts.
type Auth struct {
	// Producers may enqueue and read jobs, and nothing else.
	Producers []Token
	// Operators may do everything.
	Operators []Token
}

// Any reports whether any token is configured.
func (a Auth) Any() bool { return len(a.Producers)+len(a.Operators) > 0 }

// Token is one caller's bearer token.
type Token struct {
	// Name is what the log calls the caller.
	Name string
	// Secret is what the caller sends.
	Secret Secret
}

// Provider is one downstream.
type Provider struct {
	// Name is [a-z0-9][a-z0-9._-]{0,62}.
	Name string
	// Line of the file where it stands.
	Line int
	// BaseURL is http or https, without query and fragment. A user and password
	// that the file has in it stand in Headers.
	BaseURL string
	// Headers are added to every call. Names are in canonical form.
	Headers map[string]Secret
	// Timeout bounds one call.
	Timeout time.Duration
	// MaxBody is the largest body of a job in bytes.
	MaxBody int64
	// AllowPrivate lets calls go to private and loopback addresses; a BaseURL
	// that names one literally implies it.
	AllowPrivate bool
	// Limits as the gate takes them. A Rate of zero means no rate limit.
	Limits shaper.Limits
	// Retry says whether and when a failed call is tried again.
	Retry Retry
	// Adaptive says whether limits follow the provider's health: on, shadow or off.
	Adaptive string
	// Law are the constants by which they do; zero fields are their defaults.
	Law breaker.Config `json:",omitzero"`
	// Budget is the retry budget; zero fields are its defaults.
	Budget retrybudget.Budget `json:",omitzero"`
	// Keep is how long a final job's id is remembered.
	Keep time.Duration
	// Sign are the secrets that every call is signed with, by Standard Webhooks.
	// None: calls are not signed.
	Sign []webhooks.Secret `json:",omitzero"`
}

// Retry are the defaults of a provider's jobs.
type Retry struct {
	// Attempts counts the first.
	Attempts int
	// Base and Max bound the back-off.
	Base, Max time.Duration
	// MaxAge runs from a job's due time.
	MaxAge time.Duration
	// Again lists 4xx statuses after which a job is tried again, an attempt
	// spent, where it would be dead.
	Again []int
}

// Provider returns the provider of that name.
func (c *Config) Provider(name string) (Provider, bool) {
	for _, p := range c.Providers {
		if p.Name == name {
			return p, true
		}
	}
	return Provider{}, false
}

// Load reads a file, with variables from the process's environment. Where the
// file has faults the Config is nil. The report's warnings stand in either case.
func Load(path string) (*Config, Report) {
	src, err := readFile(path)
	if err != nil {
		return nil, Report{{File: path, Text: err.Error()}}
	}
	return Parse(path, src, os.LookupEnv)
}

func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("cannot be opened: %w", unwrapPath(err))
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("cannot be read: %w", unwrapPath(err))
	}
	if st.IsDir() {
		return nil, fmt.Errorf("is a directory; name the file in it")
	}
	return readAll(f)
}

// Parse reads a file's text; name is what its faults are reported under, env
// looks variables up. Where the text has faults the Config is nil.
func Parse(name string, src []byte, env func(string) (string, bool)) (*Config, Report) {
	r := &reader{file: name, env: env}
	root, ok := r.parse(src)
	if !ok {
		return nil, r.report()
	}
	c := &Config{File: name}
	r.root(root, c)
	rep := r.report()
	if rep.Failed() {
		return nil, rep
	}
	return c, rep
}
