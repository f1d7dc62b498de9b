package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// interrupts are the signals that ask a command to end. Of the two channels
// that get each of them the one wakes up who ends the context; the other is
// read by nobody, so that it tells for sure whether there was one.
type interrupts struct{ wake, came chan os.Signal }

type interruptsKey struct{}

// catchInterrupts returns a context that the first of them ends. A second one
// ends the process wherever it is: in a write to a pipe that nobody reads, for
// example, which no context reaches.
func catchInterrupts(ctx context.Context) context.Context {
	i := &interrupts{make(chan os.Signal, 1), make(chan os.Signal, 1)}
	ctx, cancel := context.WithCancel(context.WithValue(ctx, interruptsKey{}, i))
	for _, c := range []chan os.Signal{i.wake, i.came} {
		signal.Notify(c, os.Interrupt, syscall.SIGTERM)
	}
	go func() {
		<-i.wake
		cancel()
		i.release()
	}()
	return ctx
}

// release lets the kernel end the process at the next one, and says whether one
// has come so far: Stop returns when all that came before have been delivered.
func (i *interrupts) release() bool {
	signal.Stop(i.wake)
	signal.Stop(i.came)
	return len(i.came) > 0
}

// released is release for a context's interrupts.
func released(ctx context.Context) bool {
	i, ok := ctx.Value(interruptsKey{}).(*interrupts)
	return ok && i.release() || ctx.Err() != nil
}
