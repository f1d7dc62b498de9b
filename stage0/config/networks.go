package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rkt-pods/rkt/pkg/cni"
	"github.com/rkt-pods/rkt/pkg/errs"
	rules "github.com/rkt-pods/rkt/pkg/network"
	"github.com/rkt-pods/rkt/pkg/poddir"
	"github.com/rkt-pods/rkt/pkg/userfile"
)

// The networks that need no configuration.
const (
	NetHost       = "host"               // no network of its own
	NetNone       = "none"               // only the loopback
	NetAll        = "all"                // whatever is configured, and the default
	NetDefault    = "default"            // to the outside by the host's address
	NetRestricted = "default-restricted" // only to the host and its neighbours
)

// builtIn are the configurations of those that are networks. The IPv6 subnets
// are unique local ones (RFC 4193) that no packet leaves the host with.
var builtIn = []string{
	`{"cniVersion": "1.1.0", "name": "default", "plugins": [{"type": "rkt-ptp", "subnets": ["172.16.28.0/24", "fd72:6b74:1c::/64"], "defaultRoute": true, "masquerade": true}]}`,
	`{"cniVersion": "1.1.0", "name": "default-restricted", "plugins": [{"type": "rkt-ptp", "subnets": ["172.31.0.0/16", "fd72:6b74:31::/64"], "confined": true}]}`,
}

// Networks are the configured networks, with what the user should know about
// them.
type Networks struct {
	List     []poddir.Network // in the order in which they are to be joined by NetAll
	Warnings []string
}

// LoadNetworks reads net.d of all places. A network of a later place takes the
// place of one of the same name, and any of them that of a built-in one.
func LoadNetworks(dirs Dirs) (Networks, error) {
	var n Networks
	for _, text := range builtIn {
		one, err := network([]byte(text), "")
		if err != nil {
			return n, err
		}
		n.List = append(n.List, one)
	}
	for _, dir := range []string{dirs.System, dirs.Local, dirs.User} {
		if dir == "" {
			continue
		}
		list, err := readNetworks(filepath.Join(dir, "net.d"))
		if err != nil {
			return n, fmt.Errorf("configuration: %w", err)
		}
		for _, one := range list {
			n.override(one)
		}
	}
	return n, nil
}

func (n *Networks) override(by poddir.Network) {
	i := slices.IndexFunc(n.List, func(o poddir.Network) bool { return o.Name == by.Name })
	if i < 0 {
		n.List = append(n.List, by)
		return
	}
	n.Warnings = append(n.Warnings, fmt.Sprintf("overriding %q network with one from %s", by.Name, by.Source))
	n.List[i] = by
}

// readNetworks reads one folder in the order of the files' names.
func readNetworks(dir string) ([]poddir.Network, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var list []poddir.Network
	for _, e := range entries {
		if ext := filepath.Ext(e.Name()); e.IsDir() || ext != ".conf" && ext != ".conflist" {
			continue
		}
		file := filepath.Join(dir, e.Name())
		data, err := userfile.ReadRegular(file, userfile.MaxText)
		if err != nil {
			return nil, err
		}
		one, err := network(data, file)
		if err != nil {
			return nil, errs.WithClass(errs.Usage, fmt.Errorf("%s: %w", file, err))
		}
		if i := slices.IndexFunc(list, func(o poddir.Network) bool { return o.Name == one.Name }); i >= 0 {
			return nil, errs.Newf(errs.Usage, "%s: network %q: is in %s too", file, one.Name, list[i].Source)
		}
		list = append(list, one)
	}
	return list, nil
}

func network(data []byte, source string) (poddir.Network, error) {
	l, err := cni.Parse(data)
	if err != nil {
		return poddir.Network{}, err
	}
	if err := rules.CheckPTP(l); err != nil {
		return poddir.Network{}, err
	}
	if l.Name == NetHost || l.Name == NetNone || l.Name == NetAll {
		return poddir.Network{}, errs.Newf(errs.Usage, "name %q: has a meaning of its own", l.Name)
	}
	return poddir.Network{Name: l.Name, Config: json.RawMessage(data), Source: source}, nil
}

// Choose returns the named networks, in the order of the names.
func (n Networks) Choose(names []string, args map[string][][2]string) ([]poddir.Network, error) {
	if slices.Equal(names, []string{NetAll}) {
		return slices.DeleteFunc(slices.Clone(n.List), func(o poddir.Network) bool {
			return o.Name == NetRestricted && o.Source == ""
		}), nil
	}
	var list []poddir.Network
	for _, name := range names {
		if name == NetHost || name == NetNone {
			continue
		}
		i := slices.IndexFunc(n.List, func(o poddir.Network) bool { return o.Name == name })
		if i < 0 {
			var known []string
			for _, o := range n.List {
				known = append(known, o.Name)
			}
			return nil, errs.WithHint(errs.Newf(errs.NotFound, "network %q: not configured", name), "there are: %s, host, none", strings.Join(known, ", "))
		}
		one := n.List[i]
		one.Args = args[name]
		list = append(list, one)
	}
	return list, nil
}

// PluginDirs are the folders of network plugins: the administrator's, the
// vendor's, and that of those which come with rkt.
func PluginDirs(dirs Dirs, own string) []string {
	var list []string
	if dirs.Local != "" {
		list = append(list, filepath.Join(dirs.Local, "net.d"))
	}
	if dirs.System != "" {
		list = append(list, filepath.Join(dirs.System, "plugins", "net"))
	}
	return append(list, own)
}
