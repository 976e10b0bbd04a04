package webhooks

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// A segment is one file of the spool:
//
//	"PSPOOL1\n"  mark (8 random bytes)
//	record: mark, length (u32), CRC-32C of the payload (u32), payload
//
// The mark is the file's own secret: after damage, the next record is found by
// it, and nothing that a sender puts into a body can pass for a record.
type segment struct {
	number uint64
	file   *os.File
	mark   [8]byte
	// written and synced are lengths of the file; records and safe the numbers
	// of records in them. Guarded by the spool's lock.
	written, synced int64
	records, safe   int
	// read is how far the replay has come, done how many records that is.
	read int64
	done int
	// broken: an fsync failed, or the tail could not be taken back.
	broken bool
}

const (
	segmentMagic = "PSPOOL1\n"
	segmentHead  = int64(len(segmentMagic) + 8)
	recordHead   = 16
	segmentExt   = ".spool"
	// maxRecord bounds a length that is read from disk: the largest body, as it
	// stands in a record, and what goes with it.
	maxRecord = 64<<20 + 1<<20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// errDamaged: what stands at this place is no record.
var errDamaged = errors.New("damaged record")

func segmentPath(dir string, n uint64) string {
	return filepath.Join(dir, fmt.Sprintf("%020d%s", n, segmentExt))
}

// createSegment makes an empty segment and syncs the directory.
func createSegment(dir string, n uint64) (*segment, error) {
	f, err := os.OpenFile(segmentPath(dir, n), os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	g := &segment{number: n, file: f, written: segmentHead, read: segmentHead}
	_, _ = rand.Read(g.mark[:]) // never fails
	if _, err = f.Write(append([]byte(segmentMagic), g.mark[:]...)); err == nil {
		err = syncDir(dir)
	}
	if err != nil {
		_ = f.Close()
		_ = os.Remove(f.Name())
		return nil, err
	}
	return g, nil
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// append writes one record and returns its length on disk. A record that could
// not be written whole is taken back.
func (g *segment) append(payload []byte) (int64, error) {
	b := make([]byte, recordHead, recordHead+len(payload))
	copy(b, g.mark[:])
	binary.LittleEndian.PutUint32(b[8:], uint32(len(payload)))
	binary.LittleEndian.PutUint32(b[12:], crc32.Checksum(payload, castagnoli))
	b = append(b, payload...)
	if _, err := g.file.WriteAt(b, g.written); err != nil {
		if terr := g.file.Truncate(g.written); terr != nil {
			g.broken = true
		}
		return 0, err
	}
	g.written += int64(len(b))
	g.records++
	return int64(len(b)), nil
}

// record reads the record at off and returns where the next one begins.
// io.EOF: the file ends exactly at off.
func (g *segment) record(off int64) (payload []byte, next int64, err error) {
	var head [recordHead]byte
	switch n, err := g.file.ReadAt(head[:], off); {
	case n == 0 && errors.Is(err, io.EOF):
		return nil, off, io.EOF
	case err != nil && !errors.Is(err, io.EOF):
		return nil, off, err
	case n < recordHead || !bytes.Equal(head[:8], g.mark[:]):
		return nil, off, errDamaged
	}
	size := binary.LittleEndian.Uint32(head[8:])
	if size > maxRecord {
		return nil, off, errDamaged
	}
	payload = make([]byte, size)
	if _, err := g.file.ReadAt(payload, off+recordHead); err != nil {
		if errors.Is(err, io.EOF) {
			err = errDamaged
		}
		return nil, off, err
	}
	if crc32.Checksum(payload, castagnoli) != binary.LittleEndian.Uint32(head[12:]) {
		return nil, off, errDamaged
	}
	return payload, off + recordHead + int64(size), nil
}

// resync returns where the next whole record after off begins, or -1.
func (g *segment) resync(off int64) int64 {
	const chunk = 1 << 20
	buf := make([]byte, chunk+8)
	for at := off; ; at += chunk {
		n, err := g.file.ReadAt(buf, at)
		for from := 0; ; {
			i := bytes.Index(buf[from:n], g.mark[:])
			if i < 0 {
				break
			}
			if _, _, e := g.record(at + int64(from+i)); e == nil {
				return at + int64(from+i)
			}
			from += i + 1
		}
		if err != nil {
			return -1
		}
	}
}

// openSegment reads a segment that an earlier run left, counts its records,
// and cuts off a tail that was never whole. lost is what was damaged before
// the tail, in bytes.
func openSegment(dir string, n uint64) (g *segment, lost, cut int64, err error) {
	f, err := os.OpenFile(segmentPath(dir, n), os.O_RDWR, 0o600)
	if err != nil {
		return nil, 0, 0, err
	}
	g = &segment{number: n, file: f}
	head := make([]byte, segmentHead)
	if _, err := io.ReadFull(f, head); err != nil || string(head[:len(segmentMagic)]) != segmentMagic {
		// Not even the head is whole: nothing in it was ever acknowledged.
		st, serr := f.Stat()
		if serr == nil {
			cut = st.Size()
		}
		_ = f.Close()
		return nil, 0, cut, errDamaged
	}
	copy(g.mark[:], head[len(segmentMagic):])
	g.read = segmentHead
	off := segmentHead
	for {
		_, next, err := g.record(off)
		switch {
		case err == nil:
			g.records++
			off = next
			continue
		case errors.Is(err, errDamaged):
			if to := g.resync(off + 1); to >= 0 {
				lost += to - off
				off = to
				continue
			}
			st, serr := f.Stat()
			if serr == nil {
				cut = st.Size() - off
				serr = f.Truncate(off)
			}
			err = serr
		case errors.Is(err, io.EOF):
			err = nil
		}
		if err != nil {
			_ = f.Close()
			return nil, lost, cut, err
		}
		g.written, g.synced, g.safe = off, off, g.records
		return g, lost, cut, nil
	}
}

// segmentNumbers lists the segments of a directory in order.
func segmentNumbers(dir string) ([]uint64, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var out []uint64
	for _, e := range entries {
		base, ok := strings.CutSuffix(e.Name(), segmentExt)
		if n, err := strconv.ParseUint(base, 10, 64); ok && err == nil {
			out = append(out, n)
		}
	}
	slices.Sort(out)
	return out, nil
}
