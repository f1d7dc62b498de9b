package plan

import (
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"github.com/rkt-pods/rkt/pkg/appc"
	"github.com/rkt-pods/rkt/pkg/poddir"
	"github.com/rkt-pods/rkt/pkg/podspec"
)

// TestActivate: who gets which of the inherited descriptors, what is forwarded
// and what is opened.
func TestActivate(t *testing.T) {
	port := func(name, protocol string, n, count uint) appc.Port {
		return appc.Port{Name: name, Protocol: protocol, Port: n, Count: count, SocketActivated: true}
	}
	app := func(name string, ports ...appc.Port) podspec.App {
		return podspec.App{Name: name, App: &appc.App{Ports: ports}}
	}
	socket := func(fd int, name, protocol, addr string) Socket {
		return Socket{FD: fd, Name: name, Protocol: protocol, Addr: netip.MustParseAddrPort(addr)}
	}
	forward := func(name string, host, pod uint16) poddir.Forward {
		return poddir.Forward{Name: name, App: "web", Protocol: "tcp", HostPort: host, PodPort: pod}
	}
	web := app("web", port("www", "tcp", 80, 0))
	for name, c := range map[string]struct {
		apps      []podspec.App
		exposed   []podspec.ExposedPort
		sockets   []Socket
		want      map[string][]Listener
		forwards  []poddir.Forward
		unclaimed int
		err       string
	}{
		"no socket: opened in the pod": {apps: []podspec.App{web}, want: map[string][]Listener{"web": {{"www", -1, "tcp", 80}}}},
		"no socket, exposed: forwarded to what is opened": {
			apps: []podspec.App{web}, exposed: []podspec.ExposedPort{{Name: "www", HostPort: 8080}},
			want: map[string][]Listener{"web": {{"www", -1, "tcp", 80}}}, forwards: []poddir.Forward{forward("www", 8080, 80)},
		},
		"by the host's port": {
			apps: []podspec.App{web}, exposed: []podspec.ExposedPort{{Name: "www", HostPort: 8080}},
			sockets: []Socket{socket(3, "unit.socket", "tcp", "[::]:8080"), socket(4, "", "tcp", "0.0.0.0:80")},
			want:    map[string][]Listener{"web": {{"unit.socket", 3, "tcp", 80}}}, unclaimed: 1,
		},
		"by its own, in both families": {
			apps: []podspec.App{web}, sockets: []Socket{socket(3, "", "tcp", "[::]:80"), socket(4, "four", "tcp", "0.0.0.0:80")},
			want: map[string][]Listener{"web": {{"www", 3, "tcp", 80}, {"four", 4, "tcp", 80}}},
		},
		"another protocol": {
			apps: []podspec.App{app("dns", port("dns", "udp", 53, 0))}, sockets: []Socket{socket(3, "", "tcp", "[::]:53")},
			want: map[string][]Listener{"dns": {{"dns", -1, "udp", 53}}}, unclaimed: 1,
		},
		"another address": {
			apps: []podspec.App{web}, exposed: []podspec.ExposedPort{{Name: "www", HostIP: "192.0.2.1", HostPort: 8080}},
			sockets: []Socket{socket(3, "", "tcp", "192.0.2.2:8080")},
			want:    map[string][]Listener{"web": {{"www", -1, "tcp", 80}}}, unclaimed: 1,
			forwards: []poddir.Forward{{Name: "www", App: "web", Protocol: "tcp", HostIP: "192.0.2.1", HostPort: 8080, PodPort: 80}},
		},
		"that address, written as one of IPv6": {
			apps: []podspec.App{web}, exposed: []podspec.ExposedPort{{Name: "www", HostIP: "192.0.2.1", HostPort: 8080}},
			sockets: []Socket{socket(3, "", "tcp", "[::ffff:192.0.2.1]:8080")},
			want:    map[string][]Listener{"web": {{"www", 3, "tcp", 80}}},
		},
		"a part of a range": {
			apps: []podspec.App{app("web", port("www", "tcp", 80, 3))}, exposed: []podspec.ExposedPort{{Name: "www", HostPort: 8080}},
			sockets:  []Socket{socket(3, "", "tcp", "[::]:8081")},
			want:     map[string][]Listener{"web": {{"www", -1, "tcp", 80}, {"www", 3, "tcp", 81}, {"www", -1, "tcp", 82}}},
			forwards: []poddir.Forward{forward("www", 8080, 80), forward("www", 8082, 82)},
		},
		"two ways to one port, one of them inherited": {
			apps: []podspec.App{web}, exposed: []podspec.ExposedPort{{Name: "www", HostPort: 8080}, {Name: "www", HostPort: 9090}},
			sockets:  []Socket{socket(3, "", "tcp", "[::]:8080")},
			want:     map[string][]Listener{"web": {{"www", 3, "tcp", 80}, {"www", -1, "tcp", 80}}},
			forwards: []poddir.Forward{forward("www", 9090, 80)},
		},
		"two apps": {
			apps:    []podspec.App{web, app("api", port("api", "tcp", 81, 0), port("dns", "udp", 53, 0))},
			sockets: []Socket{socket(3, "b", "tcp", "[::]:81"), socket(4, "a", "tcp", "[::]:80"), socket(5, "c", "udp", "[::]:53")},
			want:    map[string][]Listener{"web": {{"a", 4, "tcp", 80}}, "api": {{"b", 3, "tcp", 81}, {"c", 5, "udp", 53}}},
		},
		"not asked for": {
			apps: []podspec.App{app("web", appc.Port{Name: "www", Protocol: "tcp", Port: 80})}, sockets: []Socket{socket(3, "", "tcp", "[::]:80")},
			want: map[string][]Listener{}, unclaimed: 1,
		},
		"no protocol with ports": {apps: []podspec.App{app("web", port("www", "icmp", 80, 0))}, err: `app web: port www: protocol "icmp": only tcp, udp and sctp`},
		"no port":                {apps: []podspec.App{app("web", port("www", "tcp", 65535, 2))}, err: "app web: port www: 65536: not a port"},
		"of no app": {
			apps: []podspec.App{app("web")}, exposed: []podspec.ExposedPort{{Name: "www", HostPort: 80, PodPort: &appc.Port{Port: 80, Protocol: "tcp", SocketActivated: true}}},
			err: "port www: socketActivated: only of a port that an app declares",
		},
	} {
		pod := &podspec.Pod{Apps: c.apps, Ports: c.exposed}
		a, err := activate(pod, c.sockets)
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: %v, want %s", name, err, c.err)
			}
			continue
		}
		if err != nil || !reflect.DeepEqual(a.listeners, c.want) || len(a.free) != c.unclaimed {
			t.Errorf("%s: %v, %v free, %v; want %v", name, a.listeners, a.free, err, c.want)
		}
		if got, err := forwards(pod, a.taken); err != nil || !reflect.DeepEqual(got, c.forwards) {
			t.Errorf("%s: forwards %v, %v; want %v", name, got, err, c.forwards)
		}
	}
}
