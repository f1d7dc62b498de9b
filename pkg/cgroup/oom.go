package cgroup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
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

// The kernel announces on v1 that memory has run out before it has chosen a
// process, and a process that it chose gives its memory back after it is gone
// from the kernel's sight.
const (
	oomChoice = time.Second            // bounds the wait for the kill
	oomQuiet  = 20 * time.Millisecond  // no more memory comes back
	oomSettle = 700 * time.Millisecond // bounds the wait for that
	oomTick   = 5 * time.Millisecond
)

// WatchOOM ends the group as a whole, until the context ends, once the kernel
// has killed a process of it because memory ran out in it or above. It works on
// v1 only, where the kernel does not do so itself. readiness is how readily the
// group's processes are killed before those of others, from 0 to 1000: as much
// as they are they get of the CPU meanwhile. One that dies slowly would have
// the kernel take one of another pod besides.
func (g Group) WatchOOM(ctx context.Context, readiness int) error {
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
			full, _ := number(filepath.Join(dir, "memory.usage_in_bytes"))
			slow := g.hurry(readiness)
			if now := g.killsBeyond(ctx, before); now > before {
				before = now
				g.endRest(ctx, full)
			}
			slow()
		}
	}()
	return nil
}

// killsBeyond waits a moment for the counter to rise. The file tells no one
// when it changes.
func (g Group) killsBeyond(ctx context.Context, before uint64) uint64 {
	now := before
	poll(ctx, oomChoice, func() bool {
		now = g.OOM().Kills
		return now > before
	})
	return now
}

// endRest kills what the kernel has left of the group, of which full was in use
// before. Until the memory of the killed one is back the rest stays, frozen: if
// the kernel has to choose again before, it shall be from this group. On a busy
// machine it can take a while before a killed process does anything.
func (g Group) endRest(ctx context.Context, full int64) {
	freeze := filepath.Join(g.unified(), "cgroup.freeze")
	_ = os.WriteFile(freeze, []byte("1"), 0) // at worst it runs a moment longer
	dir, _ := g.v1("memory")
	used, since := int64(-1), time.Now()
	poll(ctx, oomSettle, func() bool {
		n, err := number(filepath.Join(dir, "memory.usage_in_bytes"))
		if err != nil || n != used {
			used, since = n, time.Now()
		}
		return used < full && time.Since(since) >= oomQuiet
	})
	_ = KillPath(g.unified()) // whoever waits for the end of the app's first process kills it again
	_ = os.WriteFile(freeze, []byte("0"), 0)
}

// poll asks again and again, for no longer than the time.
func poll(ctx context.Context, most time.Duration, ok func() bool) {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	tick := time.NewTicker(oomTick)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// mostShares is the largest weight for the CPU on v1.
const mostShares = 262144

// hurry gives the pod of the group's app more of the CPU, and returns what
// undoes it.
func (g Group) hurry(readiness int) (slow func()) {
	pod := g
	pod.rel = filepath.Dir(filepath.Dir(g.rel))
	dir, v1 := pod.v1("cpu")
	shares, err := number(filepath.Join(dir, "cpu.shares"))
	// A class above is to be left far behind: half as ready, a sixteenth.
	x := float64(readiness) / 1000
	want := int64(mostShares * x * x * x * x)
	if !v1 || err != nil || want <= shares {
		return func() {}
	}
	set := func(n int64) { _ = write(dir, "cpu.shares", strconv.FormatInt(n, 10)) } // it would help, no more
	set(want)
	return func() { set(shares) }
}
