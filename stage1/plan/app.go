// Package plan turns a pod manifest and facts about the host into everything
// that is to be done to isolate the pod, as values: no mount, no process and
// no file is touched here.
package plan

import (
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// Pod is the compiled pod.
type Pod struct {
	UUID     string
	Hostname string
	HostNet  bool // share the host's network namespace; else an own one with loopback up
	Apps     []App
}

// App is everything a launcher needs to know of one app, but for what exists
// only once the pod does (rootfs path, namespaces, cgroup, descriptors).
type App struct {
	Name           string
	Argv           []string
	Env            []string
	Cwd            string
	User           string // as in the manifest; resolved in the mounted rootfs
	Group          string
	Groups         []int // supplementary; GroupsFromImage adds those of /etc/group
	GroupsFromFile bool
	ReadOnlyRootFS bool
	Lowers         []string // overlay lower folders, the lowest first
	Mounts         []Mount  // in the order they are made
	MaskedPaths    []string
	ReadOnlyPaths  []string
	Devices        []Device
	AllDevices     bool // no device policy (--insecure-options=paths)
	Capabilities   []string
	NoNewPrivs     bool
	Seccomp        *specs.LinuxSeccomp // nil: no filter
	OOMScoreAdj    *int
	Rlimits        []specs.POSIXRlimit
	StopSignal     int
	StopTimeout    time.Duration
	PreStart       []string // argv of the event handler, nil if none
	PostStop       []string
	Notes          []string // what was changed or left out, for the user
}

// Mount is one mount in the app's rootfs.
type Mount struct {
	Type        string   // "bind", "proc", "sysfs", "tmpfs", "devpts", "mqueue", "cgroup"
	Source      string   // bind: absolute host path
	Target      string   // path in the rootfs
	Options     []string // as mount(8) spells them
	Recursive   bool     // bind: with what is mounted below
	CreateAs    string   // "dir" or "file" if the target is missing
	VolumeEntry bool     // a volume of the pod rather than a standard mount
}

// Device is one device node of the rootfs's /dev.
type Device struct {
	Path         string
	Type         rune
	Major, Minor int64
	Mode         uint32
	Access       string // "rwm" or a part of it
}
