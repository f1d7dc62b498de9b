package cgroup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// GroupOOM has the kernel kill the group as a whole once it has to kill one
// process of it: half an app is none. v1 has no such thing, there WatchOOM and
// KillPath do it. Where the controller can't be had, nothing counts its memory.
func (g Group) GroupOOM() error {
	if _, v1 := g.v1("memory"); v1 {
		return nil
	}
	dir, _, err := g.control("memory")
	if err == nil {
		err = write(dir, "memory.oom.group", "1")
	}
	if m := (*missing)(nil); errors.As(err, &m) || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("memory.oom.group: %w", err)
	}
	return nil
}

// OOM is what a group's memory limit has done so far.
type OOM struct {
	Kills uint64 // processes of the group that the kernel killed for memory, for whichever limit
	Hits  uint64 // how often the group's own limit, or one above on v2, was in the way
}

// OOM reads the counters of the group and what is below it.
func (g Group) OOM() OOM {
	dir, v1 := g.v1("memory")
	if !v1 {
		events := fields(filepath.Join(g.unified(), "memory.events"))
		return OOM{Kills: events["oom_kill"], Hits: events["max"]}
	}
	var all OOM
	if n, err := number(filepath.Join(dir, "memory.failcnt")); err == nil && n > 0 {
		all.Hits = uint64(n)
	}
	// v1 counts kills in the folder of the process alone.
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			all.Kills += fields(filepath.Join(path, "memory.oom_control"))["oom_kill"]
		}
		return nil // a folder may go meanwhile
	})
	return all
}

// oomSettle bounds the wait for the kill that v1 announces: the event comes
// when memory has run out, before a process has been chosen.
const oomSettle = time.Second

// WatchOOM calls killed, until the context ends, each time the kernel has
// killed a process of the group because memory ran out in it or above. It
// works on v1 only, where nothing else tells.
func (g Group) WatchOOM(ctx context.Context, killed func()) error {
	dir, v1 := g.v1("memory")
	if !v1 {
		return nil
	}
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return fmt.Errorf("watch memory: %w", err)
	}
	event := os.NewFile(uintptr(fd), "eventfd")
	control, err := os.Open(filepath.Join(dir, "memory.oom_control"))
	if err == nil {
		err = write(dir, "cgroup.event_control", fmt.Sprintf("%d %d", fd, control.Fd()))
		control.Close()
	}
	if err != nil {
		event.Close()
		return fmt.Errorf("watch memory: %w", err)
	}
	before := g.OOM().Kills
	stop := context.AfterFunc(ctx, func() { event.Close() })
	go func() {
		defer stop()
		for {
			if _, err := event.Read(make([]byte, 8)); err != nil {
				return // closed, by the context's end
			}
			if now := g.killsBeyond(ctx, before); now > before {
				before = now
				killed()
			}
		}
	}()
	return nil
}

// killsBeyond waits a moment for the counter to rise. The file tells no one
// when it changes.
func (g Group) killsBeyond(ctx context.Context, before uint64) uint64 {
	ctx, cancel := context.WithTimeout(ctx, oomSettle)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		if now := g.OOM().Kills; now > before {
			return now
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return before
		}
	}
}
