// Command probe is confined as rkt-fetch is, tries what a program must not that
// strangers have taken over, and tells what came of it.
package main

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/fetchwire"
	"github.com/rkt-pods/rkt/stage0/transport/confine"
)

func main() {
	conn, err := fetchwire.Inherited()
	if err != nil {
		panic(err)
	}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		panic(err)
	}
	facts := []string{}
	for line := range strings.Lines(string(status)) {
		facts = append(facts, strings.Join(strings.Fields(line), " "))
	}
	// Threads that are there already are confined too.
	var ready, done sync.WaitGroup
	goOn := make(chan struct{})
	results := make([][]string, 4)
	for i := range results {
		ready.Add(1)
		done.Go(func() {
			runtime.LockOSThread()
			ready.Done()
			<-goOn
			results[i] = attempts()
		})
	}
	ready.Wait()
	if _, err := confine.Enter(fetchwire.Mode(os.Args[1])); err != nil {
		panic(err)
	}
	close(goOn)
	done.Wait()
	for _, r := range results {
		if !slices.Equal(r, results[0]) {
			facts = append(facts, fmt.Sprintf("threads differ: %q", r))
		}
	}
	facts = append(facts, results[0]...)
	if err := conn.Send(&fetchwire.Message{Sandbox: &fetchwire.Sandbox{Facts: facts}}); err != nil {
		panic(err)
	}
	// Until rkt hangs up.
	for err == nil {
		_, _, err = conn.Receive()
	}
}

func open(path string, flags int) error {
	fd, err := unix.Open(path, flags, 0o600)
	if err == nil {
		unix.Close(fd)
	}
	return err
}

func socket(family, kind int) error {
	fd, err := unix.Socket(family, kind, 0)
	if err == nil {
		unix.Close(fd)
	}
	return err
}

func call(number uintptr, args ...uintptr) error {
	var a [6]uintptr
	copy(a[:], args)
	_, _, e := unix.Syscall6(number, a[0], a[1], a[2], a[3], a[4], a[5])
	if e != 0 {
		return e
	}
	return nil
}

func attempts() []string {
	var results []string
	try := func(name string, err error) {
		word := "allowed"
		if err != nil {
			word = "refused"
			if errors.Is(err, unix.EFAULT) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) {
				word = err.Error() // reached the kernel
			}
		}
		results = append(results, name+": "+word)
	}
	bin := append([]byte("/bin/true"), 0)
	argv := []uintptr{uintptr(unsafe.Pointer(&bin[0])), 0}
	try("read /etc/hosts", open("/etc/hosts", unix.O_RDONLY))
	try("read /etc/ssl/certs", open("/etc/ssl/certs", unix.O_RDONLY|unix.O_DIRECTORY))
	try("read /etc/passwd", open("/etc/passwd", unix.O_RDONLY))
	try("read /etc/shadow", open("/etc/shadow", unix.O_RDONLY))
	try("read /root", open("/root", unix.O_RDONLY|unix.O_DIRECTORY))
	try("read /proc/self/status", open("/proc/self/status", unix.O_RDONLY))
	try("open path", open("/tmp", unix.O_PATH))
	try("write /tmp", open("/tmp/rkt-probe", unix.O_WRONLY|unix.O_CREAT))
	try("unnamed file", open("/tmp", unix.O_RDWR|unix.O_TMPFILE))
	try("append /dev/null", open("/dev/null", unix.O_APPEND|unix.O_WRONLY))
	try("mkdir", unix.Mkdir("/tmp/rkt-probe", 0o700))
	try("execve", call(unix.SYS_EXECVE, uintptr(unsafe.Pointer(&bin[0])), uintptr(unsafe.Pointer(&argv[0])), 0))
	try("execveat", call(unix.SYS_EXECVEAT, 0, uintptr(unsafe.Pointer(&bin[0])), uintptr(unsafe.Pointer(&argv[0])), 0, 0))
	try("fork", call(unix.SYS_CLONE, uintptr(unix.SIGCHLD)))
	try("clone3", call(unix.SYS_CLONE3, 0, 0))
	try("tcp socket", socket(unix.AF_INET, unix.SOCK_STREAM))
	try("udp socket", socket(unix.AF_INET6, unix.SOCK_DGRAM))
	try("raw socket", socket(unix.AF_INET, unix.SOCK_RAW))
	try("packet socket", socket(unix.AF_PACKET, unix.SOCK_DGRAM))
	try("unix socket", socket(unix.AF_UNIX, unix.SOCK_STREAM))
	try("netlink socket", socket(unix.AF_NETLINK, unix.SOCK_RAW))
	try("vsock", socket(unix.AF_VSOCK, unix.SOCK_STREAM))
	try("listen", unix.Listen(3, 1))
	try("ptrace", call(unix.SYS_PTRACE, unix.PTRACE_TRACEME))
	try("setuid", call(unix.SYS_SETUID, 0))
	try("kill", unix.Kill(os.Getppid(), 0))
	try("tgkill", unix.Tgkill(1, 1, 0))
	try("mount", unix.Mount("none", "/tmp", "tmpfs", 0, ""))
	try("unshare", unix.Unshare(unix.CLONE_NEWUSER))
	try("memfd", call(unix.SYS_MEMFD_CREATE, uintptr(unsafe.Pointer(&bin[0])), 0))
	try("bpf", call(unix.SYS_BPF, 0, 0, 0))
	try("io_uring", call(unix.SYS_IO_URING_SETUP, 1, 0))
	try("process_vm_readv", call(unix.SYS_PROCESS_VM_READV, uintptr(os.Getppid()), 0, 0, 0, 0, 0))
	try("pidfd_open", call(unix.SYS_PIDFD_OPEN, uintptr(os.Getppid()), 0))
	try("ioctl", call(unix.SYS_IOCTL, 0, unix.TIOCSTI, uintptr(unsafe.Pointer(&bin[0]))))
	try("executable memory", func() error {
		_, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_EXEC, unix.MAP_ANON|unix.MAP_PRIVATE)
		return err
	}())
	try("more files", unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 1 << 16, Max: 1 << 16}))
	try("dumpable", unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0))
	return results
}
