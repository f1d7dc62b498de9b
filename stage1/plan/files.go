package plan

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/rkt-pods/rkt/pkg/cni"
	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/poddir"
)

const (
	noResolver = "# no name server: the pod has no network\n"
	noServer   = "# no name server: the host has none that a pod could reach\n"
)

// files are /etc/resolv.conf, /etc/hosts and /etc/hostname. What the user
// asked for replaces the image's file; what nobody asked for only fills a gap.
func files(in Input, pod Pod) ([]File, error) {
	var list []File
	resolv, err := resolvConf(in.Options, in.Host, pod.Network)
	if err != nil {
		return nil, err
	}
	if resolv != nil {
		list = append(list, *resolv)
	}
	hosts, err := hostsFile(in.Options, in.Host, pod.Hostname)
	if err != nil {
		return nil, err
	}
	list = append(list, hosts)
	return append(list, File{
		Target: "/etc/hostname", Content: pod.Hostname + "\n", IfMissing: in.Options.Hostname == "",
	}), nil
}

// resolvConf is /etc/resolv.conf as long as nothing is known of what the
// networks say.
func resolvConf(o poddir.RunOptions, host Host, n Network) (*File, error) {
	f := &File{Target: "/etc/resolv.conf"}
	extra := len(o.DNSSearch) > 0 || len(o.DNSOptions) > 0 || o.DNSDomain != ""
	for _, word := range []string{"host", "none"} {
		if slices.Contains(o.DNS, word) && (len(o.DNS) > 1 || extra) {
			return nil, errs.Newf(errs.Usage, "dns %s: nothing else about DNS may be given with it", word)
		}
	}
	switch {
	case slices.Equal(o.DNS, []string{"none"}):
		return nil, nil
	case slices.Equal(o.DNS, []string{"host"}):
		if host.ResolvConf == nil {
			return nil, errs.Newf(errs.Unsupported, "dns host: the host has no /etc/resolv.conf")
		}
		f.Source = "/etc/resolv.conf"
		return f, nil
	case len(o.DNS) == 0 && !extra && n.Host && host.ResolvConf != nil:
		f.Source, f.IfMissing = "/etc/resolv.conf", true
		return f, nil
	case len(o.DNS) == 0 && !extra && len(n.Attachments) > 0:
		f.Content, f.IfMissing = reachable(host.ResolvConf), true
		return f, nil
	case len(o.DNS) == 0 && !extra:
		f.Content, f.IfMissing = noResolver, true
		return f, nil
	}
	return f, writeResolv(f, o)
}

// reachable is the host's file without the name servers that only the host
// itself can ask.
func reachable(host *string) string {
	if host == nil {
		return noServer
	}
	var b strings.Builder
	servers := false
	for line := range strings.Lines(*host) {
		words := strings.Fields(line)
		if len(words) == 0 || strings.ContainsAny(line[:1], "#;") {
			continue
		}
		if words[0] == "nameserver" {
			addr, err := netip.ParseAddr(words[min(1, len(words)-1)])
			if err != nil || addr.IsLoopback() || addr.Zone() != "" {
				continue
			}
			servers = true
		}
		b.WriteString(strings.Join(words, " ") + "\n")
	}
	if !servers {
		return noServer
	}
	return b.String()
}

// NetResolv is /etc/resolv.conf when the networks name servers and the user
// did not: nil if it stays what it is.
func NetResolv(o poddir.RunOptions, dns cni.DNS) *File {
	asked := len(o.DNS)+len(o.DNSSearch)+len(o.DNSOptions) > 0 || o.DNSDomain != ""
	if asked || !dns.Given() {
		return nil
	}
	f := &File{Target: "/etc/resolv.conf"}
	said := poddir.RunOptions{DNS: dns.Nameservers, DNSSearch: dns.Search, DNSOptions: dns.Options, DNSDomain: dns.Domain}
	if err := writeResolv(f, said); err != nil {
		return nil // a plugin's nonsense is no reason not to run
	}
	return f
}

func writeResolv(f *File, o poddir.RunOptions) error {
	var b strings.Builder
	if len(o.DNSSearch) > 0 {
		b.WriteString("search " + strings.Join(o.DNSSearch, " ") + "\n")
	}
	for _, server := range o.DNS {
		if _, err := netip.ParseAddr(server); err != nil {
			return errs.Newf(errs.Usage, "dns %q: not an IP address", server)
		}
		b.WriteString("nameserver " + server + "\n")
	}
	if len(o.DNSOptions) > 0 {
		b.WriteString("options " + strings.Join(o.DNSOptions, " ") + "\n")
	}
	if o.DNSDomain != "" {
		b.WriteString("domain " + o.DNSDomain + "\n")
	}
	f.Content = b.String()
	return oneLine("dns", slices.Concat(o.DNSSearch, o.DNSOptions, []string{o.DNSDomain}))
}

// hostsFile is /etc/hosts as long as nothing is known of networks.
func hostsFile(o poddir.RunOptions, host Host, hostname string) (File, error) {
	if o.HostsFromHost {
		if len(o.Hosts) > 0 {
			return File{}, errs.Newf(errs.Usage, "hosts entry host: no other entry may be given with it")
		}
		if !host.MachineHosts {
			return File{}, errs.Newf(errs.Unsupported, "hosts entry host: the host has no /etc/hosts")
		}
		return File{Target: "/etc/hosts", Source: "/etc/hosts"}, nil
	}
	for _, e := range o.Hosts {
		if _, err := netip.ParseAddr(e.IP); err != nil {
			return File{}, errs.Newf(errs.Usage, "hosts entry %q: not an IP address", e.IP)
		}
		if len(e.Names) == 0 {
			return File{}, errs.Newf(errs.Usage, "hosts entry %s: no name", e.IP)
		}
		if err := oneLine("hosts entry", e.Names); err != nil {
			return File{}, err
		}
	}
	return *HostsFile(o, hostname, nil, nil), nil
}

// oneLine keeps a word from adding lines of its own to a generated file.
func oneLine(what string, words []string) error {
	for _, w := range words {
		if strings.ContainsAny(w, "\n\r\x00") {
			return errs.Newf(errs.Usage, "%s %q: more than one line", what, w)
		}
	}
	return nil
}
