package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// namespaces tries to get new ones, in which one has rights, and those of
// others.
func namespaces(r *report, _ []string) {
	for name, flag := range map[string]uintptr{
		"user": unix.CLONE_NEWUSER, "mount": unix.CLONE_NEWNS, "pid": unix.CLONE_NEWPID, "net": unix.CLONE_NEWNET,
		"ipc": unix.CLONE_NEWIPC, "uts": unix.CLONE_NEWUTS, "cgroup": unix.CLONE_NEWCGROUP, "user and mount": unix.CLONE_NEWUSER | unix.CLONE_NEWNS,
	} {
		// In a child, which has one thread: a program of several may not change
		// its user namespace anyhow.
		child := exec.Command("/proc/self/exe", "whoami")
		child.SysProcAttr = &syscall.SysProcAttr{Unshareflags: flag}
		r.tried("unshare "+name, child.Run())
		child = exec.Command("/proc/self/exe", "whoami")
		child.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flag}
		r.tried("clone "+name, child.Run())
	}
	_, _, errno := unix.RawSyscall(unix.SYS_CLONE3, 0, 0, 0)
	r.tried("clone3", asError(errno))
	for _, name := range []string{"net", "mnt", "uts", "ipc", "cgroup", "pid"} {
		fd, err := unix.Open("/proc/self/ns/"+name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			r.tried("setns "+name, fmt.Errorf("not even its own can be opened: %w", err))
			continue
		}
		_, _, errno := unix.RawSyscall(unix.SYS_SETNS, uintptr(fd), 0, 0)
		r.tried("setns "+name, asError(errno))
		_ = unix.Close(fd)
	}
}

func asError(errno unix.Errno) error {
	if errno == 0 {
		return nil
	}
	return errno
}

// devices makes nodes of devices that are none of the app's, and opens them.
// Arguments are paths of nodes that are there.
func devices(r *report, args []string) {
	list := []struct {
		name         string
		mode         uint32
		major, minor uint32
	}{
		{"null", unix.S_IFCHR, 1, 3}, // the proof that it can be done
		{"mem", unix.S_IFCHR, 1, 1}, {"kmem", unix.S_IFCHR, 1, 2}, {"port", unix.S_IFCHR, 1, 4}, {"kmsg", unix.S_IFCHR, 1, 11},
		{"tty0", unix.S_IFCHR, 4, 0}, {"console", unix.S_IFCHR, 5, 1}, {"misc fuse", unix.S_IFCHR, 10, 229}, {"kvm", unix.S_IFCHR, 10, 232},
		{"loop-control", unix.S_IFCHR, 10, 237}, {"vhost-net", unix.S_IFCHR, 10, 238}, {"loop0", unix.S_IFBLK, 7, 0}, {"sda", unix.S_IFBLK, 8, 0},
	}
	if text, err := os.ReadFile("/proc/partitions"); err == nil {
		for line := range strings.Lines(string(text)) {
			f := strings.Fields(line)
			if len(f) != 4 {
				continue
			}
			major, err1 := strconv.ParseUint(f[0], 10, 32)
			minor, err2 := strconv.ParseUint(f[1], 10, 32)
			if err1 == nil && err2 == nil {
				list = append(list, struct {
					name         string
					mode         uint32
					major, minor uint32
				}{"disk " + f[3], unix.S_IFBLK, uint32(major), uint32(minor)})
			}
		}
	}
	for _, d := range list {
		const path = "/tmp/node"
		_ = os.Remove(path)
		err := unix.Mknod(path, d.mode|0o666, int(unix.Mkdev(d.major, d.minor)))
		if err == nil {
			err = device(path)
		}
		r.tried(d.name, err)
	}
	for _, path := range args {
		r.tried("node "+path, device(path))
	}
}

// device opens a node: an error that is not of rights means that it might have.
func device(path string) error {
	err := opens(path, unix.O_RDONLY)
	if err != nil && !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.EACCES) {
		return nil
	}
	return err
}

// keyrings looks for keys of others: keyrings:DESCRIPTION of one that there is.
func keyrings(r *report, args []string) {
	for name, ring := range map[string]int{"session": unix.KEY_SPEC_SESSION_KEYRING, "user": unix.KEY_SPEC_USER_KEYRING} {
		_, err := unix.KeyctlSearch(ring, "user", args[0], 0)
		r.tried("search "+name, err)
	}
	_, err := unix.AddKey("user", "escape", []byte("x"), unix.KEY_SPEC_SESSION_KEYRING)
	r.tried("add", err)
	_, err = unix.RequestKey("user", args[0], "", 0)
	r.tried("request", err)
	_, err = unix.KeyctlJoinSessionKeyring("_ses")
	r.tried("join", err)
	_, err = unix.KeyctlInt(unix.KEYCTL_GET_PERSISTENT, -1, unix.KEY_SPEC_PROCESS_KEYRING, 0, 0)
	r.tried("persistent", err)
	data, err := os.ReadFile("/proc/keys")
	if err == nil && !strings.Contains(string(data), args[0]) {
		err = errNone
	}
	r.tried("list", err)
}

// kernel asks the kernel for what is its own.
func kernel(r *report, _ []string) {
	buf := make([]byte, 4096)
	_, err := unix.Klogctl(unix.SYSLOG_ACTION_READ_ALL, buf)
	r.tried("ring buffer", err)
	r.tried("ring buffer's device", opens("/dev/kmsg", unix.O_RDONLY))
	_ = os.Remove("/tmp/kmsg")
	err = unix.Mknod("/tmp/kmsg", unix.S_IFCHR|0o666, int(unix.Mkdev(1, 11)))
	if err == nil {
		err = device("/tmp/kmsg")
	}
	r.tried("ring buffer's device made", err)
	r.tried("ring buffer's file", opens("/proc/kmsg", unix.O_RDONLY))
	r.tried("sysrq", opens("/proc/sysrq-trigger", unix.O_WRONLY))
	r.tried("sysrq's mask", opens("/proc/sys/kernel/sysrq", unix.O_WRONLY))
	r.tried("host name", unix.Sethostname([]byte("escaped")))
	r.tried("clock", unix.ClockSettime(unix.CLOCK_REALTIME, &unix.Timespec{Sec: -1}))
	for name, nr := range map[string]uintptr{
		"bpf": unix.SYS_BPF, "perf": unix.SYS_PERF_EVENT_OPEN, "userfaultfd": unix.SYS_USERFAULTFD, "io_uring": unix.SYS_IO_URING_SETUP,
		"module": unix.SYS_INIT_MODULE, "kexec": unix.SYS_KEXEC_LOAD, "reboot": unix.SYS_REBOOT, "swap": unix.SYS_SWAPON, "accounting": unix.SYS_ACCT,
	} {
		const no = ^uintptr(0)
		_, _, errno := unix.RawSyscall6(nr, no, no, no, no, no, no)
		if errno != unix.EPERM && errno != unix.ENOSYS {
			errno = 0 // it went as far as to look at the arguments
		}
		r.tried(name, asError(errno))
	}
	fd, err := unix.Socket(unix.AF_VSOCK, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		_ = unix.Close(fd)
	}
	r.tried("socket to the hypervisor", err)
}

// calls makes system calls with arguments that no call has a use for, and says
// what came of each: calls:NAME=NUMBER:….
func calls(_ *report, args []string) {
	for _, a := range args {
		name, number, _ := strings.Cut(a, "=")
		nr, err := strconv.ParseUint(number, 10, 32)
		if err != nil {
			fmt.Fprintln(os.Stderr, "escape:", err)
			os.Exit(1)
		}
		const no = ^uintptr(0)
		_, _, errno := unix.RawSyscall6(uintptr(nr), no, no, no, no, no, no)
		say("%s=%d", name, int(errno))
	}
}

// whoami says with what rights it runs.
func whoami(_ *report, _ []string) {
	say("uid=%d euid=%d gid=%d egid=%d", os.Getuid(), os.Geteuid(), os.Getgid(), os.Getegid())
	for _, name := range []string{"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp", "Groups"} {
		say("%s=%s", name, field("self", name))
	}
}
