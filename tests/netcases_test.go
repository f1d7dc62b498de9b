package tests

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestNetVersions: each version of CNI, with a stock plugin that speaks it.
func TestNetVersions(t *testing.T) {
	h := newNetHost(t)
	for i, version := range []string{"0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"} {
		name := "v" + strings.ReplaceAll(version, ".", "-")
		subnet := fmt.Sprintf("10.60.%d", i)
		h.configure(name+".conf", fmt.Sprintf(`{"cniVersion":%q,"name":%q,"type":"ptp","ipam":{"type":"host-local","subnet":"%s.0/24","dataDir":"LEASES"}}`, version, name, subnet))
		pod := h.start([]string{"--net=" + name}, "/netpeer", "serve", "tcp:80")
		h.wantAnswer(h.pid, "tcp", subnet+".2:80", "tcp from "+subnet+".1")
		if got := h.must("status", pod.uuid); !strings.Contains(got, "networks="+name+":ip4="+subnet+".2\n") {
			t.Errorf("%s: %s", version, got)
		}
		if res := h.rkt("net", "check"); res.code != 0 {
			t.Errorf("%s: %s", version, res)
		}
		pod.stop()
	}
}

// TestNetDeletedBridge: a bridge that somebody deleted is told of, is in no
// release's way, and is made again.
func TestNetDeletedBridge(t *testing.T) {
	h := newNetHost(t)
	h.configure("br.conflist", `{"cniVersion":"1.0.0","name":"br","plugins":[{"type":"bridge","bridge":"br9","isGateway":true,"ipam":{"type":"host-local","subnet":"10.22.0.0/24","dataDir":"LEASES"}}]}`)
	pod := h.start([]string{"--net=br", "--port=80-tcp:8080"}, "/netpeer", "serve", "tcp:80")
	h.wantAnswer(h.pid, "tcp", "127.0.0.1:8080", "tcp from 10.22.0.1")
	h.sh("ip link del br9")
	if res := h.rkt("net", "check"); res.code != 12 || !strings.Contains(res.stdout, "pod "+pod.uuid+": network br: plugin bridge: check: ") {
		t.Error(res)
	}
	next := h.start([]string{"--net=br", "--port=80-tcp:8081"}, "/netpeer", "serve", "tcp:80")
	h.wantAnswer(h.pid, "tcp", "127.0.0.1:8081", "tcp from 10.22.0.1")
	pod.stop()
	if got := pod.stderr.String(); got != "" {
		t.Errorf("its release: %s", got)
	}
	h.wantAnswer(h.pid, "tcp", "127.0.0.1:8081", "tcp from 10.22.0.1")
	next.stop()
	h.sh("ip link del br9")
}

// TestNetBandwidth: a limit holds in both directions, on networks of all
// plugins that make a pair of interfaces, and nowhere else.
func TestNetBandwidth(t *testing.T) {
	h := newNetHost(t)
	const ipam = `"ipam":{"type":"host-local","subnet":"SUBNET.0/24","dataDir":"LEASES","routes":[{"dst":"0.0.0.0/0"}]}`
	const limit = `{"type":"bandwidth","ingressRate":8000000,"ingressBurst":800000,"egressRate":8000000,"egressBurst":800000}`
	sink := inside(h.pid, h.peer, "sink", ":101")
	out, err := sink.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := sink.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sink.Process.Kill(); _ = sink.Wait() }()
	if _, err := out.Read(make([]byte, 16)); err != nil {
		t.Fatal(err)
	}
	for name, plugin := range map[string]string{
		"bridge": `{"type":"bridge","bridge":"br9","isGateway":true,` + strings.ReplaceAll(ipam, "SUBNET", "10.71.0") + `}`,
		"ptp":    `{"type":"ptp",` + strings.ReplaceAll(ipam, "SUBNET", "10.72.0") + `}`,
		"own":    `{"type":"rkt-ptp","subnets":["10.73.0.0/24"],"defaultRoute":true}`,
	} {
		h.configure(name+".conflist", fmt.Sprintf(`{"cniVersion":"1.0.0","name":%q,"plugins":[%s]}`, name, plugin))
		h.configure(name+"-slow.conflist", fmt.Sprintf(`{"cniVersion":"1.0.0","name":"%s-slow","plugins":[%s,%s]}`, name, strings.ReplaceAll(plugin, ".0.0/24", ".1.0/24"), limit))
	}
	for _, name := range []string{"bridge", "ptp", "own"} {
		took := map[string][2]time.Duration{}
		for _, network := range []string{name, name + "-slow"} {
			if name == "bridge" && network != name {
				h.sh("ip link del br9") // it has the other subnet's address
			}
			pod := h.start([]string{"--net=" + network}, "/netpeer", "sink", ":100")
			_, addr, _ := strings.Cut(h.must("status", pod.uuid), network+":ip4=")
			addr, _, _ = strings.Cut(addr, "\n")
			gateway := addr[:strings.LastIndex(addr, ".")] + ".1"
			h.until("the sink listens", func() bool {
				return strings.Contains(h.rkt("logs", pod.uuid).stdout, "serving")
			})
			in := h.sh(h.peer + " send 3000000 " + addr + ":100")
			back := h.must("enter", pod.uuid, "/netpeer", "send", "3000000", gateway+":101")
			took[network] = [2]time.Duration{milliseconds(t, in), milliseconds(t, back)}
			pod.stop()
		}
		for i, direction := range []string{"to the pod", "from it"} {
			// 3 MB at 1 MB a second, but for the burst and what queues hold.
			if slow, free := took[name+"-slow"][i], took[name][i]; slow < 1500*time.Millisecond || slow < 2*free {
				t.Errorf("%s, %s: %s with the limit, %s without", name, direction, slow, free)
			}
		}
	}
	h.sh("ip link del br9")
}

func milliseconds(t *testing.T, text string) time.Duration {
	t.Helper()
	n, err := strconv.Atoi(strings.TrimSpace(text))
	if err != nil {
		t.Fatal(err)
	}
	return time.Duration(n) * time.Millisecond
}
