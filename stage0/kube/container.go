package kube

import (
	"fmt"
	"iter"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/rkt-pods/rkt/pkg/appc"
	"github.com/rkt-pods/rkt/pkg/lifecycle"
	"github.com/rkt-pods/rkt/pkg/podspec"
	"github.com/rkt-pods/rkt/stage0/podplan"
)

// all walks the containers with their paths, those first that start first.
func (r *reader) all(s *spec) iter.Seq2[string, *container] {
	return func(yield func(string, *container) bool) {
		for _, part := range []struct {
			name string
			list []container
		}{{"initContainers", s.InitContainers}, {"containers", s.Containers}} {
			for i := range part.list {
				if !yield(fmt.Sprintf("spec.%s[%d]", part.name, i), &part.list[i]) {
					return
				}
			}
		}
	}
}

func (r *reader) containers(s *spec) {
	r.appNames = map[string]bool{}
	if len(s.Containers) == 0 {
		r.bad("spec.containers", "missing")
	}
	n := 0
	for at, c := range r.all(s) {
		r.container(at, c, n < len(s.InitContainers))
		n++
	}
}

func (r *reader) container(at string, c *container, early bool) {
	r.containerName(at+".name", c.Name)
	stop := r.grace
	app := App{Plan: podplan.App{Name: c.Name, WorkingDir: c.WorkingDir, StopTimeout: &stop}}
	app.Image = r.image(at+".image", c.Image)
	app.Pull = PullPolicy(c.PullPolicy)
	r.oneOf(at+".imagePullPolicy", c.PullPolicy, "", string(PullAlways), string(PullIfNotPresent), string(PullNever))
	if c.WorkingDir != "" {
		if err := appc.CheckAbs(c.WorkingDir); err != nil {
			r.bad(at+".workingDir", "%v", err)
		}
	}
	r.program(at, c, &app.Plan)
	r.ports(at+".ports", c, &app.Plan)
	r.mounts(at+".volumeMounts", c.VolumeMounts, &app.Plan)
	app.Plan.Isolators = r.resources(at+".resources", c.Resources)
	r.security(at+".securityContext", c.SecurityContext, &app.Plan)
	role := r.role(at, c, early, &app.Plan)
	r.life(at, c, role, &app.Plan)
	r.streams(at, c)
	r.out.Apps = append(r.out.Apps, app)
}

func (r *reader) containerName(at, name string) {
	switch {
	case name == "":
		r.bad(at, "missing")
	case !isLabel(name):
		r.bad(at, "%q: not a name of lower-case letters, digits and -", name)
	case appc.StrictName(name) != nil:
		r.bad(at, "%q: two hyphens in a row are not supported", name)
	case r.appNames[name]:
		r.bad(at, "%q: given twice", name)
	}
	r.appNames[name] = true
}

// image makes an argument of rkt run. Names are those of registries, as
// everywhere in Kubernetes; beside them there are ids, and rkt's own references
// that have a scheme.
func (r *reader) image(at, name string) string {
	switch {
	case name == "":
		r.bad(at, "missing")
		return ""
	case strings.TrimSpace(name) != name:
		r.bad(at, "%q: blanks around it", name)
	case strings.Contains(name, "://"), isImageID(name):
		return name
	}
	return "docker://" + name
}

func isImageID(s string) bool {
	return appc.CheckImageID(s) == nil || strings.HasPrefix(s, "sha256:") && len(s) == len("sha256:")+64
}

// program reads what is run, with variables replaced. Those of the image are
// not known to Kubernetes either.
func (r *reader) program(at string, c *container, app *podplan.App) {
	vars := map[string]string{}
	for i, e := range c.Env {
		path := fmt.Sprintf("%s.env[%d]", at, i)
		switch {
		case e.Name == "":
			r.bad(path+".name", "missing")
		case strings.ContainsRune(e.Name, '='):
			r.bad(path+".name", "%q: not a name of a variable", e.Name)
		case appc.CheckEnvName(e.Name) != nil:
			r.unsupported(path+".name", "%q: letters, digits, _ . and - are supported, and no digit first", e.Name)
		case r.reported(path):
			// Without the value that it can't have it is better left out.
		default:
			vars[e.Name] = expand(e.Value, vars)
			app.Env = append(app.Env, appc.EnvVar{Name: e.Name, Value: vars[e.Name]})
		}
	}
	command, args := expandAll(c.Command, vars), expandAll(c.Args, vars)
	if len(command) == 0 {
		app.Args = args
		return
	}
	if command[0] == "" {
		r.bad(at+".command[0]", "empty")
	}
	app.Exec, app.Args = command[0], append(command[1:], args...)
}

// ports are what the container says it listens on. On the host's network that
// is all there is to publishing them.
func (r *reader) ports(at string, c *container, app *podplan.App) {
	names := map[string]bool{}
	for i, p := range c.Ports {
		at := fmt.Sprintf("%s[%d]", at, i)
		r.oneOf(at+".protocol", p.Protocol, "", "TCP", "UDP", "SCTP")
		protocol := strings.ToLower(p.Protocol)
		if protocol == "" {
			protocol = "tcp"
		}
		if p.ContainerPort < 1 || p.ContainerPort > 65535 {
			r.bad(at+".containerPort", "%d: not a port", p.ContainerPort)
			continue
		}
		name := p.Name
		if name == "" {
			name = fmt.Sprintf("%d-%s", p.ContainerPort, protocol)
		}
		switch {
		case !isLabel(name):
			r.bad(at+".name", "%q: not a name of lower-case letters, digits and -", name)
		case names[name] && p.Name != "":
			r.bad(at+".name", "%q: given twice", name)
		}
		out := appc.Port{Name: name, Protocol: protocol, Port: uint(p.ContainerPort)}
		r.hostPort(at, c.Name+"-"+name, p, out)
		if !names[name] {
			app.Ports = append(app.Ports, out)
		}
		names[name] = true
	}
}

// hostPort publishes the port, which on the host's network it is already.
func (r *reader) hostPort(at, name string, p port, out appc.Port) {
	ip, err := netip.ParseAddr(p.HostIP)
	switch {
	case p.HostIP == "":
	case err != nil || ip.Zone() != "":
		r.bad(at+".hostIP", "%q: not an IP address", p.HostIP)
	case ip.IsUnspecified():
		p.HostIP = ""
	default:
		p.HostIP = ip.Unmap().String()
	}
	switch {
	case p.HostPort == 0:
	case p.HostPort < 0 || p.HostPort > 65535:
		r.bad(at+".hostPort", "%d: not a port", p.HostPort)
	case r.spec.HostNetwork && p.HostPort != p.ContainerPort:
		r.bad(at+".hostPort", "%d: with hostNetwork it must be the containerPort, %d", p.HostPort, p.ContainerPort)
	case r.spec.HostNetwork:
	default:
		for slices.ContainsFunc(r.out.Ports, func(e podspec.ExposedPort) bool { return e.Name == name }) {
			name += "-too"
		}
		r.out.Ports = append(r.out.Ports, podspec.ExposedPort{Name: name, HostPort: uint(p.HostPort), HostIP: p.HostIP, PodPort: &out})
	}
}

func (r *reader) mounts(at string, list []volumeMount, app *podplan.App) {
	taken := map[string]bool{}
	for i, m := range list {
		at := fmt.Sprintf("%s[%d]", at, i)
		if !isKey(r.volumes, m.Name) {
			r.bad(at+".name", "%q: no such volume in spec.volumes", m.Name)
		}
		target := path.Clean(m.MountPath)
		switch err := appc.CheckAbs(m.MountPath); {
		case err != nil:
			r.bad(at+".mountPath", "%v", err)
		case taken[target]:
			r.bad(at+".mountPath", "%q: two mounts at one path", m.MountPath)
		}
		taken[target] = true
		if m.SubPath != "" && (path.IsAbs(m.SubPath) || !localPath(m.SubPath)) {
			r.bad(at+".subPath", "%q: not a path below the volume", m.SubPath)
		}
		r.recursive(at, m)
		if !r.volumes[m.Name] {
			continue
		}
		part := path.Clean(m.SubPath)
		if part == "." {
			part = "" // all of it
		}
		// That mounts lie in each other is for the user to mean.
		app.Mounts = append(app.Mounts, podplan.Mount{Volume: m.Name, Path: target, ReadOnly: m.ReadOnly, SubPath: part, Nested: true})
	}
}

// localPath refuses what leads out of the folder.
func localPath(p string) bool {
	for part := range strings.SplitSeq(p, "/") {
		if part == ".." {
			return false
		}
	}
	return !strings.ContainsRune(p, 0)
}

// recursive: what is read-only in rkt is so with all that is mounted below.
func (r *reader) recursive(at string, m volumeMount) {
	at += ".recursiveReadOnly"
	if !r.oneOf(at, m.RecursiveReadOnly, "", "Disabled", "IfPossible", "Enabled") || m.RecursiveReadOnly == "" {
		return
	}
	switch {
	case m.RecursiveReadOnly != "Disabled" && !m.ReadOnly:
		r.bad(at, "%s: only with readOnly: true", m.RecursiveReadOnly)
	case m.RecursiveReadOnly == "Disabled" && m.ReadOnly:
		r.unsupported(at, "Disabled is not supported: what is mounted below is read-only too")
	}
}

// resources become isolators. What has a limit and no request requests as much.
func (r *reader) resources(at string, res *resources) (list []appc.Isolator) {
	if res == nil {
		return nil
	}
	pages := map[string]string{}
	for kind, list := range map[string]map[string]quantity{"limits": res.Limits, "requests": res.Requests} {
		for name, q := range list {
			at := fmt.Sprintf("%s.%s[%s]", at, kind, name)
			size, huge := strings.CutPrefix(name, "hugepages-")
			switch {
			case name == "cpu" || name == "memory":
			case !huge || !strings.HasSuffix(size, "i"):
				r.unsupported(at, "not supported")
			case res.Limits[name] != q && kind == "requests":
				r.bad(at, "%s: not the limit, %s", q, res.Limits[name])
			default:
				r.amount(at, q)
				pages[strings.TrimSuffix(size, "i")+"B"] = string(q)
			}
		}
	}
	if len(pages) > 0 {
		list = append(list, appc.NewIsolator(appc.IsoHugetlb, pages))
	}
	for _, of := range []struct{ name, isolator string }{{"cpu", appc.IsoCPU}, {"memory", appc.IsoMemory}} {
		limit := r.amount(at+".limits["+of.name+"]", res.Limits[of.name])
		request := r.amount(at+".requests["+of.name+"]", res.Requests[of.name])
		value := map[string]string{}
		if limit > 0 {
			value["limit"] = string(res.Limits[of.name])
			value["request"] = value["limit"]
		}
		if request > 0 {
			value["request"] = string(res.Requests[of.name])
		}
		if limit > 0 && request > limit {
			r.bad(at+".requests["+of.name+"]", "%s: more than the limit, %s", value["request"], value["limit"])
		}
		if len(value) > 0 {
			list = append(list, appc.NewIsolator(of.isolator, value))
		}
	}
	return list
}

// amount is a quantity in thousandths, 0 if there is none: no limit at all is
// what 0 means to Kubernetes too.
func (r *reader) amount(at string, q quantity) int64 {
	if q == "" {
		return 0
	}
	parsed, err := appc.ParseQuantity(string(q))
	var n int64
	if err == nil {
		n, err = parsed.Milli()
	}
	if err != nil {
		r.bad(at, "%v", err)
	}
	return n
}

// role says what the container is for, and when it is restarted.
func (r *reader) role(at string, c *container, early bool, app *podplan.App) lifecycle.Role {
	role := lifecycle.RoleApp
	if early {
		role = lifecycle.RoleInit
		if c.RestartPolicy == always {
			role = lifecycle.RoleSidecar
		}
		app.Annotations.Set(podspec.AnnRole, string(role))
	}
	r.restart(at, c, role, app)
	for _, sidecar := range r.awaited {
		r.after(app, sidecar)
	}
	return role
}

func (r *reader) after(app *podplan.App, sidecar string) {
	list, given := app.Annotations.Get(podspec.AnnAfter)
	if given {
		list += ","
	}
	app.Annotations.Set(podspec.AnnAfter, list+sidecar+":"+string(lifecycle.OnReady))
}

// streams are those of every app, and what is said at the end is in the log.
func (r *reader) streams(at string, c *container) {
	for field, on := range map[string]bool{".stdin": c.Stdin, ".stdinOnce": c.StdinOnce, ".tty": c.TTY} {
		if on {
			r.unsupported(at+field, "not supported: rkt run --interactive does it for a pod of one app")
		}
	}
	if c.MessagePath != "" && c.MessagePath != "/dev/termination-log" {
		r.unsupported(at+".terminationMessagePath", "not supported")
	}
	if r.oneOf(at+".terminationMessagePolicy", c.MessagePolicy, "", "File", "FallbackToLogsOnError") && c.MessagePolicy == "FallbackToLogsOnError" {
		r.unsupported(at+".terminationMessagePolicy", "not supported")
	}
}

// portNumber is the number of a port that is given by number or by name.
func (r *reader) portNumber(at string, p intOrString, ports []port) int {
	if n, err := strconv.Atoi(string(p)); err == nil {
		if n < 1 || n > 65535 {
			r.bad(at, "%d: not a port", n)
		}
		return n
	}
	for _, known := range ports {
		if known.Name != "" && known.Name == string(p) {
			return int(known.ContainerPort)
		}
	}
	if p == "" {
		r.bad(at, "missing")
	} else {
		r.bad(at, "%q: no port of the container has that name", string(p))
	}
	return 0
}
