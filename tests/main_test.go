// Package tests runs the built programs as a user does: scripts for the command
// line and pods on the real kernel. It needs root and `make`.
package tests

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/rkt-pods/rkt/pkg/testkit"
	"github.com/rkt-pods/rkt/tests/hostcheck"
)

// bin is the folder of the programs under test, imageDir that of the images that
// all tests share.
var bin, imageDir string

func TestMain(m *testing.M) {
	code, err := inOwnNetwork(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "tests:", err)
		code = 1
	}
	os.Exit(code)
}

// The main thread is nobody's but the main goroutine's: a test that takes its
// thread into another network namespace must not take /proc/self along.
func init() { runtime.LockOSThread() }

// networkEnv tells that the tests are where they belong.
const networkEnv = "RKT_TEST_NETWORK"

// inOwnNetwork runs the tests in a network namespace of their own, with run
// folders of their own: pods get addresses, links and rules by default, none of
// which the host is to see.
func inOwnNetwork(m *testing.M) (code int, err error) {
	if os.Getenv(networkEnv) != "" || os.Geteuid() != 0 {
		return run(m)
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Args[0] = os.Args[0]
	cmd.Env = append(os.Environ(), networkEnv+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	// A test binary that is killed for its timeout takes the tests with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	err = cmd.Run() // on the main thread: the signal comes when the thread ends
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode(), nil
	}
	return 0, err
}

func run(m *testing.M) (code int, err error) {
	const own = "ip link set lo up && mkdir -p /run/rkt && mount -t tmpfs -o mode=755 tmpfs /run/rkt"
	if out, err := exec.Command("sh", "-c", own).CombinedOutput(); err != nil {
		return 1, fmt.Errorf("a network of their own: %w: %s", err, out)
	}
	if os.Geteuid() != 0 {
		return 1, errors.New("pods are run for real: run the tests as root")
	}
	if bin = os.Getenv("RKT_TEST_BIN"); bin == "" {
		if bin, err = filepath.Abs("../bin"); err != nil {
			return 1, err
		}
	}
	for _, name := range []string{"rkt", "rkt-fetch", "rkt-verify", "stage1", "podinit", "applaunch", "rkt-userns", "rkt-cni"} {
		if _, err := os.Stat(filepath.Join(bin, name)); err != nil {
			return 1, fmt.Errorf("%w: run `make` first", err)
		}
	}
	cleanup, err := findImages()
	if err != nil {
		return 1, err
	}
	defer cleanup()
	before, err := hostcheck.Take(bin)
	if err != nil {
		return 1, err
	}
	code = m.Run()
	after, err := hostcheck.Take(bin)
	if err != nil {
		return 1, err
	}
	if left := hostcheck.Left(before, after, usedStores()); len(left) > 0 {
		return 1, fmt.Errorf("the tests left this on the host:\n  %s", strings.Join(left, "\n  "))
	}
	return code, nil
}

// findImages makes the shared images, or takes those that were made for a
// machine without a Go toolchain.
func findImages() (cleanup func(), err error) {
	if imageDir = os.Getenv("RKT_TEST_IMAGES"); imageDir != "" {
		return func() {}, nil
	}
	if imageDir, err = os.MkdirTemp("", "rkt-test-images-"); err != nil {
		return nil, err
	}
	cleanup = func() { _ = os.RemoveAll(imageDir) }
	// A pod's files must be reachable for an ordinary user's test too.
	if err = os.Chmod(imageDir, 0o755); err == nil {
		err = makeImages()
	}
	if err != nil {
		cleanup()
	}
	return cleanup, err
}

// makeImages builds the busybox image in each format.
func makeImages() error {
	mkimage := filepath.Join(imageDir, "mkimage")
	if out, err := exec.Command("go", "build", "-o", mkimage, "./images/cmd/mkimage").CombinedOutput(); err != nil {
		return fmt.Errorf("build mkimage: %w\n%s", err, out)
	}
	for name, format := range map[string]string{
		"busybox.aci": "aci", "busybox.oci": "oci", "busybox.oci.tar": "oci-tar", "busybox.docker.tar": "docker",
	} {
		cmd := exec.Command(mkimage, "-format", format, "-name", "example.com/busybox:1.0", "-out", filepath.Join(imageDir, name))
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w\n%s", cmd, err, out)
		}
	}
	return errors.Join(makeHelper(mkimage, "netpeer"), makeHelper(mkimage, "escape"))
}

// makeHelper builds a program of the tests, for hosts, and an image with it.
func makeHelper(mkimage, name string) error {
	build := exec.Command("go", "build", "-o", image(name), "./"+name)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	for _, cmd := range []*exec.Cmd{
		build,
		exec.Command(mkimage, "-format", "aci", "-name", "example.com/"+name+":1.0", "-file", image(name)+":/"+name, "-out", image(name+".aci")),
	} {
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w\n%s", cmd, err, out)
		}
	}
	return nil
}

// stores are the ids of all stores that tests have made.
var stores sync.Map

func usedStores() []string {
	var ids []string
	stores.Range(func(id, _ any) bool {
		ids = append(ids, id.(string))
		return true
	})
	return ids
}

// host is a data folder of its own and the programs that use it.
type host struct {
	t      testing.TB
	dir    string   // the data folder
	inside []string // words in front of a command that take it elsewhere
	flags  []string // of every command
	attack string   // a copy of escape.aci where it can be read; "" means the image itself
}

func newHost(t testing.TB) *host {
	t.Helper()
	h := &host{t: t, dir: filepath.Join(t.TempDir(), "data")}
	t.Cleanup(h.clean)
	return h
}

// clean collects everything and checks that nothing is left.
func (h *host) clean() {
	h.t.Helper()
	res := h.rkt("gc", "--grace-period=0s", "--expire-prepared=0s")
	if res.code != 0 {
		h.t.Errorf("gc at the end: %s", res)
	}
	if err := leftovers(h.dir); err != nil {
		h.t.Error(err)
	}
	for _, o := range h.orphans() {
		switch o.Kind {
		case "image", "image-name", "layer", "blob", "reference":
			// What a test has done to the store. All else is rkt's doing.
		default:
			h.t.Errorf("gc --check at the end: %+v", o)
		}
	}
}

// orphan is one line of `rkt gc --check`.
type orphan struct{ Kind, Name, Pod, Remedy string }

// orphans is what `rkt gc --check` finds.
func (h *host) orphans() []orphan {
	h.t.Helper()
	res := h.rkt("gc", "--check", "--format=json")
	var found struct{ Orphans []orphan }
	if err := json.Unmarshal([]byte(res.stdout), &found); err != nil {
		h.t.Errorf("gc --check: %v\n%s", err, res)
	} else if want := min(len(found.Orphans), 1) * 12; res.code != want {
		h.t.Errorf("gc --check: %s", res)
	}
	return found.Orphans
}

// leftovers looks for pods, cgroups and run folders of a data folder, after gc.
func leftovers(data string) error {
	var left []string
	pods, _ := filepath.Glob(filepath.Join(data, "pods", "*", "*"))
	left = append(left, pods...)
	staged, _ := filepath.Glob(filepath.Join(data, "store", "tmp", "*"))
	left = append(left, staged...)
	volumes, _ := filepath.Glob(filepath.Join(data, "volumes", ".*"))
	left = append(left, volumes...)
	if id, err := os.ReadFile(filepath.Join(data, "store", "id")); err == nil {
		store := strings.TrimSpace(string(id))
		stores.Store(store, true)
		// At the root of a hierarchy, or in a unit's delegated folder.
		for _, depth := range []string{"", "*/", "*/*/"} {
			groups, _ := filepath.Glob("/sys/fs/cgroup/" + depth + "rkt-" + store)
			left = append(left, groups...)
		}
		runs, _ := filepath.Glob("/run/rkt/" + store + "/*")
		left = append(left, runs...)
		_ = os.Remove("/run/rkt/" + store)
	}
	if len(left) > 0 {
		return fmt.Errorf("left after gc:\n  %s", strings.Join(left, "\n  "))
	}
	return nil
}

// result is how a command ended.
type result struct {
	args           []string
	code           int
	stdout, stderr string
}

func (r result) String() string {
	return fmt.Sprintf("rkt %s: exit %d\nstdout: %sstderr: %s", strings.Join(r.args, " "), r.code, r.stdout, r.stderr)
}

func (h *host) command(args ...string) *exec.Cmd {
	words := slices.Concat(h.inside, []string{filepath.Join(bin, "rkt"), "--dir=" + h.dir}, h.flags, args)
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Env = append(os.Environ(), "RKT_TEST=1")
	return cmd
}

// rkt runs a command to its end.
func (h *host) rkt(args ...string) result {
	h.t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := h.command(args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	return h.finish(cmd, args, cmd.Run(), &stdout, &stderr)
}

func (h *host) finish(cmd *exec.Cmd, args []string, err error, stdout, stderr *bytes.Buffer) result {
	h.t.Helper()
	if err != nil && cmd.ProcessState == nil {
		h.t.Fatal(err)
	}
	return result{args, cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// must runs a command that has to end with code 0, and returns its output.
func (h *host) must(args ...string) string {
	h.t.Helper()
	res := h.rkt(args...)
	if res.code != 0 {
		h.t.Fatal(res)
	}
	return res.stdout
}

func image(name string) string { return filepath.Join(imageDir, name) }

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:           "testdata/script",
		UpdateScripts: os.Getenv("UPDATE") != "",
		Setup: func(env *testscript.Env) error {
			data := filepath.Join(env.WorkDir, "data")
			wrapper := fmt.Sprintf("#!/bin/sh\nexec %s --dir=%s \"$@\"\n", filepath.Join(bin, "rkt"), data)
			if err := os.MkdirAll(filepath.Join(env.WorkDir, ".bin"), 0o755); err != nil {
				return err
			}
			if err := testkit.WriteProgram(filepath.Join(env.WorkDir, ".bin", "rkt"), []byte(wrapper)); err != nil {
				return err
			}
			env.Setenv("PATH", filepath.Join(env.WorkDir, ".bin")+":"+os.Getenv("PATH"))
			env.Setenv("DATA", data)
			env.Setenv("BIN", bin)
			env.Setenv("IMAGES", imageDir)
			env.Defer(func() {
				h := &host{t: t, dir: data}
				h.clean()
			})
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"exits": exits, "save": save},
	})
}

// exits runs a command and checks its exact exit code: exits CODE COMMAND….
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND ARG…")
	}
	code := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		exit, ok := errors.AsType[*exec.ExitError](err)
		if !ok {
			ts.Fatalf("%v", err)
		}
		code = exit.ExitCode()
	}
	if fmt.Sprint(code) != args[0] {
		ts.Fatalf("exit code %d, want %s", code, args[0])
	}
}

// save sets a variable to the last command's output, without the newline at
// its end: save NAME.
func save(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: save NAME")
	}
	ts.Setenv(args[0], strings.TrimSuffix(ts.ReadFile("stdout"), "\n"))
}
