package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// account is the cgroup hierarchy that counts CPU time: cpuacct of version 1
// where there is one, else the one of version 2, which counts in every cgroup
// without a controller.
type account struct {
	root string // where it is mounted
	own  string // this process's cgroup in it, relative to the root
	v2   bool
}

func findAccount() (account, error) {
	mounts, err := os.Open("/proc/self/mounts")
	if err != nil {
		return account{}, err
	}
	defer mounts.Close()
	var a account
	lines := bufio.NewScanner(mounts)
	for lines.Scan() {
		f := strings.Fields(lines.Text())
		if len(f) < 4 {
			continue
		}
		if f[2] == "cgroup" && slices.Contains(strings.Split(f[3], ","), "cpuacct") {
			a = account{root: f[1]}
			break
		}
		if f[2] == "cgroup2" && a.root == "" {
			a = account{root: f[1], v2: true}
		}
	}
	if err := lines.Err(); err != nil {
		return a, err
	}
	if a.root == "" {
		return a, errors.New("find a cgroup hierarchy that counts CPU time: none is mounted")
	}
	a.own, err = a.ownGroup()
	return a, err
}

// ownGroup reads this process's cgroup of the hierarchy.
func (a account) ownGroup() (string, error) {
	data, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(data)) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) != 3 {
			continue
		}
		if a.v2 && f[0] == "0" || !a.v2 && slices.Contains(strings.Split(f[1], ","), "cpuacct") {
			return f[2], nil
		}
	}
	return "", fmt.Errorf("find this process's cgroup: not in /proc/self/cgroup: %s", a.root)
}

// group is the cgroup of one measured run.
type group struct {
	account
	path string
}

// enter makes a cgroup and moves this process into it, so that what it starts
// is born there. It stays until the run is over: moving back at once would hold
// up the first forks of the run (they share a lock with it).
func (a account) enter() (group, error) {
	g := group{account: a, path: filepath.Join(a.root, fmt.Sprintf("bench-%d", os.Getpid()))}
	if err := os.Mkdir(g.path, 0o755); err != nil {
		return g, err
	}
	if err := join(g.path); err != nil {
		return g, errors.Join(err, os.Remove(g.path))
	}
	return g, nil
}

// leave moves this process back, removes the cgroup and returns the CPU time
// that was used in it.
func (g group) leave() (time.Duration, error) {
	err := join(filepath.Join(g.root, g.own))
	usage, usageErr := g.usage()
	// A command may have made cgroups of its own below.
	sweepErr := sweep(g.path)
	var removeErr error
	if exists(g.path) {
		removeErr = os.Remove(g.path) // says why it couldn't be removed
	}
	return usage, errors.Join(err, usageErr, sweepErr, removeErr)
}

func (g group) usage() (time.Duration, error) {
	if !g.v2 {
		data, err := os.ReadFile(filepath.Join(g.path, "cpuacct.usage"))
		if err != nil {
			return 0, err
		}
		ns, err := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
		return time.Duration(ns), err
	}
	data, err := os.ReadFile(filepath.Join(g.path, "cpu.stat"))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(data)) {
		if value, ok := strings.CutPrefix(line, "usage_usec "); ok {
			us, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
			return time.Duration(us) * time.Microsecond, err
		}
	}
	return 0, fmt.Errorf("read CPU time: %s/cpu.stat: no usage_usec", g.path)
}

func join(dir string) error {
	return os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(os.Getpid())), 0)
}
