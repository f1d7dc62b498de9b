package plan

import (
	"net/netip"
	"testing"

	"github.com/rkt-pods/rkt/pkg/cni"
	"github.com/rkt-pods/rkt/pkg/poddir"
)

func TestHostsFile(t *testing.T) {
	o := poddir.RunOptions{Hosts: []poddir.HostEntry{{IP: "192.0.2.1", Names: []string{"x", "y"}}}}
	f := HostsFile(o, "web", []netip.Addr{netip.MustParseAddr("10.1.1.2")}, []poddir.HostEntry{{IP: "10.1.1.3", Names: []string{"db"}}})
	const want = "127.0.0.1 localhost localhost.localdomain\n::1 localhost ip6-localhost ip6-loopback\n10.1.1.2 web\n192.0.2.1 x y\n10.1.1.3 db\n"
	if f.Content != want || f.IfMissing {
		t.Errorf("got %q, if missing %v", f.Content, f.IfMissing)
	}
	if f := HostsFile(poddir.RunOptions{}, "web", nil, nil); !f.IfMissing {
		t.Error("nobody asked for it, and it takes the place of the image's")
	}
	if f := HostsFile(poddir.RunOptions{HostsFromHost: true}, "web", nil, nil); f != nil {
		t.Error("not the host's")
	}
}

func TestNetResolv(t *testing.T) {
	dns := cni.DNS{Nameservers: []string{"192.0.2.53"}, Search: []string{"example.com"}, Domain: "d", Options: []string{"rotate"}}
	f := NetResolv(poddir.RunOptions{}, dns)
	if f == nil || f.Content != "search example.com\nnameserver 192.0.2.53\noptions rotate\ndomain d\n" || f.IfMissing {
		t.Errorf("got %+v", f)
	}
	for _, o := range []poddir.RunOptions{{DNS: []string{"none"}}, {DNS: []string{"192.0.2.1"}}, {DNSDomain: "x"}} {
		if NetResolv(o, dns) != nil {
			t.Errorf("the network's word counts more than %+v", o)
		}
	}
	if NetResolv(poddir.RunOptions{}, cni.DNS{}) != nil || NetResolv(poddir.RunOptions{}, cni.DNS{Nameservers: []string{"a\nb"}}) != nil {
		t.Error("nothing, or nonsense, is taken")
	}
}

func TestReachable(t *testing.T) {
	for host, want := range map[string]string{
		"nameserver 192.0.2.53\n": "nameserver 192.0.2.53\n",
		"#x\nnameserver 127.0.0.53\nnameserver  fe80::1%eth0\nnameserver 2001:db8::1\noptions edns0\n": "nameserver 2001:db8::1\noptions edns0\n",
		"nameserver 127.0.0.53\nsearch x\n": noServer, "": noServer, "nameserver\n": noServer,
	} {
		if got := reachable(&host); got != want {
			t.Errorf("%q: got %q", host, got)
		}
	}
	if reachable(nil) != noServer {
		t.Error("no file")
	}
}
