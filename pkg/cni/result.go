package cni

import (
	"net/netip"

	"github.com/rkt-pods/rkt/pkg/errs"
)

// Result is what a plugin made, in the form of the newest versions.
type Result struct {
	CNIVersion string      `json:"cniVersion,omitempty"`
	Interfaces []Interface `json:"interfaces,omitempty"`
	IPs        []IP        `json:"ips,omitempty"`
	Routes     []Route     `json:"routes,omitempty"`
	DNS        DNS         `json:"dns"`
}

// Interface is one that a plugin made; without a sandbox it is the host's.
type Interface struct {
	Name    string `json:"name"`
	Mac     string `json:"mac,omitempty"`
	Sandbox string `json:"sandbox,omitempty"`
}

// IP is an address with its prefix length.
type IP struct {
	Address   netip.Prefix `json:"address"`
	Gateway   *netip.Addr  `json:"gateway,omitempty"`
	Interface *int         `json:"interface,omitempty"`
}

// Route is a route of the pod.
type Route struct {
	Dst netip.Prefix `json:"dst"`
	GW  *netip.Addr  `json:"gw,omitempty"`
}

// DNS is what the network says of name servers.
type DNS struct {
	Nameservers []string `json:"nameservers,omitempty"`
	Domain      string   `json:"domain,omitempty"`
	Search      []string `json:"search,omitempty"`
	Options     []string `json:"options,omitempty"`
}

// Given says whether there is anything in it.
func (d DNS) Given() bool {
	return len(d.Nameservers)+len(d.Search)+len(d.Options) > 0 || d.Domain != ""
}

// ParseResult reads the result of any version.
func ParseResult(data []byte) (*Result, error) {
	type old struct {
		IP      netip.Prefix `json:"ip"`
		Gateway *netip.Addr  `json:"gateway"`
		Routes  []Route      `json:"routes"`
	}
	var r struct {
		Result
		IP4 *old `json:"ip4"` // up to 0.2.0
		IP6 *old `json:"ip6"`
	}
	if err := Unmarshal(data, &r); err != nil {
		return nil, errs.Newf(errs.Corrupt, "result: %w", err)
	}
	for _, o := range []*old{r.IP4, r.IP6} {
		if o != nil {
			r.IPs = append(r.IPs, IP{Address: o.IP, Gateway: o.Gateway})
			r.Routes = append(r.Routes, o.Routes...)
		}
	}
	return &r.Result, nil
}

// PodIPs are the addresses that are in the pod.
func (r *Result) PodIPs() []netip.Prefix {
	var list []netip.Prefix
	for _, ip := range r.IPs {
		if i := ip.Interface; i != nil && *i >= 0 && *i < len(r.Interfaces) && r.Interfaces[*i].Sandbox == "" {
			continue
		}
		list = append(list, ip.Address)
	}
	return list
}
