package main

import (
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// unified is where a hybrid host mounts the cgroup hierarchy of version 2
// beside those of version 1. crun refuses such a host.
const unified = "/sys/fs/cgroup/unified"

// hideaway is a set of namespaces. A thread holds it and starts the processes
// that are to live there, so that no further program stands between the clock
// and the command.
type hideaway struct {
	jobs chan job
	done chan struct{}
}

type job struct {
	f    func() error
	done chan error
}

// openHideaway is one without the unified hierarchy; nil if the host has no
// such mount.
func openHideaway() (*hideaway, error) {
	if _, err := os.Stat(unified + "/cgroup.procs"); err != nil {
		return nil, nil // no such mount, nothing to hide
	}
	return newHideaway(hide)
}

// newHideaway makes one: enter takes the calling thread into it.
func newHideaway(enter func() error) (*hideaway, error) {
	h := &hideaway{jobs: make(chan job), done: make(chan struct{})}
	ready := make(chan error)
	go h.serve(enter, ready)
	return h, <-ready
}

func (h *hideaway) serve(enter func() error, ready chan<- error) {
	defer close(h.done)
	// Never unlocked: the thread ends with the goroutine, and its namespaces
	// with the thread.
	runtime.LockOSThread()
	err := enter()
	ready <- err
	if err != nil {
		return
	}
	for j := range h.jobs {
		j.done <- j.f()
	}
}

// hide leaves out the unified hierarchy.
func hide() error {
	if err := ownMounts(); err != nil {
		return err
	}
	if err := unix.Unmount(unified, unix.MNT_DETACH); err != nil {
		return fmt.Errorf("hide: %s: %w", unified, err)
	}
	return nil
}

func ownMounts() error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("unshare the mount namespace: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return fmt.Errorf("make mounts slaves: %w", err)
	}
	return nil
}

// do is a place.
func (h *hideaway) do(f func() error) error {
	j := job{f: f, done: make(chan error)}
	h.jobs <- j
	return <-j.done
}

// place is where to start what can't bear the hierarchy.
func (h *hideaway) place() place {
	if h == nil {
		return nil
	}
	return h.do
}

func (h *hideaway) close() {
	if h != nil {
		close(h.jobs)
		<-h.done
	}
}
