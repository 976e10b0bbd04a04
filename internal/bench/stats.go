package bench

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// commandStats are how often each Redis command ran, by its name; commands
// that a script calls are counted, too, beside the script itself.
type commandStats map[string]int64

// ownCommands are those of the driver and of connecting; they are not work.
var ownCommands = map[string]bool{
	"info": true, "hello": true, "auth": true, "select": true, "ping": true, "command": true, "flushall": true,
	"client|setinfo": true, "client|setname": true, "client|maint_notifications": true, "config|resetstat": true, "quit": true,
}

func (s *redisServer) commands(ctx context.Context) (commandStats, error) {
	text, err := s.control.Info(ctx, "commandstats").Result()
	if err != nil {
		return nil, fmt.Errorf("INFO commandstats: %w", err)
	}
	return parseCommandStats(text)
}

// parseCommandStats reads lines like "cmdstat_evalsha:calls=3,usec=9,…".
func parseCommandStats(text string) (commandStats, error) {
	stats := commandStats{}
	for line := range strings.Lines(text) {
		name, fields, ok := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "cmdstat_"), ":")
		if !ok || !strings.HasPrefix(line, "cmdstat_") {
			continue
		}
		calls, _, _ := strings.Cut(strings.TrimPrefix(fields, "calls="), ",")
		n, err := strconv.ParseInt(calls, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("INFO commandstats: line %q", line)
		}
		stats[strings.ToLower(name)] = n
	}
	return stats, nil
}

// since returns what ran after before, without the driver's own.
func (c commandStats) since(before commandStats) commandStats {
	diff := commandStats{}
	for name, n := range c {
		if d := n - before[name]; d > 0 && !ownCommands[name] {
			diff[name] = d
		}
	}
	return diff
}

func (c commandStats) total() (sum int64) {
	for _, n := range c {
		sum += n
	}
	return sum
}

// most names the commands that ran most often, with how often per n.
func (c commandStats) most(n float64) string {
	names := slices.SortedFunc(maps.Keys(c), func(a, b string) int { return cmp.Or(cmp.Compare(c[b], c[a]), cmp.Compare(a, b)) })
	var parts []string
	for _, name := range names[:min(12, len(names))] {
		parts = append(parts, fmt.Sprintf("%s %.2f", name, float64(c[name])/n))
	}
	return strings.Join(parts, ", ")
}

// cpu is the time of a core that the server has used.
func (s *redisServer) cpu(ctx context.Context) (time.Duration, error) {
	info, err := s.control.InfoMap(ctx, "cpu").Result()
	if err != nil {
		return 0, fmt.Errorf("INFO cpu: %w", err)
	}
	var sum time.Duration
	for _, name := range []string{"used_cpu_sys", "used_cpu_user"} {
		d, err := time.ParseDuration(info["CPU"][name] + "s")
		if err != nil {
			return 0, fmt.Errorf("INFO cpu: %s: %w", name, err)
		}
		sum += d
	}
	return sum, nil
}
