package bench

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"strings"
)

// Machine is what the figures were measured on.
type Machine struct {
	CPU   string `json:"cpu"`
	Cores int    `json:"cores"`
	OS    string `json:"os"`
	Go    string `json:"go"`
	Redis string `json:"redis"`
}

func thisMachine(redis string) Machine {
	return Machine{CPU: cpuName(), Cores: runtime.NumCPU(), OS: runtime.GOOS + "/" + runtime.GOARCH, Go: runtime.Version(), Redis: redis}
}

// String is one line.
func (m Machine) String() string {
	return fmt.Sprintf("%d cores (%s), %s, %s, Redis %s", m.Cores, m.CPU, m.OS, m.Go, m.Redis)
}

func cpuName() string {
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return "unknown"
	}
	defer f.Close()
	for in := bufio.NewScanner(f); in.Scan(); {
		if name, value, ok := strings.Cut(in.Text(), ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}
