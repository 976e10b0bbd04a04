package config

import (
	"path/filepath"

	"github.com/penstock-io/penstock/webhooks"
)

// Spool is where webhooks' deliveries are kept while Redis is away.
type Spool struct {
	// Dir is absolute. Empty: there is no spool.
	Dir string
	// MaxBytes on disk.
	MaxBytes int64
	// Sync says that a delivery is acknowledged only after an fsync.
	Sync bool
}

// Bounds of a spool.
const (
	minSpool = 1 << 20
	maxSpool = 1 << 40
)

// spool reads the spool, after the webhooks.
func (r *reader) spool(root *object, c *Config) {
	if !root.has("spool") {
		return
	}
	o := r.object(root.field("spool"), "spool", "dir", "max_bytes", "fsync")
	o.line = root.at("spool")
	s := Spool{MaxBytes: webhooks.DefaultSpoolBytes, Sync: true}
	switch {
	case root.field("spool").node == nil:
		return
	case !o.text("dir", &s.Dir):
		if !o.has("dir") {
			o.fault("dir", "is missing; it is a directory of the spool's own, on a disk that survives a restart")
		}
	case !filepath.IsAbs(s.Dir):
		o.fault("dir", "must begin with a slash: where another path leads depends on where penstock was started")
	}
	o.size("max_bytes", &s.MaxBytes, minSpool, maxSpool)
	o.flag("fsync", &s.Sync)
	if !s.Sync {
		o.warn("fsync", "is false: a power cut or a crash of the system loses deliveries that were acknowledged")
	}
	if !root.has("webhooks") {
		root.fault("spool", "is for webhooks, and there are none; take it out")
	}
	c.Spool = s
}
