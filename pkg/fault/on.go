//go:build fault

// Package fault names the steps that change the disk or the kernel, so that
// tests can kill the program, or make a step fail, at any of them. This is the
// test build: RKT_FAULT=<step>[@N]:<KILL|ENOSPC|EIO|…> is obeyed, N counting
// the passes through that step in this process, from 1.
package fault

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Enabled says whether this build obeys RKT_FAULT.
const Enabled = true

var (
	mu    sync.Mutex
	seen  = map[string]int{}
	names = map[string]unix.Errno{
		"ENOSPC": unix.ENOSPC, "EIO": unix.EIO, "EROFS": unix.EROFS, "EMFILE": unix.EMFILE,
		"EACCES": unix.EACCES, "EPERM": unix.EPERM, "EDQUOT": unix.EDQUOT, "ENOMEM": unix.ENOMEM,
	}
)

// Step kills the process or returns an error if RKT_FAULT names this step.
// With RKT_FAULT_TRACE=FILE each step's name is appended to FILE.
func Step(name string) error {
	mu.Lock()
	defer mu.Unlock()
	seen[name]++
	if path := os.Getenv("RKT_FAULT_TRACE"); path != "" {
		if f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600); err == nil {
			fmt.Fprintln(f, name)
			f.Close()
		}
	}
	want, action, ok := strings.Cut(os.Getenv("RKT_FAULT"), ":")
	if !ok {
		return nil
	}
	want, count, nth := strings.Cut(want, "@")
	n := 1
	if nth {
		n, _ = strconv.Atoi(count)
	}
	if want != name || seen[name] != n {
		return nil
	}
	if action == "KILL" {
		_ = unix.Kill(os.Getpid(), unix.SIGKILL)
		select {}
	}
	if errno, ok := names[action]; ok {
		return fmt.Errorf("fault injected at %s: %w", name, errno)
	}
	return fmt.Errorf("fault injected at %s: unknown action %q", name, action)
}
