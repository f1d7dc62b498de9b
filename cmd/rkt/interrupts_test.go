package main

import (
	"os"
	"os/signal"
	"syscall"
	"testing"
)

// TestInterruptsNoneLost: a signal that comes right before they are given up is
// known then, however late the context hears of it.
func TestInterruptsNoneLost(t *testing.T) {
	// The process must outlive what comes after the release.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGTERM)
	for range 500 {
		ctx := catchInterrupts(t.Context())
		if released(ctx) {
			t.Fatal("there was none")
		}
		ctx = catchInterrupts(t.Context())
		if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if !released(ctx) {
			t.Fatal("it was lost")
		}
	}
	ctx := catchInterrupts(t.Context())
	if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-ctx.Done()
}
