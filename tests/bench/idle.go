package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"time"
)

// settle is how long a pod is left alone before its memory is read: that is
// what idle means here.
const settle = 5 * time.Second

// idleApp says that it is there, and then does nothing.
const idleApp = "echo up; exec sleep 3600"

// idle reads the memory of what a pod has beside its apps.
func (b *bench) idle() benchCase {
	return benchCase{
		name: "idle", title: "Memory beside the apps of an idle pod of two", metrics: []metric{pssOf},
		note: "rkt: supervisor and pod init. podman: three conmon and the infra container's process. What several pods share counts in full with one pod.",
		contenders: []contender{
			{name: "rkt", sample: func(ctx context.Context, _ int) (sample, error) { return b.idleRkt(ctx) }},
			{name: "podman", peer: "podman", sample: func(ctx context.Context, round int) (sample, error) {
				return b.idlePodman(ctx, fmt.Sprintf("idle%d", round))
			}},
		},
		targets:  []target{{who: "rkt", metric: pssOf, most: 9}},
		tearDown: b.removeAll,
	}
}

func (b *bench) idleRkt(ctx context.Context) (s sample, err error) {
	c := b.rktPodOfTwo("/bin/sh", "-c", idleApp)
	cmd := exec.CommandContext(ctx, c.argv[0], c.argv[1:]...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	out, err := cmd.StdoutPipe()
	if err != nil {
		return s, err
	}
	if err := cmd.Start(); err != nil {
		return s, err
	}
	defer func() {
		if stopErr := stop(cmd); err == nil {
			err = stopErr
		}
		_, orphansErr := reap(nil)
		err = errors.Join(err, orphansErr)
	}()
	lines := bufio.NewReader(out)
	for range 2 {
		if _, err := lines.ReadString('\n'); err != nil {
			return s, fmt.Errorf("wait for the apps: %w", err)
		}
	}
	// Nothing more comes, but a full pipe must never hold the pod up.
	go func() { _, _ = io.Copy(io.Discard, lines) }()
	if err := rest(ctx); err != nil {
		return s, err
	}
	kids := children(cmd.Process.Pid)
	i := slices.IndexFunc(kids, func(p process) bool { return p.inner == 1 })
	if i < 0 {
		return s, fmt.Errorf("find the pod init: no child of %d is the first of its namespace", cmd.Process.Pid)
	}
	return sumPSS(cmd.Process.Pid, kids[i].pid)
}

// stop ends a pod by its supervisor, whose exit code is then a signal's.
func stop(cmd *exec.Cmd) error {
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); err != nil && !errors.As(err, &exit) {
		return err
	}
	return nil
}

// idlePodman finds what podman leaves in the background: with the bench as
// subreaper its monitors are children of this process.
func (b *bench) idlePodman(ctx context.Context, pod string) (s sample, err error) {
	defer func() {
		end := context.WithoutCancel(ctx)
		err = errors.Join(err, b.meter.quiet(end, b.podman("pod", "rm", "--force", "--time=0", pod)))
	}()
	for _, c := range b.podmanPodOfTwo(pod, "/bin/sh", "-c", idleApp) {
		if _, err := b.meter.one(ctx, c); err != nil {
			return s, err
		}
	}
	if err := rest(ctx); err != nil {
		return s, err
	}
	var pids []int
	for _, p := range children(os.Getpid()) {
		if p.comm != "conmon" {
			continue
		}
		pids = append(pids, p.pid)
		for _, inner := range children(p.pid) {
			if inner.comm == "catatonit" {
				pids = append(pids, inner.pid)
			}
		}
	}
	if len(pids) != 4 {
		return s, fmt.Errorf("find podman's processes: %d instead of 4", len(pids))
	}
	return sumPSS(pids...)
}

func sumPSS(pids ...int) (s sample, err error) {
	for _, pid := range pids {
		n, err := pss(pid)
		if err != nil {
			return s, err
		}
		s.pss += n
	}
	return s, nil
}

func rest(ctx context.Context) error {
	timer := time.NewTimer(settle)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
