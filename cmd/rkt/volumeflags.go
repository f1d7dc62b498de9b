package main

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/rkt-pods/rkt/pkg/appc"
	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/podspec"
	"github.com/rkt-pods/rkt/stage0/podplan"
)

// volumeFlags declares those of the pod's volumes and kernel parameters.
func (o *podFlags) volumeFlags(fs *pflag.FlagSet) {
	value(fs, "volume", "NAME,kind=KIND,…", "volume of the pod, of kind "+strings.Join(podspec.VolumeKinds(), ", ")+" (see volumes.md)", o.addVolume)
	value(fs, "sysctl", "NAME=VALUE", "kernel parameter of the pod's own namespaces, such as net.core.somaxconn", o.addSysctl)
}

// mountFlags declares those of what an app finds in its rootfs. Before any
// image they are for every app.
func (a *appArgs) mountFlags(fs *pflag.FlagSet) {
	value(fs, "mount", "volume=NAME,target=PATH", "mount a volume (also subPath=, readOnly=, nested=); before any image: in every app", a.setMount)
	value(fs, "tmpfs", "PATH[,size=SIZE]", "folder in memory of the app's own (also mode=, uid=, gid=); before any image: of every app", a.setTmpfs)
	value(fs, "device", "PATH[:TARGET][:rwm]", "device of the host, or a CDI name such as vendor.com/gpu=0; before any image: for every app", a.addDevices)
	a.value(fs, "umask", "MODE", "file mode creation mask of the app (default 0022)", func(p *appArg, v string) error {
		p.plan.Annotations.Set(podspec.AnnUmask, v)
		_, err := podspec.ParseUmask(v)
		return err
	})
}

func (o *podFlags) addVolume(s string) error {
	v, err := parseVolume(s)
	if err != nil {
		return err
	}
	for _, other := range o.volumes {
		if other.Name == v.Name {
			return errs.Newf(errs.Usage, "duplicate volume name %q", v.Name)
		}
	}
	o.volumes = append(o.volumes, v)
	return nil
}

// someImage stands for the id of an image that is looked up later.
const someImage = "sha512-" + "00000000000000000000000000000000"

// parseVolume reads NAME,kind=KIND[,KEY=VALUE…]. The source of an image volume
// is what an image argument may be.
func parseVolume(s string) (podspec.Volume, error) {
	name, kv, order, err := keyValues(s)
	if err != nil {
		return podspec.Volume{}, err
	}
	v := podspec.Volume{Name: name}
	for _, k := range order {
		if err := setVolume(&v, k, kv[k]); err != nil {
			return v, err
		}
	}
	if err := appc.StrictName(v.Name); err != nil {
		return v, fmt.Errorf("name: %w", err)
	}
	check := v
	if v.Kind == podspec.VolumeImage && v.Source != "" {
		check.Source = someImage
	}
	return v, check.Validate()
}

func setVolume(v *podspec.Volume, key, val string) (err error) {
	boolean := func(to **bool) error {
		b, err := strconv.ParseBool(val)
		*to = &b
		return err
	}
	id := func(to **int) error {
		n, err := strconv.ParseUint(val, 10, 32)
		id := int(n)
		*to = &id
		return err
	}
	switch key {
	case "name":
		v.Name = val
	case "kind":
		v.Kind = val
	case "source":
		v.Source = val
	case "mode":
		v.Mode = val
	case "size":
		v.Size = val
	case "propagation":
		v.Propagation = val
	case "selinux":
		v.SELinux = val
	case "credentials":
		v.Credentials = strings.Split(val, ":")
	case "followSymlinks":
		v.FollowSymlinks, err = strconv.ParseBool(val)
	case "readOnly":
		err = boolean(&v.ReadOnly)
	case "recursive":
		err = boolean(&v.Recursive)
	case "idmap":
		err = boolean(&v.IDMap)
	case "seed":
		err = boolean(&v.Seed)
	case "uid":
		err = id(&v.UID)
	case "gid":
		err = id(&v.GID)
	default:
		return errs.Newf(errs.Usage, "%q: unknown key of a volume", key)
	}
	if err != nil {
		return errs.Newf(errs.Usage, "%s=%s: not understood", key, val)
	}
	return nil
}

func (o *podFlags) addSysctl(s string) error {
	key, val, err := pair(s)
	if err != nil {
		return err
	}
	if _, twice := o.sysctls[key]; twice {
		return errs.Newf(errs.Usage, "kernel parameter %s is set twice", key)
	}
	if o.sysctls == nil {
		o.sysctls = map[string]string{}
	}
	o.sysctls[key] = val
	return nil
}

// isolators are those of the pod that flags ask for.
func (o *podFlags) isolators() []appc.Isolator {
	list := slices.Clone(o.apps.bounds)
	if len(o.sysctls) > 0 {
		list = append(list, appc.NewIsolator(appc.IsoSysctl, maps.Clone(o.sysctls)))
	}
	return list
}

// setMount reads volume=NAME,target=PATH[,subPath=PATH][,readOnly=BOOL][,nested=BOOL].
func (a *appArgs) setMount(v string) error {
	first, kv, order, err := keyValues(v)
	if err != nil {
		return err
	}
	m := podplan.Mount{Volume: kv["volume"], Path: kv["target"], SubPath: kv["subPath"]}
	if first != "" || m.Volume == "" || m.Path == "" {
		return errs.Newf(errs.Usage, "%q: not volume=NAME,target=PATH", v)
	}
	for _, key := range order {
		switch key {
		case "volume", "target", "subPath":
		case "readOnly":
			m.ReadOnly, err = parseBool(key, kv[key])
		case "nested":
			m.Nested, err = parseBool(key, kv[key])
		default:
			err = errs.Newf(errs.Usage, "%q: unknown key of a mount", key)
		}
		if err != nil {
			return err
		}
	}
	a.addMount(m)
	return nil
}

func parseBool(key, val string) (bool, error) {
	b, err := strconv.ParseBool(val)
	if err != nil {
		return b, errs.Newf(errs.Usage, "%s=%s: neither true nor false", key, val)
	}
	return b, nil
}

func (a *appArgs) addMount(m podplan.Mount) {
	if len(a.list) == 0 {
		a.mounts = append(a.mounts, m)
		return
	}
	app := &a.list[len(a.list)-1].plan
	app.Mounts = append(app.Mounts, m)
}

// setTmpfs reads PATH[,size=SIZE][,mode=MODE][,uid=N][,gid=N].
func (a *appArgs) setTmpfs(v string) error {
	target, kv, order, err := keyValues(v)
	if err != nil {
		return err
	}
	if target == "" {
		return errs.Newf(errs.Usage, "%q: not PATH[,size=SIZE]", v)
	}
	vol := podspec.Volume{Name: "tmpfs", Kind: podspec.VolumeTmpfs}
	for _, key := range order {
		if !slices.Contains([]string{"size", "mode", "uid", "gid"}, key) {
			return errs.Newf(errs.Usage, "%q: unknown key of a tmpfs", key)
		}
		if err := setVolume(&vol, key, kv[key]); err != nil {
			return err
		}
	}
	if err := vol.Validate(); err != nil {
		return err
	}
	if err := appc.CheckAbs(target); err != nil {
		return err
	}
	a.addMount(podplan.Mount{Volume: vol.Name, Path: target, AppVolume: &vol})
	return nil
}

func (a *appArgs) addDevices(v string) error {
	for s := range strings.SplitSeq(v, ",") {
		if _, err := podspec.ParseDevice(s); err != nil {
			return err
		}
	}
	to := &a.wide
	if len(a.list) > 0 {
		to = &a.list[len(a.list)-1].plan.Annotations
	}
	if before, ok := to.Get(podspec.AnnDevices); ok {
		v = before + "," + v
	}
	to.Set(podspec.AnnDevices, v)
	return nil
}
