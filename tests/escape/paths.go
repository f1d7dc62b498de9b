package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// writable are files by which one who may write to them rules the host.
var writable = []string{
	"/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sys/kernel/hotplug", "/proc/sys/kernel/poweroff_cmd",
	"/proc/sys/kernel/sysrq", "/proc/sysrq-trigger", "/proc/sys/vm/panic_on_oom", "/proc/sys/kernel/panic",
	"/proc/sys/kernel/unprivileged_bpf_disabled", "/proc/sys/kernel/pid_max", "/proc/sys/fs/binfmt_misc/register",
	"/proc/sys/vm/drop_caches", "/proc/irq/default_smp_affinity", "/proc/kcore", "/proc/kmem", "/proc/mem",
	"/sys/kernel/uevent_helper", "/sys/kernel/mm/transparent_hugepage/enabled", "/sys/power/state", "/sys/module/kernel/parameters/crash_kexec_post_notifiers",
	"/sys/devices/system/cpu/cpu0/uevent", "/sys/block/loop0/uevent",
}

// write opens them, also by other names for the same place.
func write(r *report, _ []string) {
	for _, path := range writable {
		for _, prefix := range []string{"", "/proc/self/root", "/proc/thread-self/root", "/proc/self/cwd/../../.."} {
			r.tried(prefix+path, opens(prefix+path, unix.O_WRONLY), "open for writing")
		}
	}
}

func opens(path string, flags int) error {
	fd, err := unix.Open(path, flags|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if unix.Fstat(fd, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev == unix.Mkdev(1, 3) && path != "/tmp/node" {
		return errNull
	}
	return nil
}

// errNull says that a path is hidden by the null device.
var errNull = fmt.Errorf("it is the null device")

// read looks for what of the kernel's is hidden.
func read(r *report, _ []string) {
	for _, path := range []string{
		"/proc/kcore", "/proc/kallsyms", "/proc/keys", "/proc/config.gz", "/proc/interrupts", "/proc/latency_stats",
		"/proc/sched_debug", "/proc/timer_list", "/proc/timer_stats", "/proc/kmsg",
	} {
		data := make([]byte, 16)
		f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
		if err == nil {
			var n int
			n, err = f.Read(data)
			data = data[:n]
			f.Close()
		}
		r.tried(path, err, fmt.Sprintf("%q", data))
		var st unix.Stat_t
		if unix.Stat(path, &st) != nil || st.Rdev != unix.Mkdev(1, 3) {
			continue // it would be changed for the whole host
		}
		// What hides it may be the host's: then that would be changed, to what it
		// is already.
		r.tried("mode of "+path, os.Chmod(path, 0o666))
		r.tried("owner of "+path, os.Chown(path, 0, 0))
		r.tried("time of "+path, os.Chtimes(path, time.Time{}, time.Now()))
	}
	for _, dir := range []string{
		"/proc/acpi", "/proc/asound", "/proc/scsi", "/sys/firmware", "/sys/fs/bpf", "/sys/fs/ext4", "/sys/fs/fuse", "/sys/fs/pstore",
		"/sys/fs/selinux", "/sys/hypervisor", "/sys/module", "/sys/power", "/sys/devices/virtual/powercap",
	} {
		list, err := os.ReadDir(dir)
		if err == nil && len(list) == 0 {
			err = errNone
		}
		r.tried(dir, err, fmt.Sprint(len(list), " entries"))
	}
}

// mounts tries to take away what hides and protects, and to get a new view.
func mounts(r *report, _ []string) {
	for _, path := range []string{"/proc/kcore", "/proc/sys", "/proc/sysrq-trigger", "/sys/firmware", "/proc", "/sys/fs/cgroup"} {
		r.tried("unmount "+path, unix.Unmount(path, unix.MNT_DETACH))
		r.tried("remount "+path, unix.Mount("", path, "", unix.MS_REMOUNT|unix.MS_BIND, ""))
		_ = os.MkdirAll("/tmp/over", 0o755)
		r.tried("bind "+path, unix.Mount(path, "/tmp/over", "", unix.MS_BIND|unix.MS_REC, ""))
		r.tried("cover "+path, unix.Mount("/tmp", path, "", unix.MS_BIND, ""))
		r.tried("remove "+path, os.Remove(path))
		r.tried("rename "+path, os.Rename(path, path+".old"))
	}
	for _, fs := range []string{"proc", "sysfs", "tmpfs", "cgroup2", "debugfs", "bpf", "overlay"} {
		r.tried("mount "+fs, unix.Mount(fs, "/tmp/over", fs, 0, ""))
		fd, err := unix.Fsopen(fs, 0)
		if err == nil {
			_ = unix.Close(fd)
		}
		r.tried("fsopen "+fs, err)
	}
	_, err := unix.OpenTree(unix.AT_FDCWD, "/", unix.OPEN_TREE_CLONE)
	r.tried("open_tree", err)
	r.tried("mount_setattr", unix.MountSetattr(unix.AT_FDCWD, "/proc/sys", 0, &unix.MountAttr{Attr_clr: unix.MOUNT_ATTR_RDONLY}))
	r.tried("pivot_root", unix.PivotRoot("/tmp", "/tmp"))
	r.tried("propagation", unix.Mount("", "/", "", unix.MS_SHARED|unix.MS_REC, ""))
	r.tried("root by handle", byHandle())
	r.tried("root by chroot", byChroot())
}

// byHandle opens a folder by its number on the file system, the root of which
// has number 2 on most, wherever that is mounted.
func byHandle() error {
	for _, path := range []string{"/", "/etc/hosts", "/etc/resolv.conf", "/v"} {
		own, _, err := unix.NameToHandleAt(unix.AT_FDCWD, path, 0)
		if err != nil {
			continue
		}
		fd, err := unix.Open(path, unix.O_RDONLY, 0)
		if err != nil {
			continue
		}
		for _, h := range []unix.FileHandle{own, unix.NewFileHandle(1, []byte{2, 0, 0, 0, 0, 0, 0, 0}), unix.NewFileHandle(0x81, []byte{128, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0})} {
			got, err := unix.OpenByHandleAt(fd, h, unix.O_RDONLY)
			if err == nil {
				_ = unix.Close(got)
				return nil
			}
			if err != unix.EPERM {
				return fmt.Errorf("not by a right that it lacks: %w", err)
			}
		}
		_ = unix.Close(fd)
	}
	return unix.EPERM
}

// byChroot goes out as one does who stays outside of a new root with his
// working folder.
func byChroot() error {
	before := place("/")
	if err := os.MkdirAll("/tmp/inner", 0o755); err != nil {
		return err
	}
	if err := unix.Chroot("/tmp/inner"); err != nil {
		return err
	}
	for range 64 {
		if err := unix.Chdir(".."); err != nil {
			return err
		}
	}
	if err := unix.Chroot("."); err != nil {
		return err
	}
	if at := place("/"); at != before {
		return nil
	}
	return fmt.Errorf("no further than the root")
}

// place tells a folder from any other.
func place(path string) string {
	var st unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, path, 0, unix.STATX_INO|unix.STATX_MNT_ID, &st); err != nil {
		return err.Error()
	}
	return fmt.Sprint(st.Dev_major, ":", st.Dev_minor, " ", st.Ino, " ", st.Mnt_id)
}

// descriptors looks for what the app was not meant to get.
func descriptors(r *report, _ []string) {
	var leaked []string
	dir, err := os.Open("/proc/self/fd")
	if err != nil {
		r.tried("list", err)
		return
	}
	names, _ := dir.Readdirnames(-1)
	for _, name := range names {
		link, err := os.Readlink("/proc/self/fd/" + name)
		if err != nil || name == fmt.Sprint(dir.Fd()) {
			continue
		}
		switch {
		case strings.HasPrefix(link, "anon_inode:[event"), strings.HasPrefix(link, "/sys/fs/cgroup/"): // the Go runtime's own
		case (name == "0" || name == "1" || name == "2") && (strings.HasPrefix(link, "pipe:") || link == "/dev/null" && place(link) == place("/proc/self/fd/"+name)):
		default:
			leaked = append(leaked, name+"="+link)
		}
	}
	dir.Close()
	r.found("leaked", leaked)
	var outside []string
	if cwd, err := os.Readlink("/proc/self/cwd"); err != nil || !strings.HasPrefix(cwd, "/") || place(cwd) != place(".") {
		outside = append(outside, cwd)
	}
	r.found("working folder", outside)
}

// cgroups tries to get at what bounds the app, and at the release agent.
func cgroups(r *report, _ []string) {
	const root = "/sys/fs/cgroup"
	tried := map[string]error{}
	_ = filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		if d.IsDir() {
			err := os.Mkdir(path+"/escape", 0o755)
			if err == nil {
				_ = os.Remove(path + "/escape")
			}
			note(tried, "mkdir", err)
			return nil
		}
		switch d.Name() {
		case "devices.allow": // to open it takes no right, to write does
			note(tried, d.Name(), os.WriteFile(path, []byte("c 1:11 r"), 0))
		case "release_agent", "notify_on_release", "cgroup.procs", "tasks", "cgroup.subtree_control", "memory.max", "memory.limit_in_bytes", "pids.max":
			note(tried, d.Name(), opens(path, unix.O_WRONLY))
		}
		return nil
	})
	note(tried, "release_agent", unix.ENOENT)
	for what, err := range tried {
		r.tried(what, err)
	}
	_ = os.MkdirAll("/tmp/cg", 0o755)
	for _, data := range []string{"memory", "rdma", "name=escape", "none,name=systemd"} {
		r.tried("mount "+data, unix.Mount("cgroup", "/tmp/cg", "cgroup", 0, data))
	}
	var above []string
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		above = append(above, err.Error())
	}
	for line := range strings.Lines(string(text)) {
		// In a delegated tree it is in a part of its own.
		if parts := strings.SplitN(strings.TrimSpace(line), ":", 3); len(parts) != 3 || parts[2] != "/" && parts[2] != "/init" {
			above = append(above, line)
		}
	}
	r.found("place above", above)
}

// note keeps that something worked at one place, whatever it did at others.
func note(tried map[string]error, what string, err error) {
	if before, ok := tried[what]; !ok || before != nil {
		tried[what] = err
	}
}

// flip exchanges a folder with a symlink, as fast as it can, until it is ended:
// flip:FOLDER:NAME:WHERE THE LINK LEADS.
func flip(_ *report, args []string) {
	dir, name, to := args[0], args[1], args[2]
	link := filepath.Join(dir, name+".link")
	if err := os.Symlink(to, link); err != nil {
		fmt.Fprintln(os.Stderr, "escape:", err)
		os.Exit(1)
	}
	stopped := stopping()
	say("flipping")
	n := 0
	for ; ; n++ {
		select {
		case <-stopped:
			say("flips=%d", n)
			return
		default:
			_ = unix.Renameat2(unix.AT_FDCWD, filepath.Join(dir, name), unix.AT_FDCWD, link, unix.RENAME_EXCHANGE)
		}
	}
}
