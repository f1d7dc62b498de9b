package tests

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// blocked starts commands the way a caller does that blocks all signals, and
// ignores those that the shell command names.
func blocked(t *testing.T, run func()) {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var old unix.Sigset_t
	all := unix.Sigset_t{Val: [16]uint64{1<<64 - 1}}
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &all, &old); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.PthreadSigmask(unix.SIG_SETMASK, &old, nil); err != nil {
			t.Error(err)
		}
	}()
	run()
}

// TestSignalsOfCaller: an app, its handlers and what enters it begin with no
// signal blocked and none ignored but SIGHUP, if that is.
func TestSignalsOfCaller(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	id := strings.TrimSpace(h.must("fetch", "--full", "--insecure-options=image", image("busybox.aci")))
	// Not by a shell alone: busybox's ignores SIGQUIT in what it becomes.
	show := []string{"/bin/grep", "-E", "^Sig(Blk|Ign)", "/proc/self/status"}
	manifest := filepath.Join(t.TempDir(), "pod.json")
	handler := func(name string) string {
		return fmt.Sprintf(`{"name":%q,"exec":["%s"]}`, name, strings.Join(show, `","`))
	}
	text := fmt.Sprintf(`{"acKind":"PodManifest","acVersion":"0.8.11","apps":[{"name":"x","image":{"id":%q},
		"app":{"user":"0","group":"0","exec":["/bin/sh","-c",%q],"eventHandlers":[%s,%s]}}],"volumes":[]}`,
		id, `grep -E "^Sig(Blk|Ign)" /proc/self/status; read end`, handler("pre-start"), handler("post-stop"))
	if err := os.WriteFile(manifest, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	rkt := filepath.Join(bin, "rkt")
	for _, c := range []struct{ trap, ignored string }{
		{"INT QUIT PIPE TERM TSTP TTIN TTOU USR1", "0000000000000000"},
		{"HUP INT CHLD", "0000000000000001"},
	} {
		want := "SigBlk:\t0000000000000000\nSigIgn:\t" + c.ignored + "\n"
		for range 3 {
			uuid := filepath.Join(t.TempDir(), "uuid")
			command := func(args ...string) *exec.Cmd {
				cmd := exec.Command("/bin/sh", append([]string{"-c", `trap "" ` + c.trap + `; exec "$@"`, "sh", rkt, "--dir=" + h.dir}, args...)...)
				cmd.Stderr = os.Stderr
				return cmd
			}
			cmd := command("run", "--interactive", "--uuid-file-save="+uuid, "--pod-manifest="+manifest)
			var stdout strings.Builder
			cmd.Stdout = &stdout
			stdin, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			blocked(t, func() { err = cmd.Start() })
			if err != nil {
				t.Fatal(err)
			}
			p := &pod{host: h, uuidFile: uuid, ended: make(chan result, 1)}
			p.running()
			enter := command(append([]string{"enter", p.uuid()}, show...)...)
			var entered strings.Builder
			enter.Stdout = &entered
			blocked(t, func() { err = enter.Start() })
			if err != nil {
				t.Fatal(err)
			}
			if err := enter.Wait(); err != nil || entered.String() != want {
				t.Errorf("entered: %v, %q, want %q", err, entered.String(), want)
			}
			if err := stdin.Close(); err != nil {
				t.Error(err)
			}
			_ = cmd.Wait() // 1: the shell's read came to the end
			if code := cmd.ProcessState.ExitCode(); code != 1 || stdout.String() != strings.Repeat(want, 3) {
				t.Errorf("code %d, pre-start, app and post-stop: %q, want %q each", code, stdout.String(), want)
			}
		}
	}
}

// TestLargeEnvironment: an app gets its streams, also with as many words as the
// kernel takes, and more of them are an error that says so.
func TestLargeEnvironment(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	run := func(variables int, more ...string) result {
		args := []string{"run", "--insecure-options=image"}
		for i := range variables {
			args = append(args, "--set-env=V"+strconv.Itoa(i)+"="+strings.Repeat("b", 100_000))
		}
		args = append(args, image("busybox.aci"), "--exec=/bin/sh", "--", "-c",
			`cd /proc/self/fd; for fd in *; do [ -e $fd ] && echo -n "$fd "; done; echo $# >&2; exit 3`, "sh")
		return h.rkt(append(args, more...)...)
	}
	words := make([]string, 50_000)
	for i := range words {
		words[i] = "word"
	}
	for range 3 {
		for name, res := range map[string]result{"0": run(15), "50000": run(0, words...)} {
			if res.code != 3 || res.stdout != "0 1 2 " || res.stderr != name+"\n" {
				t.Errorf("%s words: exit %d, %q, %.300q", name, res.code, res.stdout, res.stderr)
			}
		}
	}
	// execve(2) of rkt itself has the limit too; a file hasn't.
	file := filepath.Join(t.TempDir(), "env")
	if err := os.WriteFile(file, []byte("V="+strings.Repeat("b", 200_000)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	res := h.rkt("run", "--insecure-options=image", "--set-env-file="+file, image("busybox.aci"), "--exec=/bin/true")
	if res.code != 126 || res.stdout != "" || !strings.Contains(res.stderr, "app busybox: program /bin/true: argument list too long\n") ||
		!strings.Contains(res.stderr, "hint: the kernel takes 128 KiB") {
		t.Errorf("a variable of 200 kB: exit %d, %q, %.300q", res.code, res.stdout, res.stderr)
	}
}
