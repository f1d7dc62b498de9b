package main

import (
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/stage0/config"
	"github.com/rkt-pods/rkt/stage0/pod"
	"github.com/rkt-pods/rkt/stage0/rootless"
	"github.com/rkt-pods/rkt/stage0/store"
)

// globals are the flags of every command, and the process's own files.
type globals struct {
	stdin, stderr *os.File
	stdout        *checkedFile

	debug    bool
	dir      string
	dirs     config.Dirs
	insecure insecure
	refused  refusals

	trustHTTPS bool
}

func (g *globals) flags(fs *pflag.FlagSet) {
	fs.BoolVar(&g.debug, "debug", false, "say more on stderr")
	fs.StringVar(&g.dir, "dir", "", "data folder (default from paths.d, else "+config.DefaultData+")")
	fs.StringVar(&g.dirs.System, "system-config", "/usr/lib/rkt", "the vendor's configuration")
	fs.StringVar(&g.dirs.Local, "local-config", "/etc/rkt", "the administrator's configuration")
	own := ""
	if rootless.Inside() {
		own = rootless.ConfigDir(os.Getenv)
	}
	fs.StringVar(&g.dirs.User, "user-config", own, "the user's configuration, which weighs most")
	fs.Var(&g.insecure, "insecure-options", "checks to leave out, separated by commas: "+strings.Join(insecureNames(), ", "))
	fs.BoolVar(&g.trustHTTPS, "trust-keys-from-https", false, "trust keys that were found over https without asking")
	g.refused.flag(fs, "cpuprofile", "FILE", "write a CPU profile")
	g.refused.flag(fs, "memprofile", "FILE", "write a memory profile")
	for _, name := range []string{"cpuprofile", "memprofile"} {
		fs.Lookup(name).Hidden = true
	}
}

// insecure are the checks that the user has switched off, by name.
type insecure map[string]bool

// insecureGroups are the names of --insecure-options and what each stands for.
var insecureGroups = map[string][]string{
	"none": nil, "image": {"image"}, "tls": {"tls"}, "ondisk": nil, "http": {"http"}, "pubkey": {"pubkey"},
	"capabilities": {"capabilities"}, "paths": {"paths"}, "seccomp": {"seccomp"},
	"all-fetch": {"image", "tls", "http", "pubkey"},
	"all-run":   {"capabilities", "paths", "seccomp"},
	"all":       {"image", "tls", "http", "pubkey", "capabilities", "paths", "seccomp"},
}

func insecureNames() []string { return slices.Sorted(maps.Keys(insecureGroups)) }

func (i *insecure) Set(list string) error {
	if *i == nil {
		*i = insecure{}
	}
	for name := range strings.SplitSeq(list, ",") {
		group, ok := insecureGroups[name]
		if !ok {
			return errs.Newf(errs.Usage, "%q is none of %s", name, strings.Join(insecureNames(), ", "))
		}
		for _, what := range group {
			(*i)[what] = true
		}
	}
	return nil
}

func (i *insecure) String() string { return strings.Join(slices.Sorted(maps.Keys(*i)), ",") }
func (i *insecure) Type() string   { return "LIST" }

// needRoot has an ordinary user begin anew as root of a user namespace, if the
// data folder is his own. Others are refused, before anything is looked at.
func (g *globals) needRoot() error { return g.needRootFor(false) }

// needRootFor is needRoot for a command that becomes a pod, or is none.
func (g *globals) needRootFor(pod bool) error {
	if os.Geteuid() == 0 {
		return nil
	}
	data, err := g.dataDir(true)
	if err != nil {
		return err
	}
	if !rootless.Own(data) {
		return errs.WithHint(errs.Newf(errs.Denied, "cannot run as unprivileged user"), "run it as root, for example with sudo, or leave --dir out: without it an ordinary user's pods are in a folder of his own")
	}
	return rootless.Enter(data, os.Args[1:], pod)
}

// anyone says whether this is an ordinary user who looks at pods of others. One
// who looks at his own begins anew, as with needRoot.
func (g *globals) anyone() (bool, error) {
	if os.Geteuid() == 0 {
		return false, nil
	}
	data, err := g.dataDir(false)
	if err != nil || !rootless.Own(data) {
		return true, err
	}
	return false, g.needRoot()
}

// dataDir is the data folder. That of an ordinary user is his own by default,
// once he has one or is about to make it.
func (g *globals) dataDir(make bool) (string, error) {
	if (os.Geteuid() != 0 || rootless.Inside()) && g.dir == "" {
		own := rootless.DataDir(os.Getenv)
		if _, err := os.Stat(own); err == nil || make || rootless.Inside() {
			return own, nil
		}
	}
	c, err := config.LoadPaths(g.dirs)
	if err != nil {
		return "", err
	}
	return c.DataDir(g.dir)
}

// host is what most commands work on.
type host struct {
	store *store.Store
	pods  pod.Pods
}

// open opens the data folder and makes what is missing in it.
func (g *globals) open() (host, error) { return g.openWith(store.Open) }

// openExisting opens the data folder only if it is one. The error is of class
// NotFound if it isn't.
func (g *globals) openExisting() (host, error) { return g.openWith(store.OpenExisting) }

func (g *globals) openWith(open func(string) (*store.Store, error)) (host, error) {
	if err := g.refused.err(); err != nil {
		return host{}, err
	}
	c, err := config.LoadPaths(g.dirs)
	if err != nil {
		return host{}, err
	}
	data, err := g.dataDir(false)
	if err != nil {
		return host{}, err
	}
	others := c.Paths.Stores
	if os.Geteuid() != 0 {
		others = nil // only root can look at images
	}
	if len(others) > 0 {
		open = store.Open // there are images, even if none was fetched yet
	}
	s, err := open(data)
	if err != nil {
		return host{}, err
	}
	s.Use(others)
	return host{s, pod.Pods{Data: s.Data(), StoreID: s.ID()}}, nil
}

// refusals collects flags that are known, were given, and can't be honoured.
// They parse, so that the message says what is missing and not that the word
// is unknown.
type refusals struct{ given []string }

// err names the first of them.
func (r *refusals) err() error {
	if len(r.given) == 0 {
		return nil
	}
	name, _, _ := strings.Cut(r.given[0], "=")
	return errs.WithHint(errs.Newf(errs.Unsupported, "flag %s: not supported yet", r.given[0]),
		"leave %s out if the pod can do without it; nothing was done", name)
}

func (r *refusals) add(flag string) { r.given = append(r.given, flag) }

// flag declares a flag with a value that is refused.
func (r *refusals) flag(fs *pflag.FlagSet, name, typ, usage string) {
	value(fs, name, typ, usage+" (not supported yet)", func(v string) error {
		r.add("--" + name + "=" + v)
		return nil
	})
}

// boolFlag declares a flag without a value that is refused, unless it is set
// to false.
func (r *refusals) boolFlag(fs *pflag.FlagSet, name, usage string) {
	boolean(fs, name, usage+" (not supported yet)", func(on bool) error {
		if on {
			r.add("--" + name)
		}
		return nil
	})
}
