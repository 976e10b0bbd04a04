package webhooks

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/penstock-io/penstock/queue"
)

func spoolJob(i int) queue.Job {
	return queue.Job{Provider: "billing", ID: fmt.Sprintf("stripe:evt_%d", i), Path: "/events", Method: "PUT",
		Headers: map[string]string{"Content-Type": "application/json"}, Priority: queue.PriorityHigh,
		MaxAge: time.Minute, Attempts: 3, Keep: time.Hour, Body: []byte(fmt.Sprintf(`{"id":"evt_%d","b":"%s"}`, i, strings.Repeat("\x00\xff", i%50)))}
}

func openSpool(t testing.TB, dir string, q Enqueuer, change func(*SpoolConfig)) *Spool {
	t.Helper()
	cfg := SpoolConfig{Dir: dir, Queue: q, Logger: slog.New(slog.DiscardHandler)}
	if change != nil {
		change(&cfg)
	}
	s, err := OpenSpool(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// eventually waits for what another goroutine does.
func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for range 20_000 {
		if cond() {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatalf("never: %s", what)
}

func sameJobs(t testing.TB, got []queue.Job, n int) {
	t.Helper()
	if len(got) != n {
		t.Fatalf("%d jobs, want %d", len(got), n)
	}
	for i, j := range got {
		if want := spoolJob(i); fmt.Sprintf("%#v", j) != fmt.Sprintf("%#v", want) {
			t.Fatalf("job %d is %#v, want %#v", i, j, want)
		}
	}
}

// Redis goes away, comes back: everything is acknowledged, and arrives in order.
func TestSpoolReplaysInOrder(t *testing.T) {
	q := &fakeQueue{err: queue.ErrUnavailable}
	seen := &recorder{}
	dir := t.TempDir()
	s := openSpool(t, dir, q, func(c *SpoolConfig) { c.Observer = seen })
	const n = 1000
	for i := range n {
		if err := s.add("stripe", spoolJob(i)); err != nil {
			t.Fatal(err)
		}
	}
	if s.Len() != n {
		t.Errorf("%d wait, want %d", s.Len(), n)
	}
	q.set(nil)
	eventually(t, "empty", func() bool { return s.Len() == 0 })
	sameJobs(t, q.all(), n)
	_ = s.Close()
	if seen.replayed[Accepted] != n || seen.spool != 0 {
		t.Errorf("counted %v, %d left", seen.replayed, seen.spool)
	}
	if segs, _ := segmentNumbers(dir); len(segs) != 0 || s.size != 0 {
		t.Errorf("segments %v, %d bytes left", segs, s.size)
	}
}

// As long as the spool holds something, what comes goes behind it.
func TestSpoolKeepsOrder(t *testing.T) {
	q := &fakeQueue{err: queue.ErrUnavailable}
	s := openSpool(t, t.TempDir(), q, nil)
	b := newWorkbench(t, func(c *Config) { c.Queue, c.Spool = q, s })
	b.queue = q
	send := func(id string) string {
		w := b.deliver(b.request(t, `{"id":"`+id+`"}`))
		if w.Code != 200 || w.Body.Len() != 0 {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
		return w.Header().Get(ResultHeader)
	}
	if got := send("a"); got != "spooled" {
		t.Fatalf("a: %s", got)
	}
	if !strings.Contains(b.log.String(), "webhook spooled") || b.seen.last().Result != Spooled {
		t.Errorf("log %s, metric %+v", b.log, b.seen.last())
	}
	for i := range 20 {
		if got := send("x" + strconv.Itoa(i)); got != "spooled" {
			t.Fatalf("x%d: %s", i, got)
		}
	}
	q.set(nil)
	eventually(t, "direct again", func() bool { return s.Len() == 0 })
	time.Sleep(askAgain)
	if got := send("z"); got != "accepted" {
		t.Errorf("z: %s", got)
	}
	jobs := q.all()
	if len(jobs) != 22 || jobs[0].ID != "stripe:a" || jobs[1].ID != "stripe:x0" || jobs[20].ID != "stripe:x19" || jobs[21].ID != "stripe:z" {
		t.Errorf("order %v", jobs)
	}
}

// A restart goes on where the last run stopped.
func TestSpoolRestart(t *testing.T) {
	dir := t.TempDir()
	away := &fakeQueue{err: queue.ErrUnavailable}
	const n = 300
	for part := range 3 {
		s := openSpool(t, dir, away, nil)
		for i := range n / 3 {
			if err := s.add("stripe", spoolJob(part*n/3+i)); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if err := s.add("stripe", spoolJob(0)); !errors.Is(err, ErrSpoolClosed) {
			t.Errorf("closed: %v", err)
		}
	}
	q := &fakeQueue{}
	s := openSpool(t, dir, q, nil)
	eventually(t, "empty", func() bool { return s.Len() == 0 })
	sameJobs(t, q.all(), n)
}

// limitedQueue takes some and is away afterwards.
type limitedQueue struct {
	fakeQueue
	room int
}

func (q *limitedQueue) Enqueue(ctx context.Context, j queue.Job) (queue.Receipt, error) {
	if q.room == 0 {
		return queue.Receipt{}, queue.ErrUnavailable
	}
	q.room--
	return q.fakeQueue.Enqueue(ctx, j)
}

// What was replayed before a restart is not put in again.
func TestSpoolPosition(t *testing.T) {
	dir := t.TempDir()
	q := &limitedQueue{room: 40}
	s := openSpool(t, dir, &fakeQueue{err: queue.ErrUnavailable}, nil)
	for i := range 100 {
		if err := s.add("stripe", spoolJob(i)); err != nil {
			t.Fatal(err)
		}
	}
	_ = s.Close()
	s = openSpool(t, dir, q, nil)
	eventually(t, "40 replayed", func() bool { return s.Len() == 60 })
	_ = s.Close()
	rest := &fakeQueue{}
	s = openSpool(t, dir, rest, nil)
	eventually(t, "empty", func() bool { return s.Len() == 0 })
	sameJobs(t, append(q.all(), rest.all()...), 100)
	// Without the position they come again, and their ids make that harmless.
	for i := range 3 {
		if err := s.add("stripe", spoolJob(i)); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "empty", func() bool { return s.Len() == 0 })
}

// bulkQueue is a queue with EnqueueAll.
type bulkQueue struct {
	fakeQueue
	batches int
}

func (q *bulkQueue) EnqueueAll(ctx context.Context, jobs iter.Seq[queue.Job]) iter.Seq2[queue.Receipt, error] {
	q.batches++
	return func(yield func(queue.Receipt, error) bool) {
		for j := range jobs {
			if !yield(q.Enqueue(ctx, j)) {
				return
			}
		}
	}
}

func TestSpoolReplaysInBulk(t *testing.T) {
	dir := t.TempDir()
	s := openSpool(t, dir, &fakeQueue{err: queue.ErrUnavailable}, nil)
	for i := range 500 {
		if err := s.add("stripe", spoolJob(i)); err != nil {
			t.Fatal(err)
		}
	}
	_ = s.Close()
	q := &bulkQueue{}
	s = openSpool(t, dir, q, nil)
	eventually(t, "empty", func() bool { return s.Len() == 0 })
	sameJobs(t, q.all(), 500)
	if q.batches > 10 {
		t.Errorf("%d round trips", q.batches)
	}
}

// The bound holds, and room comes back as deliveries go.
func TestSpoolFull(t *testing.T) {
	dir := t.TempDir()
	q := &fakeQueue{err: queue.ErrUnavailable}
	s := openSpool(t, dir, q, func(c *SpoolConfig) { c.MaxBytes = minSpoolBytes })
	big := spoolJob(0)
	big.Body = bytes.Repeat([]byte("x"), 10_000)
	n := 0
	for ; ; n++ {
		big.ID = "stripe:" + strconv.Itoa(n)
		err := s.add("stripe", big)
		if errors.Is(err, ErrSpoolFull) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if n > 200 {
			t.Fatal("never full")
		}
	}
	if n < 90 {
		t.Errorf("full after %d of 10 kB in 1 MiB", n)
	}
	var disk int64
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if st, err := e.Info(); err == nil {
			disk += st.Size()
		}
	}
	if disk > minSpoolBytes {
		t.Errorf("%d bytes on disk", disk)
	}
	q.set(nil)
	eventually(t, "empty", func() bool { return s.Len() == 0 })
	if err := s.add("stripe", big); err != nil {
		t.Errorf("room again: %v", err)
	}
	if got := len(q.all()); got < n {
		t.Errorf("%d of %d arrived", got, n)
	}
}

// Wherever a crash cuts the file, every whole record before the cut is replayed.
func TestSpoolTruncated(t *testing.T) {
	dir := t.TempDir()
	s := openSpool(t, dir, &fakeQueue{err: queue.ErrUnavailable}, nil)
	var ends []int64
	for i := range 3 {
		if err := s.add("stripe", spoolJob(i)); err != nil {
			t.Fatal(err)
		}
		ends = append(ends, s.segments[0].written)
	}
	name := s.segments[0].file.Name()
	_ = s.Close()
	whole, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for cut := range len(whole) + 1 {
		d := t.TempDir()
		if err := os.WriteFile(filepath.Join(d, filepath.Base(name)), whole[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		want := 0
		for want < len(ends) && ends[want] <= int64(cut) {
			want++
		}
		q := &fakeQueue{}
		s, err := OpenSpool(SpoolConfig{Dir: d, Queue: q, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatalf("cut at %d: %v", cut, err)
		}
		// What comes next stands behind it.
		if err := s.add("stripe", spoolJob(want)); err != nil {
			t.Fatalf("cut at %d: %v", cut, err)
		}
		eventually(t, fmt.Sprintf("cut at %d: empty", cut), func() bool { return s.Len() == 0 })
		_ = s.Close()
		sameJobs(t, q.all(), want+1)
	}
}

// Damage anywhere costs the records it touches, and no other.
func TestSpoolDamaged(t *testing.T) {
	dir := t.TempDir()
	s := openSpool(t, dir, &fakeQueue{err: queue.ErrUnavailable}, nil)
	ends := []int64{segmentHead}
	const n = 8
	for i := range n {
		if err := s.add("stripe", spoolJob(i)); err != nil {
			t.Fatal(err)
		}
		ends = append(ends, s.segments[0].written)
	}
	name := s.segments[0].file.Name()
	_ = s.Close()
	whole, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(rt *rapid.T) {
		at := rapid.IntRange(int(segmentHead), len(whole)-1).Draw(rt, "at")
		bad := bytes.Clone(whole)
		bad[at] ^= byte(rapid.IntRange(1, 255).Draw(rt, "flip"))
		hit := 0
		for int64(at) >= ends[hit+1] {
			hit++
		}
		d, err := os.MkdirTemp(dir, "x")
		if err != nil {
			rt.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(d, filepath.Base(name)), bad, 0o600); err != nil {
			rt.Fatal(err)
		}
		q := &fakeQueue{}
		s, err := OpenSpool(SpoolConfig{Dir: d, Queue: q, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			rt.Fatal(err)
		}
		eventually(t, "empty", func() bool { return s.Len() == 0 })
		_ = s.Close()
		got := q.all()
		if len(got) != n-1 {
			rt.Fatalf("byte %d of record %d: %d records left", at, hit, len(got))
		}
		for i, j := range got {
			k := i
			if i >= hit {
				k++
			}
			if j.ID != spoolJob(k).ID {
				rt.Fatalf("record %d is %s", k, j.ID)
			}
		}
	})
}

// A body cannot pass for a record, whatever it holds.
func TestSpoolForgedRecord(t *testing.T) {
	dir := t.TempDir()
	s := openSpool(t, dir, &fakeQueue{err: queue.ErrUnavailable}, nil)
	if err := s.add("stripe", spoolJob(0)); err != nil {
		t.Fatal(err)
	}
	name := s.segments[0].file.Name()
	first := s.segments[0].written
	forged, _ := encodeRecord("stripe", spoolJob(1), time.Now())
	other := &segment{file: mustTemp(t)}
	copy(other.mark[:], "GUESSED!")
	if _, err := other.append(forged); err != nil {
		t.Fatal(err)
	}
	raw, _ := os.ReadFile(other.file.Name())
	evil := spoolJob(2)
	evil.Body = append(append([]byte(segmentMagic), raw...), raw...)
	for _, j := range []queue.Job{evil, spoolJob(3)} {
		if err := s.add("stripe", j); err != nil {
			t.Fatal(err)
		}
	}
	_ = s.Close()
	whole, _ := os.ReadFile(name)
	whole[first] ^= 1 // the evil record's mark is damaged: what follows is searched
	if err := os.WriteFile(name, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	q := &fakeQueue{}
	s = openSpool(t, dir, q, nil)
	eventually(t, "empty", func() bool { return s.Len() == 0 })
	if got := q.all(); len(got) != 2 || got[0].ID != spoolJob(0).ID || got[1].ID != spoolJob(3).ID {
		t.Errorf("%v", got)
	}
}

func mustTemp(t *testing.T) *os.File {
	f, err := os.CreateTemp(t.TempDir(), "seg")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// What the queue will never take is set aside and does not hold up the rest.
func TestSpoolSetsAside(t *testing.T) {
	dir := t.TempDir()
	s := openSpool(t, dir, &fakeQueue{err: queue.ErrUnavailable}, nil)
	for i := range 3 {
		if err := s.add("stripe", spoolJob(i)); err != nil {
			t.Fatal(err)
		}
	}
	s.mu.Lock()
	n, err := s.segments[0].append([]byte{5, '{', '"', 'v', '"', ':', '2', '}'}) // of a later release
	s.size += n
	if err == nil {
		err = s.syncLocked(s.segments[0], s.segments[0].written)
	}
	s.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.add("stripe", spoolJob(3)); err != nil {
		t.Fatal(err)
	}
	_ = s.Close()
	q := &refusingQueue{}
	seen := &recorder{}
	var log syncBuffer
	s = openSpool(t, dir, q, func(c *SpoolConfig) { c.Observer, c.Logger = seen, slog.New(slog.NewTextHandler(&log, nil)) })
	eventually(t, "empty", func() bool { return s.Len() == 0 })
	_ = s.Close()
	if got := q.all(); len(got) != 3 || got[0].ID != spoolJob(0).ID || got[1].ID != spoolJob(2).ID || got[2].ID != spoolJob(3).ID {
		t.Errorf("%v", got)
	}
	b, err := os.ReadFile(filepath.Join(dir, refusedName))
	if err != nil || strings.Count(string(b), "\n") != 2 || !strings.Contains(string(b), "evt_1") {
		t.Errorf("set aside %q, %v", b, err)
	}
	if seen.replayed[Refused] != 2 || strings.Count(log.String(), "set aside") != 2 {
		t.Errorf("counted %v, logged %s", seen.replayed, log.String())
	}
}

// refusingQueue never takes evt_1.
type refusingQueue struct{ fakeQueue }

func (q *refusingQueue) Enqueue(ctx context.Context, j queue.Job) (queue.Receipt, error) {
	if j.ID == "stripe:evt_1" {
		return queue.Receipt{}, queue.ErrInvalid
	}
	return q.fakeQueue.Enqueue(ctx, j)
}

func TestSpoolRefused(t *testing.T) {
	dir := t.TempDir()
	openSpool(t, dir, &fakeQueue{}, nil)
	if _, err := OpenSpool(SpoolConfig{Dir: dir, Queue: &fakeQueue{}}); !errors.Is(err, ErrSpoolInUse) {
		t.Errorf("two at once: %v", err)
	}
	for name, c := range map[string]SpoolConfig{
		"no dir": {Queue: &fakeQueue{}}, "no queue": {Dir: dir}, "too small": {Dir: dir, Queue: &fakeQueue{}, MaxBytes: 1000},
	} {
		if _, err := OpenSpool(c); !errors.Is(err, ErrConfig) {
			t.Errorf("%s: %v", name, err)
		}
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenSpool(SpoolConfig{Dir: filepath.Join(file, "x"), Queue: &fakeQueue{}}); err == nil {
		t.Error("a directory inside a file")
	}
	st, err := os.Stat(filepath.Join(dir, "lock"))
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", st, err)
	}
}

// kill -9 while many write: whatever was acknowledged is there afterwards.
func TestSpoolSurvivesKill(t *testing.T) {
	if dir := os.Getenv("WEBHOOK_SPOOL_CHILD"); dir != "" {
		spoolChild(dir)
		return
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	acked := map[string]bool{}
	for round := range 3 {
		cmd := exec.Command(exe, "-test.run=^TestSpoolSurvivesKill$")
		cmd.Env = append(os.Environ(), "WEBHOOK_SPOOL_CHILD="+dir, "WEBHOOK_SPOOL_ROUND="+strconv.Itoa(round))
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		var text []byte
		buf := make([]byte, 1<<16)
		for bytes.Count(text, []byte("\n")) < 200 {
			n, err := out.Read(buf)
			text = append(text, buf[:n]...)
			if err != nil {
				break
			}
		}
		_ = cmd.Process.Kill() // SIGKILL
		for {
			n, err := out.Read(buf)
			text = append(text, buf[:n]...)
			if err != nil {
				break
			}
		}
		_ = cmd.Wait()
		for l := range strings.Lines(string(text)) {
			if id, ok := strings.CutPrefix(l, "ack "); ok && strings.HasSuffix(l, "\n") {
				acked[strings.TrimSpace(id)] = true
			}
		}
	}
	if len(acked) < 300 {
		t.Fatalf("only %d were acknowledged", len(acked))
	}
	q := &fakeQueue{}
	s := openSpool(t, dir, q, nil)
	eventually(t, "empty", func() bool { return s.Len() == 0 })
	there := map[string]bool{}
	for _, j := range q.all() {
		there[j.ID] = true
	}
	for id := range acked {
		if !there[id] {
			t.Errorf("%s was acknowledged and is lost", id)
		}
	}
}

// spoolChild writes until it is killed, and says what is acknowledged.
func spoolChild(dir string) {
	s, err := OpenSpool(SpoolConfig{Dir: dir, Queue: &fakeQueue{err: queue.ErrUnavailable}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		fmt.Println(err)
		os.Exit(3)
	}
	var out sync.Mutex
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := range 1_000_000 {
				j := spoolJob(i)
				j.ID = fmt.Sprintf("r%s-w%d-%d", os.Getenv("WEBHOOK_SPOOL_ROUND"), w, i)
				if s.add("stripe", j) == nil {
					out.Lock()
					fmt.Println("ack " + j.ID)
					out.Unlock()
				}
			}
		})
	}
	wg.Wait()
}

// Many at once share an fsync, and a replay beside them loses nothing.
func TestSpoolConcurrent(t *testing.T) {
	q := &fakeQueue{}
	s := openSpool(t, t.TempDir(), q, func(c *SpoolConfig) { c.MaxBytes = minSpoolBytes * 8 })
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := range 50 {
				j := spoolJob(i)
				j.ID = fmt.Sprintf("w%d-%d", w, i)
				if err := s.add("stripe", j); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	eventually(t, "empty", func() bool { return s.Len() == 0 })
	got := q.all()
	if len(got) != 400 {
		t.Fatalf("%d of 400", len(got))
	}
	next := map[string]int{}
	for _, j := range got {
		w, n, _ := strings.Cut(j.ID, "-")
		if n != strconv.Itoa(next[w]) {
			t.Fatalf("%s out of order, want %d", j.ID, next[w])
		}
		next[w]++
	}
}

func FuzzDecodeRecord(f *testing.F) {
	good, _ := encodeRecord("w", spoolJob(3), time.Now())
	f.Add(good)
	f.Add([]byte{})
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1})
	f.Fuzz(func(t *testing.T, b []byte) { _, _, _ = decodeRecord(b) })
}

func BenchmarkSpoolAdd(b *testing.B) {
	s := openSpool(b, b.TempDir(), &fakeQueue{err: queue.ErrUnavailable}, func(c *SpoolConfig) { c.MaxBytes = 4 << 30 })
	j := spoolJob(1)
	j.Body = bytes.Repeat([]byte("x"), 1000)
	b.SetParallelism(32)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if err := s.add("w", j); err != nil {
				b.Fatal(err)
			}
		}
	})
}
