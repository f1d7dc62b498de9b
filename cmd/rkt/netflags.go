package main

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/rkt-pods/rkt/pkg/appc"
	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/poddir"
	"github.com/rkt-pods/rkt/pkg/podspec"
	"github.com/rkt-pods/rkt/stage0/config"
	"github.com/rkt-pods/rkt/stage0/rootless"
)

// addNet reads NAME[:KEY=VALUE;…],….
func (f *runFlags) addNet(v string) error {
	for one := range strings.SplitSeq(v, ",") {
		name, args, hasArgs := strings.Cut(one, ":")
		if name == "" {
			return errs.Newf(errs.Usage, "network without a name")
		}
		if slices.Contains(f.net, name) {
			return errs.Newf(errs.Usage, "network %q is given twice", name)
		}
		f.net = append(f.net, name)
		alone := name == config.NetNone || name == config.NetHost || name == config.NetAll
		if alone && hasArgs {
			return errs.Newf(errs.Usage, "network %s takes no arguments, such as %q", name, args)
		}
		if err := f.addNetArgs(name, args); err != nil {
			return err
		}
	}
	for _, name := range f.net {
		alone := name == config.NetNone || name == config.NetHost || name == config.NetAll
		if alone && len(f.net) > 1 {
			return errs.Newf(errs.Usage, "network %s can't be joined with another", name)
		}
	}
	return nil
}

func (f *runFlags) addNetArgs(network, args string) error {
	for arg := range strings.SplitSeq(args, ";") {
		if arg == "" {
			continue
		}
		key, value, ok := strings.Cut(arg, "=")
		if !ok || key == "" {
			return errs.Newf(errs.Usage, "network %s: argument %q: not NAME=VALUE", network, arg)
		}
		if f.netArgs == nil {
			f.netArgs = map[string][][2]string{}
		}
		if slices.ContainsFunc(f.netArgs[network], func(kv [2]string) bool { return kv[0] == key }) {
			return errs.Newf(errs.Usage, "network %s: argument %s is given twice", network, key)
		}
		f.netArgs[network] = append(f.netArgs[network], [2]string{key, value})
	}
	return nil
}

// networks puts the networks' configurations into the pod's options, as they
// are now.
func (f *runFlags) networks(g *globals, o *poddir.RunOptions) error {
	if o.Net = f.net; len(o.Net) == 0 {
		o.Net = []string{config.NetDefault}
		if rootless.Inside() {
			o.Net = []string{config.NetNone}
			f.warnings = append(f.warnings, "the pod has no network: an ordinary user can give it the host's (--net=host) or none")
		}
	}
	if slices.Equal(o.Net, []string{config.NetNone}) || slices.Equal(o.Net, []string{config.NetHost}) {
		return nil
	}
	if rootless.Inside() {
		return errs.WithHint(errs.Newf(errs.Unsupported, "network %s: takes the host's root to make", strings.Join(o.Net, ",")), "an ordinary user's pods have the host's network (--net=host) or none (--net=none)")
	}
	all, err := config.LoadNetworks(g.dirs)
	if err != nil {
		return err
	}
	f.warnings = all.Warnings
	if o.Networks, err = all.Choose(o.Net, f.netArgs); err != nil {
		return err
	}
	o.Net = nil
	for _, n := range o.Networks {
		o.Net = append(o.Net, n.Name)
	}
	o.PluginDirs, err = g.pluginDirs()
	return err
}

// pluginDirs are the folders of network plugins. Those of rkt's own are beside
// the program in a folder of their own, or where they are installed.
func (g *globals) pluginDirs() ([]string, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	own := filepath.Join(filepath.Dir(self), "cni")
	if _, err := os.Stat(own); err != nil {
		own = filepath.Join(filepath.Dir(self), "../libexec/rkt/cni")
	}
	return config.PluginDirs(g.dirs, own), nil
}

// addPort reads NAME:[HOSTIP:]HOSTPORT, where an IPv6 address is in brackets.
func (o *podFlags) addPort(v string) error {
	name, rest, ok := strings.Cut(v, ":")
	if !ok {
		return errs.Newf(errs.Usage, "%q: not NAME:[HOSTIP:]HOSTPORT", v)
	}
	p := podspec.ExposedPort{Name: name}
	if err := appc.CheckName(name); err != nil {
		return err
	}
	host, port := "", rest
	if i := strings.LastIndex(rest, ":"); i >= 0 {
		host, port = rest[:i], rest[i+1:]
	}
	if host != "" {
		addr, err := netip.ParseAddr(strings.Trim(host, "[]"))
		if err != nil || addr.Zone() != "" {
			return errs.Newf(errs.Usage, "%q: %q: not an IP address of the host", v, host)
		}
		p.HostIP = addr.Unmap().String()
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return errs.Newf(errs.Usage, "%q: %q: not a port", v, port)
	}
	p.HostPort = uint(n)
	if slices.ContainsFunc(o.ports, func(e podspec.ExposedPort) bool { return e.Name == name }) {
		return errs.Newf(errs.Usage, "port %s is given twice", name)
	}
	o.ports = append(o.ports, p)
	return nil
}
