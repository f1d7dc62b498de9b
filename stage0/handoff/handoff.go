// Package handoff gives a pod to its stage1: it finds the program, and becomes
// it, or runs one of its commands for a pod that is running.
package handoff

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/abi"
	"github.com/rkt-pods/rkt/pkg/activation"
	"github.com/rkt-pods/rkt/pkg/atomicfile"
	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/fault"
	"github.com/rkt-pods/rkt/pkg/limits"
	"github.com/rkt-pods/rkt/pkg/poddir"
	"github.com/rkt-pods/rkt/stage0/libexec"
	"github.com/rkt-pods/rkt/stage0/pod"
)

// versionDeadline bounds the question for the version: it only prints.
const versionDeadline = 10 * time.Second

// Find returns the stage1 program. One that is named is asked for its version
// and features. The other two places hold what was built and installed with
// this program; asking these would cost every start an exec.
func Find(ctx context.Context, named string) (string, error) {
	if err := checkRoot(); err != nil {
		return "", err
	}
	names, err := activation.Given(os.Getenv, os.Getpid())
	if err != nil {
		return "", err
	}
	if err := activation.Claim(len(names)); err != nil {
		return "", err
	}
	if named != "" {
		path, err := filepath.Abs(named)
		if err != nil {
			return "", err
		}
		return path, check(ctx, path)
	}
	path, err := libexec.Find("stage1")
	if errs.Is(err, errs.NotFound) {
		err = errs.WithHint(err, "--stage1-path=PATH names another")
	}
	return path, err
}

// checkRoot says so where stage1 could not cut its mounts off from the host's:
// that is done at the root, which must be a mount point for it (mount(2)), and
// the folder of a chroot(2) is none. Kernels before 5.8 don't tell.
func checkRoot() error {
	var st unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, "/", 0, unix.STATX_BASIC_STATS, &st)
	if err != nil || st.Attributes_mask&unix.STATX_ATTR_MOUNT_ROOT == 0 || st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0 {
		return nil
	}
	err = errs.Newf(errs.Unsupported, "the root folder is no mount point, as in a chroot")
	return errs.WithHint(err, "enter it with pivot_root(8), or in a container, in place of chroot(8)")
}

func check(ctx context.Context, path string) error {
	ctx, cancel := context.WithTimeout(ctx, versionDeadline)
	defer cancel()
	bad := func(format string, args ...any) error {
		err := errs.Newf(errs.Unsupported, "stage1: %s: %w", path, fmt.Errorf(format, args...))
		return errs.WithHint(err, "--stage1-path names a stage1 program that fits this rkt; without it the one beside rkt is taken")
	}
	out, err := exec.CommandContext(ctx, path, abi.CmdVersion).Output()
	if err != nil {
		return bad("ask for its version: %w", blame(err))
	}
	var v abi.Version
	if err := json.Unmarshal(out, &v); err != nil {
		return bad("version: %w", err)
	}
	if v.Interface != abi.InterfaceVersion {
		return bad("is %s, this rkt speaks interface %d", v, abi.InterfaceVersion)
	}
	if !slices.Contains(v.Features, abi.FeatureDiesWithSupervisor) {
		return bad("lacks the feature %s", abi.FeatureDiesWithSupervisor)
	}
	return nil
}

// blame takes the path off, which the message names already.
func blame(err error) error {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err
	}
	return err
}

// Exec becomes the pod's supervisor: same process, same lock. It returns only
// if that fails; the pod has ended then, and its end is on disk.
func Exec(p *pod.RunningPod, stage1 string, run abi.Run) error {
	err := p.Lock().KeepOnExec()
	if err == nil {
		err = fault.Step("handoff.exec")
	}
	if err == nil {
		run.LockFD = p.Lock().FD()
		var names []string
		if names, err = activation.Given(os.Getenv, os.Getpid()); err == nil {
			err = activation.Pass(len(names))
		}
	}
	if err == nil {
		err = unix.Exec(stage1, append([]string{"stage1"}, run.Argv()...), os.Environ())
	}
	err = fmt.Errorf("start stage1: %s: %w", stage1, err)
	end := poddir.Exit{Code: pod.AbortedCode, Cause: poddir.CauseSetup, Message: err.Error()}.Now()
	return errors.Join(err, atomicfile.WriteJSON(p.Dir().Exit(), end, 0o600, atomicfile.Synced), p.Close())
}

// Running is a running pod's own stage1: its commands fit the supervisor also
// when another one was installed meanwhile.
type Running struct {
	exe *os.File
	pod abi.Pod
}

// Open finds the stage1 of a running pod. The result must be closed.
func Open(pods pod.Pods, f pod.Facts, debug bool) (*Running, error) {
	gone := errs.Newf(errs.Busy, "pod %s: is %s, but its supervisor can't be reached now", f.UUID, f.State)
	if f.Supervisor == nil {
		return nil, errs.WithHint(gone, "it is just starting or ending: try again")
	}
	id := f.Supervisor.ID
	// With the pidfd open the pid can't be given to another process between
	// the check of the start time and the open of its executable.
	fd, err := id.Open()
	if errors.Is(err, fs.ErrNotExist) {
		return nil, gone
	}
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	exe, err := unix.Open("/proc/"+strconv.Itoa(id.PID)+"/exe", unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil && !id.Alive() {
		return nil, gone // one that has just ended has no executable
	}
	if err != nil {
		return nil, fmt.Errorf("pod %s: open its stage1: %w", f.UUID, err)
	}
	r := &Running{
		exe: os.NewFile(uintptr(exe), "stage1"),
		pod: abi.Pod{UUID: f.UUID, Data: pods.Data, PodDir: string(f.Dir), StoreID: pods.StoreID, Debug: debug},
	}
	if !id.Alive() {
		return nil, errors.Join(gone, r.Close())
	}
	return r, nil
}

// Close releases the descriptor.
func (r *Running) Close() error { return r.exe.Close() }

// Enter becomes a program inside an app of the pod. It returns only on error.
func (r *Running) Enter(e abi.Enter) error {
	e.Pod = r.pod
	err := unix.Exec(r.path(), append([]string{"stage1"}, e.Argv()...), os.Environ())
	return fmt.Errorf("enter pod %s: %w", r.pod.UUID, err)
}

// Stop asks the supervisor to stop the pod, or one app of it, and returns when
// that is down.
func (r *Running) Stop(ctx context.Context, s abi.Stop) error {
	s.Pod = r.pod
	return r.ask(ctx, s.Argv())
}

// Restart asks the supervisor for a new execution of an app.
func (r *Running) Restart(ctx context.Context, a abi.Restart) error {
	a.Pod = r.pod
	return r.ask(ctx, a.Argv())
}

// Signal asks the supervisor to pass on a signal.
func (r *Running) Signal(ctx context.Context, s abi.Signal) error {
	s.Pod = r.pod
	return r.ask(ctx, s.Argv())
}

// Pause asks the supervisor to freeze the apps, or to let them go on.
func (r *Running) Pause(ctx context.Context, off bool) error {
	return r.ask(ctx, abi.Pause{Pod: r.pod, Off: off}.Argv())
}

// Update asks the supervisor to change limits, and returns what became of each.
func (r *Running) Update(ctx context.Context, u abi.Update) ([]limits.Result, error) {
	u.Pod = r.pod
	var results []limits.Result
	out, err := r.output(ctx, u.Argv())
	if err == nil {
		err = json.Unmarshal(out, &results)
	}
	return results, err
}

// ask runs a command of the pod's stage1. What that says of a failure is in the
// error.
func (r *Running) ask(ctx context.Context, argv []string) error {
	_, err := r.output(ctx, argv)
	return err
}

func (r *Running) output(ctx context.Context, argv []string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, r.path())
	cmd.Args = append([]string{"stage1"}, argv...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if err == nil {
		return stdout.Bytes(), nil
	}
	if said := abi.ParseReport(argv[0], stderr.String()); said != nil {
		err = said
	}
	return nil, fmt.Errorf("pod %s: %w", r.pod.UUID, err)
}

// path names the descriptor, which stays open until the kernel has read the
// program from it.
func (r *Running) path() string { return "/proc/self/fd/" + strconv.Itoa(int(r.exe.Fd())) }
