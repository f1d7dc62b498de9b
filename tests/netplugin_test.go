package tests

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rkt-pods/rkt/pkg/testkit"
)

// strange configures the network "strange", whose plugin does what the file
// that is returned says: a command of CNI and hang or fail. Beside that file it
// leaves one of the command's name.
func (h *netHost) strange() (behave func(what string)) {
	h.t.Helper()
	dir := h.t.TempDir()
	script := `#!/bin/sh
cd ` + dir + `
echo at $CNI_COMMAND >&2
touch $CNI_COMMAND
case "$(cat behave)" in
"$CNI_COMMAND hang") exec sleep 1000 ;;
"$CNI_COMMAND fail") echo '{"code":7,"msg":"will not"}'; exit 1 ;;
esac
[ $CNI_COMMAND != ADD ] || echo '{"cniVersion":"1.0.0","ips":[]}'
`
	if err := testkit.WriteProgram(filepath.Join(h.config, "net.d", "strange"), []byte(script)); err != nil {
		h.t.Fatal(err)
	}
	h.configure("strange.conflist", `{"cniVersion":"1.0.0","name":"strange","plugins":[{"type":"strange"}]}`)
	return func(what string) {
		if err := os.WriteFile(filepath.Join(dir, "behave"), []byte(what), 0o644); err != nil {
			h.t.Fatal(err)
		}
		for _, command := range []string{"ADD", "DEL"} {
			if err := os.RemoveAll(filepath.Join(dir, command)); err != nil {
				h.t.Fatal(err)
			}
		}
		h.called = func(command string) bool {
			_, err := os.Stat(filepath.Join(dir, command))
			return err == nil
		}
	}
}

// TestNetHanging: a stop does not wait for a plugin that gives no answer, at
// the pod's start or at its end, and what is left then is collected.
func TestNetHanging(t *testing.T) {
	h := newNetHost(t)
	behave := h.strange()
	collect := []string{"gc", "--grace-period=0s"}
	for _, how := range []string{"stop", "signal"} {
		behave("ADD hang")
		uuid := filepath.Join(t.TempDir(), "uuid")
		cmd := h.command("run", "--net=default,strange", "--uuid-file-save="+uuid, "example.com/netpeer:1.0", "--exec=/bin/echo", "--", "up")
		var stdout, stderr strings.Builder
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		h.until("the plugin is asked", func() bool { return h.called("ADD") })
		if how == "stop" {
			h.must("stop", "--uuid-file="+uuid)
		} else if err := cmd.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil || stdout.String() != "" || stderr.String() != "" {
			t.Errorf("%s: %v, %q, %s", how, err, &stdout, &stderr)
		}
		if left := h.sh("ip -o link | grep rkt || true"); left != "" {
			t.Errorf("%s: left of what was made before:\n%s", how, left)
		}
	}
	// A network may give no address, and has nothing to tell then.
	behave("")
	if res := h.rkt("run", "--net=strange", "example.com/netpeer:1.0", "--exec=/bin/sleep", "--", "0.1"); res.code != 0 || res.stderr != "" {
		t.Error(res)
	}
	behave("DEL hang")
	pod := h.start([]string{"--net=default,strange"})
	pod.stop()
	if got := pod.stderr.String(); !strings.Contains(got, "network strange: plugin strange: del: no answer after 5s, killed (it said: at ADD") && !strings.Contains(got, "killed (it said: at DEL)") {
		t.Errorf("what the supervisor says: %s", got)
	}
	behave("")
	h.must(collect...)
}

// TestNetFailingRelease: a plugin that fails to release keeps its pod, with the
// reason, is asked again each time, and can be given up.
func TestNetFailingRelease(t *testing.T) {
	h := newNetHost(t)
	behave := h.strange()
	const reason = "network strange: plugin strange: del: will not"
	fails := func(code int, args ...string) {
		t.Helper()
		if res := h.rkt(args...); res.code != code || !strings.Contains(res.stdout+res.stderr, reason) {
			t.Error(res)
		}
	}
	for _, end := range []string{"stop", "kill"} {
		behave("DEL fail")
		pod := h.start([]string{"--net=default,strange", "--port=80-tcp:8080"})
		if end == "stop" {
			pod.stop()
			fails(12, "net", "check")
		} else {
			pod.kill()
		}
		fails(10, "net", "gc")
		fails(12, "net", "check")
		// All that is rkt's is free.
		if left := h.sh(`ip -o link | grep rkt || true; nft list ruleset | grep comment || true; find /run/rkt -name '172.*'`); left != "" {
			t.Errorf("%s: left:\n%s", end, left)
		}
		if got := h.must("net", "list", "--no-legend"); !strings.Contains(strings.Join(strings.Fields(got), " "), "default rkt-ptp 0") {
			t.Errorf("%s: the pod is on the network still: %s", end, got)
		}
		fails(10, "gc", "--grace-period=0s")
		fails(254, "rm", pod.uuid)
		fails(10, "net", "gc")
		if end == "stop" {
			behave("")
			h.must("gc", "--grace-period=0s")
			if !h.called("DEL") {
				t.Error("the plugin was not asked again")
			}
			continue
		}
		if got := h.must("net", "gc", "--force"); got != "network of pod "+pod.uuid+"\n" {
			t.Errorf("given up: %s", got)
		}
		if res := h.rkt("net", "check"); res.code != 0 {
			t.Error(res)
		}
		h.must("gc", "--grace-period=0s")
	}
	// What has not ended keeps everything.
	behave("")
	pod := h.start([]string{"--net=default,strange", "--port=80-tcp:8080"}, "/netpeer", "serve", "tcp:80")
	if got := h.must("net", "gc", "--force"); got != "" {
		t.Error(got)
	}
	h.wantAnswer(h.pid, "tcp", "127.0.0.1:8080", "tcp from 172.16.28.1")
	pod.stop()
}

// until waits for something to come true.
func (h *netHost) until(what string, is func() bool) {
	h.t.Helper()
	for end := time.Now().Add(30 * time.Second); !is(); {
		if time.Now().After(end) {
			h.t.Fatalf("never: %s", what)
		}
	}
}
