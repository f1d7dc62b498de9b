package main

import (
	"context"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/rkt-pods/rkt/pkg/appc"
	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/idrange"
	"github.com/rkt-pods/rkt/pkg/poddir"
	"github.com/rkt-pods/rkt/pkg/podspec"
	"github.com/rkt-pods/rkt/pkg/userfile"
	"github.com/rkt-pods/rkt/stage0/fetch"
	"github.com/rkt-pods/rkt/stage0/prepare"
)

// podFlags are the options of prepare and run that shape the pod.
type podFlags struct {
	apps        appArgs
	fetch       fetchFlags
	manifest    string
	kube        kubeFlags
	volumes     []podspec.Volume
	volumeRefs  map[string]string // what the sources of image volumes were, by volume
	sysctls     map[string]string
	inheritEnv  bool
	env         []appc.EnvVar
	envFiles    []string
	envFile     []appc.EnvVar // what is in them
	exitPolicy  string
	stopTimeout *time.Duration
	stage1      string
	uuidFile    string
	ports       []podspec.ExposedPort
	name        string
	users       string // as podspec.AnnUsers has it
	labels      map[string]string
	dryRun      func(*podspec.Pod, map[string]prepare.Image) error // instead of making the pod; nil: make it
}

// runFlags are the options of run and run-prepared that a prepared pod does
// not have yet.
type runFlags struct {
	net      []string
	netArgs  map[string][][2]string // of each network
	warnings []string               // for the user, once finish has been called
	options  poddir.RunOptions
}

func (o *podFlags) declare(fs *pflag.FlagSet, r *refusals) {
	fs.StringVar(&o.manifest, "pod-manifest", "", "pod manifest to take instead of images and their flags")
	o.kube.declare(fs)
	o.volumeFlags(fs)
	fs.BoolVar(&o.inheritEnv, "inherit-env", false, "give apps the caller's environment where they have none of their own")
	value(fs, "set-env", "NAME=VALUE", "environment variable of all apps", func(v string) error { return addEnv(&o.env, v) })
	value(fs, "set-env-file", "FILE", "file of environment variables of all apps", func(v string) error { o.envFiles = append(o.envFiles, v); return nil })
	value(fs, "exit-policy", "POLICY", "when the pod ends: all, any or anyOnFailure (the default)", func(v string) error {
		o.exitPolicy = v
		return podspec.CheckExitPolicy(v)
	})
	value(fs, "stop-timeout", "DURATION", "time for an app to end when it is told to (default 10s); before any image: for all apps", o.setStopTimeout)
	value(fs, "pod-name", "NAME", "name of the pod, which is as good as its UUID as long as it is not garbage", func(v string) error {
		o.name = v
		return podspec.CheckPodName(v)
	})
	value(fs, "label", "NAME=VALUE", "label of the pod, which \"rkt list --filter\" finds it by", func(v string) error { return addLabel(&o.labels, v) })
	fs.StringVar(&o.stage1, "stage1-path", "", "stage1 program (default: beside rkt, or in libexec)")
	for _, name := range []string{"stage1-url", "stage1-name", "stage1-hash", "stage1-from-dir"} {
		r.flag(fs, name, "STAGE1", "stage1 image")
	}
	value(fs, "port", "NAME:[HOSTIP:]HOSTPORT", "let a port of the host lead to one of the pod: NAME as the image has it, or 80-tcp, 8000-8010-udp", o.addPort)
	value(fs, "private-users", "auto|START:COUNT", "run the pod in a user namespace, with user and group ids that no other pod has (auto) or those from START on", o.setUsers).NoOptDefVal = idrange.Auto
	r.boolFlag(fs, "no-overlay", "copy the images instead of stacking them")
	o.fetch.declare(fs, fetch.PullNew)
	o.apps.appFlags(fs, r)
}

// setUsers also takes true and false, which it was once.
func (o *podFlags) setUsers(v string) error {
	if on, err := strconv.ParseBool(v); err == nil {
		v = ""
		if on {
			v = idrange.Auto
		}
	} else if _, err := idrange.Parse(v); err != nil {
		return err
	}
	o.users = v
	return nil
}

func (o *podFlags) setStopTimeout(v string) error {
	if len(o.apps.list) == 0 {
		return setDuration(&o.stopTimeout)(v)
	}
	return setDuration(&o.apps.list[len(o.apps.list)-1].plan.StopTimeout)(v)
}

// readEnvFiles reads NAME=VALUE lines; empty ones and those that begin with #
// or ; are left out.
func (o *podFlags) readEnvFiles(ctx context.Context) error {
	for _, path := range o.envFiles {
		if err := o.readEnvFile(ctx, path); err != nil {
			return errs.WithHint(errs.WithClass(errs.Usage, fmt.Errorf("--set-env-file: %w", err)), "it names a file of lines NAME=VALUE")
		}
	}
	return nil
}

func (o *podFlags) readEnvFile(ctx context.Context, path string) error {
	data, err := userfile.Read(ctx, path, userfile.MaxText)
	if err != nil {
		return err
	}
	n := 0
	for line := range strings.Lines(string(data)) {
		n++
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' || line[0] == ';' {
			continue
		}
		if err := addEnv(&o.envFile, line); err != nil {
			return fmt.Errorf("%s:%d: %w", path, n, err)
		}
	}
	return nil
}

// conflicts says whether something was given that a manifest file leaves no
// room for.
func (o *podFlags) conflicts(policyGiven bool) bool {
	if len(o.apps.list) > 0 || len(o.apps.bounds) > 0 || len(o.apps.mounts)+len(o.apps.wide) > 0 || len(o.volumes)+len(o.sysctls)+len(o.ports) > 0 || o.inheritEnv || len(o.env)+len(o.envFiles) > 0 {
		return true
	}

	if o.users != "" {
		return true
	}
	return policyGiven || o.exitPolicy != "" || o.stopTimeout != nil || o.name != "" || len(o.labels) > 0
}

func (f *runFlags) declare(fs *pflag.FlagSet, r *refusals) {
	value(fs, "net", "NETWORK[:ARG=VALUE;…],…", "networks of the pod: configured ones, default, default-restricted, all, host or none", f.addNet).NoOptDefVal = "default"
	o := &f.options
	value(fs, "dns", "IP|host|none", "name server of the pod, or the host's resolv.conf, or none", f.addDNS)
	value(fs, "dns-search", "DOMAIN", "search domain", func(v string) error { o.DNSSearch = append(o.DNSSearch, list(v)...); return nil })
	value(fs, "dns-opt", "OPTION", "option of the resolver", func(v string) error { o.DNSOptions = append(o.DNSOptions, list(v)...); return nil })
	fs.StringVar(&o.DNSDomain, "dns-domain", "", "domain of the pod")
	value(fs, "hosts-entry", "IP=NAME|host", "line of the pod's /etc/hosts, or the host's file", f.addHosts)
	value(fs, "hostname", "NAME", "the pod's host name (default rkt-UUID)", func(v string) error {
		o.Hostname = v
		return checkHostname(v)
	})
	fs.BoolVar(&o.Interactive, "interactive", false, "connect the one app to this terminal or to stdin")
	value(fs, "log-prefix", "auto|always|never", "the app's name in front of each line of output (auto: with several apps)", func(v string) error {
		o.LogPrefix = v
		if v != "auto" && v != "always" && v != "never" {
			return errs.Newf(errs.Usage, "%q is none of auto, always, never", v)
		}
		return nil
	})
	value(fs, "log-max-size", "SIZE", "size of an app's log at which a new file is begun (default 64Mi)", func(v string) (err error) {
		o.LogMaxSize, err = setLogSize(v)
		return err
	})
	value(fs, "log-max-files", "N", "files that are kept of an app's log (default 5)", func(v string) (err error) {
		o.LogMaxFiles, err = setLogFiles(v)
		return err
	})
	fs.BoolVar(&o.StrictIsolators, "strict-isolators", false, "refuse isolators that can't be enforced as they are asked for, rather than note it")
	fs.BoolVar(&o.DurableRootFS, "durable-rootfs", false, "let what apps write to their root file system survive a power loss")
	value(fs, "ipc", "auto|private|parent", "IPC namespace; parent is not supported yet", func(v string) error {
		switch v {
		case "auto", "private":
			return nil
		case "parent":
			r.add("--ipc=parent")
			return nil
		}
		return errs.Newf(errs.Usage, "%q is none of auto, private, parent", v)
	})
	r.boolFlag(fs, "mds-register", "register the pod with the metadata service")
}

func (f *runFlags) addDNS(v string) error {
	for _, d := range list(v) {
		if d != "host" && d != "none" {
			ip, err := netip.ParseAddr(d)
			if err != nil {
				return errs.Newf(errs.Usage, "%q: neither an IP address nor host nor none", d)
			}
			d = ip.String()
		}
		f.options.DNS = append(f.options.DNS, d)
	}
	return nil
}

func (f *runFlags) addHosts(v string) error {
	for _, e := range list(v) {
		if e == "host" {
			f.options.HostsFromHost = true
			continue
		}
		ip, name, err := pair(e)
		if err != nil {
			return err
		}
		addr, err := netip.ParseAddr(ip)
		if err != nil || name == "" || strings.ContainsAny(name, " \t\n#") {
			return errs.Newf(errs.Usage, "%q: not IP=NAME", e)
		}
		f.options.Hosts = append(f.options.Hosts, poddir.HostEntry{IP: addr.String(), Names: []string{name}})
	}
	return nil
}

// checkHostname knows the kernel's limit of 64 bytes.
func checkHostname(v string) error {
	bad := strings.ContainsFunc(v, func(c rune) bool { return c != '.' && c != '-' && !isAlnum(c) })
	if v == "" || len(v) > 64 || bad || strings.Trim(v, ".-") != v {
		return errs.Newf(errs.Usage, "%q: not a host name", v)
	}
	return nil
}

func isAlnum(c rune) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// finish checks what only all flags together tell.
func (f *runFlags) finish(g *globals, apps int) (poddir.RunOptions, error) {
	o := f.options
	if err := f.networks(g, &o); err != nil {
		return o, err
	}
	for _, d := range o.DNS {
		whole := d == "host" || d == "none"
		if whole && (len(o.DNS) > 1 || len(o.DNSSearch)+len(o.DNSOptions) > 0 || o.DNSDomain != "") {
			return o, errs.Newf(errs.Usage, "--dns=%s can't be joined with other --dns flags", d)
		}
	}
	if o.HostsFromHost && len(o.Hosts) > 0 {
		return o, errs.Newf(errs.Usage, "--hosts-entry=host can't be joined with other entries")
	}
	if o.Interactive && apps != 1 {
		return o, errs.Newf(errs.Usage, "--interactive needs a pod of exactly one app, this one has %d", apps)
	}
	o.InsecureCaps, o.InsecurePaths, o.InsecureSeccmp = g.insecure["capabilities"], g.insecure["paths"], g.insecure["seccomp"]
	return o, nil
}
