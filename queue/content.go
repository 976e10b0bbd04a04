package queue

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"maps"
	"slices"
	"time"
)

// contentHash tells two contents of one id apart: 128 bits of SHA-256 over
// everything of a normal job but its id, provider and keep. Every part has its
// length before it, so that no two contents are written alike. Releases that
// share a Redis must compute the same: change it only with a new leading byte.
func contentHash(j Job) string {
	b := make([]byte, 0, 512)
	num := func(n int64) { b = binary.AppendVarint(b, n) }
	str := func(s string) { num(int64(len(s))); b = append(b, s...) }

	b = append(b, 1)
	str(j.Type)
	str(j.Method)
	str(j.Path)
	num(int64(len(j.Headers)))
	for _, k := range slices.Sorted(maps.Keys(j.Headers)) {
		str(k)
		str(j.Headers[k])
	}
	str(j.IdempotencyKey)
	str(j.Key)
	str(string(j.Priority))
	num(ceilMS(j.Delay))
	if j.Due.IsZero() {
		num(0)
	} else {
		num(j.Due.UnixMilli())
	}
	num(ceilMS(j.MaxAge))
	num(int64(j.Attempts))
	num(int64(j.Cost))
	num(int64(len(j.Body)))

	h := sha256.New()
	h.Write(b)
	h.Write(j.Body)
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil)[:16])
}

// ceilMS is a duration in milliseconds, rounded up.
func ceilMS(d time.Duration) int64 {
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}
