package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// patience is how long processes that a command leaves behind may live on.
const patience = 30 * time.Second

// sample is what one measured run has cost. A case fills what it is about.
type sample struct {
	wall, cpu time.Duration
	rss, pss  int64 // bytes
}

// command is a program to run, and where.
type command struct {
	argv  []string
	env   []string // beside this process's
	place place    // nil: the host's namespaces
}

// place runs f, which starts a process, in the mount namespace of its own.
type place func(f func() error) error

// meter runs commands and takes what they cost.
type meter struct {
	account account
	output  string       // file for what the commands say, the last one's
	staying map[int]bool // children that run beside what is measured
}

// newMeter makes this process the one that the orphans of its commands fall
// to, so that their CPU time comes with wait4 as the commands' own does.
func newMeter(output string) (*meter, error) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("become a subreaper: %w", err)
	}
	account, err := findAccount()
	if err != nil {
		return nil, err
	}
	return &meter{account: account, output: output, staying: map[int]bool{}}, nil
}

// run measures the commands, one after the other, as one. The wall clock stops
// with the last; the CPU time is that of the whole tree, also of processes
// that end only later.
//
// Both counts can miss something: rusage those that were reaped by a process
// outside the tree, the cgroup those that were moved to another. So the
// greater of the two is nearer to the truth.
func (m *meter) run(ctx context.Context, commands ...command) (sample, error) {
	var s sample
	own, err := ownTime()
	if err != nil {
		return s, err
	}
	group, err := m.account.enter()
	if err != nil {
		return s, err
	}
	tree, err := m.sequence(ctx, &s, commands)
	orphans, orphansErr := reap(m.staying)
	usage, leaveErr := group.leave()
	ownAfter, ownErr := ownTime()
	if err := errors.Join(err, orphansErr, leaveErr, ownErr); err != nil {
		return s, err
	}
	s.cpu = max(tree+orphans, usage-(ownAfter-own))
	return s, nil
}

// sequence runs the commands and fills in wall clock and peak memory.
func (m *meter) sequence(ctx context.Context, s *sample, commands []command) (time.Duration, error) {
	var cpu time.Duration
	start := time.Now()
	for _, c := range commands {
		state, err := m.one(ctx, c)
		if err != nil {
			return cpu, err
		}
		if usage, ok := state.SysUsage().(*syscall.Rusage); ok {
			cpu += rusageTime(usage)
			s.rss = max(s.rss, usage.Maxrss<<10)
		}
	}
	s.wall = time.Since(start)
	return cpu, nil
}

// one runs a command to its end. What it says goes to a file, not through a
// pipe that an orphan could hold open.
func (m *meter) one(ctx context.Context, c command) (*os.ProcessState, error) {
	out, err := os.Create(m.output)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	cmd := exec.CommandContext(ctx, c.argv[0], c.argv[1:]...)
	cmd.Env = append(os.Environ(), c.env...)
	cmd.Stdout, cmd.Stderr = out, out
	// An interrupt from the terminal is this process's alone. A runtime killed
	// in the midst of a start forgets what it has made, so it may finish.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel, cmd.WaitDelay = func() error { return nil }, patience
	if err := c.start(cmd); err != nil {
		return nil, err
	}
	if err := cmd.Wait(); err != nil {
		return nil, fmt.Errorf("%s: %w: %s", strings.Join(c.argv, " "), err, lastLine(m.output))
	}
	return cmd.ProcessState, nil
}

// start starts cmd where the command belongs.
func (c command) start(cmd *exec.Cmd) error {
	if c.place != nil {
		return c.place(cmd.Start)
	}
	return cmd.Start()
}

// quiet runs commands that belong to the preparation: nothing is measured, but
// what they leave behind is waited for.
func (m *meter) quiet(ctx context.Context, commands ...command) error {
	for _, c := range commands {
		if _, err := m.one(ctx, c); err != nil {
			return err
		}
	}
	_, err := reap(m.staying)
	return err
}

// lastLine is what a program that failed most likely says the reason with.
func lastLine(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	return lines[len(lines)-1]
}

// reap waits for all children that are left, which are orphans of a command,
// but for those that are to stay, and returns the CPU time of their trees. Those
// that outlive the patience are killed, with an error.
func reap(staying map[int]bool) (time.Duration, error) {
	changed := make(chan os.Signal, 1)
	signal.Notify(changed, syscall.SIGCHLD)
	defer signal.Stop(changed)
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	var cpu time.Duration
	var late error
	for {
		var usage syscall.Rusage
		pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, &usage)
		switch {
		case errors.Is(err, syscall.ECHILD):
			return cpu, late
		case errors.Is(err, syscall.EINTR):
			continue
		case err != nil:
			return cpu, fmt.Errorf("wait for orphans: %w", err)
		case pid > 0:
			cpu += rusageTime(&usage)
			continue
		}
		if len(staying) > 0 && !slices.ContainsFunc(children(os.Getpid()), func(p process) bool { return !staying[p.pid] }) {
			return cpu, late
		}
		select {
		case <-changed:
		case <-deadline.C:
			if late != nil {
				return cpu, late
			}
			late = killChildren()
			deadline.Reset(patience)
		}
	}
}

// killChildren ends the children of this process and returns an error that
// names them.
func killChildren() error {
	var names []string
	for _, p := range children(os.Getpid()) {
		names = append(names, fmt.Sprintf("%s (%d)", p.comm, p.pid))
		// A child that nobody but this process reaps keeps its pid.
		_ = unix.Kill(p.pid, unix.SIGKILL)
	}
	return fmt.Errorf("killed, as still there after %s: %s", patience, strings.Join(names, ", "))
}

func ownTime() (time.Duration, error) {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0, fmt.Errorf("getrusage: %w", err)
	}
	return rusageTime(&usage), nil
}

func rusageTime(u *syscall.Rusage) time.Duration {
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
