package sandbox

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/stage1/plan"
)

func status(t *testing.T, pid int, field string) string {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.SplitSeq(string(data), "\n") {
		if k, v, _ := strings.Cut(line, ":"); k == field {
			return strings.TrimSpace(v)
		}
	}
	t.Fatalf("no %s in status", field)
	return ""
}

func TestPodInitIsJailed(t *testing.T) {
	f := newFixture(t)
	p := f.open(plan.Pod{Hostname: "web-1"})
	f.must(startInit(soon(t), p))
	pid := p.Init().PID

	for field, want := range map[string]string{
		"CapInh": "0000000000000000", "CapPrm": "0000000000000000", "CapEff": "0000000000000000",
		"CapBnd": "0000000000000000", "CapAmb": "0000000000000000", "NoNewPrivs": "1", "Threads": "1",
	} {
		if got := status(t, pid, field); got != want {
			t.Errorf("%s is %s, want %s", field, got, want)
		}
	}
	if got := strings.Fields(status(t, pid, "NSpid")); len(got) != 2 || got[1] != "1" {
		t.Errorf("NSpid is %v, want PID 1 of its namespace", got)
	}
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/root/", pid))
	if err != nil || len(entries) != 0 {
		t.Errorf("its root has %v, %v; want an empty folder", entries, err)
	}
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/root/x", pid), nil, 0o600); err == nil {
		t.Error("its root can be written to")
	}
	mounts, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", pid))
	if n := strings.Count(string(mounts), "\n"); err != nil || n != 1 {
		t.Errorf("it sees %d mounts, %v; want 1:\n%s", n, err, mounts)
	}
	fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil || len(fds) != 0 {
		// An app with CAP_SYS_PTRACE can take them: a pidfd of the supervisor,
		// or a socket to it, would be a way out of the pod.
		t.Errorf("it has descriptors open: %v, %v", fds, err)
	}
	env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil || len(env) != 0 {
		t.Errorf("its environment is %q, %v", env, err)
	}
}

func TestPodInitNamespaces(t *testing.T) {
	for _, hostNet := range []bool{false, true} {
		t.Run(fmt.Sprintf("hostnet=%v", hostNet), func(t *testing.T) {
			f := newFixture(t)
			p := f.open(plan.Pod{Hostname: "web-1", Network: plan.Network{Host: hostNet}})
			f.must(startInit(soon(t), p))
			ns := p.Namespaces()
			for kind, fd := range map[string]int{"pid": ns.PID, "ipc": ns.IPC, "uts": ns.UTS} {
				of, err := os.Readlink(fdPath(fd))
				f.must(err)
				own, err := os.Readlink("/proc/self/ns/" + kind)
				f.must(err)
				if !strings.HasPrefix(of, kind+":") || of == own {
					t.Errorf("%s: descriptor of %s, own is %s", kind, of, own)
				}
			}
			if hostNet {
				if ns.Net != -1 {
					t.Errorf("descriptor %d of the network namespace with host networking", ns.Net)
				}
				return
			}
			if _, err := os.Stat("/usr/bin/nsenter"); err != nil {
				t.Fatal("nsenter is needed")
			}
			out, err := inNamespaces(ns.Net, ns.UTS, "cat /proc/self/net/fib_trie; hostname")
			if err != nil || !strings.Contains(out, "127.0.0.1") || !strings.HasSuffix(strings.TrimSpace(out), "web-1") {
				t.Errorf("loopback and hostname: %v:\n%s", err, out)
			}
		})
	}
}

// inNamespaces runs a script in a network and a UTS namespace.
func inNamespaces(net, uts int, script string) (string, error) {
	cmd := exec.Command("nsenter", "--net=/proc/self/fd/3", "--uts=/proc/self/fd/4", "sh", "-c", script)
	cmd.ExtraFiles = []*os.File{os.NewFile(dup(net), "net"), os.NewFile(dup(uts), "uts")}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func dup(fd int) uintptr {
	n, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		panic(err)
	}
	return uintptr(n)
}

func TestPodInitReapsOrphansAndTakesThePodWithIt(t *testing.T) {
	f := newFixture(t)
	p := f.open(plan.Pod{})
	f.must(startInit(soon(t), p))
	ns := p.Namespaces()
	// The shell's child is orphaned when the shell ends, and says its pid.
	cmd := exec.Command("nsenter", "--pid=/proc/self/fd/3", "sh", "-c", "sleep 1000 >&- 2>&- & echo $!; exit 0")
	pidNS := os.NewFile(dup(ns.PID), "pid")
	defer pidNS.Close()
	cmd.ExtraFiles = []*os.File{pidNS}
	out, err := cmd.Output()
	f.must(err)
	inner := strings.TrimSpace(string(out))
	pidfd := findInner(t, p.Init().PID, inner)
	defer unix.Close(pidfd)

	f.must(p.KillInit())
	f.must(p.WaitInit(soon(t)))
	if err := ended(pidfd); err != nil {
		t.Errorf("the orphan outlived pod init: %v", err)
	}
	f.must(p.KillInit()) // twice is no error
}

// findInner opens a pidfd of the child of pod init with a pid in the pod.
func findInner(t *testing.T, init int, inner string) int {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", init, init))
	if err != nil {
		t.Fatal(err)
	}
	for _, child := range strings.Fields(string(data)) {
		var pid int
		fmt.Sscan(child, &pid)
		if ids := strings.Fields(status(t, pid, "NSpid")); ids[len(ids)-1] == inner {
			fd, err := unix.PidfdOpen(pid, 0)
			if err != nil {
				t.Fatal(err)
			}
			return fd
		}
	}
	t.Fatalf("process %s of the pod is no child of pod init: %s", inner, data)
	return -1
}

func TestPodInitDiesWithItsSupervisor(t *testing.T) {
	exe := os.Getenv(childEnv)
	for range 20 {
		// A supervisor that starts pod init and is killed; the socket tells
		// when pod init has ended, whatever it had reached by then.
		fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		remote := os.NewFile(uintptr(fds[1]), "remote")
		cmd := exec.Command("/proc/self/exe", "-test.run=^TestHelperSupervisor$")
		cmd.Env = append(os.Environ(), "RKT_TEST_SUPERVISOR="+exe)
		cmd.ExtraFiles = []*os.File{remote}
		cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		remote.Close()
		buf := make([]byte, 64)
		n, err := unix.Read(fds[0], buf)
		if err != nil || string(buf[:n]) != "up" {
			t.Fatalf("helper said %q, %v", buf[:n], err)
		}
		_, _ = unix.Write(fds[0], []byte("pid"))
		n, err = unix.Read(fds[0], buf)
		if err != nil || n == 0 {
			t.Fatalf("no pid: %v", err)
		}
		var pid int
		fmt.Sscan(string(buf[:n]), &pid)
		pidfd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			t.Fatal(err)
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if err := ended(pidfd); err != nil {
			t.Errorf("pod init %d outlived its supervisor: %v", pid, err)
		}
		_, _ = unix.Close(pidfd), unix.Close(fds[0])
	}
}

// TestHelperSupervisor is no test: it is the supervisor of the one above.
func TestHelperSupervisor(t *testing.T) {
	exe := os.Getenv("RKT_TEST_SUPERVISOR")
	if exe == "" {
		return
	}
	f := newFixture(t)
	p, err := Open(Config{Plan: plan.Pod{Hostname: "x"}, Dir: f.dir, RunDir: f.runDir, InitPath: exe})
	f.must(err)
	f.must(startInit(soon(t), p))
	_, _ = unix.Write(3, []byte("up"))
	buf := make([]byte, 64)
	_, _ = unix.Read(3, buf)
	_, _ = unix.Write(3, fmt.Appendf(nil, "%d", p.Init().PID))
	select {}
}

func TestPodInitNamesTheStepThatFailed(t *testing.T) {
	f := newFixture(t)
	p := f.open(plan.Pod{Hostname: strings.Repeat("x", 65)})
	err := startInit(soon(t), p)
	if err == nil || !strings.Contains(err.Error(), "pod init: set the hostname: invalid argument") {
		t.Errorf("got %v", err)
	}
	f.must(p.WaitInit(soon(t)))
}

func TestStartInitGivesUpWithItsContext(t *testing.T) {
	f := newFixture(t)
	p := f.open(plan.Pod{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := startInit(ctx, p); err == nil {
		t.Error("no error though the context was cancelled")
	}
}

func TestStartInitWithoutItsProgram(t *testing.T) {
	f := newFixture(t)
	p, err := Open(Config{Plan: plan.Pod{}, Dir: f.dir, RunDir: f.runDir, InitPath: f.runDir + "/none"})
	f.must(err)
	defer p.Close()
	if err := startInit(soon(t), p); !errs.Is(err, errs.NotFound) || len(errs.Hints(err)) == 0 {
		t.Errorf("got %v", err)
	}
}

func TestStartInitOnAnotherThread(t *testing.T) {
	f := newFixture(t)
	p := f.open(plan.Pod{})
	if err := p.StartInit(t.Context()); err == nil {
		t.Error("no error though it isn't the main thread")
	}
}
