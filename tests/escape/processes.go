package main

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// stopping is closed once the app is asked to stop.
func stopping() <-chan os.Signal {
	c := make(chan os.Signal, 1)
	signal.Notify(c, unix.SIGTERM)
	return c
}

// processes looks at the pod's first process, and for any of the host's:
// processes:SUPERVISOR, by its number on the host.
func processes(r *report, args []string) {
	reach(r, 1)
	r.tried("kill 1", stillThere(1, unix.Kill(1, unix.SIGKILL)))
	var strangers []string
	for _, pid := range pids() {
		if pid != 1 && pid != os.Getpid() {
			strangers = append(strangers, fmt.Sprint(pid, " ", comm(pid)))
		}
	}
	r.found("strangers", strangers)
	var parents []string
	if n := os.Getppid(); n != 0 {
		parents = append(parents, fmt.Sprint(n))
	}
	r.found("parent", parents)
	fd, err := unix.Open("/proc/self/ns/pid", unix.O_RDONLY, 0)
	if err == nil {
		_, err = unix.IoctlRetInt(fd, unix.NS_GET_PARENT)
	}
	r.tried("parent namespace", err)
	for _, arg := range args {
		pid, _ := strconv.Atoi(arg)
		_, err := os.Stat("/proc/" + arg)
		r.tried("supervisor's folder", err)
		r.tried("supervisor's signal", unix.Kill(pid, 0))
		_, err = unix.PidfdOpen(pid, 0)
		r.tried("supervisor's pidfd", err)
	}
}

// stillThere is an error if the process lives although it was killed.
func stillThere(pid int, err error) error {
	if err != nil {
		return err
	}
	time.Sleep(100 * time.Millisecond)
	if _, err := os.Stat("/proc/" + strconv.Itoa(pid)); err != nil {
		return nil
	}
	return fmt.Errorf("it lives on")
}

// trace tries to get hold of another process: trace:NAME, by its command.
func trace(r *report, args []string) {
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		for _, pid := range pids() {
			if pid > 1 && pid != os.Getpid() && comm(pid) == args[0] {
				reach(r, pid)
				r.tried("signal", unix.Kill(pid, unix.SIGCONT))
				return
			}
		}
	}
	r.tried("find "+args[0], errNone)
}

// reach tries all that a tracer may.
func reach(r *report, pid int) {
	dir := "/proc/" + strconv.Itoa(pid) + "/"
	_, err := os.Readlink(dir + "exe")
	r.tried(dir+"exe", err)
	_, err = os.Readlink(dir + "fd/0")
	r.tried(dir+"fd/0", err)
	r.tried("open "+dir+"fd/1", opens(dir+"fd/1", unix.O_WRONLY))
	for _, name := range []string{"root", "cwd", "map_files", "root/etc"} {
		list, err := os.ReadDir(dir + name)
		if err == nil && len(list) == 0 {
			err = errNone
		}
		r.tried(dir+name, err, fmt.Sprint(len(list), " entries"))
	}
	for _, name := range []string{"environ", "maps", "stack", "syscall", "auxv"} {
		data, err := os.ReadFile(dir + name)
		if err == nil && len(data) == 0 {
			err = errNone
		}
		r.tried(dir+name, err)
	}
	r.tried(dir+"mem", opens(dir+"mem", unix.O_RDWR))
	for _, name := range []string{"net", "mnt", "pid", "user", "uts"} {
		_, err := os.Readlink(dir + "ns/" + name)
		r.tried(dir+"ns/"+name, err)
	}
	err = unix.PtraceSeize(pid)
	r.tried("ptrace "+dir, err)
	if err == nil {
		release(pid)
	}
	word := make([]byte, 8)
	local := []unix.Iovec{{Base: &word[0], Len: 8}}
	_, err = unix.ProcessVMReadv(pid, local, []unix.RemoteIovec{{Base: uintptr(unsafe.Pointer(&word[0])), Len: 8}}, 0)
	if errors.Is(err, unix.EFAULT) {
		err = nil // allowed, and nothing there
	}
	r.tried("process_vm_readv "+dir, err)
	r.tried("pidfd_getfd "+dir, getfd(pid))
}

// release lets a traced process go, which has to be stopped for it.
func release(pid int) {
	if unix.PtraceInterrupt(pid) == nil {
		var status unix.WaitStatus
		_, _ = unix.Wait4(pid, &status, unix.WALL, nil)
	}
	_ = unix.PtraceDetach(pid)
}

func getfd(pid int) error {
	pidfd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return err
	}
	defer unix.Close(pidfd)
	err = errNone
	for n := range 8 {
		var fd int
		if fd, err = unix.PidfdGetfd(pidfd, n, 0); err == nil {
			_ = unix.Close(fd)
			return nil
		}
		if err == unix.EBADF {
			return nil // allowed, and nothing there
		}
	}
	return err
}

func pids() []int {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	var list []int
	for _, name := range names {
		if n, err := strconv.Atoi(name); err == nil {
			list = append(list, n)
		}
	}
	return list
}

func comm(pid int) string {
	data, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/comm")
	return strings.TrimSpace(string(data))
}

// permitted are a process's capabilities, 0 if it is gone.
func permitted(pid string) uint64 {
	n, _ := strconv.ParseUint(field(pid, "CapPrm"), 16, 64)
	return n
}

func field(pid, name string) string {
	data, _ := os.ReadFile("/proc/" + pid + "/status")
	for line := range strings.Lines(string(data)) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// hunter is after processes that somebody sends into the pod, for the moment at
// which they have more rights than it has.
type hunter struct {
	own             uint64
	root            string
	traced          map[int]bool
	got             map[string]string
	seen            map[int]bool
	exes, sent, tap int
}

// hunt goes on until it is ended, and then says what it got.
func hunt(r *report, _ []string) {
	h := &hunter{own: permitted("self"), root: place("/"), traced: map[int]bool{}, got: map[string]string{}, seen: map[int]bool{}}
	stopped := stopping()
	say("hunting")
	for {
		select {
		case <-stopped:
			for _, what := range []string{"program", "root", "cwd", "descriptor", "memory", "ptrace", "pidfd_getfd"} {
				err := errNone
				if h.got[what] != "" {
					err = nil
				}
				r.tried(what, err, h.got[what])
			}
			say("seen=%d exes=%d sent=%d traced=%d", len(h.seen), h.exes, h.sent, h.tap)
			return
		default:
		}
		for _, pid := range pids() {
			if pid > 1 && pid != os.Getpid() {
				h.seen[pid] = true
				h.look(pid)
			}
		}
	}
}

func (h *hunter) look(pid int) {
	dir := "/proc/" + strconv.Itoa(pid) + "/"
	h.program(dir)
	for _, what := range []string{"root", "cwd"} {
		if fd, err := unix.Open(dir+what, unix.O_PATH|unix.O_CLOEXEC, 0); err == nil {
			if at := place("/proc/self/fd/" + strconv.Itoa(fd)); what == "root" && at != h.root {
				h.got[what] = at
			}
			if to, _ := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd)); !strings.HasPrefix(to, "/") {
				h.got[what] = to
			}
			_ = unix.Close(fd)
		}
	}
	h.descriptors(dir)
	if opens(dir+"mem", unix.O_RDWR) == nil {
		h.more("memory", pid)
	}
	if !h.traced[pid] && unix.PtraceSeize(pid) == nil {
		h.traced[pid] = true
		h.tap++
		h.more("ptrace", pid)
		release(pid)
	}
	if pidfd, err := unix.PidfdOpen(pid, 0); err == nil {
		if fd, err := unix.PidfdGetfd(pidfd, 3, 0); err == nil {
			h.got["pidfd_getfd"], _ = os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
			_ = unix.Close(fd)
		}
		_ = unix.Close(pidfd)
	}
}

// more notes that a process could be reached which has rights that the hunter
// lacks: rights are only ever given up, so that it had them before.
func (h *hunter) more(what string, pid int) {
	if caps := permitted(strconv.Itoa(pid)); caps&^h.own != 0 {
		h.got[what] = fmt.Sprintf("%s with %#x", comm(pid), caps)
	}
}

// program opens what the process executes, and that once more for writing.
func (h *hunter) program(dir string) {
	fd, err := unix.Open(dir+"exe", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	h.exes++
	self := "/proc/self/fd/" + strconv.Itoa(fd)
	name, _ := os.Readlink(self)
	if name == "/escape" || name == "/bin/busybox" {
		return // the image's own
	}
	h.sent++
	if w, err := unix.Open(self, unix.O_WRONLY|unix.O_CLOEXEC, 0); err == nil {
		_, err = unix.Pwrite(w, []byte{0}, 0)
		_ = unix.Close(w)
		if err == nil {
			h.got["program"] = name
		}
	}
}

func (h *hunter) descriptors(dir string) {
	d, err := os.Open(dir + "fd")
	if err != nil {
		return
	}
	defer d.Close()
	names, _ := d.Readdirnames(-1)
	for _, name := range names {
		link, err := os.Readlink(dir + "fd/" + name)
		if err != nil {
			continue
		}
		switch kind, _, _ := strings.Cut(link, ":"); {
		case kind == "pipe" || kind == "anon_inode" || strings.HasPrefix(link, "/proc/"):
		case strings.HasPrefix(link, "/") && place(link) == place(dir+"fd/"+name): // the pod's own
		case place(dir+"fd/"+name) == unix.ENOENT.Error(): // closed meanwhile
		default:
			h.got["descriptor"] = name + "=" + link
		}
	}
}
