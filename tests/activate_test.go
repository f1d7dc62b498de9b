package tests

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// listenIn opens a socket in the network namespace of a process.
func listenIn(t *testing.T, pid int, network, addr string) *os.File {
	t.Helper()
	// The thread comes back: what it has started would be killed with it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	own, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	other, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", pid))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if err := unix.Setns(int(other.Fd()), unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
	file, err := openSocket(network, addr)
	if berr := unix.Setns(int(own.Fd()), unix.CLONE_NEWNET); berr != nil {
		panic(berr) // no other test may run here
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	return file
}

func openSocket(network, addr string) (*os.File, error) {
	if network == "udp" {
		c, err := net.ListenPacket(network, addr)
		if err != nil {
			return nil, err
		}
		defer c.Close()
		return c.(*net.UDPConn).File()
	}
	l, err := net.Listen(network, addr)
	if err != nil {
		return nil, err
	}
	defer l.Close()
	return l.(*net.TCPListener).File()
}

// given is a command that gets the files as a service manager hands them on.
func (h *netHost) given(files []*os.File, names string, args ...string) *exec.Cmd {
	cmd := h.command(args...)
	cmd.Path = "/bin/sh"
	cmd.Args = append([]string{"sh", "-c", `LISTEN_PID=$$ exec "$@"`, "sh"}, cmd.Args...)
	cmd.Env = append(cmd.Env, fmt.Sprintf("LISTEN_FDS=%d", len(files)), "LISTEN_FDNAMES="+names)
	cmd.ExtraFiles = files
	return cmd
}

// activatedPod is a manifest of netpeer, with a port of each kind.
func (h *netHost) activatedPod() string {
	h.t.Helper()
	id := strings.TrimSpace(h.must("fetch", "--full", "--insecure-options=image", image("netpeer.aci")))
	file := filepath.Join(h.t.TempDir(), "pod.json")
	text := fmt.Sprintf(`{"acKind":"PodManifest","acVersion":"0.8.11","apps":[{"name":"web","image":{"id":%q},"app":{
		"user":"1000","group":"1000","exec":["/netpeer","activated"],
		"ports":[{"name":"www","protocol":"tcp","port":80,"socketActivated":true},{"name":"dns","protocol":"udp","port":53,"socketActivated":true}]}}],
		"ports":[{"name":"www","hostPort":8080}]}`, id)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		h.t.Fatal(err)
	}
	return file
}

// TestSocketActivation: a port takes the descriptor that rkt was given for it,
// and is not forwarded; one that was not given is opened in the pod.
func TestSocketActivation(t *testing.T) {
	h := newNetHost(t)
	out := h.outside()
	manifest := h.activatedPod()
	tcp, udp, stray := listenIn(t, h.pid, "tcp", ":8080"), listenIn(t, h.pid, "udp", ":53"), listenIn(t, h.pid, "tcp", ":9999")
	files := []*os.File{stray, udp, tcp}
	for _, network := range []string{"default", "none", "host"} {
		uuid := filepath.Join(t.TempDir(), "uuid")
		pod := h.up(h.given(files, "stray.socket:dns.socket:", "run", "--net="+network, "--uuid-file-save="+uuid, "--pod-manifest="+manifest), uuid)
		for _, c := range []struct {
			from                int
			network, addr, seen string
		}{
			{h.pid, "tcp", "127.0.0.1:8080", "127.0.0.1"}, {h.pid, "tcp", "[::1]:8080", "::1"},
			{out, "tcp", "10.9.0.1:8080", "10.9.0.2"}, {out, "udp", "10.9.0.1:53", "10.9.0.2"}, {out, "tcp", "[fd09::1]:8080", "fd09::2"},
		} {
			h.wantAnswer(c.from, c.network, c.addr, c.network+" from "+c.seen)
		}
		if got := h.must("logs", pod.uuid); !strings.Contains(got, "serving dns.socket www\n") && !strings.Contains(got, "serving www dns.socket\n") {
			t.Errorf("%s: what the app was told: %q", network, got)
		}
		if got := h.must("enter", pod.uuid, "/bin/sh", "-c", "echo ${LISTEN_FDS-none} ${LISTEN_PID-none}; ls /proc/self/fd | grep -c '^[4-9]'; true"); got != "none none\n0\n" {
			t.Errorf("%s: what entered the app: %q", network, got)
		}
		if got := h.must("net", "check"); got != "" {
			t.Errorf("%s: check: %s", network, got)
		}
		if got := h.sh("nft list ruleset"); strings.Contains(got, "8080") {
			t.Errorf("%s: the port is forwarded too:\n%s", network, got)
		}
		// The next execution has the same sockets.
		h.must("app", "restart", pod.uuid)
		h.wantAnswer(out, "tcp", "10.9.0.1:8080", "tcp from 10.9.0.2")
		pod.stop()
		const want = "descriptor 3 (stray.socket tcp [::]:9999): no socket-activated port of the pod takes it"
		if !strings.Contains(pod.stderr.String(), want) {
			t.Errorf("%s: no %q in %s", network, want, pod.stderr)
		}
	}
	for _, f := range files {
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	uuid := filepath.Join(t.TempDir(), "uuid")
	pod := h.up(h.command("run", "--uuid-file-save="+uuid, "--pod-manifest="+manifest), uuid)
	h.wantAnswer(out, "tcp", "10.9.0.1:8080", "tcp from 10.9.0.2")
	h.wantAnswer(h.pid, "udp", "172.16.28."+lastOf(pod)+":53", "udp from 172.16.28.1")
	pod.stop()
}

// TestSocketActivationRefused: what is no such protocol is said to be none, and
// nothing of it reaches a pod.
func TestSocketActivationRefused(t *testing.T) {
	h := newNetHost(t)
	socket := listenIn(t, h.pid, "tcp", ":8080")
	for _, c := range []struct {
		env  []string
		code int
		want string
	}{
		{[]string{"LISTEN_FDS=many"}, 254, `run: LISTEN_FDS: "many": not a number of descriptors`},
		{[]string{"LISTEN_FDS=1", "LISTEN_FDNAMES=a:b"}, 254, "run: LISTEN_FDNAMES: 2 names for 1 descriptors"},
		{[]string{"LISTEN_FDS=1", "LISTEN_FDNAMES=a"}, 0, ""},
		{[]string{"LISTEN_FDS=2", "LISTEN_FDNAMES="}, 254, "run: LISTEN_FDS: descriptor 4 was not given"},
	} {
		cmd := h.given([]*os.File{socket}, "", "run", "--inherit-env", "example.com/netpeer:1.0", "--exec=/bin/sh", "--", "-c",
			"env | grep LISTEN; cd /proc/self/fd; for fd in *; do [ -e $fd ] && echo -n $fd; done; true")
		cmd.Env = append(cmd.Env, c.env...)
		stdout, stderr := &strings.Builder{}, &strings.Builder{}
		cmd.Stdout, cmd.Stderr = io.Writer(stdout), stderr
		_ = cmd.Run()
		if code := cmd.ProcessState.ExitCode(); code != c.code || !strings.Contains(stderr.String(), c.want) || code == 0 && stdout.String() != "012" {
			t.Errorf("%q: exit %d, %q, %s", c.env, code, stdout, stderr)
		}
	}
}
