package poddir

import (
	"encoding/json"
	"errors"
	"io/fs"
	"time"

	"github.com/rkt-pods/rkt/pkg/appc"
	"github.com/rkt-pods/rkt/pkg/atomicfile"
	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/idrange"
	"github.com/rkt-pods/rkt/pkg/limits"
	"github.com/rkt-pods/rkt/pkg/proc"
)

// Refs is refs.json: everything outside its folder that the pod holds. It is
// written in the first step of a pod and removed last, so that what the pod
// uses is never collected under it.
type Refs struct {
	CreatedAt time.Time `json:"createdAt"`
	Images    []string  `json:"images"`  // image ids
	Layers    []string  `json:"layers"`  // layer keys, fix-up and derived layers included; <store id>/<key> where a frozen store has it
	Volumes   []string  `json:"volumes"` // named volumes
	Name      string    `json:"name,omitempty"`
	// Stores are the frozen stores that the pod's layers are mounted from, by
	// their ids: their folders.
	Stores map[string]string `json:"stores,omitempty"`
}

// RunOptions is run.json: what `run` and `run-prepared` were told beyond the
// manifest.
type RunOptions struct {
	Net           []string    `json:"net"`                // names: "none", "host", "default", …
	Networks      []Network   `json:"networks,omitempty"` // those of Net that plugins make, in order
	PluginDirs    []string    `json:"pluginDirs,omitempty"`
	Hostname      string      `json:"hostname,omitempty"` // "" means rkt-<uuid>
	DNS           []string    `json:"dns,omitempty"`      // addresses, or "host" or "none" alone
	DNSSearch     []string    `json:"dnsSearch,omitempty"`
	DNSOptions    []string    `json:"dnsOptions,omitempty"`
	DNSDomain     string      `json:"dnsDomain,omitempty"`
	Hosts         []HostEntry `json:"hosts,omitempty"`
	HostsFromHost bool        `json:"hostsFromHost,omitempty"`
	Interactive   bool        `json:"interactive,omitempty"`
	LogPrefix     string      `json:"logPrefix,omitempty"`   // auto, always, never
	LogMaxSize    int64       `json:"logMaxSize,omitempty"`  // 0: crilog's own
	LogMaxFiles   int         `json:"logMaxFiles,omitempty"` // 0: crilog's own
	NoOverlay     bool        `json:"noOverlay,omitempty"`
	DurableRootFS bool        `json:"durableRootfs,omitempty"` // no `volatile` on the overlay
	// StrictIsolators refuses isolators that can't be enforced as asked.
	StrictIsolators bool `json:"strictIsolators,omitempty"`
	InsecureCaps    bool `json:"insecureCapabilities,omitempty"`
	InsecurePaths   bool `json:"insecurePaths,omitempty"`
	InsecureSeccmp  bool `json:"insecureSeccomp,omitempty"`
}

// Network is one network as it was configured when the pod was started, so that
// neither the supervisor nor gc depends on what the configuration says later.
type Network struct {
	Name   string          `json:"name"`
	Config json.RawMessage `json:"config"`           // a CNI list
	Source string          `json:"source,omitempty"` // the file; "" for what is built in
	Args   [][2]string     `json:"args,omitempty"`   // CNI_ARGS
}

// NetRecord is network.json: what the pod has outside its own namespace, and
// with which configuration it is released. It is written before the first
// plugin runs, with all attachments, and again after each.
type NetRecord struct {
	BootID      string       `json:"bootID"`
	HostNS      uint64       `json:"hostNS,omitempty"` // inode of the network namespace that the host's ends are in
	ContainerID string       `json:"containerID"`
	PluginDirs  []string     `json:"pluginDirs"`
	Attachments []Attachment `json:"attachments"`
	Ports       []Forward    `json:"ports,omitempty"`
	PodName     string       `json:"podName"` // by which others on its networks find it
	// Failed says why Attachments, all that is left of them, could not be
	// released; "" before that was tried.
	Failed string `json:"failed,omitempty"`
}

// Attachment is one interface of the pod.
type Attachment struct {
	Network
	IfName  string          `json:"ifName"`
	Started bool            `json:"started,omitempty"` // a plugin may have changed something
	Result  json.RawMessage `json:"result,omitempty"`  // of ADD, once it is done
	IPs     []string        `json:"ips,omitempty"`     // addresses in the result, with their prefix length
}

// Forward is one port of the host that leads to the pod.
type Forward struct {
	App      string `json:"app"`
	Name     string `json:"name"`
	Protocol string `json:"protocol"`         // tcp, udp, sctp
	HostIP   string `json:"hostIP,omitempty"` // "" means all addresses of the host
	HostPort uint16 `json:"hostPort"`
	PodPort  uint16 `json:"podPort"`
	// The addresses in the pod that it leads to, "" if there is none.
	To4 string `json:"to4,omitempty"`
	To6 string `json:"to6,omitempty"`
}

// HostEntry is a line of the pod's /etc/hosts.
type HostEntry struct {
	IP    string   `json:"ip"`
	Names []string `json:"names"`
}

// ReadIDs returns the pod's range of ids, nil if it has no user namespace.
func (d Dir) ReadIDs() (*idrange.Range, error) {
	var r idrange.Range
	err := atomicfile.ReadJSON(d.IDs(), &r)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil && (r.Start == 0 || r.Count == 0) {
		err = errs.Newf(errs.Corrupt, "%s: no range of ids", d.IDs())
	}
	if err != nil {
		return nil, err
	}
	return &r, nil
}

// Supervisor is the supervisor record: the process whose life is the pod's.
type Supervisor struct {
	proc.ID
	StartedAt time.Time `json:"startedAt"`
	PodInit   proc.ID   `json:"podInit"` // PID 1 of the pod; zero until it runs
}

// Cgroup is the cgroup record. It is written before the cgroups are made, with
// inode 0, and again once they are there. Whoever releases them checks boot
// id, uuid in the path and, where it is known, the inode.
type Cgroup struct {
	BootID string       `json:"bootID"`
	Rel    string       `json:"rel"`             // the pod's folder relative to each hierarchy's root
	Scope  string       `json:"scope,omitempty"` // the unit of systemd that is asked for, and holds nothing but the pod
	Stays  bool         `json:"stays,omitempty"` // the supervisor stays in the cgroup it was started in
	Paths  []CgroupPath `json:"paths"`           // the pod's folder in each hierarchy; the first is the one that is asked and killed by
}

// CgroupPath is one folder in one cgroup hierarchy.
type CgroupPath struct {
	Path  string `json:"path"` // absolute, ends in rkt-<store id>/<uuid>
	Inode uint64 `json:"inode,omitempty"`
}

// AppImage is apps/<name>/image.json: the image as it was when the pod was
// prepared, so that stage1 needs no store.
type AppImage struct {
	ID       string           `json:"id"`
	Name     string           `json:"name"`
	Labels   appc.Labels      `json:"labels,omitempty"`
	Layers   []string         `json:"layers"` // layer keys, the lowest first
	Lowers   []string         `json:"lowers"` // their folders, absolute, the lowest first
	Verified string           `json:"verified"`
	Original *appc.App        `json:"original,omitempty"` // the image's own app section
	Notes    appc.Annotations `json:"annotations,omitempty"`
}

// Ended is what is left of a pod that was removed.
type Ended struct {
	UUID      string    `json:"uuid"`
	Name      string    `json:"name,omitempty"`
	Exit      Exit      `json:"exit"`
	RemovedAt time.Time `json:"removedAt"`
}

// State is where an execution of an app stands.
type State string

// The states of an app, in order.
const (
	Waiting  State = "waiting"
	Starting State = "starting"
	Running  State = "running"
	Ready    State = "ready"
	Backoff  State = "backoff"
	Exited   State = "exited"
)

// Reason says why an execution ended.
type Reason string

// The reasons (design: lifecycle).
const (
	Completed          Reason = "Completed"
	Error              Reason = "Error"
	Signaled           Reason = "Signaled"
	OOMKilled          Reason = "OOMKilled"
	StartFailed        Reason = "StartFailed"
	PreStartFailed     Reason = "PreStartFailed"
	DependencyFailed   Reason = "DependencyFailed"
	LivenessFailed     Reason = "LivenessFailed"
	Stopped            Reason = "Stopped"
	PodEnded           Reason = "PodEnded"
	KilledAfterTimeout Reason = "KilledAfterTimeout"
	Aborted            Reason = "Aborted" // the supervisor died; written or derived afterwards
)

// Status is status.json of one execution. ExitCode is there when State is
// Exited, except for Aborted: nobody saw that end.
type Status struct {
	App        string     `json:"app"`
	Attempt    int        `json:"attempt"`
	State      State      `json:"state"`
	PID        int        `json:"pid,omitempty"` // on the host
	ExitCode   *int       `json:"exitCode,omitempty"`
	Signal     int        `json:"signal,omitempty"`
	CoreDumped bool       `json:"coreDumped,omitempty"`
	OOMKilled  bool       `json:"oomKilled,omitempty"`
	Reason     Reason     `json:"reason,omitempty"`
	Message    string     `json:"message,omitempty"` // the error behind StartFailed and its kind
	StartedAt  *time.Time `json:"startedAt,omitempty"`
	ReadyAt    *time.Time `json:"readyAt,omitempty"` // since when it is ready by its own check
	FinishedAt *time.Time `json:"finishedAt,omitempty"`
	Restarts   int        `json:"restarts"`
	Usage      Usage      `json:"usage"`
	LogLines   uint64     `json:"logLines"`
	LogDropped uint64     `json:"logDropped"` // lines lost by rotation or for want of space
	// Forgotten are the app's first executions, of which nothing is kept any more.
	Forgotten *Forgotten `json:"forgotten,omitempty"`
	Notes     []string   `json:"notes,omitempty"` // what was changed or left out beside isolators
	// Isolators are the app's and the pod's, and what became of each.
	Isolators []limits.Result `json:"isolators,omitempty"`
	Derived   bool            `json:"derived,omitempty"`
}

// Forgotten says what was dropped of an app that was started again and again.
type Forgotten struct {
	Executions int    `json:"executions"` // also the number of the first that is kept
	LogLines   uint64 `json:"logLines"`   // of those that had been in their logs
}

// Usage is what an execution used.
type Usage struct {
	CPUNs      uint64 `json:"cpuNs"`                // CPU time in nanoseconds
	MemoryPeak uint64 `json:"memoryPeak"`           // bytes; 0 where the host doesn't tell
	MemoryHits uint64 `json:"memoryHits,omitempty"` // how often the memory limit was in the way
	OOMKills   uint64 `json:"oomKills,omitempty"`   // processes that the kernel killed for memory
}

// Cause says what ended a pod.
type Cause string

// The causes of a pod's end.
const (
	CausePolicy  Cause = "policy"  // the exit policy
	CauseStopped Cause = "stopped" // it was asked to stop
	CauseSetup   Cause = "setup"   // rkt could not start it
	CauseAborted Cause = "aborted" // the supervisor died
)

// Exit is exit.json: the pod's end. It is on disk before anyone is told.
type Exit struct {
	Code       int       `json:"code"`
	Cause      Cause     `json:"cause"`
	App        string    `json:"app,omitempty"`     // the deciding app
	Message    string    `json:"message,omitempty"` // the error, for CauseSetup
	FinishedAt time.Time `json:"finishedAt"`
	// Moment is the same by a clock that nobody sets: the grace period counts by
	// it within one boot.
	Moment  proc.Moment `json:"moment,omitzero"`
	Derived bool        `json:"derived,omitempty"`
}

// Now returns the end with the time of now.
func (e Exit) Now() Exit {
	e.FinishedAt, e.Moment = time.Now().UTC(), proc.Now()
	return e
}

// Age returns how long ago the end is, where now is what the host's clock says.
func (e Exit) Age(now time.Time) time.Duration {
	if age, ok := e.Moment.Age(); ok {
		return age
	}
	return now.Sub(e.FinishedAt)
}

// Summary is summary.json in the run folder: what anyone on the host may know.
type Summary struct {
	UUID       string            `json:"uuid"`
	CreatedAt  time.Time         `json:"createdAt"`
	State      string            `json:"state"` // as of the last write
	Supervisor *Supervisor       `json:"supervisor,omitempty"`
	Cgroup     string            `json:"cgroup,omitempty"`
	Networks   []string          `json:"networks,omitempty"`
	Addresses  []Address         `json:"addresses,omitempty"`
	Apps       []SummaryApp      `json:"apps"`
	Exit       *Exit             `json:"exit,omitempty"`
	IDs        *idrange.Range    `json:"ids,omitempty"` // user and group ids of its user namespace, nil if it has none
	Name       string            `json:"name,omitempty"`
	Labels     map[string]string `json:"labels,omitempty"`
	Ready      bool              `json:"ready,omitempty"`    // each app and sidecar is, or has ended with 0
	Awaiting   string            `json:"awaiting,omitempty"` // what the pod's being ready waits for
	Paused     bool              `json:"paused,omitempty"`
}

// Address is an interface of the pod as anyone may see it.
type Address struct {
	Network string   `json:"network"`
	IfName  string   `json:"ifName"`
	IPs     []string `json:"ips"` // with their prefix length
}

// Addresses lists what the plugins gave so far.
func (r NetRecord) Addresses() []Address {
	var list []Address
	for _, a := range r.Attachments {
		if a.Result != nil {
			list = append(list, Address{Network: a.Name, IfName: a.IfName, IPs: a.IPs})
		}
	}
	return list
}

// SummaryApp is one app of a Summary.
type SummaryApp struct {
	Name      string  `json:"name"`
	ImageID   string  `json:"imageID"`
	ImageName string  `json:"imageName"`
	Status    *Status `json:"status,omitempty"`
}

// ReadStatus returns the status of the app's last execution, nil if it has
// none yet.
func (a AppDir) ReadStatus() (*Status, error) {
	attempts, err := a.Attempts()
	if err != nil || len(attempts) == 0 {
		return nil, err
	}
	var s Status
	if err := atomicfile.ReadJSON(a.Attempt(attempts[len(attempts)-1]).Status(), &s); err != nil {
		return nil, err
	}
	return &s, nil
}
