package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// peer is a program that rkt is compared with.
type peer struct {
	name, path, version string
	missing             string // why it is left out; "" if it is not
	place               place
}

// The programs of the bench, and how each tells its version.
var programs = []struct {
	name, file string
	version    []string
	hidden     bool // it can't bear the unified hierarchy
}{
	{name: "runc", file: "runc", version: []string{"--version"}},
	{name: "crun", file: "crun", version: []string{"--version"}, hidden: true},
	{name: "podman", file: "podman", version: []string{"--version"}, hidden: true}, // it runs crun
	{name: "containerd", file: "containerd", version: []string{"--version"}},       // it pulls only
	{name: "nspawn", file: "systemd-nspawn", version: []string{"--version"}},
}

// findPeers looks for the programs and tries each: one that can't run `true`
// here is left out, with what it said.
func (b *bench) findPeers(ctx context.Context) error {
	for _, p := range programs {
		found := &peer{name: p.name}
		b.peers = append(b.peers, found)
		path, err := exec.LookPath(p.file)
		if err != nil {
			found.missing = "not installed"
			continue
		}
		found.path = path
		if p.hidden {
			found.place = b.hidden.place()
		}
		out, err := exec.CommandContext(ctx, path, p.version...).Output()
		if err != nil {
			found.missing = err.Error()
			continue
		}
		first, _, _ := strings.Cut(string(out), "\n")
		found.version = strings.TrimSpace(first)
	}
	if err := b.bundleConfig(ctx); err != nil {
		return err
	}
	if err := b.podmanConfig(); err != nil {
		return err
	}
	for _, p := range b.peers {
		if p.missing != "" {
			continue
		}
		if err := b.try(ctx, p); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			p.missing = strings.TrimSpace(err.Error())
		}
	}
	return nil
}

// try gets the image to a peer and runs it once.
func (b *bench) try(ctx context.Context, p *peer) error {
	if p.name == "podman" {
		if err := b.meter.quiet(ctx, b.podman("load", "-q", "-i", b.path(smallDocker))); err != nil {
			return err
		}
	}
	if p.name == "containerd" {
		d, err := b.startContainerd(ctx, "try")
		if err == nil {
			_, err = d.stop()
		}
		return err
	}
	return b.meter.quiet(ctx, b.runTrue(p.name, "try"))
}

// peer finds one by name.
func (b *bench) peer(name string) *peer {
	for _, p := range b.peers {
		if p.name == name {
			return p
		}
	}
	return &peer{name: name}
}

// filtered is runc with the system call filter that rkt's apps have: `runc spec`
// asks for none.
const filtered = "runc, filter"

// runTrue is the command that runs `true` in the small image, with no network
// but loopback, in the foreground.
func (b *bench) runTrue(name, id string) command {
	p := b.peer(name)
	c := command{place: p.place}
	switch name {
	case "rkt":
		return b.rkt("data", "run", "--net=none", rktImage)
	case "runc", "crun", filtered:
		bundle := b.path("bundle")
		if name == filtered {
			p, bundle = b.peer("runc"), b.path("filtered")
			c.place = p.place
		}
		c.argv = []string{p.path, "--root", filepath.Join(b.runDir, p.name), "run", "--bundle", bundle, "bench-" + id}
	case "podman":
		return b.podman("run", "--network=none", podmanImage, "/bin/true")
	case "nspawn":
		c.argv = []string{
			p.path, "--quiet", "--directory=" + b.path("bundle/rootfs"), "--machine=rkt-bench-" + id, "--register=no",
			"--keep-unit", "--private-network", "--read-only", "/bin/true",
		}
	}
	return c
}

// rkt is a command line of rkt with a data folder of the bench.
func (b *bench) rkt(data string, args ...string) command {
	return command{argv: append([]string{filepath.Join(b.bin, "rkt"), "--dir=" + b.path(data)}, args...)}
}

// podman is a command line of podman with all its state in the bench's folders.
func (b *bench) podman(args ...string) command { return b.podmanIn("podman", args...) }

// podmanIn is podman with its images in another folder.
func (b *bench) podmanIn(root string, args ...string) command {
	p := b.peer("podman")
	argv := []string{
		p.path, "--root", b.path(root), "--runroot", filepath.Join(b.runDir, root),
		"--tmpdir", filepath.Join(b.runDir, root+".tmp"), "--network-config-dir", b.path(root + ".networks"),
	}
	return command{
		argv: append(argv, args...), place: p.place,
		env: []string{"CONTAINERS_CONF=" + b.path("containers.conf"), "TMPDIR=" + b.path("tmp")},
	}
}

// sh is a line for the shell.
func sh(format string, args ...any) command {
	return command{argv: []string{"/bin/sh", "-c", fmt.Sprintf(format, args...)}}
}

// in is the command, started elsewhere.
func (c command) in(p place) command {
	c.place = p
	return c
}

// line is the command as the shell reads it: no word of the bench has a blank
// or a quote.
func (c command) line() string { return strings.Join(c.argv, " ") }

// currentLimits are what podman's containers get for limits: this process's,
// and not more processes than the kernel has numbers, since podman lowers its
// own limit to that before it starts a container.
func currentLimits() (string, error) {
	var files, processes unix.Rlimit
	err := errors.Join(unix.Getrlimit(unix.RLIMIT_NOFILE, &files), unix.Getrlimit(unix.RLIMIT_NPROC, &processes))
	if err != nil {
		return "", fmt.Errorf("getrlimit: %w", err)
	}
	data, err := os.ReadFile("/proc/sys/kernel/pid_max")
	if err != nil {
		return "", err
	}
	most, err := strconv.ParseUint(strings.TrimSpace(string(data)), 10, 63)
	if err != nil {
		return "", err
	}
	most = min(most, processes.Max)
	return fmt.Sprintf(`"nofile=%d:%d", "nproc=%d:%d"`, files.Max, files.Max, most, most), nil
}

// peerLeftovers lists host paths that peers make and don't remove.
func peerLeftovers() []string {
	paths := []string{"/run/containers", "/run/crun", "/run/runc", "/run/libpod", "/run/systemd/nspawn", "/dev/shm/libpod_lock", "/var/lib/cni", "/etc/containers/networks"}
	groups, err := filepath.Glob("/sys/fs/cgroup/*")
	if err != nil {
		return paths
	}
	for _, g := range append(groups, "/sys/fs/cgroup") {
		for _, name := range []string{"libpod_parent", "machine.slice"} {
			paths = append(paths, filepath.Join(g, name))
		}
	}
	return paths
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
