package sandbox

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"github.com/moby/sys/capability"
	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/cgroup"
	"github.com/rkt-pods/rkt/pkg/proc"
	"github.com/rkt-pods/rkt/stage1/plan"
)

// HostFacts is what plan.Compile wants to know of this host and process.
func HostFacts() (plan.Host, error) {
	host := plan.Host{Arch: runtime.GOARCH, MachineHosts: exists("/etc/hosts"), ResolvConf: resolvConf()}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return host, fmt.Errorf("facts of the host: %w", err)
	}
	// What is in the bounding set but not permitted can't be given either:
	// the start of an app that wants it fails.
	mask, err := capMask(string(status), "CapBnd:", "CapPrm:")
	if err != nil {
		return host, fmt.Errorf("facts of the host: %w", err)
	}
	for _, c := range capability.ListKnown() {
		if mask&(1<<uint(c)) != 0 {
			host.Bounding = append(host.Bounding, "CAP_"+strings.ToUpper(c.String()))
		}
	}
	effective, err := capMask(string(status), "CapEff:")
	if err != nil {
		return host, fmt.Errorf("facts of the host: %w", err)
	}
	// The kernel asks for both in the host's user namespace.
	host.SysResource = proc.HostUsers() && effective&(1<<uint(capability.CAP_SYS_RESOURCE)) != 0
	host.SysNice = proc.HostUsers() && effective&(1<<uint(capability.CAP_SYS_NICE)) != 0
	groups, err := cgroup.Detect()
	if err != nil {
		return host, err
	}
	host.Hybrid = len(groups.V1) > 0
	host.SELinux = exists("/sys/fs/selinux/enforce")
	enabled, err := os.ReadFile("/sys/module/apparmor/parameters/enabled")
	host.AppArmor = err == nil && strings.TrimSpace(string(enabled)) == "Y"
	if host.Rlimits, err = hardLimits(); err != nil {
		return host, err
	}
	if host.Nice, err = unix.Getpriority(unix.PRIO_PROCESS, 0); err != nil {
		return host, fmt.Errorf("facts of the host: %w", err)
	}
	host.Nice = 20 - host.Nice // the system call knows no negative result
	score, err := os.ReadFile("/proc/self/oom_score_adj")
	if err != nil {
		return host, fmt.Errorf("facts of the host: %w", err)
	}
	host.OOMScoreAdj, err = strconv.Atoi(strings.TrimSpace(string(score)))
	return host, err
}

// hardLimits are this process's own, by the kernel's names.
func hardLimits() (map[string]uint64, error) {
	all := map[string]uint64{}
	for name, n := range proc.Rlimits() {
		var l unix.Rlimit
		if err := unix.Getrlimit(n, &l); err != nil {
			return nil, fmt.Errorf("facts of the host: %s: %w", name, err)
		}
		all[name] = l.Max
	}
	return all, nil
}

func capMask(status string, names ...string) (uint64, error) {
	mask := ^uint64(0)
	for _, name := range names {
		_, rest, ok := strings.Cut(status, "\n"+name)
		if !ok {
			return 0, fmt.Errorf("/proc/self/status: no %s", name)
		}
		line, _, _ := strings.Cut(rest, "\n")
		n, err := strconv.ParseUint(strings.TrimSpace(line), 16, 64)
		if err != nil {
			return 0, fmt.Errorf("/proc/self/status: %s %w", name, err)
		}
		mask &= n
	}
	return mask, nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// resolvConf reads the host's file. That of a resolver of the host's own, which
// pods can't reach, is passed over for the one that it keeps of the servers
// that it asks itself.
func resolvConf() *string {
	for _, path := range []string{"/run/systemd/resolve/resolv.conf", "/etc/resolv.conf"} {
		target, err := filepath.EvalSymlinks("/etc/resolv.conf")
		if err == nil && path != "/etc/resolv.conf" && !strings.HasPrefix(target, "/run/systemd/resolve/") {
			continue
		}
		if data, err := os.ReadFile(path); err == nil {
			return new(string(data))
		}
	}
	return nil
}
