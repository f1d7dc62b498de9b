package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// containerd is a daemon of the bench's own, with nothing in common with one that
// the host may have.
type containerd struct {
	cmd    *exec.Cmd
	socket string
	output string // file for what it says
}

// daemonStart is how long it may take to answer.
const daemonStart = 30 * time.Second

// startContainerd starts one with an empty store in the folder. The caller stops
// it before anything is measured by the meter, which waits for all children.
func (b *bench) startContainerd(ctx context.Context, root string) (*containerd, error) {
	ctr, err := exec.LookPath("ctr")
	if err != nil {
		return nil, err
	}
	state := filepath.Join(b.runDir, root)
	d := &containerd{socket: filepath.Join(state, "socket"), output: b.path(root + ".output")}
	// Of the snapshotters overlayfs, the default; no Kubernetes, and no folder
	// outside of the bench's.
	config := fmt.Sprintf(`version = 2
root = %q
state = %q
disabled_plugins = ["io.containerd.grpc.v1.cri", "io.containerd.internal.v1.opt", "io.containerd.internal.v1.tracing", "io.containerd.snapshotter.v1.aufs",
  "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs"]
[grpc]
  address = %q
[ttrpc]
  address = %q
`, b.path(root), state, d.socket, d.socket+".ttrpc")
	file := b.path(root + ".toml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		return nil, err
	}
	out, err := os.Create(d.output)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	d.cmd = exec.Command(b.peer("containerd").path, "--config", file)
	d.cmd.Env = append(os.Environ(), "TMPDIR="+b.path("tmp"))
	d.cmd.Stdout, d.cmd.Stderr = out, out
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := d.cmd.Start(); err != nil {
		return nil, err
	}
	for deadline := time.Now().Add(daemonStart); ; time.Sleep(10 * time.Millisecond) {
		err := exec.CommandContext(ctx, ctr, "--address", d.socket, "version").Run()
		if err == nil {
			return d, nil
		}
		if ctx.Err() != nil || time.Now().After(deadline) || syscall.Kill(d.cmd.Process.Pid, 0) != nil {
			_, stopErr := d.stop()
			return nil, errors.Join(ctx.Err(), fmt.Errorf("start containerd: %s", lastLine(d.output)), stopErr)
		}
	}
}

// stop ends the daemon and says what it has used.
func (d *containerd) stop() (*syscall.Rusage, error) {
	if err := d.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return nil, err
	}
	kill := time.AfterFunc(patience, func() { _ = d.cmd.Process.Kill() }) // it may have ended
	defer kill.Stop()
	if err := d.cmd.Wait(); err != nil {
		return nil, fmt.Errorf("containerd: %w: %s", err, lastLine(d.output))
	}
	usage, _ := d.cmd.ProcessState.SysUsage().(*syscall.Rusage) // on Linux it is that
	return usage, nil
}

// pullWithContainerd measures a pull into an empty store. The daemon's start is
// not within the time, and is within its CPU time.
func (b *bench) pullWithContainerd(ctx context.Context, image string, round int) (s sample, err error) {
	d, err := b.startContainerd(ctx, "containerd"+strconv.Itoa(round))
	if err != nil {
		return s, err
	}
	cmd := exec.CommandContext(ctx, "ctr", "--address", d.socket, "images", "pull", "--plain-http", image)
	start := time.Now()
	out, err := cmd.CombinedOutput()
	s.wall = time.Since(start)
	usage, stopErr := d.stop()
	if err != nil {
		return s, fmt.Errorf("ctr: %w: %s", err, out)
	}
	if stopErr != nil {
		return s, stopErr
	}
	s.cpu = rusageTime(usage) + cmd.ProcessState.SystemTime() + cmd.ProcessState.UserTime()
	s.rss = usage.Maxrss << 10
	return s, nil
}
