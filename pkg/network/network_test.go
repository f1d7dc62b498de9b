package network

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/rkt-pods/rkt/pkg/cni"
	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/poddir"
)

const own = `{"cniVersion":"1.1.0","name":"default","plugins":[{"type":"rkt-ptp","subnets":["172.16.28.0/24","fd72::/64"],"masquerade":true}]}`

func attachment(ifName, conf string, ips ...string) poddir.Attachment {
	return poddir.Attachment{Network: poddir.Network{Name: "n", Config: json.RawMessage(conf)}, IfName: ifName, IPs: ips}
}

func TestElements(t *testing.T) {
	rec := poddir.NetRecord{
		ContainerID: "id",
		Attachments: []poddir.Attachment{
			attachment("eth0", own, "172.16.28.2/24", "fd72::2/64"),
			attachment("eth1", `{"cniVersion":"1.1.0","name":"r","plugins":[{"type":"rkt-ptp","subnets":["172.31.0.0/16"],"confined":true}]}`, "172.31.0.2/16"),
			attachment("eth2", `{"name":"b","type":"bridge"}`, "10.1.0.2/24"),
		},
		Ports: []poddir.Forward{
			{Protocol: "tcp", HostPort: 8080, PodPort: 80, To4: "172.16.28.2", To6: "fd72::2"},
			{Protocol: "udp", HostIP: "192.0.2.1", HostPort: 53, PodPort: 53, To4: "172.16.28.2"},
			{Protocol: "sctp", HostIP: "2001:db8::1", HostPort: 1, PodPort: 2, To6: "fd72::2"},
			{Protocol: "tcp", HostPort: 81, PodPort: 80, To4: "10.1.0.2"},
			{Protocol: "tcp", HostIP: "0.0.0.0", HostPort: 82, PodPort: 80, To4: "172.16.28.2"},
			{Protocol: "tcp", HostIP: "::", HostPort: 83, PodPort: 80, To6: "fd72::2"},
			{Protocol: "tcp", HostIP: "::1", HostPort: 84, PodPort: 80, To6: "fd72::2"},
		},
	}
	link, second := HostLink("id", "eth0"), HostLink("id", "eth1")
	want := []Element{
		{"guarded", link, ""}, {"own4", link + " . 172.16.28.2", ""}, {"masq4", "172.16.28.2", ""},
		{"own6", link + " . fd72::2", ""}, {"masq6", "fd72::2", ""},
		{"guarded", second, ""}, {"own4", second + " . 172.31.0.2", ""}, {"confined4", "172.31.0.2", ""},
		{"any4", "tcp . 8080", "172.16.28.2 . 80"}, {"hairpin4", "172.16.28.2/32 . 172.16.28.2", ""},
		{"any6", "tcp . 8080", "fd72::2 . 80"}, {"hairpin6", "fd72::2/128 . fd72::2", ""},
		{"at4", "192.0.2.1 . udp . 53", "172.16.28.2 . 53"}, {"at6", "2001:db8::1 . sctp . 1", "fd72::2 . 2"},
		{"any4", "tcp . 81", "10.1.0.2 . 80"}, {"hairpin4", "10.1.0.0/24 . 10.1.0.2", ""},
		{"any4", "tcp . 82", "172.16.28.2 . 80"}, {"any6", "tcp . 83", "fd72::2 . 80"},
	}
	if got := Elements(rec); !slices.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

func TestParseTable(t *testing.T) {
	const printed = `{"nftables":[{"metainfo":{}},{"table":{"name":"rkt"}},{"rule":{"chain":"ports"}},
{"map":{"name":"any4","elem":[[{"elem":{"val":{"concat":["tcp",8080]},"comment":"id"}},{"concat":["172.16.28.2",80]}],[{"concat":["udp",53]},{"concat":["172.16.28.2",53]}]]}},
{"set":{"name":"hairpin4","elem":[{"elem":{"val":{"concat":[{"prefix":{"addr":"10.1.0.0","len":24}},"10.1.0.2"]},"comment":"id"}},{"concat":["172.16.28.2","172.16.28.2"]}]}},
{"set":{"name":"masq4","elem":["172.16.28.2"]}},{"set":{"name":"other","elem":["1.1.1.1"]}}]}`
	list, rules, err := parseTable([]byte(printed))
	want := []Owned{
		{Element{"any4", "tcp . 8080", "172.16.28.2 . 80"}, "id"}, {Element{"any4", "udp . 53", "172.16.28.2 . 53"}, ""},
		{Element{"hairpin4", "10.1.0.0/24 . 10.1.0.2", ""}, "id"}, {Element{"hairpin4", "172.16.28.2 . 172.16.28.2", ""}, ""},
		{Element{"masq4", "172.16.28.2", ""}, ""},
	}
	if err != nil || rules != 1 || !slices.Equal(list, want) {
		t.Errorf("%v, %d, %v", list, rules, err)
	}
	if !same(Element{"hairpin4", "172.16.28.2/32 . 172.16.28.2", ""}, list[3].Element) || same(list[0].Element, list[1].Element) {
		t.Error("not the same element")
	}
}

func TestPTP(t *testing.T) {
	if c, err := ParsePTP([]byte(own)); err != nil || !c.Masquerade || c.Confined || len(c.Subnets) != 2 {
		t.Errorf("%+v, %v", c, err)
	}
	if _, err := ParsePTP([]byte(`{"name":"n","type":"ptp"}`)); !errs.Is(err, errs.Unsupported) {
		t.Error(err)
	}
	for _, bad := range []string{`"subnets":[]`, `"subnets":["10.0.0.1/24"]`, `"subnets":["10.0.0.0/31"]`, `"subnets":["10.0.0.0/24"],"mtu":-1`, `"subnets":"x"`,
		`"subnets":["10.0.0.0/24"],"mtu":60`, `"subnets":["10.0.0.0/24","fd72::/64"],"mtu":1279`, `"subnets":["10.0.0.0/24"],"mtu":65536`} {
		if _, err := ParsePTP([]byte(`{"name":"n","type":"rkt-ptp",` + bad + `}`)); !errs.Is(err, errs.Corrupt) {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

// TestCheckPTP: what would silently be left out is refused; other plugins'
// configurations are theirs.
func TestCheckPTP(t *testing.T) {
	const good = `{"type":"rkt-ptp","subnets":["10.0.0.0/24"]}`
	for plugins, want := range map[string]string{
		good + `,{"type":"tuning","any":1}`: "", `{"type":"bridge","subnets":5}`: "",
		`{"type":"rkt-ptp","subnets":["10.0.0.0/24"],"masquerate":true}`: "masquerate: unknown to rkt-ptp",
		`{"type":"rkt-ptp","subnets":["10.0.0.1/24"],"confined":true}`:   "subnets: 10.0.0.1/24: not the address of a network",
		`{"type":"rkt-ptp"}`:        "subnets: missing",
		`{"type":"bridge"},` + good: "plugin 2: rkt-ptp has to be the first",
	} {
		l, err := cni.Parse([]byte(`{"cniVersion":"1.0.0","name":"n","plugins":[` + plugins + `]}`))
		if err != nil {
			t.Fatal(err)
		}
		if err := CheckPTP(l); want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", plugins, err, want)
		}
	}
}

func TestText(t *testing.T) {
	list := []Element{{"any6", "tcp . 80", "fd72::2 . 80"}, {"any4", "tcp . 80", "10.0.0.2 . 80"}, {"any4", "udp . 53", "10.0.0.2 . 53"}}
	const add = `create element inet rkt any4 { tcp . 80 comment "id" : 10.0.0.2 . 80, udp . 53 comment "id" : 10.0.0.2 . 53 }
create element inet rkt any6 { tcp . 80 comment "id" : fd72::2 . 80 }
`
	if got := addText(list, "id"); got != add {
		t.Errorf("got %s", got)
	}
	if got := deleteText(list); got != "delete element inet rkt any4 { tcp . 80, udp . 53 }\ndelete element inet rkt any6 { tcp . 80 }\n" {
		t.Errorf("got %s", got)
	}
}

func TestAddressesInSubnet(t *testing.T) {
	for _, c := range []struct {
		subnet string
		offset uint64
		want   string // "" if it is none of a pod's
	}{
		{"10.0.0.0/24", 2, "10.0.0.2"}, {"10.0.0.0/24", 254, "10.0.0.254"}, {"10.0.0.0/24", 255, ""}, {"10.0.0.0/24", 256, ""},
		{"10.0.254.0/23", 300, "10.0.255.44"}, {"10.0.0.8/30", 2, "10.0.0.10"}, {"10.0.0.8/30", 3, ""},
		{"fd72::/64", 65537, "fd72::1:1"}, {"255.255.255.0/24", 255, ""}, {"ffff:ffff:ffff:ffff:ffff:ffff:ffff:fff0/124", 16, ""},
	} {
		s := netip.MustParsePrefix(c.subnet)
		got, ok := at(s, c.offset)
		if ok != (c.want != "") || ok && got.String() != c.want {
			t.Errorf("%s + %d: %s, %v", c.subnet, c.offset, got, ok)
		}
		if ok {
			if n, err := offsetOf(s, got); err != nil || n != c.offset {
				t.Errorf("%s in %s: %d, %v", got, s, n, err)
			}
		}
	}
	for _, bad := range []string{"10.0.0.0", "10.0.0.1", "10.0.0.255", "10.0.1.2"} {
		if n, err := offsetOf(netip.MustParsePrefix("10.0.0.0/24"), netip.MustParseAddr(bad)); err == nil {
			t.Errorf("%s is at %d", bad, n)
		}
	}
	if _, err := offsetOf(netip.MustParsePrefix("fd72::/64"), netip.MustParseAddr("fd72::ffff:ffff:ffff:ffff")); err != nil && !errs.Is(err, errs.Usage) {
		t.Error(err)
	}
}

// network names a network of this test alone.
func leaseNetwork(t *testing.T) string {
	t.Helper()
	name := fmt.Sprintf("test-%d-%s", os.Getpid(), strings.ReplaceAll(t.Name(), "/", "-"))
	t.Cleanup(func() {
		_ = os.RemoveAll(leaseDir(name))
		for _, d := range []string{filepath.Dir(leaseDir(name)), poddir.NetDir(), poddir.RunRoot()} {
			_ = os.Remove(d) // if nobody else is there
		}
	})
	return name
}

func needRun(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: leases lie below /run")
	}
}

func TestLeases(t *testing.T) {
	needRun(t)
	name := leaseNetwork(t)
	c := PTP{Subnets: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/28"), netip.MustParsePrefix("fd72::/64")}}
	lease := func(owner string, wanted string) (string, error) {
		var addr netip.Addr
		if wanted != "" {
			addr = netip.MustParseAddr(wanted)
		}
		list, err := Lease(name, c, owner, "eth0", addr)
		if err != nil {
			return "", err
		}
		if len(list) != 2 || list[1].Bits() != 64 {
			t.Errorf("got %v", list)
		}
		return list[0].Addr().String(), nil
	}
	for i, want := range []string{"10.0.0.2", "10.0.0.3", "10.0.0.4"} {
		if got, err := lease(fmt.Sprint("pod", i), ""); err != nil || got != want {
			t.Errorf("lease %d: %s, %v", i, got, err)
		}
	}
	if got, err := lease("a", "10.0.0.9"); err != nil || got != "10.0.0.9" {
		t.Errorf("wanted: %s, %v", got, err)
	}
	if _, err := lease("b", "10.0.0.9"); !errs.Is(err, errs.Busy) || err.Error() != `requested IP address "10.0.0.9" is not available in network: `+name {
		t.Errorf("taken: %v", err)
	}
	if _, err := lease("b", "192.0.2.1"); !errs.Is(err, errs.Usage) {
		t.Errorf("elsewhere: %v", err)
	}
	if got, err := lease("b", "fd72::b"); err != nil || got != "10.0.0.11" {
		t.Errorf("wanted by IPv6: %s, %v", got, err)
	}
	// Freed addresses rest: the next come first.
	if err := free(leaseDir(name), func(o string) bool { return o == "pod0" }); err != nil {
		t.Fatal(err)
	}
	if got, err := lease("c", ""); err != nil || got != "10.0.0.12" {
		t.Errorf("next: %s, %v", got, err)
	}
	var n int
	for ; ; n++ {
		if _, err := lease("d", ""); err != nil {
			if !errs.Is(err, errs.Unavailable) || !strings.Contains(err.Error(), "no free address in 10.0.0.0/28: 13 are in use") {
				t.Errorf("full: %v", err)
			}
			break
		}
	}
	if n != 13-5 {
		t.Errorf("%d more leases", n)
	}
	if err := free(leaseDir(name), func(string) bool { return true }); err != nil {
		t.Fatal(err)
	}
	tidy(leaseDir(name))
	if _, err := os.Stat(leaseDir(name)); err == nil {
		t.Error("the empty folder stays")
	}
}

// TestLeasesAtOnce: many processes find different addresses, also while the
// folder comes and goes.
func TestLeasesAtOnce(t *testing.T) {
	needRun(t)
	name := leaseNetwork(t)
	c := PTP{Subnets: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24")}}
	var mu sync.Mutex
	holds := map[string]string{}
	var wg sync.WaitGroup
	for i := range 16 {
		owner := fmt.Sprint("pod", i)
		wg.Go(func() {
			for range 20 {
				list, err := Lease(name, c, owner, "eth0", netip.Addr{})
				if err != nil {
					t.Error(err)
					return
				}
				addr := list[0].Addr().String()
				mu.Lock()
				if other := holds[addr]; other != "" {
					t.Errorf("%s: %s and %s", addr, owner, other)
				}
				holds[addr] = owner
				mu.Unlock()
				mu.Lock()
				delete(holds, addr)
				err = free(leaseDir(name), func(o string) bool { return o == owner })
				mu.Unlock()
				if err != nil {
					t.Error(err)
				}
				tidy(leaseDir(name))
			}
		})
	}
	wg.Wait()
}

func TestHostLink(t *testing.T) {
	a, b := HostLink("id", "eth0"), HostLink("id", "eth1")
	if a == b || len(a) > 15 || !strings.HasPrefix(a, "rkt") {
		t.Errorf("%q, %q", a, b)
	}
}
