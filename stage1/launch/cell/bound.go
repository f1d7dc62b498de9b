package cell

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/cgroup"
	"github.com/rkt-pods/rkt/pkg/limits"
	"github.com/rkt-pods/rkt/stage1/launch"
)

// limit bounds the app's cgroup before there is a process in it.
func limit(app launch.App) (cgroup.Group, []limits.Result, error) {
	group, err := GroupAt(app.CgroupPath)
	if err != nil {
		return group, nil, err
	}
	results, err := group.Apply(app.Limits)
	if err == nil {
		optional := func(name string) bool { return slices.Contains(app.Optional, name) }
		err = limits.Refuse(results, app.Strict, optional)
	}
	if err == nil {
		err = group.GroupOOM()
	}
	return group, results, err
}

// hold makes sure that the process that is going to be the app is where the
// limits are, and has what v1 does not pass down. It waits to be released.
func (l *Leaf) hold(group *cgroup.Group, pid int, delegate bool) error {
	own := group.Below(MainLeaf)
	if err := own.Holds(pid); err != nil {
		return err
	}
	if delegate {
		// Where the app's view of the tree begins there must be no process, or
		// it could give what it makes there no controllers.
		if err := own.Below(delegated).Enter(pid); err != nil {
			return err
		}
	}
	return own.InheritThrottle()
}

// delegated is the folder of the processes that an app begins with if it may
// make cgroups beside it.
const delegated = "init"

// GroupAt is the cgroup at a path relative to each hierarchy's root.
func GroupAt(path string) (cgroup.Group, error) {
	host, err := cgroup.Detect()
	if err != nil {
		return cgroup.Group{}, err
	}
	return host.Group(path)
}

// watch ends the app once the kernel has killed a process of it for memory,
// where the kernel does not do so itself, until the function is called.
func watch(group *cgroup.Group, ready int) (func(), error) {
	ctx, cancel := context.WithCancel(context.Background())
	if err := group.WatchOOM(ctx, ready); err != nil {
		cancel()
		return nil, err
	}
	return cancel, nil
}

// readiness is by how much the kernel kills the app before what rkt runs
// otherwise, for memory.
func readiness(app launch.App) (int, error) {
	own, err := OOMScoreAdjOf("self")
	if err != nil || app.OOMScoreAdj == nil {
		return 0, err
	}
	return min(max(*app.OOMScoreAdj-max(own, 0), 0), 1000), nil
}

// readBack says what the process has of what is no limit of a cgroup. One that
// has ended already has told that it was started with all of it.
func readBack(pid int, planned []limits.Result) []limits.Result {
	all := slices.Clone(planned)
	for i := range all {
		r := &all[i]
		if r.State != limits.Enforced {
			continue
		}
		var got string
		var ok bool
		switch r.Name {
		case "oom-score-adj":
			if n, err := OOMScoreAdjOf(strconv.Itoa(pid)); err == nil {
				got, ok = strconv.Itoa(n), true
			}
		case "nice":
			if n, err := unix.Getpriority(unix.PRIO_PROCESS, pid); err == nil {
				got, ok = strconv.Itoa(20-n), true
			}
		case "ulimit":
			got, ok = rlimitOf(pid, r.Asked)
		case "no-new-privileges":
			got, ok = noNewPrivs(pid)
		}
		if !ok {
			continue
		}
		if r.Value = got; got != r.Asked {
			r.State, r.Why = limits.Changed, "the program changed it, or the kernel did"
		}
	}
	return all
}

// rlimitOf writes the limit that a text such as nofile=1:2 is about.
func rlimitOf(pid int, text string) (string, bool) {
	name, _, _ := strings.Cut(text, "=")
	number, ok := rlimitNumber(name)
	if !ok {
		return "", false
	}
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/limits")
	if err != nil {
		return "", false
	}
	for line := range strings.Lines(string(data)) {
		if l, ok := parseLimit(line); ok && l.Type == number {
			return fmt.Sprintf("%s=%s:%s", name, LimitText(l.Soft), LimitText(l.Hard)), true
		}
	}
	return "", false
}

// LimitText writes a limit as prlimit(1) does.
func LimitText(n uint64) string {
	if n == unix.RLIM_INFINITY {
		return "unlimited"
	}
	return strconv.FormatUint(n, 10)
}

func noNewPrivs(pid int) (string, bool) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return "", false
	}
	_, rest, ok := strings.Cut(string(data), "\nNoNewPrivs:\t")
	return strconv.FormatBool(strings.HasPrefix(rest, "1")), ok
}
