package plan

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/poddir"
)

const noResolver = "# no name server: the pod has no network\n"

// files are /etc/resolv.conf, /etc/hosts and /etc/hostname. What the user
// asked for replaces the image's file; what nobody asked for only fills a gap.
func files(in Input, pod Pod) ([]File, error) {
	var list []File
	resolv, err := resolvConf(in.Options, in.Host, pod.HostNet)
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

func resolvConf(o poddir.RunOptions, host Host, hostNet bool) (*File, error) {
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
		if !host.ResolvConf {
			return nil, errs.Newf(errs.Unsupported, "dns host: the host has no /etc/resolv.conf")
		}
		f.Source = "/etc/resolv.conf"
		return f, nil
	case len(o.DNS) == 0 && !extra && hostNet && host.ResolvConf:
		f.Source, f.IfMissing = "/etc/resolv.conf", true
		return f, nil
	case len(o.DNS) == 0 && !extra:
		f.Content, f.IfMissing = noResolver, true
		return f, nil
	}
	var b strings.Builder
	if len(o.DNSSearch) > 0 {
		b.WriteString("search " + strings.Join(o.DNSSearch, " ") + "\n")
	}
	for _, server := range o.DNS {
		if _, err := netip.ParseAddr(server); err != nil {
			return nil, errs.Newf(errs.Usage, "dns %q: not an IP address", server)
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
	return f, oneLine("dns", slices.Concat(o.DNSSearch, o.DNSOptions, []string{o.DNSDomain}))
}

func hostsFile(o poddir.RunOptions, host Host, hostname string) (File, error) {
	f := File{Target: "/etc/hosts"}
	if o.HostsFromHost {
		if len(o.Hosts) > 0 {
			return f, errs.Newf(errs.Usage, "hosts entry host: no other entry may be given with it")
		}
		if !host.MachineHosts {
			return f, errs.Newf(errs.Unsupported, "hosts entry host: the host has no /etc/hosts")
		}
		f.Source = "/etc/hosts"
		return f, nil
	}
	var b strings.Builder
	b.WriteString("127.0.0.1 localhost localhost.localdomain\n")
	b.WriteString("::1 localhost ip6-localhost ip6-loopback\n")
	b.WriteString("127.0.1.1 " + hostname + "\n")
	for _, e := range o.Hosts {
		if _, err := netip.ParseAddr(e.IP); err != nil {
			return f, errs.Newf(errs.Usage, "hosts entry %q: not an IP address", e.IP)
		}
		if len(e.Names) == 0 {
			return f, errs.Newf(errs.Usage, "hosts entry %s: no name", e.IP)
		}
		if err := oneLine("hosts entry", e.Names); err != nil {
			return f, err
		}
		b.WriteString(e.IP + " " + strings.Join(e.Names, " ") + "\n")
	}
	f.Content, f.IfMissing = b.String(), len(o.Hosts) == 0
	return f, nil
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
