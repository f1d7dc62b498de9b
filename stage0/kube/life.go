package kube

import (
	"net/netip"
	"reflect"
	"slices"
	"time"

	"github.com/rkt-pods/rkt/pkg/appc"
	"github.com/rkt-pods/rkt/pkg/lifecycle"
	"github.com/rkt-pods/rkt/pkg/podspec"
	"github.com/rkt-pods/rkt/stage0/podplan"
)

// hookTime is for a hook that Kubernetes gives all the time it wants.
const hookTime = 24 * time.Hour

// Kubernetes' defaults of a probe.
const (
	probePeriod   = 10
	probeTimeout  = 1
	probeFailures = 3
)

// life reads probes and hooks.
func (r *reader) life(at string, c *container, role lifecycle.Role, app *podplan.App) {
	if role == lifecycle.RoleInit {
		for field, given := range map[string]bool{
			".livenessProbe": c.Liveness != nil, ".readinessProbe": c.Readiness != nil, ".startupProbe": c.Startup != nil, ".lifecycle": c.Lifecycle != nil,
		} {
			if given {
				r.bad(at+field, "an init container has none")
			}
		}
		return
	}
	for _, p := range []struct {
		field      string
		probe      *probe
		annotation string
	}{
		{".startupProbe", c.Startup, podspec.AnnStartup},
		{".livenessProbe", c.Liveness, podspec.AnnLive},
		{".readinessProbe", c.Readiness, podspec.AnnReady},
	} {
		if p.probe != nil {
			r.probe(at+p.field, p.probe, c, app, p.annotation)
		}
	}
	if c.Lifecycle != nil {
		r.hooks(at+".lifecycle", c, app)
	}
	if role == lifecycle.RoleSidecar {
		r.await(at, c, app)
	}
}

// await: what follows a sidecar waits for its hook and its startup probe, which
// is when a container without a readiness probe is ready.
func (r *reader) await(at string, c *container, app *podplan.App) {
	_, hook := app.Annotations.Get(podspec.AnnPostStart)
	_, startup := app.Annotations.Get(podspec.AnnStartup)
	switch {
	case !hook && !startup:
	case c.Readiness != nil:
		r.unsupported(at+".readinessProbe", "not supported for a sidecar with a startupProbe or a postStart hook: what follows would wait for it")
		app.Annotations = slices.DeleteFunc(app.Annotations, func(a appc.Annotation) bool { return a.Name == podspec.AnnReady })
		fallthrough
	default:
		r.awaited = append(r.awaited, c.Name)
	}
}

func (r *reader) probe(at string, p *probe, c *container, app *podplan.App, annotation string) {
	out := podspec.Probe{
		Delay:     r.seconds(at+".initialDelaySeconds", p.InitialDelay, 0, 0),
		Period:    r.seconds(at+".periodSeconds", p.Period, probePeriod, 1),
		Timeout:   r.seconds(at+".timeoutSeconds", p.Timeout, probeTimeout, 1),
		Successes: r.count(at+".successThreshold", p.SuccessThreshold, 1),
		Failures:  r.count(at+".failureThreshold", p.FailureThreshold, probeFailures),
	}
	if !r.check(at, action{p.Exec, p.HTTPGet, p.TCPSocket}, c.Ports, &out.Check) {
		return
	}
	// The kubelet takes the values as they are written.
	raw := map[string]string{}
	for _, e := range c.Env {
		raw[e.Name] = e.Value
	}
	out.Argv = expandAll(out.Argv, raw)
	parse := podspec.ParseReady
	if annotation != podspec.AnnReady {
		parse = podspec.ParseLive
		if out.Successes != 1 {
			r.bad(at+".successThreshold", "%d: must be 1", out.Successes)
			return
		}
	}
	r.annotate(at, app, annotation, out.String(), func(s string) bool {
		back, err := parse(s)
		return err == nil && reflect.DeepEqual(back, out)
	})
}

// annotate sets the annotation, provided that it says what was meant.
func (r *reader) annotate(at string, app *podplan.App, name, value string, same func(string) bool) {
	if !same(value) {
		r.unsupported(at, "can't be said in the manifest as %s", value)
		return
	}
	app.Annotations.Set(name, value)
}

// seconds is a number of seconds; 0 means the default where it is no value.
func (r *reader) seconds(at string, n *int64, otherwise, least int64) time.Duration {
	v := otherwise
	if n != nil && (*n != 0 || least == 0) {
		v = *n
	}
	if v < least || v > maxSeconds {
		r.bad(at, "%d: not a number of seconds from %d on", v, least)
		v = otherwise
	}
	return time.Duration(v) * time.Second
}

func (r *reader) count(at string, n *int64, otherwise int) int {
	switch {
	case n == nil || *n == 0:
		return otherwise
	case *n < 0 || *n > 65535:
		r.bad(at, "%d: not a number from 1 to 65535", *n)
		return otherwise
	}
	return int(*n)
}

// action is what a probe or a hook does: one of these.
type action struct {
	exec *execAction
	http *httpAction
	tcp  *tcpAction
}

func (r *reader) check(at string, a action, ports []port, out *podspec.Check) bool {
	given := 0
	for _, is := range []bool{a.exec != nil, a.http != nil, a.tcp != nil} {
		if is {
			given++
		}
	}
	switch {
	case given == 0 && r.reported(at):
		return false // what it does was refused
	case given != 1:
		r.bad(at, "wants one of exec, httpGet, tcpSocket")
		return false
	case a.exec != nil:
		if len(a.exec.Command) == 0 {
			r.bad(at+".exec.command", "missing")
			return false
		}
		*out = podspec.Check{Kind: podspec.CheckExec, Argv: a.exec.Command}
	case a.http != nil:
		return r.httpCheck(at+".httpGet", a.http, ports, out)
	default:
		*out = podspec.Check{Kind: podspec.CheckTCP, Port: r.portNumber(at+".tcpSocket.port", a.tcp.Port, ports)}
		return r.localHost(at+".tcpSocket.host", a.tcp.Host) && out.Port != 0
	}
	return true
}

func (r *reader) httpCheck(at string, h *httpAction, ports []port, out *podspec.Check) bool {
	*out = podspec.Check{Kind: podspec.CheckHTTP, Port: r.portNumber(at+".port", h.Port, ports), Path: h.Path}
	if h.Path == "" || h.Path[0] != '/' {
		out.Path = "/" + h.Path
	}
	if !r.oneOf(at+".scheme", h.Scheme, "", "HTTP", "HTTPS") {
		return false
	}
	if h.Scheme == "HTTPS" {
		r.unsupported(at+".scheme", "HTTPS is not supported yet")
		return false
	}
	return r.localHost(at+".host", h.Host) && out.Port != 0
}

// localHost: the pod's own is what is asked.
func (r *reader) localHost(at, host string) bool {
	addr, err := netip.ParseAddr(host)
	if host == "" || host == "localhost" || err == nil && addr.IsLoopback() {
		return true
	}
	r.unsupported(at, "%q: only the pod itself is asked", host)
	return false
}

func (r *reader) hooks(at string, c *container, app *podplan.App) {
	l := c.Lifecycle
	if l.PostStart != nil {
		r.hook(at+".postStart", l.PostStart, c.Ports, hookTime, app, podspec.AnnPostStart)
	}
	// Without a grace period Kubernetes leaves the hook out.
	if l.PreStop != nil && r.grace > 0 {
		r.hook(at+".preStop", l.PreStop, c.Ports, r.grace, app, podspec.AnnPreStop)
	}
	if l.StopSignal != "" {
		if _, err := podspec.ParseSignal(l.StopSignal); err != nil {
			r.bad(at+".stopSignal", "%q: unknown", l.StopSignal)
			return
		}
		app.Annotations.Set(podspec.AnnStopSignal, l.StopSignal)
	}
}

func (r *reader) hook(at string, h *hook, ports []port, timeout time.Duration, app *podplan.App, annotation string) {
	out := podspec.Hook{Timeout: timeout}
	if !r.check(at, action{exec: h.Exec, http: h.HTTPGet}, ports, &out.Check) {
		return
	}
	r.annotate(at, app, annotation, out.String(), func(s string) bool {
		back, err := podspec.ParseHook(s)
		return err == nil && reflect.DeepEqual(back, out)
	})
}
