package plan

// paths fills in what of /proc and /sys is hidden or read-only, and the
// devices. The lists join those of upstream rkt and of the OCI runtimes.
// /sys/fs is not hidden as a whole: the app's cgroup is mounted below it.
func paths(app *App, insecure bool) {
	app.Devices = devices()
	if insecure {
		app.AllDevices = true
		app.Notes = append(app.Notes, "changed: no path is hidden or read-only, all devices are allowed")
		return
	}
	app.MaskedPaths = []string{
		"/proc/acpi", "/proc/asound", "/proc/config.gz", "/proc/interrupts", "/proc/kallsyms",
		"/proc/kcore", "/proc/keys", "/proc/kmem", "/proc/latency_stats", "/proc/mem",
		"/proc/sched_debug", "/proc/scsi", "/proc/timer_list", "/proc/timer_stats",
		"/sys/devices/virtual/powercap", "/sys/firmware", "/sys/fs/bpf", "/sys/fs/ext4", "/sys/fs/fuse",
		"/sys/fs/pstore", "/sys/fs/selinux", "/sys/hypervisor", "/sys/module", "/sys/power",
	}
	app.ReadOnlyPaths = []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}
}

func devices() []Device {
	node := func(path string, major, minor int64) Device {
		return Device{Path: path, HostPath: path, Type: 'c', Major: major, Minor: minor, Mode: 0o666, Access: "rwm"}
	}
	console := node("/dev/console", 1, 3)
	console.HostPath = "/dev/null"
	rule := func(path string, major, minor int64) Device {
		return Device{Path: path, Type: 'c', Major: major, Minor: minor, Access: "rwm", RuleOnly: true}
	}
	return []Device{
		// Not the host's console: the null device by that name, for programs
		// that insist on one. A terminal is mounted over it.
		console,
		node("/dev/null", 1, 3), node("/dev/zero", 1, 5), node("/dev/full", 1, 7),
		node("/dev/random", 1, 8), node("/dev/urandom", 1, 9), node("/dev/tty", 5, 0),
		rule("/dev/ptmx", 5, 2), rule("/dev/pts", 136, -1),
		rule("/dev/net/tun", 10, 200),
	}
}
