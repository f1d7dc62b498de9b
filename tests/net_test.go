package tests

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestNetPorts: a pod's ports from everywhere, its way out, and its neighbour.
func TestNetPorts(t *testing.T) {
	h := newNetHost(t)
	out := h.outside()
	server := inside(out, h.peer, "serve", "tcp:90", "udp:90")
	server.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Process.Kill(); _ = server.Wait() })
	web := h.start([]string{
		"--port=80-tcp:8080", "--port=53-udp:5353", "--port=81-tcp:10.9.0.1:8081", "--hostname=web", "--port=82-tcp:0.0.0.0:8082",
		"--port=83-tcp:[::]:8083", "--port=84-tcp:[::1]:8084", "--port=84-udp:[::1]:8084", "--port=85-tcp:127.0.0.1:8085", "--port=90-92-tcp:9090",
	}, "/netpeer", "serve", "tcp:80", "udp:53", "tcp:81", "tcp:82", "tcp:83", "tcp:84", "udp:84", "tcp:85", "tcp:92")
	const host4, host6, pod4, pod6 = "172.16.28.1", "fd72:6b74:1c::1", "172.16.28.2", "fd72:6b74:1c::2"
	for _, c := range []struct {
		from          int
		network, addr string
		seen          string // who the pod sees
	}{
		{h.pid, "tcp", "127.0.0.1:8080", host4}, {h.pid, "udp", "127.0.0.1:5353", host4},
		{h.pid, "tcp", "10.9.0.1:8080", host4}, {h.pid, "udp", "10.9.0.1:5353", host4},
		{h.pid, "tcp", "[::1]:8080", host6}, {h.pid, "udp", "[::1]:5353", host6}, {h.pid, "tcp", "[fd09::1]:8080", host6}, {h.pid, "udp", "[fd09::1]:5353", host6},
		{out, "tcp", "10.9.0.1:8080", "10.9.0.2"}, {out, "udp", "10.9.0.1:5353", "10.9.0.2"},
		{out, "tcp", "[fd09::1]:8080", "fd09::2"}, {out, "udp", "[fd09::1]:5353", "fd09::2"},
		{out, "tcp", "10.9.0.1:8081", "10.9.0.2"}, {h.pid, "tcp", pod4 + ":80", host4}, {h.pid, "tcp", "[" + pod6 + "]:80", host6},
		// To itself, through the host.
		{web.init, "tcp", "10.9.0.1:8080", host4}, {web.init, "udp", "10.9.0.1:5353", host4},
		{web.init, "tcp", "[fd09::1]:8080", host6}, {web.init, "udp", "[fd09::1]:5353", host6}, {web.init, "tcp", host4 + ":8080", host4},
		// All addresses of a family, the loopback of one, the last of a range.
		{out, "tcp", "10.9.0.1:8082", "10.9.0.2"}, {h.pid, "tcp", "127.0.0.1:8082", host4}, {out, "tcp", "[fd09::1]:8083", "fd09::2"},
		{h.pid, "tcp", "[::1]:8083", host6}, {h.pid, "tcp", "[::1]:8084", host6}, {h.pid, "udp", "[::1]:8084", host6},
		{h.pid, "tcp", "127.0.0.1:8085", host4}, {out, "tcp", "10.9.0.1:9092", "10.9.0.2"},
		// Out.
		{web.init, "tcp", "10.9.0.2:90", "10.9.0.1"}, {web.init, "udp", "10.9.0.2:90", "10.9.0.1"},
		{web.init, "tcp", "[fd09::2]:90", "fd09::1"}, {web.init, "udp", "[fd09::2]:90", "fd09::1"},
	} {
		h.wantAnswer(c.from, c.network, c.addr, c.network+" from "+c.seen)
	}
	for _, addr := range []string{"127.0.0.1:8081", "[fd09::1]:8082", "10.9.0.1:8083", "[fd09::1]:8084", "10.9.0.1:8085", "10.9.0.1:9093"} {
		if got := h.ask(h.pid, "tcp", addr); !strings.Contains(got, "refused") {
			t.Errorf("a port of other addresses answers at %s: %s", addr, got)
		}
	}
	second := h.start(nil)
	for addr, network := range map[string]string{"10.9.0.1:8080": "tcp", "10.9.0.1:5353": "udp", "[fd09::1]:8080": "tcp", pod4 + ":80": "tcp", "[" + pod6 + "]:80": "tcp"} {
		want := network + " from 172.16.28.3"
		if strings.HasPrefix(addr, "[") {
			want = network + " from fd72:6b74:1c::3"
		}
		h.wantAnswer(second.init, network, addr, want)
	}
	// By name, in both directions: the first pod's file has followed.
	if got := h.must("enter", second.uuid, "/netpeer", "ask", "tcp", "web:80"); !strings.HasPrefix(got, "tcp from ") {
		t.Errorf("by name: %s", got)
	}
	h.wantInFile(web, "172.16.28.3 rkt-"+second.uuid)
	second.stop()
	h.wantNotInFile(web, "rkt-"+second.uuid)
	if got := h.must("status", web.uuid); !strings.Contains(got, "networks=default:ip4="+pod4+", default:ip6="+pod6+"\n") {
		t.Errorf("status: %s", got)
	}
	h.restricted(out)
	if got := h.must("net", "check"); got != "" {
		t.Errorf("check: %s", got)
	}
	web.stop()
}

// restricted checks a pod that may talk to the host and nobody else.
func (h *netHost) restricted(out int) {
	h.t.Helper()
	pod := h.start([]string{"--net=default-restricted", "--port=80-tcp:8090"}, "/netpeer", "serve", "tcp:80")
	if got := h.ask(pod.init, "tcp", "10.9.0.2:90"); !strings.Contains(got, "unreachable") {
		h.t.Errorf("a restricted pod gets out: %s", got)
	}
	// Not with a route of its own either.
	if out, err := exec.Command("nsenter", "-t", strconv.Itoa(pod.init), "--net", "--", "ip", "route", "add", "default", "via", "172.31.0.1").CombinedOutput(); err != nil {
		h.t.Fatalf("%v: %s", err, out)
	}
	if got := h.ask(pod.init, "tcp", "10.9.0.2:90"); !strings.Contains(got, "timeout") {
		h.t.Errorf("a restricted pod with a route gets out: %s", got)
	}
	// Nor by passing for somebody else.
	link := strings.TrimSpace(h.sh(`ip -o route get 172.31.0.2 | sed 's/.* dev \([a-z0-9]*\) .*/\1/'`))
	h.sh("ip route add 10.8.0.77/32 dev " + link)
	for pid, script := range map[int]string{
		out: "ip route add 10.8.0.77/32 via 10.9.0.1", pod.init: "ip addr add 10.8.0.77/32 dev eth0; ip route replace default via 172.31.0.1 src 10.8.0.77",
	} {
		if out, err := exec.Command("nsenter", "-t", strconv.Itoa(pid), "--net", "--", "sh", "-ec", script).CombinedOutput(); err != nil {
			h.t.Fatalf("%s: %v: %s", script, err, out)
		}
	}
	if got := h.ask(pod.init, "tcp", "10.9.0.2:90"); !strings.Contains(got, "timeout") {
		h.t.Errorf("a restricted pod gets out by another's address: %s", got)
	}
	h.sh(`nft delete element inet rkt guarded "{ ` + link + ` }"`)
	h.wantAnswer(pod.init, "tcp", "10.9.0.2:90", "tcp from 10.8.0.77")
	h.must("net", "reload")
	h.wantAnswer(out, "tcp", "10.9.0.1:8090", "tcp from 172.31.0.1")
	h.wantAnswer(h.pid, "tcp", "127.0.0.1:8090", "tcp from 172.31.0.1")
	pod.stop()
}

func hostsOf(h *netHost, p *netPod) string {
	return h.must("enter", p.uuid, "/bin/cat", "/etc/hosts")
}

func (h *netHost) wantInFile(p *netPod, line string) {
	h.t.Helper()
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); {
		if strings.Contains(hostsOf(h, p), line+"\n") {
			return
		}
	}
	h.t.Errorf("/etc/hosts lacks %q:\n%s", line, hostsOf(h, p))
}

func (h *netHost) wantNotInFile(p *netPod, text string) {
	h.t.Helper()
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); {
		if !strings.Contains(hostsOf(h, p), text) {
			return
		}
	}
	h.t.Errorf("/etc/hosts has %q still:\n%s", text, hostsOf(h, p))
}

// many is how many pods a test of many starts: more with RKT_TEST_LONG.
func many(short, long int) int {
	if os.Getenv("RKT_TEST_LONG") != "" {
		return long
	}
	return short
}

const smallNet = `{"cniVersion":"1.1.0","name":"small","plugins":[{"type":"rkt-ptp","subnets":["10.44.0.0/28"],"defaultRoute":true,"masquerade":true}]}`

// TestNetMany: pods that end well and pods whose supervisor is killed at random
// moments; after gc nothing is left. netHost's own clean-up looks for that.
func TestNetMany(t *testing.T) {
	h := newNetHost(t)
	h.configure("small.conflist", smallNet)
	h.configure("host-local.conflist", `{"cniVersion":"1.1.0","name":"hl","plugins":[{"type":"ptp","ipam":{"type":"host-local","subnet":"10.45.0.0/24","dataDir":"LEASES"}}]}`)
	for i := range many(16, 200) {
		args := []string{"run", "--net=small,hl", "--port=80-tcp:8080", "example.com/netpeer:1.0", "--exec=/bin/true"}
		cmd := h.command(args...)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if i%2 == 0 {
			if err := cmd.Wait(); err != nil {
				t.Fatalf("pod %d: %v", i, err)
			}
			continue
		}
		kill := time.AfterFunc(time.Duration(rand.IntN(400))*time.Millisecond, func() { _ = cmd.Process.Kill() })
		_ = cmd.Wait()
		kill.Stop()
		if i%10 == 9 { // the pool has 13
			h.must("gc", "--grace-period=0s", "--expire-prepared=0s")
		}
	}
}

// TestNetPool: a small pool serves any number of pods in turn.
func TestNetPool(t *testing.T) {
	h := newNetHost(t)
	h.configure("small.conflist", smallNet)
	for range many(20, 500) {
		h.must("run", "--rm", "--net=small", "example.com/netpeer:1.0", "--exec=/bin/true")
	}
	// And says so when it is full.
	for i := range 13 {
		h.sh(fmt.Sprintf("mkdir -p /run/rkt/net/leases/small; echo other >/run/rkt/net/leases/small/10.44.0.%d", i+2))
	}
	res := h.rkt("run", "--net=small", "example.com/netpeer:1.0", "--exec=/bin/true")
	if res.code != 254 || !strings.Contains(res.stderr, "network small: plugin rkt-ptp: add: no free address in 10.44.0.0/28: 13 are in use") {
		t.Error(res)
	}
	h.sh("rm -r /run/rkt/net/leases")
}

// TestNetAtOnce: many starts at the same time get addresses of their own.
func TestNetAtOnce(t *testing.T) {
	h := newNetHost(t)
	var mu sync.Mutex
	seen := map[string]int{}
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			res := h.rkt("run", "example.com/netpeer:1.0", "--exec=/bin/sh", "--", "-c", "ip -o -4 addr show eth0; sleep 2")
			m := regexp.MustCompile(`inet ([0-9.]+)/24`).FindStringSubmatch(res.stdout)
			mu.Lock()
			defer mu.Unlock()
			if res.code != 0 || m == nil {
				t.Error(res)
				return
			}
			seen[m[1]]++
		})
	}
	wg.Wait()
	for addr, n := range seen {
		if n > 1 {
			t.Errorf("%s was given to %d pods at once", addr, n)
		}
	}
}

// TestNetPortConflict: who has a port is named before anything is done, and a
// dead pod has none.
func TestNetPortConflict(t *testing.T) {
	h := newNetHost(t)
	run := []string{"run", "--port=80-tcp:8080", "example.com/netpeer:1.0", "--exec=/bin/true"}
	first := h.start([]string{"--port=80-tcp:8080", "--port=99-sctp:9099"}, "/netpeer", "serve", "tcp:80")
	// Also where the kernel has no sockets of the protocol.
	if res := h.rkt("run", "--port=98-sctp:9099", "example.com/netpeer:1.0", "--exec=/bin/true"); res.code != 254 ||
		!strings.Contains(res.stderr, "port 98-sctp: sctp 9099 of the host is held by pod "+first.uuid) {
		t.Error(res)
	}
	res := h.rkt(run...)
	if res.code != 254 || !strings.Contains(res.stderr, "port 80-tcp: tcp 8080 of the host is held by pod "+first.uuid) {
		t.Error(res)
	}
	first.kill()
	// Its rule is there still, and leads nowhere.
	second := h.start([]string{"--port=80-tcp:8080"}, "/netpeer", "serve", "tcp:80")
	h.wantAnswer(h.pid, "tcp", "127.0.0.1:8080", "tcp from 172.16.28.1")
	// Collecting the dead one takes nothing from the living.
	h.must("rm", first.uuid)
	h.wantAnswer(h.pid, "tcp", "127.0.0.1:8080", "tcp from 172.16.28.1")
	second.stop()
	server := inside(h.pid, h.peer, "serve", "tcp:8080")
	out, err := server.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = server.Process.Kill(); _ = server.Wait() }()
	if _, err := out.Read(make([]byte, 16)); err != nil {
		t.Fatal(err)
	}
	res = h.rkt(run...)
	if res.code != 254 || !strings.Contains(res.stderr, fmt.Sprintf("held by process %d (netpeer)", server.Process.Pid)) {
		t.Error(res)
	}
}

// TestNetFlushed: a flushed ruleset is found and restored.
func TestNetFlushed(t *testing.T) {
	h := newNetHost(t)
	pod := h.start([]string{"--port=80-tcp:8080"}, "/netpeer", "serve", "tcp:80")
	h.wantAnswer(h.pid, "tcp", "127.0.0.1:8080", "tcp from 172.16.28.1")
	h.sh("nft flush ruleset")
	if got := h.ask(h.pid, "tcp", "127.0.0.1:8080"); !strings.Contains(got, "refused") {
		t.Errorf("without rules: %s", got)
	}
	res := h.rkt("net", "check")
	if res.code != 12 || !strings.Contains(res.stdout, "rules are missing") || !strings.Contains(res.stdout, "pod "+pod.uuid+": table inet rkt: any4: tcp . 8080 is missing") {
		t.Error(res)
	}
	h.must("net", "reload")
	h.wantAnswer(h.pid, "tcp", "127.0.0.1:8080", "tcp from 172.16.28.1")
	if res := h.rkt("net", "check"); res.code != 0 {
		t.Error(res)
	}
	// A pod that starts after a flush makes the table anew.
	h.sh("nft flush ruleset")
	next := h.start(nil)
	h.must("net", "reload")
	h.wantAnswer(h.pid, "tcp", "127.0.0.1:8080", "tcp from 172.16.28.1")
	next.kill()
	if res := h.rkt("net", "check"); res.code != 12 || !regexp.MustCompile("pod "+next.uuid+": is exit(ed|ing) and holds its network still").MatchString(res.stdout) {
		t.Error(res)
	}
	pod.stop()
}

// TestNetReboot: /run is gone with the kernel's part, what lies on disk is not.
func TestNetReboot(t *testing.T) {
	h := newNetHost(t)
	h.configure("hl.conflist", `{"cniVersion":"1.0.0","name":"hl","plugins":[{"type":"bridge","bridge":"br9","isGateway":true,"ipam":{"type":"host-local","subnet":"10.45.0.0/24","dataDir":"LEASES"}}]}`)
	pod := h.start([]string{"--net=hl"})
	pod.kill()
	h.sh("rm -rf /run/rkt; ip link del br9")
	leases, err := filepath.Glob(h.config + "/leases/hl/10.45.0.*")
	if err != nil || len(leases) != 1 {
		t.Fatalf("leases %q, %v", leases, err)
	}
	h.must("gc", "--grace-period=0s")
	// Only /run was lost: the rules of a dead pod are in the way of the next
	// one with its address.
	args := []string{"--port=80-tcp:8080"}
	h.start(args, "/netpeer", "serve", "tcp:80").kill()
	h.sh("rm -rf /run/rkt")
	next := h.start(args, "/netpeer", "serve", "tcp:80")
	h.wantAnswer(h.pid, "tcp", "127.0.0.1:8080", "tcp from 172.16.28.1")
	h.wantAnswer(h.pid, "tcp", "172.16.28.1:8080", "tcp from 172.16.28.1")
	h.must("gc", "--grace-period=0s")
	h.wantAnswer(h.pid, "tcp", "127.0.0.1:8080", "tcp from 172.16.28.1")
	if res := h.rkt("net", "check"); res.code != 0 {
		t.Error(res)
	}
	next.stop()
}

// TestNetBroken: clear words for what can be wrong, nothing left of the rest.
func TestNetBroken(t *testing.T) {
	h := newNetHost(t)
	run := func(net string) result {
		return h.rkt("run", "--net="+net, "example.com/netpeer:1.0", "--exec=/bin/true")
	}
	h.configure("bad.conf", `{"name":"bad","type":"no-such-plugin"}`)
	h.configure("hl.conflist", `{"cniVersion":"1.0.0","name":"hl","plugins":[{"type":"ptp","ipam":{"type":"host-local","subnet":"10.45.0.0/24","dataDir":"LEASES"}}]}`)
	if res := run("hl,bad"); res.code != 254 || !strings.Contains(res.stderr, "run: network bad: plugin no-such-plugin: in none of "+h.config+"/net.d, ") {
		t.Error(res)
	}
	// Rolled back, with no gc.
	if left, _ := filepath.Glob(h.config + "/leases/hl/10.45.0.*"); len(left) > 0 {
		t.Errorf("left of the network before: %q", left)
	}
	if res := run("unknown"); res.code != 254 || !strings.Contains(res.stderr, `network "unknown": not configured`) {
		t.Error(res)
	}
	h.configure("z.conf", `{"name":`)
	if res := run("hl"); res.code != 254 || !strings.Contains(res.stderr, "net.d/z.conf: unexpected end of JSON input") {
		t.Error(res)
	}
	h.configure("z.conf", `{"name":"hl","type":"ptp"}`)
	if res := run("hl"); res.code != 254 || !strings.Contains(res.stderr, `z.conf: network "hl": is in `+h.config+"/net.d/hl.conflist too") {
		t.Error(res)
	}
	h.configure("z.conf", `{"name":"default","type":"ptp","ipam":{"type":"host-local","subnet":"10.46.0.0/24","dataDir":"LEASES"}}`)
	if res := run("default"); res.code != 0 || !strings.Contains(res.stderr, `overriding "default" network with one from `+h.config+"/net.d/z.conf") {
		t.Error(res)
	}
	h.configure("z.conf", `{"name":"z","type":"rkt-ptp","subnets":["10.47.0.1/24"],"confined":true}`)
	if res := run("z"); res.code != 254 || !strings.Contains(res.stderr, "z.conf: subnets: 10.47.0.1/24: not the address of a network") {
		t.Error(res)
	}
	h.configure("z.conf", `{"name":"z","type":"rkt-ptp","subnets":["10.47.0.0/24"]}`)
	// As cron calls it, or something that clears all of the environment.
	for _, env := range [][]string{{"PATH=/usr/bin:/bin"}, {"X=1"}} {
		cmd := h.command("run", "--net=default,hl", "example.com/netpeer:1.0", "--exec=/bin/true")
		cmd.Env = env
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("with %q: %v: %s", env, err, out)
		}
	}
	if res := h.rkt("run", "--net=host", "--port=80-tcp:80", "example.com/netpeer:1.0", "--exec=/bin/true"); res.code != 254 || !strings.Contains(res.stderr, "port 80-tcp: the pod has no network") {
		t.Error(res)
	}
}

// TestNetStockPlugins: bridge, ptp and macvlan as an administrator configures
// them.
func TestNetStockPlugins(t *testing.T) {
	h := newNetHost(t)
	ipam := func(subnet string) string {
		return `"ipam":{"type":"host-local","subnet":"` + subnet + `","dataDir":"LEASES","routes":[{"dst":"0.0.0.0/0"}]}`
	}
	h.configure("bridge.conflist", `{"cniVersion":"1.0.0","name":"br","plugins":[{"type":"bridge","bridge":"br9","isGateway":true,"hairpinMode":true,"ipMasq":true,"ipMasqBackend":"nftables",`+ipam("10.22.0.0/24")+`},
{"type":"tuning","mtu":1400},{"type":"bandwidth","ingressRate":8000000,"ingressBurst":800000,"egressRate":8000000,"egressBurst":800000}]}`)
	h.configure("old.conf", `{"name":"old","type":"ptp",`+ipam("10.23.0.0/24")+`}`)
	pod := h.start([]string{"--net=br:IP=10.22.0.77,old", "--port=80-tcp:8080"}, "/netpeer", "serve", "tcp:80")
	got := h.must("enter", pod.uuid, "/bin/ip", "-o", "addr")
	for _, want := range []string{"eth0    inet 10.22.0.77/24", "eth1    inet 10.23.0.2/24"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	if got := h.must("enter", pod.uuid, "/bin/cat", "/sys/class/net/eth0/mtu"); got != "1400\n" {
		t.Errorf("mtu %q", got)
	}
	for _, addr := range []string{"127.0.0.1:8080", "10.22.0.1:8080"} {
		h.wantAnswer(h.pid, "tcp", addr, "tcp from 10.22.0.1")
	}
	second := h.start([]string{"--net=br"}, "/netpeer", "sink", ":100")
	h.wantAnswer(second.init, "tcp", "10.22.0.1:8080", "tcp from 10.22.0.1")
	h.wantAnswer(pod.init, "tcp", "10.22.0.1:8080", "tcp from 10.22.0.1")
	// 4 MB at 1 MB a second, but for the burst.
	ms, err := strconv.Atoi(strings.TrimSpace(h.sh(h.peer + " send 4000000 10.22.0.78:100")))
	if err != nil || ms < 2500 {
		t.Errorf("4 MB took %d ms, %v", ms, err)
	}
	res := h.rkt("run", "--net=br:IP=10.22.0.77", "example.com/netpeer:1.0", "--exec=/bin/true")
	if res.code != 254 || !strings.Contains(res.stderr, "network br: plugin bridge: add: ") || !strings.Contains(res.stderr, "10.22.0.77") {
		t.Error(res)
	}
	if res := h.rkt("net", "check"); res.code != 0 {
		t.Error(res)
	}
	pod.stop()
	second.stop()
	// What these plugins keep for ever.
	h.sh("ip link del br9; nft delete table inet cni_plugins_masquerade; rm -r /run/cni")
}

func TestNetMacvlan(t *testing.T) {
	h := newNetHost(t)
	h.sh("ip link add up0 type veth peer name up1; ip link set up0 up; ip link set up1 up; ip addr add 10.9.0.1/24 dev up1")
	if out, err := inside(h.pid, "ip", "link", "add", "link", "up0", "name", "try0", "type", "macvlan").CombinedOutput(); err != nil {
		t.Skipf("the kernel has no macvlan: %s", out)
	}
	h.sh("ip link del try0")
	h.configure("mac.conf", `{"cniVersion":"0.4.0","name":"mac","type":"macvlan","master":"up0","mode":"bridge","ipam":{"type":"host-local","subnet":"10.9.0.0/24","rangeStart":"10.9.0.100","dataDir":"LEASES"}}`)
	a := h.start([]string{"--net=mac"}, "/netpeer", "serve", "tcp:80")
	b := h.start([]string{"--net=mac"})
	h.wantAnswer(b.init, "tcp", "10.9.0.100:80", "tcp from 10.9.0.101")
	h.wantAnswer(h.pid, "tcp", "10.9.0.100:80", "tcp from 10.9.0.1")
	a.stop()
	b.stop()
}
