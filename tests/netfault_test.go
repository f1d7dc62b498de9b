package tests

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestNetFault kills a start, an end and a collection at each step that they
// do on networks, and lets each step fail: gc leaves nothing, and the next pod
// starts with no repair. Each step is tried on a host that never had a pod, so
// that the table is made, and on one that has a pod running.
func TestNetFault(t *testing.T) {
	programs := buildFaulty(t)
	for _, busy := range []bool{false, true} {
		h := newNetHost(t)
		h.programs = programs
		h.configure("hl.conflist", `{"cniVersion":"1.1.0","name":"hl","plugins":[{"type":"ptp","ipam":{"type":"host-local","subnet":"10.45.0.0/24","dataDir":"LEASES"}}]}`)
		if err := os.Symlink(filepath.Join(bin, "cni"), filepath.Join(programs, "cni")); err != nil && !os.IsExist(err) {
			t.Fatal(err)
		}
		var other *netPod
		if busy {
			other = h.start([]string{"--port=90-tcp:9090"}, "/netpeer", "serve", "tcp:90")
		}
		run := []string{"run", "--net=default,hl", "--port=80-tcp:8080", "example.com/netpeer:1.0", "--exec=/bin/true"}
		collect := []string{"gc", "--grace-period=0s", "--expire-prepared=0s"}
		for _, step := range h.netSteps(run) {
			for _, action := range []string{"KILL", "EIO"} {
				if !busy {
					h.sh("echo 0 >/proc/sys/net/ipv4/ip_forward; echo 0 >/proc/sys/net/ipv6/conf/all/forwarding")
				}
				res := h.faulted(run, "RKT_FAULT="+step+":"+action)
				if res.code == 0 && !atEnd[step] {
					t.Errorf("%s at %s: %s", action, step, res)
				}
				// A release that failed is tried again before anyone hears of it.
				again := step == "network.unpublish" || step == "network.unlink"
				if action == "EIO" && !again && !strings.Contains(res.stderr, "fault injected at "+step) {
					t.Errorf("EIO at %s is not told: %s", step, res)
				}
				h.must(collect...)
				h.nothingOf(other, action+" at "+step)
			}
		}
		// A collection of what a killed supervisor held.
		abandoned := func() { h.start([]string{"--net=default,hl", "--port=80-tcp:8080"}).kill() }
		abandoned()
		for _, step := range h.netSteps(collect) {
			abandoned()
			if res := h.faulted(collect, "RKT_FAULT="+step+":KILL"); res.code == 0 {
				t.Errorf("gc, KILL at %s: %s", step, res)
			}
			h.must(collect...)
			h.nothingOf(other, "gc, KILL at "+step)
		}
		if other != nil {
			h.wantAnswer(h.pid, "tcp", "127.0.0.1:9090", "tcp from 172.16.28.1")
			other.stop()
		}
	}
}

// atEnd are the steps of a pod's end: the pod's code is not changed by them.
var atEnd = map[string]bool{
	"network.unpublish": true, "network.unlink": true, "network.free": true, "network.names": true, "network.forget": true, "cni.del": true,
}

// faulted runs a command of the programs that obey RKT_FAULT.
func (h *netHost) faulted(args []string, env ...string) result {
	h.t.Helper()
	cmd := h.command(args...)
	for i, w := range cmd.Args {
		if w == filepath.Join(bin, "rkt") {
			cmd.Args[i] = filepath.Join(h.programs, "rkt")
		}
	}
	cmd.Env = append(cmd.Env, env...)
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if err != nil && cmd.ProcessState == nil {
		h.t.Fatal(err)
	}
	return result{args, cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// netSteps are the steps of a command that have to do with networks, each once.
func (h *netHost) netSteps(args []string) []string {
	h.t.Helper()
	trace := filepath.Join(h.t.TempDir(), "trace")
	if res := h.faulted(args, "RKT_FAULT_TRACE="+trace); res.code != 0 {
		h.t.Fatal(res)
	}
	data, err := os.ReadFile(trace)
	if err != nil {
		h.t.Fatal(err)
	}
	var steps []string
	seen := map[string]bool{}
	for _, s := range strings.Fields(string(data)) {
		if (strings.HasPrefix(s, "network.") || strings.HasPrefix(s, "cni.")) && !seen[s] {
			seen[s] = true
			steps = append(steps, s)
		}
	}
	if len(steps) < 3 {
		h.t.Fatalf("%v: only the steps %q", args, steps)
	}
	return steps
}

// nothingOf checks that after gc only the other pod has something.
func (h *netHost) nothingOf(other *netPod, when string) {
	h.t.Helper()
	if other == nil {
		if left := h.left(); left != "" {
			h.t.Errorf("%s: left after gc:\n%s", when, left)
		}
		return
	}
	if res := h.rkt("net", "check"); res.code != 0 {
		h.t.Errorf("%s: %s", when, res)
	}
	links := strings.Count(h.sh("ip -o link"), ": rkt")
	if leases := h.sh("ls /run/rkt/net/leases/default | grep -v last; ls " + h.config + "/leases/hl | grep -c '^10.45.*[0-9]$' || true"); links != 1 || leases != "172.16.28."+lastOf(other)+"\n0\n" {
		h.t.Errorf("%s: %d links, leases %q", when, links, leases)
	}
}

// lastOf is the last number of the pod's address.
func lastOf(p *netPod) string {
	_, rest, _ := strings.Cut(p.h.must("status", p.uuid), "ip4=172.16.28.")
	n, _, _ := strings.Cut(rest, ",")
	return n
}
