package libcontainer

import (
	"fmt"
	"os"
	"runtime"
	"unsafe"

	rlc "github.com/opencontainers/runc/libcontainer"
	_ "github.com/opencontainers/runc/libcontainer/nsenter" // joins the namespaces before Go starts
	"golang.org/x/sys/unix"
)

const (
	statusFD   = 3      // the first of rlc.Process.ExtraFiles
	initArg    = "init" // how the library calls this program
	consoleEnv = "_LIBCONTAINER_CONSOLE"
)

// The files that os.Stdin, os.Stdout and os.Stderr were. A file that nobody
// names any more is closed by the garbage collector, and with it the app's
// descriptor, or what has got its number by then.
var appsStreams = [...]*os.File{os.Stdin, os.Stdout, os.Stderr}

// InitMain turns this process into the one that becomes an app if it was
// started for that, and does not return then. It is called from an init
// function, on the main thread and before anything else, and keeps the main
// goroutine there.
func InitMain() {
	// Keyrings belong to the thread, and this one will execute the app. In the
	// supervisor the library lets a thread join each app's mount namespace,
	// which ends with its goroutine, unless it is the main one: then
	// /proc/self would show the mounts of an app from then on.
	runtime.LockOSThread()
	if len(os.Args) < 2 || os.Args[1] != initArg || os.Getenv("_LIBCONTAINER_INITPIPE") == "" {
		return
	}
	// The status pipe is all that outlives the library's closing of
	// descriptors before exec. The kernel closes it when, and only when, the
	// app's program has been executed: so the launcher knows a program that
	// could not be from one that ended with 255.
	unix.CloseOnExec(statusFD)
	status := os.NewFile(statusFD, "status")

	// The library writes its last words to os.Stderr, which is the app's, and
	// chowns what the three variables name to the app's user: with `enter`
	// they can be the caller's own files and terminal.
	os.Stdout, os.Stderr = status, status
	if os.Getenv(consoleEnv) == "" {
		os.Stdin = status
	}

	if err := resetSignals(); err != nil {
		fmt.Fprintf(status, "signals: %v\n", err)
		os.Exit(255) //nolint:forbidigo // see below
	}
	// A nameless session keyring, which nobody else can join by its name.
	_, _, errno := unix.Syscall(unix.SYS_KEYCTL, unix.KEYCTL_JOIN_SESSION_KEYRING, 0, 0)
	if errno != 0 && errno != unix.ENOSYS {
		fmt.Fprintf(status, "session keyring: %v\n", errno)
		os.Exit(255) //nolint:forbidigo // nobody called this process: it was to become the app
	}
	rlc.Init()
	runtime.KeepAlive(appsStreams)
}

const (
	sigIgn     = 1  // SIG_IGN
	lastSignal = 64 // SIGRTMAX; 128 on MIPS alone
	sigsetSize = lastSignal / 8
)

// resetSignals undoes what an app would inherit of rkt's caller: execve(2)
// keeps the thread's mask and which signals are ignored. Only SIGHUP stays as
// nohup(1) left it. What the Go runtime handles is back at its default after
// exec; but it leaves alone the signals that it doesn't handle, and some that
// were ignored before it started, and the mask that the process began with is
// that of all its threads.
func resetSignals() error {
	// Not signal.Reset, which restores what was there when the process began.
	// The kernel's struct begins with the handler and is no longer than this.
	var act, deflt [4]uint64
	for sig := uintptr(1); sig <= lastSignal; sig++ {
		if s := unix.Signal(sig); s == unix.SIGHUP || s == unix.SIGKILL || s == unix.SIGSTOP {
			continue
		}
		_, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, sig, 0, uintptr(unsafe.Pointer(&act)), sigsetSize, 0, 0)
		if errno == 0 && uintptr(act[0]) == sigIgn {
			_, _, errno = unix.RawSyscall6(unix.SYS_RT_SIGACTION, sig, uintptr(unsafe.Pointer(&deflt)), 0, sigsetSize, 0, 0)
		}
		if errno != 0 {
			return fmt.Errorf("signal %d: %w", sig, errno)
		}
	}
	return unix.PthreadSigmask(unix.SIG_SETMASK, &unix.Sigset_t{}, nil) // of this thread, which will execute the app
}
