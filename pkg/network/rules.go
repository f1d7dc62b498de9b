package network

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/rkt-pods/rkt/pkg/poddir"
)

// base is the table without elements. Everything that belongs to a pod is an
// element of a set or map, with the pod's container id as its comment, so that
// no rule is ever added or removed for a pod and a key has one owner.
//
// A link of a pod passes on only what comes from the pod's own addresses: a
// program that may make packets of its own could else pass for somebody who is
// not confined. Link-local and unspecified ones are for the link itself.
//
// The first rule replaces what route_localnet takes away, and every kernel
// does for interfaces without it: nobody but the host itself talks to 127/8.
// Replies to the host's own connections have not been translated back there.
const base = `add table inet rkt
add set inet rkt guarded { type ifname; }
add set inet rkt own4 { type ifname . ipv4_addr; }
add set inet rkt own6 { type ifname . ipv6_addr; }
add set inet rkt masq4 { type ipv4_addr; }
add set inet rkt masq6 { type ipv6_addr; }
add set inet rkt confined4 { type ipv4_addr; }
add set inet rkt confined6 { type ipv6_addr; }
add set inet rkt hairpin4 { type ipv4_addr . ipv4_addr; flags interval; }
add set inet rkt hairpin6 { type ipv6_addr . ipv6_addr; flags interval; }
add map inet rkt any4 { type inet_proto . inet_service : ipv4_addr . inet_service; }
add map inet rkt any6 { type inet_proto . inet_service : ipv6_addr . inet_service; }
add map inet rkt at4 { type ipv4_addr . inet_proto . inet_service : ipv4_addr . inet_service; }
add map inet rkt at6 { type ipv6_addr . inet_proto . inet_service : ipv6_addr . inet_service; }
add chain inet rkt entry { type filter hook prerouting priority raw; }
add chain inet rkt ports
add chain inet rkt prerouting { type nat hook prerouting priority dstnat; }
add chain inet rkt output { type nat hook output priority -100; }
add chain inet rkt postrouting { type nat hook postrouting priority srcnat; }
add chain inet rkt forward { type filter hook forward priority filter; }
flush table inet rkt
add rule inet rkt entry iifname != "lo" ip daddr 127.0.0.0/8 drop
add rule inet rkt entry iifname @guarded iifname . ip saddr != @own4 drop
add rule inet rkt entry iifname @guarded ip6 saddr != { ::, fe80::/10 } iifname . ip6 saddr != @own6 drop
add rule inet rkt ports dnat ip to ip daddr . meta l4proto . th dport map @at4
add rule inet rkt ports dnat ip6 to ip6 daddr . meta l4proto . th dport map @at6
add rule inet rkt ports dnat ip to meta l4proto . th dport map @any4
add rule inet rkt ports dnat ip6 to meta l4proto . th dport map @any6
add rule inet rkt prerouting fib daddr type local jump ports
add rule inet rkt output ip6 daddr ::1 return
add rule inet rkt output fib daddr type local jump ports
add rule inet rkt postrouting ct status dnat fib saddr type local masquerade
add rule inet rkt postrouting ct status dnat ip daddr @confined4 masquerade
add rule inet rkt postrouting ct status dnat ip6 daddr @confined6 masquerade
add rule inet rkt postrouting ct status dnat ip saddr . ip daddr @hairpin4 masquerade
add rule inet rkt postrouting ct status dnat ip6 saddr . ip6 daddr @hairpin6 masquerade
add rule inet rkt postrouting ip saddr @masq4 ip daddr @masq4 accept
add rule inet rkt postrouting ip6 saddr @masq6 ip6 daddr @masq6 accept
add rule inet rkt postrouting ip saddr @masq4 ip daddr != 224.0.0.0/4 masquerade
add rule inet rkt postrouting ip6 saddr @masq6 ip6 daddr != ff00::/8 masquerade
add rule inet rkt forward ct state established,related accept
add rule inet rkt forward ct status dnat accept
add rule inet rkt forward ip saddr @confined4 ip daddr != @confined4 drop
add rule inet rkt forward ip6 saddr @confined6 ip6 daddr != @confined6 drop
`

// sets are the sets and maps of base.
var sets = []string{"guarded", "own4", "own6", "masq4", "masq6", "confined4", "confined6", "hairpin4", "hairpin6", "any4", "any6", "at4", "at6"}

// Element is one element of a set or map of the table.
type Element struct {
	Set  string
	Key  string // as nft writes it
	Data string // of a map; "" for a set
}

// Elements are what the table has for a pod, in a fixed order.
func Elements(rec poddir.NetRecord) []Element {
	var list []Element
	for _, a := range rec.Attachments {
		list = append(list, attachmentElements(a, HostLink(rec.ContainerID, a.IfName))...)
	}
	hairpins := map[Element]bool{}
	for _, f := range rec.Ports {
		for _, to := range []string{f.To4, f.To6} {
			addr, err := netip.ParseAddr(to)
			if err != nil {
				continue // the pod has no address of this family
			}
			list = append(list, portElements(f, addr)...)
			h := Element{Set: "hairpin" + family(addr), Key: near(rec, addr).String() + " . " + addr.String()}
			if !hairpins[h] {
				hairpins[h] = true
				list = append(list, h)
			}
		}
	}
	return list
}

func attachmentElements(a poddir.Attachment, link string) []Element {
	conf, err := ParsePTP(a.Config)
	if err != nil {
		return nil // another plugin's, which makes its own rules
	}
	list := []Element{{Set: "guarded", Key: link}}
	for _, ip := range a.IPs {
		p, err := netip.ParsePrefix(ip)
		if err != nil {
			continue
		}
		list = append(list, Element{Set: "own" + family(p.Addr()), Key: link + " . " + p.Addr().String()})
		if conf.Masquerade {
			list = append(list, Element{Set: "masq" + family(p.Addr()), Key: p.Addr().String()})
		}
		if conf.Confined {
			list = append(list, Element{Set: "confined" + family(p.Addr()), Key: p.Addr().String()})
		}
	}
	return list
}

func portElements(f poddir.Forward, to netip.Addr) []Element {
	key := f.Protocol + " . " + strconv.Itoa(int(f.HostPort))
	data := to.String() + " . " + strconv.Itoa(int(f.PodPort))
	if f.HostIP == "" {
		return []Element{{Set: "any" + family(to), Key: key, Data: data}}
	}
	host, err := netip.ParseAddr(f.HostIP)
	switch {
	case err != nil || host.Is4() != to.Is4():
		return nil
	case host.IsUnspecified():
		return []Element{{Set: "any" + family(to), Key: key, Data: data}}
	case host == netip.IPv6Loopback():
		return nil // the supervisor carries what comes there
	}
	return []Element{{Set: "at" + family(to), Key: host.String() + " . " + key, Data: data}}
}

// near is from where a reply would not come back through the host's address
// translation: the pod itself, and on a network that is no point-to-point one
// its neighbours.
func near(rec poddir.NetRecord, addr netip.Addr) netip.Prefix {
	for _, a := range rec.Attachments {
		if _, err := ParsePTP(a.Config); err == nil {
			continue
		}
		for _, ip := range a.IPs {
			if p, err := netip.ParsePrefix(ip); err == nil && p.Addr() == addr {
				return p.Masked()
			}
		}
	}
	return netip.PrefixFrom(addr, addr.BitLen())
}

func family(a netip.Addr) string {
	if a.Is4() {
		return "4"
	}
	return "6"
}

// addText is the transaction that adds elements.
func addText(list []Element, owner string) string {
	return elementsText("create", list, func(e Element) string {
		data := ""
		if e.Data != "" {
			data = " : " + e.Data
		}
		return fmt.Sprintf("%s comment %q%s", e.Key, owner, data)
	})
}

// elementsText has one command for each set: a range of ports has thousands of
// elements.
func elementsText(verb string, list []Element, show func(Element) string) string {
	bySet := map[string][]string{}
	for _, e := range list {
		bySet[e.Set] = append(bySet[e.Set], show(e))
	}
	var b strings.Builder
	for _, set := range sets {
		if all := bySet[set]; len(all) > 0 {
			fmt.Fprintf(&b, "%s element inet rkt %s { %s }\n", verb, set, strings.Join(all, ", "))
		}
	}
	return b.String()
}

func deleteText(list []Element) string {
	return elementsText("delete", list, func(e Element) string { return e.Key })
}

// Owned is an element that is in the table.
type Owned struct {
	Element
	Owner string // container id; "" if nobody says
}

// parseTable reads what `nft -j list table` prints. Rules says how many rules
// it has.
func parseTable(data []byte) (list []Owned, rules int, err error) {
	var out struct {
		Nftables []struct {
			Set  *nftSet         `json:"set"`
			Map  *nftSet         `json:"map"`
			Rule json.RawMessage `json:"rule"`
		} `json:"nftables"`
	}
	if err := json.Unmarshal(data, &out); err != nil {
		return nil, 0, fmt.Errorf("nft: %w", err)
	}
	for _, o := range out.Nftables {
		if o.Rule != nil {
			rules++
		}
		for _, s := range []*nftSet{o.Set, o.Map} {
			if s == nil || !slices.Contains(sets, s.Name) {
				continue
			}
			for _, raw := range s.Elem {
				list = append(list, parseElement(s.Name, raw))
			}
		}
	}
	return list, rules, nil
}

type nftSet struct {
	Name string            `json:"name"`
	Elem []json.RawMessage `json:"elem"`
}

// parseElement reads KEY, or [KEY, DATA] of a map, where KEY may be wrapped
// together with its comment.
func parseElement(set string, raw json.RawMessage) Owned {
	o := Owned{Element: Element{Set: set}}
	var pair []json.RawMessage
	if json.Unmarshal(raw, &pair) == nil && len(pair) == 2 {
		raw, o.Data = pair[0], nftWord(pair[1])
	}
	var wrapped struct {
		Elem *struct {
			Val     json.RawMessage `json:"val"`
			Comment string          `json:"comment"`
		} `json:"elem"`
	}
	if json.Unmarshal(raw, &wrapped) == nil && wrapped.Elem != nil {
		raw, o.Owner = wrapped.Elem.Val, wrapped.Elem.Comment
	}
	o.Key = nftWord(raw)
	return o
}

// nftWord writes a value of nft's JSON the way Elements does.
func nftWord(raw json.RawMessage) string {
	var v struct {
		Concat []json.RawMessage `json:"concat"`
		Prefix *struct {
			Addr string `json:"addr"`
			Len  int    `json:"len"`
		} `json:"prefix"`
	}
	if json.Unmarshal(raw, &v) == nil {
		if v.Prefix != nil {
			return fmt.Sprintf("%s/%d", v.Prefix.Addr, v.Prefix.Len)
		}
		words := make([]string, 0, len(v.Concat))
		for _, w := range v.Concat {
			words = append(words, nftWord(w))
		}
		if len(words) > 0 {
			return strings.Join(words, " . ")
		}
	}
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	return string(raw) // a number
}

// same says whether two elements are one.
func same(a, b Element) bool { return sameKey(a, b) && a.Data == b.Data }

// sameKey says whether only one of two elements can be there, however nft
// writes the prefix of a single address.
func sameKey(a, b Element) bool {
	short := func(s string) string {
		return strings.ReplaceAll(strings.ReplaceAll(s, "/32 .", " ."), "/128 .", " .")
	}
	return a.Set == b.Set && short(a.Key) == short(b.Key)
}
