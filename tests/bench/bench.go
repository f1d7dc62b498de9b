package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/tests/hostcheck"
)

// bench is what all cases share.
type bench struct {
	dir, bin, busybox string
	runDir            string // in memory, where peers keep their state by default
	self              string // this program
	rounds, cpus      int
	out               io.Writer
	meter             *meter
	hidden            *hideaway
	peers             []*peer
	absent            []string // host paths that peers may make
	stores            []string // ids of the stores that rkt has made here
}

// newBench looks at the host, and makes the folder that all files go to.
func newBench(ctx context.Context, o options, out io.Writer) (*bench, error) {
	b := &bench{busybox: o.busybox, rounds: o.rounds, cpus: runtime.NumCPU(), out: out}
	var err error
	if b.bin, err = filepath.Abs(o.bin); err != nil {
		return nil, err
	}
	if b.self, err = os.Executable(); err != nil {
		return nil, err
	}
	for _, path := range peerLeftovers() {
		if !exists(path) {
			b.absent = append(b.absent, path)
		}
	}
	if b.dir, err = os.MkdirTemp(o.dir, "rkt-bench-"); err != nil {
		return nil, err
	}
	if b.runDir, err = os.MkdirTemp("/run", "rkt-bench-"); err != nil {
		return nil, errors.Join(err, b.close())
	}
	if b.meter, err = newMeter(b.path("output")); err != nil {
		return nil, errors.Join(err, b.close())
	}
	if b.hidden, err = openHideaway(); err != nil {
		return nil, errors.Join(err, b.close())
	}
	return b, ctx.Err()
}

func (b *bench) path(name string) string { return filepath.Join(b.dir, name) }

// setUp builds what the cases need and tries the peers.
func (b *bench) setUp(ctx context.Context) error {
	err := errors.Join(
		os.Mkdir(b.path("tmp"), 0o700), os.MkdirAll(b.path("bundle/rootfs"), 0o755), os.Mkdir(b.path("filtered"), 0o755),
	)
	if err != nil {
		return err
	}
	if err := b.generate(ctx, "small"); err != nil {
		return err
	}
	if err := b.meter.quiet(ctx, sh("tar -xf %s -C %s", b.path(smallTar), b.path("bundle/rootfs"))); err != nil {
		return err
	}
	build := sh("CGO_ENABLED=0 go build -trimpath -ldflags '-s -w -buildid=' -o %s ./tests/bench/hello", b.path("hello"))
	if err := b.meter.quiet(ctx, build); err != nil {
		return err
	}
	if err := b.fetchSmall(ctx, "data"); err != nil {
		return err
	}
	if err := b.findPeers(ctx); err != nil {
		return fmt.Errorf("find peers: %w", err)
	}
	return nil
}

// fetchSmall makes a data folder with the small image in it.
func (b *bench) fetchSmall(ctx context.Context, data string) error {
	return b.meter.quiet(ctx, b.rkt(data, "--insecure-options=image", "fetch", b.path(smallACI)))
}

// collectAll removes all pods of a data folder.
func (b *bench) collectAll(ctx context.Context, data string) error {
	return b.meter.quiet(ctx, b.rkt(data, "gc", "--grace-period=0s", "--expire-prepared=0s"))
}

// drop removes a data folder and what its pods hold on the host.
func (b *bench) drop(ctx context.Context, data string) error {
	if !exists(b.path(data)) {
		return nil
	}
	b.noteStores()
	return errors.Join(b.collectAll(ctx, data), os.RemoveAll(b.path(data)))
}

// noteStores remembers the ids of the stores that are there now: whatever
// carries one of them must be gone at the end.
func (b *bench) noteStores() {
	files, err := filepath.Glob(b.path("*/store/id"))
	if err != nil {
		return // only a malformed pattern is an error
	}
	for _, f := range files {
		id, err := os.ReadFile(f)
		if err == nil && !slices.Contains(b.stores, strings.TrimSpace(string(id))) {
			b.stores = append(b.stores, strings.TrimSpace(string(id)))
		}
	}
}

// removeAll removes the pods and containers that cases have left to it.
func (b *bench) removeAll(ctx context.Context) error {
	err := b.collectAll(ctx, "data")
	if p := b.peer("podman"); p.path != "" && p.missing == "" {
		err = errors.Join(err, b.meter.quiet(ctx,
			b.podman("pod", "rm", "--all", "--force", "--time=0"), b.podman("rm", "--all", "--force", "--time=0")))
	}
	return err
}

// close puts the host back as it was, and says what it could not put back.
func (b *bench) close() error {
	var err error
	if b.meter != nil {
		if exists(b.path("data")) {
			err = b.removeAll(context.Background())
		}
		_, orphansErr := reap(nil)
		err = errors.Join(err, orphansErr)
	}
	b.hidden.close()
	b.noteStores()
	err = errors.Join(err, os.RemoveAll(b.dir), os.RemoveAll(b.runDir))
	for _, path := range b.absent {
		err = errors.Join(err, sweep(path))
	}
	left, leftErr := b.left()
	if err = errors.Join(err, leftErr); err != nil {
		return err
	}
	if len(left) > 0 {
		return fmt.Errorf("leave the host as it was: left: %s", strings.Join(left, ", "))
	}
	return nil
}

// left lists what the host has of the bench: its folders, and what carries the
// id of one of its stores. Others may run pods meanwhile. Processes need no
// look: the orphans have all been waited for.
func (b *bench) left() ([]string, error) {
	snapshot, err := hostcheck.Take(b.bin)
	if err != nil {
		return nil, err
	}
	var left []string
	for line := range snapshot {
		if slices.ContainsFunc(append(b.stores, b.dir, b.runDir), func(mark string) bool { return mark != "" && strings.Contains(line, mark) }) {
			left = append(left, line)
		}
	}
	slices.Sort(left)
	return left, nil
}

// sweep removes a path that was not there before: its empty folders, from
// below, and its empty files, which are locks. Whatever has content is someone
// else's meanwhile, but for podman's memory of locks.
func sweep(path string) error {
	var folders []string
	err := filepath.WalkDir(path, func(name string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		if d.IsDir() {
			folders = append(folders, name)
			return nil
		}
		if strings.HasPrefix(path, "/sys/") {
			return nil
		}
		info, err := d.Info()
		if err == nil && (info.Size() == 0 || strings.HasPrefix(path, "/dev/shm/")) {
			err = os.Remove(name)
		}
		return err
	})
	for i := len(folders) - 1; i >= 0; i-- {
		// One with content stays, as said.
		_ = os.Remove(folders[i])
	}
	return err
}

// host describes the machine, and names nothing of it.
func (b *bench) host() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return fmt.Sprintf("%d CPUs", b.cpus)
	}
	release := strings.SplitN(unix.ByteSliceToString(u.Release[:]), "-", 2)[0]
	return fmt.Sprintf("%d CPUs, Linux %s", b.cpus, release)
}

// load is the load average of the last minute.
func load() (float64, error) {
	data, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0, err
	}
	first, _, _ := strings.Cut(string(data), " ")
	return strconv.ParseFloat(first, 64)
}
