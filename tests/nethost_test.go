package tests

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// netHost is a host of a test's own: a network namespace, with a /run that
// nobody else has, in which rkt is run.
type netHost struct {
	*host
	pid      int
	config   string                    // the folder of the local configuration
	peer     string                    // the program netpeer
	programs string                    // the folder of those that obey RKT_FAULT
	called   func(command string) bool // whether the plugin of strange was
}

// holdNetwork starts a process that keeps new namespaces, after the script has run in
// them.
func holdNetwork(t testing.TB, script string) int {
	t.Helper()
	cmd := exec.Command("unshare", "--net", "--mount", "--propagation", "private", "sh", "-ec", script+"\necho ready; exec sleep infinity")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "ready\n" {
		t.Fatalf("namespaces of a host: %q, %v", line, err)
	}
	return cmd.Process.Pid
}

func newNetHost(t testing.TB) *netHost {
	t.Helper()
	if _, err := exec.LookPath("nft"); err != nil {
		t.Skip("needs nft")
	}
	h := &netHost{host: &host{t: t, dir: filepath.Join(t.TempDir(), "data")}, config: t.TempDir(), peer: image("netpeer")}
	if err := os.Mkdir(filepath.Join(h.config, "net.d"), 0o755); err != nil {
		t.Fatal(err)
	}
	h.pid = holdNetwork(t, "mount -t tmpfs tmpfs /run; ip link set lo up")
	h.host.inside = []string{"nsenter", "-t", strconv.Itoa(h.pid), "--net", "--mount", "--"}
	h.host.flags = []string{"--local-config=" + h.config}
	t.Cleanup(h.finishNet)
	h.must("fetch", "--insecure-options=image", image("netpeer.aci"))
	return h
}

// finishNet collects everything and checks that the network is as it was.
func (h *netHost) finishNet() {
	h.t.Helper()
	h.clean()
	if left := h.left(); left != "" {
		h.t.Errorf("left after gc:\n%s", left)
	}
}

// left is what there is of rkt in the host's network and /run.
func (h *netHost) left() string {
	h.t.Helper()
	return h.sh(`ip -o link | grep rkt || true; nft list ruleset | grep -w rkt || true; find /run -mindepth 1 ! -path /run/rkt; find ` + h.config + `/leases -name '*.*.*.*' ! -name 'last*' 2>/dev/null || true`)
}

// sh runs a script in the host.
func (h *netHost) sh(script string) string {
	h.t.Helper()
	out, err := inside(h.pid, "sh", "-ec", script).CombinedOutput()
	if err != nil {
		h.t.Fatalf("%s: %v\n%s", script, err, out)
	}
	return string(out)
}

func inside(pid int, words ...string) *exec.Cmd {
	return exec.Command("nsenter", append([]string{"-t", strconv.Itoa(pid), "--net", "--mount", "--"}, words...)...)
}

// ask asks from the network namespace of a process and returns the answer, or
// the error.
func (h *netHost) ask(pid int, network, addr string) string {
	h.t.Helper()
	out, _ := exec.Command("nsenter", "-t", strconv.Itoa(pid), "--net", "--", h.peer, "ask", network, addr).CombinedOutput()
	return strings.TrimSpace(string(out))
}

// wantAnswer asks until the program there has begun to listen.
func (h *netHost) wantAnswer(pid int, network, addr, want string) {
	h.t.Helper()
	var got string
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); {
		if got = h.ask(pid, network, addr); got == want {
			return
		}
	}
	h.t.Errorf("%s %s: %q, want %q", network, addr, got, want)
}

// outside is another host that shares a link with this one: 10.9.0.2 and
// fd09::2 here, 10.9.0.1 and fd09::1 there.
func (h *netHost) outside() int {
	h.t.Helper()
	pid := holdNetwork(h.t, "ip link set lo up")
	h.sh(fmt.Sprintf(`ip link add up0 type veth peer name out0 netns %d
ip addr add 10.9.0.1/24 dev up0; ip addr add fd09::1/64 dev up0 nodad; ip link set up0 up`, pid))
	if out, err := inside(pid, "sh", "-ec", "ip link set out0 up; ip addr add 10.9.0.2/24 dev out0; ip addr add fd09::2/64 dev out0 nodad").CombinedOutput(); err != nil {
		h.t.Fatalf("%v: %s", err, out)
	}
	return pid
}

// netPod is a running pod.
type netPod struct {
	h      *netHost
	cmd    *exec.Cmd
	uuid   string
	init   int // a process of it, on the host
	stderr *bytes.Buffer
	done   chan struct{}
}

// start runs a pod with the arguments of run up to the image, and waits until
// it is up.
func (h *netHost) start(flags []string, argv ...string) *netPod {
	h.t.Helper()
	file := filepath.Join(h.t.TempDir(), "uuid")
	args := append([]string{"run", "--uuid-file-save=" + file}, flags...)
	args = append(args, "example.com/netpeer:1.0")
	if len(argv) > 0 {
		args = append(args, "--exec="+argv[0], "--")
		args = append(args, argv[1:]...)
	} else {
		args = append(args, "--exec=/bin/sleep", "--", "1000")
	}
	return h.up(h.command(args...), file)
}

// up starts a pod with the command, which saves its UUID in the file, and waits
// until it is up.
func (h *netHost) up(cmd *exec.Cmd, file string) *netPod {
	h.t.Helper()
	p := &netPod{h: h, cmd: cmd, stderr: &bytes.Buffer{}, done: make(chan struct{})}
	p.cmd.Stderr = p.stderr
	if err := p.cmd.Start(); err != nil {
		h.t.Fatal(err)
	}
	go func() { _ = p.cmd.Wait(); close(p.done) }()
	h.t.Cleanup(func() {
		if !p.over() {
			_ = p.cmd.Process.Kill()
			<-p.done
		}
	})
	for end := time.Now().Add(30 * time.Second); ; {
		if id, err := os.ReadFile(file); err == nil {
			p.uuid = strings.TrimSpace(string(id))
		}
		if p.uuid != "" {
			if p.init = h.appPID(p.uuid); p.init != 0 {
				break
			}
		}
		if p.over() || time.Now().After(end) {
			h.t.Fatalf("the pod did not come up: %s", p.stderr)
		}
	}
	return p
}

func (p *netPod) over() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// appPID is the main process of a pod's one app, 0 before that runs.
func (h *netHost) appPID(uuid string) int {
	h.t.Helper()
	var v struct {
		Apps []struct {
			Status *struct {
				PID int `json:"pid"`
			} `json:"status"`
		} `json:"apps"`
	}
	res := h.rkt("status", "--format=json", uuid)
	if res.code != 0 || json.Unmarshal([]byte(res.stdout), &v) != nil || len(v.Apps) == 0 || v.Apps[0].Status == nil {
		return 0
	}
	return v.Apps[0].Status.PID
}

func (p *netPod) stop() {
	p.h.t.Helper()
	p.h.must("stop", p.uuid)
	<-p.done
}

// kill ends the supervisor, which can undo nothing.
func (p *netPod) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// configure writes a network's configuration.
func (h *netHost) configure(name, text string) {
	h.t.Helper()
	text = strings.ReplaceAll(text, "LEASES", h.config+"/leases")
	if err := os.WriteFile(filepath.Join(h.config, "net.d", name), []byte(text), 0o644); err != nil {
		h.t.Fatal(err)
	}
}
