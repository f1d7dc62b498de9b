package libcontainer

import (
	"fmt"
	"os"
	"runtime"

	rlc "github.com/opencontainers/runc/libcontainer"
	_ "github.com/opencontainers/runc/libcontainer/nsenter" // joins the namespaces before Go starts
	"golang.org/x/sys/unix"
)

const (
	statusFD   = 3      // the first of rlc.Process.ExtraFiles
	initArg    = "init" // how the library calls this program
	consoleEnv = "_LIBCONTAINER_CONSOLE"
)

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

	// A nameless session keyring, which nobody else can join by its name.
	_, _, errno := unix.Syscall(unix.SYS_KEYCTL, unix.KEYCTL_JOIN_SESSION_KEYRING, 0, 0)
	if errno != 0 && errno != unix.ENOSYS {
		fmt.Fprintf(status, "session keyring: %v\n", errno)
		os.Exit(255) //nolint:forbidigo // nobody called this process: it was to become the app
	}
	rlc.Init()
}
