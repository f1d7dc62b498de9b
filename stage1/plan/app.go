// Package plan turns a pod manifest and facts about the host into everything
// that is to be done to isolate the pod, as values: no mount, no process and
// no file is touched here.
package plan

import (
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt-pods/rkt/pkg/idrange"
	"github.com/rkt-pods/rkt/pkg/limits"
	"github.com/rkt-pods/rkt/pkg/podspec"
)

// Pod is the compiled pod.
type Pod struct {
	UUID     string
	Hostname string
	Network  Network
	Durable  bool           // the rootfs overlays must survive power loss: no `volatile`
	IDs      *idrange.Range // of the pod's user namespace, nil if it has none
	Copy     bool           // the rootfs is a copy, not an overlay
	Volumes  []Volume
	Sysctls  []Sysctl
	Files    []File
	Apps     []App
	Limits   limits.Set      // of all apps together
	Weights  limits.Set      // of the whole pod beside other pods, from its priority
	Score    *int            // the supervisor's own OOM score; nil: as it is
	ShmSize  int64           // of the pod's /dev/shm in bytes; 0 means the kernel's default
	Optional []string        // limits that only an image asks for
	Strict   bool            // refuse what can't be enforced as asked
	Results  []limits.Result // what is known already of the pod's isolators
}

// Find returns the app of the name, nil if there is none.
func (p *Pod) Find(name string) *App {
	for i := range p.Apps {
		if p.Apps[i].Name == name {
			return &p.Apps[i]
		}
	}
	return nil
}

// Volume is one volume that apps of the pod mount.
type Volume struct {
	Name           string
	Kind           string   // as podspec names it
	Source         string   // host, secret: a path of the host; named: its name there
	Credentials    []string // secret, without Source: names in $CREDENTIALS_DIRECTORY, none means all
	Recursive      bool     // host: with what is mounted below
	FollowSymlinks bool     // host: Source may have some
	IDMap          bool     // host, named, image: an id on the file system is that id in the pod
	Label          string   // host: SELinux context that Source and all in it get, "" leaves it
	Size           int64    // tmpfs: 0 means half of the memory
	Mode           uint32   // permission bits of the new folder; secret: of its files
	UID, GID       int      // its owner; secret: -1 means as the app runs
	SeedApp        string   // empty, named: filled once from what this app's image has at SeedPath
	SeedPath       string
}

// Own says whether the volume is rkt's own to make missing mount targets in.
func (v Volume) Own() bool {
	switch v.Kind {
	case podspec.VolumeEmpty, podspec.VolumeTmpfs, podspec.VolumeNamed:
		return true
	}
	return false
}

// Sysctl is one kernel parameter of the pod's namespaces.
type Sysctl struct{ Key, Value string }

// File is one file that rkt puts into every app's rootfs.
type File struct {
	Target    string // in the rootfs
	Source    string // host path; "" means Content
	Content   string
	IfMissing bool // not when the image has a file there that is not empty
}

// App is everything a launcher needs to know of one app, but for what exists
// only once the pod does (rootfs path, namespaces, cgroup, descriptors).
type App struct {
	Name           string
	IDs            *idrange.Range // the pod's
	Argv           []string
	Env            []string
	Cwd            string
	User           string // as in the manifest; resolved in the mounted rootfs
	Group          string // "" means the user's own
	GroupIsUser    bool   // Group names a user, whose own group is meant
	Groups         []int  // supplementary; GroupsFromFile adds those of /etc/group
	GroupsFromFile bool
	ReadOnlyRootFS bool
	Lowers         []string // overlay lower folders, the lowest first
	Mounts         []Mount  // in the order they are made
	MaskedPaths    []string
	ReadOnlyPaths  []string
	Devices        []Device
	DeviceRequests []podspec.Device // what they are is found out where the pod runs
	Umask          uint32
	AllDevices     bool // no device policy (--insecure-options=paths)
	Capabilities   []string
	NoNewPrivs     bool
	Seccomp        *specs.LinuxSeccomp // nil: no filter
	OOMScoreAdj    *int
	Rlimits        []specs.POSIXRlimit
	Nice           *int
	Limits         limits.Set // of the app's cgroup
	Delegate       bool       // the app may make cgroups below its own
	ProcessLabel   string     // SELinux context, "" means the policy's
	AppArmor       string     // profile, "" means the one rkt is confined by
	Optional       []string   // limits that only the image asks for
	Strict         bool       // refuse what can't be enforced as asked
	StopSignal     int
	StopTimeout    time.Duration
	PreStart       []string // argv of the event handler, nil if none
	PostStop       []string
	KeepRootFS     bool            // a restart finds what was written to the rootfs
	Ready, Live    *podspec.Probe  // nil if none
	Startup        *podspec.Probe  // nil if none; the two wait for it
	PostStart      *podspec.Hook   // nil if none
	PreStop        *podspec.Hook   // nil if none
	Notes          []string        // what was changed or left out, for the user
	Results        []limits.Result // what became of isolators, as far as that is known before the start
	bandwidth      *Bandwidth      // what it asks for; the pod's network has it
}

// Mount is one mount in the app's rootfs.
type Mount struct {
	Type        string   // "bind", "proc", "sysfs", "tmpfs", "devpts", "mqueue", "cgroup"
	Source      string   // bind: absolute path in the supervisor's mount namespace
	Target      string   // path in the rootfs
	Options     []string // as mount(8) spells them
	Recursive   bool     // bind: with what is mounted below
	CreateAs    string   // "dir" or "file" if the target is missing
	Private     bool     // bind: what the host mounts below it later stays out
	SubPath     string   // bind: what of the volume is mounted, "" means all
	VolumeEntry bool     // a volume of the pod rather than a standard mount
	Volume      string   // the volume's name; the sandbox fills in Source
	ReadOnly    bool     // "ro" is in Options as well
}

// Device is one device node of the rootfs's /dev, or only a right to one.
type Device struct {
	Path         string
	Type         rune
	Major, Minor int64 // -1 means any
	Mode         uint32
	UID, GID     int
	HostPath     string // where the host has its node
	Access       string // "rwm" or a part of it
	RuleOnly     bool   // no node is made: it comes with a mount, or is made on demand
}
