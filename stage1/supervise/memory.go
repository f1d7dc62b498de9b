package supervise

import (
	"bufio"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// idleAfter is when a pod counts as one that stays: giving memory back costs
// some milliseconds, which a short one had better not spend.
const idleAfter = 2 * time.Second

// trim gives back what the start needed and waiting doesn't: the heap's free
// pages, and the program's own pages, most of which ran once. The kernel keeps
// those in the page cache and maps them again when they are touched.
func trim() error {
	debug.FreeOSMemory()
	exe, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return err
	}
	maps, err := os.Open("/proc/self/smaps")
	if err != nil {
		return err
	}
	defer maps.Close()
	var drop []span
	var s span
	lines := bufio.NewScanner(maps)
	for lines.Scan() {
		f := strings.Fields(lines.Text())
		switch {
		case len(f) == 6 && strings.Contains(f[0], "-"):
			s = span{}
			if f[5] == exe && (f[1] == "r--p" || f[1] == "r-xp") {
				if _, err := fmt.Sscanf(f[0], "%x-%x", &s.from, &s.to); err != nil {
					return err
				}
			}
		case len(f) == 5 && strings.Contains(f[0], "-"):
			s = span{}
		// Pages that were written before they became read-only, relocations
		// above all, exist nowhere else.
		case len(f) == 3 && f[0] == "Anonymous:" && f[1] == "0" && s.to > 0:
			drop = append(drop, s)
		}
	}
	if err := lines.Err(); err != nil {
		return err
	}
	for _, s := range drop {
		if err := s.drop(); err != nil {
			return err
		}
	}
	return nil
}

// span is a mapping of this process.
type span struct{ from, to uintptr }

func (s span) drop() error {
	_, _, errno := unix.Syscall(unix.SYS_MADVISE, s.from, s.to-s.from, unix.MADV_DONTNEED)
	if errno != 0 {
		return fmt.Errorf("madvise: %w", errno)
	}
	return nil
}
