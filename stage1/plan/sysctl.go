package plan

import (
	"maps"
	"slices"
	"strings"

	"github.com/rkt-pods/rkt/pkg/appc"
	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/podspec"
)

// DefaultUmask is the file mode creation mask of an app that asks for none.
const DefaultUmask = 0o022

// ipcSysctls belong to the IPC namespace, so a pod has its own.
var ipcSysctls = []string{
	"kernel.msgmax", "kernel.msgmnb", "kernel.msgmni", "kernel.sem",
	"kernel.shmall", "kernel.shmmax", "kernel.shmmni", "kernel.shm_rmid_forced",
}

// sysctls are the pod's kernel parameters. Only those of which each namespace
// has its own: any other would be changed for the whole host.
func sysctls(list []appc.Isolator, hostNet bool) ([]Sysctl, error) {
	iso := appc.GetIsolator(list, appc.IsoSysctl)
	if iso == nil {
		return nil, nil
	}
	var values map[string]string
	if err := decode(appc.IsoSysctl, iso.Value, &values); err != nil {
		return nil, err
	}
	var out []Sysctl
	for _, key := range slices.Sorted(maps.Keys(values)) {
		// Either spelling, as sysctl(8) takes it: with slashes, a dot is part
		// of a name, such as that of an interface eth0.1.
		clean := key
		if first := strings.IndexAny(key, "./"); first < 0 || key[first] == '.' {
			clean = swapDots(key)
		}
		if err := checkSysctl(key, clean, values[key], hostNet); err != nil {
			return nil, err
		}
		out = append(out, Sysctl{Key: clean, Value: values[key]})
	}
	return out, nil
}

// swapDots turns a.b.c into a/b/c and keeps the slashes in it as dots.
func swapDots(key string) string {
	return strings.Map(func(r rune) rune {
		switch r {
		case '.':
			return '/'
		case '/':
			return '.'
		}
		return r
	}, key)
}

func checkSysctl(key, clean, value string, hostNet bool) error {
	dotted := strings.ReplaceAll(clean, "/", ".")
	for part := range strings.SplitSeq(clean, "/") {
		if part == "" || part == "." || part == ".." || strings.ContainsAny(part, "\x00\n \t") {
			return errs.Newf(errs.Usage, "sysctl %q: not the name of a kernel parameter", key)
		}
	}
	if strings.ContainsAny(value, "\x00\n") {
		return errs.Newf(errs.Usage, "sysctl %s: %q: more than one line", key, value)
	}
	switch {
	case slices.Contains(ipcSysctls, dotted), strings.HasPrefix(clean, "fs/mqueue/"), dotted == "kernel.domainname":
		return nil
	case dotted == "kernel.hostname":
		return errs.WithHint(errs.Newf(errs.Denied, "sysctl %s: rkt sets it itself", key), "--hostname names the host")
	case strings.HasPrefix(clean, "net/") && hostNet:
		return errs.WithHint(errs.Newf(errs.Denied, "sysctl %s: the pod has the host's network: it would be changed for the host", key),
			"leave --net=host out, or set it on the host")
	case strings.HasPrefix(clean, "net/"):
		return nil
	}
	return errs.WithHint(errs.Newf(errs.Denied, "sysctl %s: not of a namespace: it would be changed for the whole host", key),
		"a pod has its own net.*, fs.mqueue.*, kernel.msg*, kernel.sem, kernel.shm* and kernel.domainname")
}

// ownRequests are what only rkt's own annotations can ask for.
func ownRequests(app *App, ra *podspec.App) (err error) {
	app.Umask = DefaultUmask
	if s, ok := ra.Annotations.Get(podspec.AnnUmask); ok {
		if app.Umask, err = podspec.ParseUmask(s); err != nil {
			return err
		}
	}
	app.DeviceRequests, err = ra.Devices()
	return err
}
