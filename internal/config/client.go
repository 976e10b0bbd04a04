package config

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Times after which a silent Redis counts as away. The gate gives no slot
// meanwhile, so they bound how long a fault goes unseen, not how long a call
// may overrun.
const (
	redisDial  = 2 * time.Second
	redisRead  = 3 * time.Second
	redisTries = 2
)

// ErrEmbedded is returned by Options for the embedded store, which has no
// address: queue/embedded starts it.
var ErrEmbedded = errors.New("the embedded store has no address")

// Options returns what go-redis needs to connect. It reads the TLS files.
func (r Redis) Options() (*redis.UniversalOptions, error) {
	if r.Embedded {
		return nil, ErrEmbedded
	}
	conf, err := r.TLS.config()
	if err != nil {
		return nil, err
	}
	return &redis.UniversalOptions{
		Addrs:            r.Addrs,
		IsClusterMode:    r.Cluster,
		MasterName:       r.Master,
		ClientName:       "penstock",
		Username:         r.Username,
		Password:         r.Password.Reveal(),
		SentinelUsername: r.SentinelUsername,
		SentinelPassword: r.SentinelPassword.Reveal(),
		DB:               r.DB,
		TLSConfig:        conf,
		// A caller's deadline ends its command: without this go-redis ignores it.
		ContextTimeoutEnabled: true,
		DialTimeout:           redisDial,
		// One dial a try: the try itself is repeated, with a back-off.
		DialerRetries: 1,
		ReadTimeout:   redisRead,
		WriteTimeout:  redisRead,
		// A repeated script is safe: permits and jobs carry ids made by us.
		MaxRetries: redisTries,
		// Saves a command on each connection, and old servers an error.
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}, nil
}

// Client returns a client for these settings. It connects at its first
// command; the caller closes it.
func (r Redis) Client() (redis.UniversalClient, error) {
	o, err := r.Options()
	if err != nil {
		return nil, err
	}
	return redis.NewUniversalClient(o), nil
}

// Where names the store for a person, without its credentials.
func (r Redis) Where() string {
	switch {
	case r.Embedded:
		return "the embedded store"
	case r.Master != "":
		return fmt.Sprintf("redis (sentinels %s, primary %s)", strings.Join(r.Addrs, ", "), r.Master)
	case r.Cluster:
		return fmt.Sprintf("redis (cluster %s)", strings.Join(r.Addrs, ", "))
	}
	return "redis at " + strings.Join(r.Addrs, ", ")
}

// config builds the TLS settings; nil for a plain connection.
func (t *TLS) config() (*tls.Config, error) {
	if t == nil {
		return nil, nil
	}
	conf := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.ServerName}
	if t.CA != "" {
		pem, err := os.ReadFile(t.CA)
		if err != nil {
			return nil, fmt.Errorf("redis.tls.ca: %w", err)
		}
		conf.RootCAs = x509.NewCertPool()
		if !conf.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("redis.tls.ca: %s holds no PEM certificate", t.CA)
		}
	}
	if t.Cert != "" {
		pair, err := tls.LoadX509KeyPair(t.Cert, t.Key)
		if err != nil {
			// The error names neither the key's content nor its path.
			return nil, fmt.Errorf("redis.tls.cert and key: %w", err)
		}
		conf.Certificates = []tls.Certificate{pair}
	}
	return conf, nil
}
