package main

import (
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestInterruptsNoneLost: a signal that comes right before they are given up is
// known then, however late the context hears of it.
func TestInterruptsNoneLost(t *testing.T) {
	// The process must outlive what comes after the release.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGTERM)
	// A signal to this thread has been taken when the call returns; one to the
	// process may go to another, and come later.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	interrupt := func() {
		if err := unix.Tgkill(os.Getpid(), unix.Gettid(), syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
	}
	for range 500 {
		ctx := catchInterrupts(t.Context())
		if released(ctx) {
			t.Fatal("there was none")
		}
		ctx = catchInterrupts(t.Context())
		interrupt()
		if !released(ctx) {
			t.Fatal("it was lost")
		}
	}
	ctx := catchInterrupts(t.Context())
	interrupt()
	<-ctx.Done()
}
