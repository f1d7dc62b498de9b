package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// process is a line of /proc.
type process struct {
	pid, inner int // inner: its number in its own pid namespace
	comm       string
}

// children lists the processes whose parent is pid.
func children(pid int) []process {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var out []process
	for _, e := range entries {
		n, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		status, err := os.ReadFile(filepath.Join("/proc", e.Name(), "status"))
		if err != nil {
			continue // gone meanwhile
		}
		if p, parent := parseStatus(n, string(status)); parent == pid {
			out = append(out, p)
		}
	}
	return out
}

func parseStatus(pid int, status string) (p process, parent int) {
	p = process{pid: pid, inner: pid}
	for line := range strings.Lines(status) {
		key, value, _ := strings.Cut(line, ":")
		fields := strings.Fields(value)
		if len(fields) == 0 {
			continue
		}
		switch key {
		case "Name":
			p.comm = fields[0]
		case "PPid":
			parent, _ = strconv.Atoi(fields[0])
		case "NSpid":
			p.inner, _ = strconv.Atoi(fields[len(fields)-1])
		}
	}
	return p, parent
}

// pss is the proportional set size of a process.
func pss(pid int) (int64, error) {
	path := fmt.Sprintf("/proc/%d/smaps_rollup", pid)
	data, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(data)) {
		if value, ok := strings.CutPrefix(line, "Pss:"); ok {
			kib, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")), 10, 64)
			return kib << 10, err
		}
	}
	return 0, fmt.Errorf("read memory: %s: no Pss", path)
}
