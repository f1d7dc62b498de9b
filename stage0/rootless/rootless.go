// Package rootless has an ordinary user's rkt begin anew as root of a user
// namespace, in which the user is root and all other ids are those that
// /etc/subuid and /etc/subgid give him. Everything else of rkt then works as it
// does for root, but for what takes rights on the host.
//
//	rkt (the user) ─ exec ▶ rkt-userns ─ exec ▶ rkt (root of the namespace)
//
// The process stays the same. As long as a pod of the data folder runs, commands
// join its namespace: only there they may look at it, and enter it.
package rootless

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/atomicfile"
	"github.com/rkt-pods/rkt/pkg/cgroup"
	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/idrange"
	"github.com/rkt-pods/rkt/pkg/poddir"
	"github.com/rkt-pods/rkt/pkg/podspec"
	"github.com/rkt-pods/rkt/stage0/libexec"
	"github.com/rkt-pods/rkt/stage0/uids"
)

// Inside says whether this process was begun anew by Enter.
func Inside() bool { return os.Geteuid() == 0 && os.Getenv(poddir.RunRootEnv) != "" }

// DataDir is where an ordinary user's images and pods are by default.
func DataDir(getenv func(string) string) string {
	return filepath.Join(base(getenv, "XDG_DATA_HOME", ".local/share"), "rkt")
}

// ConfigDir is where an ordinary user's own configuration is.
func ConfigDir(getenv func(string) string) string {
	return filepath.Join(base(getenv, "XDG_CONFIG_HOME", ".config"), "rkt")
}

// base reads a variable of the XDG base directories, which counts only if it is
// absolute.
func base(getenv func(string) string, name, otherwise string) string {
	if dir := getenv(name); filepath.IsAbs(dir) {
		return dir
	}
	return filepath.Join(getenv("HOME"), otherwise)
}

// Own says whether the data folder, or what is there of the path to it, is this
// user's.
func Own(data string) bool {
	for {
		var st unix.Stat_t
		err := unix.Stat(data, &st)
		if err == nil {
			return int(st.Uid) == os.Geteuid()
		}
		if !errors.Is(err, unix.ENOENT) || data == "/" {
			return false
		}
		data = filepath.Dir(data)
	}
}

// Enter becomes this program again, with the same arguments, as root of a user
// namespace; for a pod that is to run, in a cgroup that is the user's. It returns
// only if that fails.
func Enter(data string, args []string, pod bool) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	helper, err := libexec.Find("rkt-userns")
	if err != nil {
		return err
	}
	argv, err := running(data, args)
	if argv == nil && err == nil {
		argv, err = fresh()
	}
	if err != nil {
		return err
	}
	run := runRoot(data, os.Getenv)
	argv = append([]string{helper}, append(argv, append([]string{"--", self}, args...)...)...)
	if pod {
		argv = append(scope(os.Getenv), argv...)
	}
	err = unix.Exec(argv[0], argv, append(os.Environ(), poddir.RunRootEnv+"="+run))
	return fmt.Errorf("start %s: %w", argv[0], err)
}

// scope is the call by which the user's manager makes a cgroup for what follows,
// in this process; nil if there is no need, or no such manager.
func scope(getenv func(string) string) []string {
	run, err := exec.LookPath("systemd-run")
	if err != nil || cgroup.Writable() {
		return nil
	}
	if _, err := os.Stat(filepath.Join(getenv("XDG_RUNTIME_DIR"), "systemd/private")); err != nil {
		return nil
	}
	return []string{run, "--user", "--scope", "--quiet", "--collect", "--property=Delegate=yes", "--"}
}

// runRoot is where what belongs to this boot is kept.
func runRoot(data string, getenv func(string) string) string {
	dir := getenv("XDG_RUNTIME_DIR")
	if info, err := os.Stat(dir); err == nil && info.IsDir() && filepath.IsAbs(dir) {
		return filepath.Join(dir, "rkt")
	}
	return filepath.Join(data, "run")
}

// fresh is the call for a new namespace.
func fresh() ([]string, error) {
	if data, err := os.ReadFile("/proc/sys/user/max_user_namespaces"); err == nil && strings.TrimSpace(string(data)) == "0" {
		return nil, errs.Newf(errs.Unsupported, "user namespace: this host forbids them (user.max_user_namespaces is 0)")
	}
	for _, name := range []string{"kernel/unprivileged_userns_clone=0", "kernel/apparmor_restrict_unprivileged_userns=1"} {
		file, off, _ := strings.Cut(name, "=")
		if data, err := os.ReadFile("/proc/sys/" + file); err == nil && strings.TrimSpace(string(data)) == off {
			return nil, errs.Newf(errs.Unsupported, "user namespace: this host forbids them to ordinary users (%s is %s)", strings.ReplaceAll(file, "/", "."), off)
		}
	}
	me, err := user.Current()
	if err != nil {
		return nil, fmt.Errorf("user namespace: %w", err)
	}
	users, groups, err := uids.OfUser(me.Username, me.Uid)
	if err != nil {
		return nil, err
	}
	if len(users) == 0 || len(groups) == 0 {
		err := errs.Newf(errs.Unavailable, "user namespace: user %s has no ids in /etc/subuid, or none in /etc/subgid", me.Username)
		return nil, errs.WithHint(err, "\"usermod --add-subuids 100000-165535 --add-subgids 100000-165535 %s\" gives some, of which nobody else may have one", me.Username)
	}
	argv := []string{"new"}
	for i, m := range []struct {
		program string
		own     int
		list    []idrange.Range
	}{{"newuidmap", os.Geteuid(), users}, {"newgidmap", os.Getegid(), groups}} {
		program, err := exec.LookPath(m.program)
		if err != nil {
			return nil, errs.WithHint(errs.Newf(errs.NotFound, "user namespace: %s: not installed", m.program), "it is in the package uidmap, or shadow-utils")
		}
		if i > 0 {
			argv = append(argv, "--")
		}
		argv = append(argv, program, "PID", "0", strconv.Itoa(m.own), "1")
		inside := uint64(1)
		for _, r := range m.list {
			argv = append(argv, strconv.FormatUint(inside, 10), strconv.FormatUint(uint64(r.Start), 10), strconv.FormatUint(uint64(r.Count), 10))
			inside += uint64(r.Count)
		}
	}
	return argv, nil
}

// running is the call for the namespace of a pod that runs: of the one that the
// arguments name, if they name any, else of whichever. nil if there is none.
func running(data string, args []string) ([]string, error) {
	pods := filepath.Join(poddir.PodsDir(data), string(poddir.Run))
	entries, err := os.ReadDir(pods)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var found string
	for _, e := range entries {
		dir := poddir.Dir(filepath.Join(pods, e.Name()))
		var sup poddir.Supervisor
		if atomicfile.ReadJSON(dir.Supervisor(), &sup) != nil || !sup.Alive() {
			continue
		}
		ns := fmt.Sprintf("/proc/%d/ns/user", sup.PID)
		if _, err := os.Readlink(ns); err != nil {
			continue // ended, or another's by now
		}
		if found == "" || named(dir, args) {
			found = ns
		}
	}
	if found == "" {
		return nil, nil
	}
	return []string{"join", found}, nil
}

// named says whether an argument means the pod: the begin of its id, its name,
// or a file that holds the id.
func named(dir poddir.Dir, args []string) bool {
	name := ""
	if data, err := os.ReadFile(dir.Manifest()); err == nil {
		if m, err := podspec.Parse(data); err == nil {
			name, _ = m.Annotations.Get(podspec.AnnPodName)
		}
	}
	for _, a := range args {
		if file, ok := strings.CutPrefix(a, "--uuid-file="); ok {
			data, _ := os.ReadFile(file) // the command tells what is wrong with it
			a = strings.TrimSpace(string(data))
		}
		if a != "" && (a == name || strings.HasPrefix(dir.UUID(), strings.ToLower(a))) {
			return true
		}
	}
	return false
}
