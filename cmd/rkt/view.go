package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/idrange"
	"github.com/rkt-pods/rkt/pkg/image"
	"github.com/rkt-pods/rkt/pkg/poddir"
	"github.com/rkt-pods/rkt/pkg/podspec"
	"github.com/rkt-pods/rkt/stage0/config"
	"github.com/rkt-pods/rkt/stage0/pod"
)

// view is what list and status show of a pod: for root from its records, for
// others from its summary.
type view struct {
	uuid     string
	state    pod.State
	reason   string
	created  time.Time
	started  time.Time // zero if it has not been started
	pid      int       // of the supervisor, 0 if there is none
	networks []string
	addrs    []poddir.Address
	ids      *idrange.Range // of its user namespace
	exit     *poddir.Exit
	name     string
	labels   map[string]string
	ready    bool
	awaiting string
	paused   bool
	apps     []appView
}

type appView struct {
	name, imageID, imageName string
	status                   *poddir.Status
	userAnnotations          map[string]string
	userLabels               map[string]string
}

// viewOf shows the facts.
func viewOf(f pod.Facts) view {
	v := view{uuid: f.UUID, state: f.State, reason: f.Reason, created: f.CreatedAt, exit: f.Exit, ids: f.IDs}
	if f.State.HasRun() {
		v.networks, v.addrs = f.Options.Net, f.Addresses
	}
	if f.Supervisor != nil {
		v.started = f.Supervisor.StartedAt
		if f.State == pod.Running {
			v.pid = f.Supervisor.PID
		}
	}
	if f.Manifest != nil {
		v.labels = f.Manifest.UserLabels
		v.name, _ = f.Manifest.Annotations.Get(podspec.AnnPodName)
	}
	if f.Live != nil {
		v.live(*f.Live)
	}
	for _, a := range f.Apps {
		av := appView{name: a.Name, imageID: a.Image.ID, imageName: image.Reference(a.Image.Name, a.Image.Labels), status: a.Status}
		if m := f.Manifest.Find(a.Name); m != nil && m.App != nil {
			av.userAnnotations, av.userLabels = m.App.UserAnnotations, m.App.UserLabels
		}
		v.apps = append(v.apps, av)
	}
	return v
}

// live shows what is of interest as long as the pod runs.
func (v *view) live(s poddir.Summary) {
	v.ready, v.awaiting, v.paused = s.Ready, s.Awaiting, s.Paused
	if s.Paused {
		v.reason = "paused"
	}
}

// summaries shows the pods as anyone may see them. Their states are found by
// asking the kernel: a summary is as old as its last write.
func summaries(storeID string) ([]view, error) {
	dir := filepath.Dir(poddir.RunDir(storeID, "x"))
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var all []view
	for _, e := range entries {
		if _, err := poddir.ParseUUID(e.Name()); err != nil {
			continue
		}
		s, err := pod.ReadPublic(storeID, e.Name())
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		all = append(all, viewOfSummary(s))
	}
	return all, nil
}

func viewOfSummary(s poddir.Summary) view {
	v := view{uuid: s.UUID, created: s.CreatedAt, exit: s.Exit, networks: s.Networks, addrs: s.Addresses, ids: s.IDs, state: pod.PublicState(s)}
	v.name, v.labels = s.Name, s.Labels
	if s.Supervisor != nil {
		v.started = s.Supervisor.StartedAt
	}
	switch {
	case v.state == pod.Running:
		v.pid, v.exit = s.Supervisor.PID, nil
		v.live(s)
	case v.state == pod.Exiting:
		v.reason = "the supervisor is gone, processes of the pod are still ending"
	case v.state == pod.Exited && v.exit == nil:
		v.exit = &poddir.Exit{Code: pod.AbortedCode, Cause: poddir.CauseAborted, Derived: true, FinishedAt: time.Now().UTC()}
	}
	for _, a := range s.Apps {
		av := appView{name: a.Name, imageID: a.ImageID, imageName: a.ImageName, status: a.Status}
		if v.state == pod.Exited && (a.Status == nil || a.Status.State != poddir.Exited) {
			av.status = &poddir.Status{App: a.Name, State: poddir.Exited, Reason: poddir.Aborted, Derived: true}
		}
		v.apps = append(v.apps, av)
	}
	return v
}

// podJSON is a pod as list and status print it. Names and meaning are those
// of upstream's API where it had one, times are nanoseconds as there.
type podJSON struct {
	UUID     string        `json:"uuid"`
	State    pod.State     `json:"state"`
	Reason   string        `json:"reason,omitempty"`
	PID      int           `json:"pid,omitempty"`
	Networks []networkJSON `json:"networks,omitempty"`
	// PrivateUsers are the ids of the pod's user namespace on the host.
	PrivateUsers *idrange.Range `json:"private_users,omitempty"`
	AppNames     []string       `json:"app_names"`
	Apps         []appJSON      `json:"apps"`
	CreatedAt    *int64         `json:"created_at,omitempty"`
	StartedAt    *int64         `json:"started_at,omitempty"`
	Exit         *poddir.Exit   `json:"exit,omitempty"`

	Name     string            `json:"name,omitempty"`
	Labels   map[string]string `json:"labels,omitempty"`
	Ready    *bool             `json:"ready,omitempty"` // while it runs
	Awaiting string            `json:"awaiting,omitempty"`
	Paused   bool              `json:"paused,omitempty"`
}

type networkJSON struct {
	NetName string   `json:"netName"`
	IfName  string   `json:"ifName,omitempty"`
	IP      string   `json:"ip,omitempty"`  // the first
	IPs     []string `json:"ips,omitempty"` // all, with their prefix length
}

type appJSON struct {
	Name            string            `json:"name"`
	State           string            `json:"state"`
	StartedAt       *int64            `json:"started_at,omitempty"`
	FinishedAt      *int64            `json:"finished_at,omitempty"`
	ExitCode        *int              `json:"exit_code,omitempty"`
	ImageID         string            `json:"image_id"`
	ImageName       string            `json:"image_name"`
	UserAnnotations map[string]string `json:"user_annotations,omitempty"`
	UserLabels      map[string]string `json:"user_labels,omitempty"`
	Status          *poddir.Status    `json:"status,omitempty"`
}

func (v view) json() podJSON {
	out := podJSON{
		UUID: v.uuid, State: v.state, Reason: v.reason, PID: v.pid, Exit: v.exit, AppNames: []string{}, Apps: []appJSON{},
		CreatedAt: nanos(&v.created), StartedAt: nanos(&v.started),
		PrivateUsers: v.ids, Name: v.name, Labels: v.labels, Awaiting: v.awaiting, Paused: v.paused,
	}
	if v.state == pod.Running {
		out.Ready = &v.ready
	}
	for _, n := range v.networks {
		j := networkJSON{NetName: n}
		if a := v.address(n); a != nil {
			j.IfName, j.IPs = a.IfName, a.IPs
			if len(a.IPs) > 0 {
				j.IP, _, _ = strings.Cut(a.IPs[0], "/")
			}
		}
		out.Networks = append(out.Networks, j)
	}
	for _, a := range v.apps {
		out.AppNames = append(out.AppNames, a.name)
		aj := appJSON{
			Name: a.name, State: appState(a.status), ImageID: a.imageID, ImageName: a.imageName,
			UserAnnotations: a.userAnnotations, UserLabels: a.userLabels, Status: a.status,
		}
		if a.status != nil {
			aj.StartedAt, aj.FinishedAt, aj.ExitCode = nanos(a.status.StartedAt), nanos(a.status.FinishedAt), a.status.ExitCode
		}
		out.Apps = append(out.Apps, aj)
	}
	return out
}

// address finds the interface on a network, nil if there is none.
func (v view) address(network string) *poddir.Address {
	for i, a := range v.addrs {
		if a.Network == network {
			return &v.addrs[i]
		}
	}
	return nil
}

// networkText is "NAME:ip4=ADDRESS, …" as upstream wrote it, and only the names
// of those that have no address.
func (v view) networkText() string {
	var out []string
	for _, n := range v.networks {
		a := v.address(n)
		if a == nil || len(a.IPs) == 0 {
			if n != config.NetNone {
				out = append(out, n)
			}
			continue
		}
		for _, ip := range a.IPs {
			addr, _, _ := strings.Cut(ip, "/")
			family := "ip4"
			if strings.Contains(addr, ":") {
				family = "ip6"
			}
			out = append(out, n+":"+family+"="+addr)
		}
	}
	return strings.Join(out, ", ")
}

// appState is one of upstream's three words.
func appState(s *poddir.Status) string {
	switch {
	case s == nil || s.State == poddir.Waiting || s.State == poddir.Starting:
		return "created"
	case s.State == poddir.Exited:
		return "exited"
	}
	return "running"
}

func nanos(t *time.Time) *int64 {
	if t == nil || t.IsZero() {
		return nil
	}
	n := t.UnixNano()
	return &n
}

// checkFormat knows the formats besides text.
func checkFormat(format string) error {
	if slices.Contains([]string{"", "json", "json-pretty"}, format) {
		return nil
	}
	return errs.WithHint(errs.Newf(errs.Usage, "--format=%s: not json or json-pretty", format), "leave --format out for text")
}

func printJSON(w io.Writer, format string, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	if format == "json-pretty" {
		enc.SetIndent("", "\t")
	}
	return enc.Encode(v)
}

// fullTime is how times are written out.
func fullTime(t time.Time) string { return t.Local().Format("2006-01-02 15:04:05.999 -0700 MST") }

// ago is a time as people say it.
func ago(t, now time.Time) string {
	d := now.Sub(t)
	if d < 0 {
		return "in the future"
	}
	for _, unit := range []struct {
		name string
		d    time.Duration
	}{{"year", 365 * 24 * time.Hour}, {"month", 30 * 24 * time.Hour}, {"week", 7 * 24 * time.Hour}, {"day", 24 * time.Hour}, {"hour", time.Hour}, {"minute", time.Minute}, {"second", time.Second}} {
		if n := int(d / unit.d); n > 0 {
			if n > 1 {
				unit.name += "s"
			}
			return fmt.Sprintf("%d %s ago", n, unit.name)
		}
	}
	return "now"
}
