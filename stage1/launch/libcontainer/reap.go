package libcontainer

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/stage1/launch/cell"
)

// The library's child forks twice, as siblings, before it is in the pod's
// namespaces. It names its stages so.
const stageOne = "runc:[1:CHILD]"

// reap takes the zombies that a failed start of the library left: a program
// that ends after a failure need not care, but here they would stay as long as
// the supervisor, and one in the pod's pid namespace would keep pod init from
// dying. Of the stages only the first is safe to take by its name, as other
// starts run meanwhile and the library doesn't need that one's status; any
// other is taken only if it is in the failed start's own cgroup.
func reap(l cell.Leaf) {
	self := os.Getpid()
	dirs, _ := filepath.Glob("/proc/[1-9]*")
	for _, dir := range dirs {
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			continue
		}
		comm, parent, zombie := statOf(dir)
		if parent != self || !zombie || comm != stageOne && !inLeaf(dir, l) {
			continue
		}
		_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil)
	}
}

func statOf(dir string) (comm string, parent int, zombie bool) {
	data, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return "", 0, false
	}
	open, end := bytes.IndexByte(data, '('), bytes.LastIndexByte(data, ')')
	if open < 0 || end < open {
		return "", 0, false
	}
	f := strings.Fields(string(data[end+1:]))
	if len(f) < 2 {
		return "", 0, false
	}
	parent, _ = strconv.Atoi(f[1])
	return string(data[open+1 : end]), parent, f[0] == "Z"
}

func inLeaf(dir string, l cell.Leaf) bool {
	data, err := os.ReadFile(filepath.Join(dir, "cgroup"))
	if err != nil || l.Unified() == "" {
		return false
	}
	for line := range strings.Lines(string(data)) {
		if rel, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
			rel = strings.TrimSuffix(rel, " (deleted)")
			return rel != "/" && strings.HasSuffix(l.Unified(), rel)
		}
	}
	return false
}
