// Package cell is what every launcher does around a process: its cgroup leaf,
// limits, standard streams, and the words of its errors.
package cell

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rkt-pods/rkt/pkg/cgroup"
	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/fault"
	"github.com/rkt-pods/rkt/stage1/launch"
)

// MainLeaf is the leaf of an app's main process: the v2 hierarchy allows no
// process beside folders with controllers.
const MainLeaf = "main"

// Leaf is the cgroup of one process and what it forks: the same folder in
// every hierarchy.
type Leaf struct {
	paths   map[string]string // by controller; "" is the cgroup2 hierarchy
	unified string
	kills   uint64 // of the OOM killer, before the program ran
}

// NewLeaf is the leaf whose folders these are.
func NewLeaf(paths map[string]string) (Leaf, error) {
	unified := paths[""]
	if unified == "" {
		return Leaf{}, errs.Newf(errs.Unsupported, "cgroup: no cgroup2 hierarchy at /sys/fs/cgroup or /sys/fs/cgroup/unified")
	}
	// libcontainer removes entries from the map it hands out.
	own := make(map[string]string, len(paths))
	for k, v := range paths {
		own[k] = v
	}
	return Leaf{paths: own, unified: unified}, nil
}

// pick returns a file of a v1 controller's folder, or else of the cgroup2 one.
func (l *Leaf) pick(controller, v1, v2 string) string {
	if dir, ok := l.paths[controller]; ok {
		return filepath.Join(dir, v1)
	}
	return filepath.Join(l.unified, v2)
}

// Unified is the folder in the cgroup2 hierarchy, "" if there is no leaf.
func (l *Leaf) Unified() string { return l.unified }

// Baseline makes what the OOM killer has done up to now no doing of the
// program's.
func (l *Leaf) Baseline() { l.kills = l.oomKills() }

// Kill ends what is in the leaf; it does not wait.
func (l *Leaf) Kill() {
	if l.unified != "" {
		_ = cgroup.KillPath(l.unified)
	}
}

// exit is how a process of the leaf ended, with what the leaf has used. The
// group is the app's, nil for what ran beside its main process.
func (l *Leaf) exit(status syscall.WaitStatus, group *cgroup.Group) launch.Exit {
	kills := l.oomKills() - l.kills
	exit := launch.Exit{
		Status: status, OOMKilled: kills > 0, OOMKills: kills, CPU: l.cpu(), MemoryPeak: l.memoryPeak(),
	}
	if group != nil {
		exit.MemoryHits = group.OOM().Hits
	}
	return exit
}

func (l *Leaf) oomKills() uint64 {
	return field(l.pick("memory", "memory.oom_control", "memory.events"), "oom_kill")
}

func (l *Leaf) cpu() time.Duration {
	if dir, ok := l.paths["cpuacct"]; ok {
		return time.Duration(number(filepath.Join(dir, "cpuacct.usage")))
	}
	return time.Duration(field(filepath.Join(l.unified, "cpu.stat"), "usage_usec")) * time.Microsecond
}

func (l *Leaf) memoryPeak() uint64 {
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
func (l *Leaf) remove(timeout time.Duration) error {
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

// ExecPrefix begins the names of leaves beside an app's main one.
const ExecPrefix = "exec-"

const maxExecs = 1 << 16

// FreeLeaf makes exec-<n> in an app's cgroup2 folder, n being the first that
// is free, and returns n and the name.
func FreeLeaf(app string) (int, string, error) {
	for n := range maxExecs {
		if err := fault.Step("launch.leaf"); err != nil {
			return 0, "", err
		}
		name := ExecPrefix + strconv.Itoa(n)
		err := os.Mkdir(filepath.Join(app, name), 0o755)
		if err == nil {
			return n, name, nil
		}
		if !errors.Is(err, fs.ErrExist) {
			return 0, "", err
		}
	}
	return 0, "", errs.Newf(errs.Busy, "cgroup %s: %d processes were started in it and none was cleared away", app, maxExecs)
}
