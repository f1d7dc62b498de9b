package tests

import (
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// took sends 4 MiB from the network of a process and says how many
// milliseconds that was.
func (h *netHost) took(pid int, addr string) int {
	h.t.Helper()
	var out []byte
	var ms int
	until(h.t, "somebody takes what is sent to "+addr, func() bool {
		out, _ = exec.Command("nsenter", "-t", strconv.Itoa(pid), "--net", "--", h.peer, "send", strconv.Itoa(4<<20), addr).CombinedOutput()
		var err error
		ms, err = strconv.Atoi(strings.TrimSpace(string(out)))
		return err == nil
	})
	return ms
}

// TestNetworkBandwidth: what a pod sends and what it gets passes its interface
// at the rate of the isolator, and what its apps tell each other does not.
func TestNetworkBandwidth(t *testing.T) {
	h := newNetHost(t)
	sink := inside(h.pid, h.peer, "sink", "0.0.0.0:91")
	sink.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
	if err := sink.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sink.Process.Kill(); _ = sink.Wait() })
	pod := h.start([]string{"--network-bandwidth=1Mi"}, "/netpeer", "sink", "0.0.0.0:90")
	const told = "isolator=enforced: network-bandwidth 1048576 (of the pod)\n"
	if text := h.must("status", pod.uuid); !strings.Contains(text, told) {
		t.Errorf("%q is not in\n%s", told, text)
	}
	among := h.took(pod.init, "127.0.0.1:90")
	for what, ms := range map[string]int{"gets": h.took(h.pid, "172.16.28.2:90"), "sends": h.took(pod.init, "172.16.28.1:91")} {
		if ms < 3000 || ms < among {
			t.Errorf("4 MiB that the pod %s at 1 MiB/s took %d ms; over the loopback %d", what, ms, among)
		}
	}
	pod.stop()
	free := h.start([]string{"--net=default:IP=172.16.28.77"}, "/netpeer", "sink", "0.0.0.0:90")
	if ms := max(h.took(h.pid, "172.16.28.77:90"), h.took(free.init, "172.16.28.1:91")); ms >= 3000 {
		t.Errorf("4 MiB without a bound took %d ms", ms)
	}
	free.stop()
}

// TestNetworkBandwidthElsewhere: where it can't be had, or only in part, that
// is told or refused.
func TestNetworkBandwidthElsewhere(t *testing.T) {
	h := newNetHost(t)
	h.sh("ip link add up0 type veth peer name up1; ip link set up0 up; ip link set up1 up")
	h.configure("lan.conf", `{"cniVersion":"1.0.0","name":"lan","type":"macvlan","master":"up0","ipam":{"type":"host-local","subnet":"10.66.0.0/24","dataDir":"LEASES"}}`)
	run := func(args ...string) result {
		return h.rkt(append([]string{"run", "--insecure-options=image"}, args...)...)
	}
	app := []string{image("busybox.aci"), "--name=x", "--network-bandwidth=1Mi", "--exec=/bin/true"}
	for name, c := range map[string]struct {
		args []string
		code int
		want string
	}{
		"host's network": {append([]string{"--net=host"}, app...), 254, "network-bandwidth 1048576 (of the pod): the pod has the host's network"},
		"no network":     {append([]string{"--net=none"}, app...), 0, ""},
		"two apps":       {append(app, "---", image("busybox.aci"), "--name=y", "--exec=/bin/true"), 254, "the apps of a pod share its interfaces"},
		"no pair":        {append([]string{"--net=lan"}, app...), 0, "changed: network-bandwidth 1048576 (of the pod): what comes in by eth0 can't be bounded"},
		"strict":         {append([]string{"--net=lan", "--strict-isolators"}, app...), 254, "what comes in by eth0 can't be bounded"},
		"its own admin":  {append(app, "--caps-retain=CAP_NET_ADMIN"), 0, "app x has CAP_NET_ADMIN"},
		"no unit":        {[]string{"--network-bandwidth=16", image("busybox.aci"), "--exec=/bin/true"}, 254, "nothing gets through"},
		"negative":       {[]string{"--network-bandwidth=-1", image("busybox.aci"), "--exec=/bin/true"}, 254, `"-1": not a quantity`},
		"a word":         {[]string{"--isolator=resource/network-bandwidth={\"limit\":\"1Mi\"}", image("busybox.aci"), "--exec=/bin/true"}, 254, "value.default"},
	} {
		if res := run(c.args...); res.code != c.code || !strings.Contains(res.stderr, c.want) || c.want == "" && res.stderr != "" {
			t.Errorf("%s: %s", name, res)
		}
	}
}
