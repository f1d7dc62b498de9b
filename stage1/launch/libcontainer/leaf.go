package libcontainer

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/rkt-pods/rkt/pkg/cgroup"
	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/fault"
)

// leaf is the cgroup of one process and what it forks: the same folder in
// every hierarchy.
type leaf struct {
	paths   map[string]string // by controller; "" is the cgroup2 hierarchy
	unified string
	kills   uint64 // of the OOM killer, before the program ran
}

func newLeaf(paths map[string]string) (leaf, error) {
	unified := paths[""]
	if unified == "" {
		return leaf{}, errs.Newf(errs.Unsupported, "cgroup: no cgroup2 hierarchy at /sys/fs/cgroup or /sys/fs/cgroup/unified")
	}
	// The library removes entries from the map it hands out.
	own := make(map[string]string, len(paths))
	for k, v := range paths {
		own[k] = v
	}
	return leaf{paths: own, unified: unified}, nil
}

// pick returns a file of a v1 controller's folder, or else of the cgroup2 one.
func (l *leaf) pick(controller, v1, v2 string) string {
	if dir, ok := l.paths[controller]; ok {
		return filepath.Join(dir, v1)
	}
	return filepath.Join(l.unified, v2)
}

func (l *leaf) baseline() { l.kills = l.oomKills() }

func (l *leaf) oomKills() uint64 {
	return field(l.pick("memory", "memory.oom_control", "memory.events"), "oom_kill")
}

func (l *leaf) oomKilled() bool { return l.oomKills() > l.kills }

func (l *leaf) cpu() time.Duration {
	if dir, ok := l.paths["cpuacct"]; ok {
		return time.Duration(number(filepath.Join(dir, "cpuacct.usage")))
	}
	return time.Duration(field(filepath.Join(l.unified, "cpu.stat"), "usage_usec")) * time.Microsecond
}

func (l *leaf) memoryPeak() uint64 {
	return number(l.pick("memory", "memory.max_usage_in_bytes", "memory.peak"))
}

// number reads a file that holds one, 0 if it can't: the kernel may be too old
// for it, or the controller off.
func number(path string) uint64 {
	data, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	n, _ := strconv.ParseUint(strings.TrimSpace(string(data)), 10, 64)
	return n
}

// field reads one value of a file of "key value" lines.
func field(path, key string) uint64 {
	data, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(data)) {
		if k, v, ok := strings.Cut(strings.TrimSpace(line), " "); ok && k == key {
			n, _ := strconv.ParseUint(v, 10, 64)
			return n
		}
	}
	return 0
}

// remove kills what is in the leaf and removes it from every hierarchy, the
// cgroup2 one last: as long as its folder is there, nobody takes the name.
func (l *leaf) remove(timeout time.Duration) error {
	if l.unified == "" {
		return nil
	}
	if err := fault.Step("launch.destroy"); err != nil {
		return err
	}
	if err := cgroup.KillPath(l.unified); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	if err := cgroup.WaitPathEmpty(ctx, l.unified); err != nil {
		return err
	}
	var all error
	for controller, path := range l.paths {
		if controller != "" {
			all = errors.Join(all, removeFolder(path))
		}
	}
	if all != nil {
		return all
	}
	return removeFolder(l.unified)
}

func removeFolder(path string) error {
	err := cgroup.RemovePath(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
