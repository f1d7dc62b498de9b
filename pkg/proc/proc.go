// Package proc names processes so that a pid that was used again is never
// taken for the process it once was: boot id, pid and start time together.
package proc

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// ID names one process of one boot.
type ID struct {
	BootID string `json:"bootID"`
	PID    int    `json:"pid"`
	Start  uint64 `json:"start"` // field 22 of /proc/<pid>/stat, in clock ticks since boot
}

// BootID returns the kernel's random id of this boot.
var BootID = sync.OnceValue(func() string {
	data, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(data))
})

// Self names this process.
func Self() (ID, error) { return Of(os.Getpid()) }

// Of names the process that has the pid now. The error is fs.ErrNotExist if
// there is none.
func Of(pid int) (ID, error) {
	start, state, err := stat(pid)
	if err != nil {
		return ID{}, err
	}
	if state == 'Z' || state == 'X' {
		return ID{}, fmt.Errorf("process %d: %w", pid, fs.ErrNotExist)
	}
	return ID{BootID: BootID(), PID: pid, Start: start}, nil
}

// Alive says whether the very process still runs; a zombie does not.
func (id ID) Alive() bool {
	now, err := Of(id.PID)
	return err == nil && now == id
}

// Open returns a pidfd of the process, which the caller closes. The identity
// is checked after the descriptor is there, so it can't be another's.
func (id ID) Open() (int, error) {
	fd, err := unix.PidfdOpen(id.PID, 0)
	if err != nil {
		if errors.Is(err, unix.ESRCH) {
			err = fs.ErrNotExist
		}
		return -1, fmt.Errorf("process %d: %w", id.PID, err)
	}
	if !id.Alive() {
		_ = unix.Close(fd)
		return -1, fmt.Errorf("process %d: %w", id.PID, fs.ErrNotExist)
	}
	return fd, nil
}

// Kill sends SIGKILL to the very process; one that is gone is no error.
func (id ID) Kill() error {
	fd, err := id.Open()
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("kill process %d: %w", id.PID, err)
	}
	return nil
}

func stat(pid int) (start uint64, state byte, err error) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		if errors.Is(err, unix.ESRCH) {
			err = fs.ErrNotExist
		}
		return 0, 0, err
	}
	// The command name, in brackets, may hold spaces and brackets itself.
	i := bytes.LastIndexByte(data, ')')
	fields := strings.Fields(string(data[i+1:]))
	if i < 0 || len(fields) < 20 {
		return 0, 0, fmt.Errorf("process %d: stat not understood", pid)
	}
	start, err = strconv.ParseUint(fields[19], 10, 64)
	return start, fields[0][0], err
}
