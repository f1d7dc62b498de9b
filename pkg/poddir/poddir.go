// Package poddir knows every name in the pods' folders, the shape of every
// record there, and who writes it. The stages agree on a pod through this
// package and pkg/abi, and nowhere else.
//
//	<data>/pods/{embryo,prepare,prepared,run,exited-garbage,garbage}/<uuid>/
//	    lock           held by whoever works on the pod, then by its supervisor
//	    pod            the pod manifest, never changed once prepared (stage0)
//	    refs.json      what the pod holds; first written, last removed (stage0)
//	    run.json       options of this run, immutable once running (stage0)
//	    supervisor     the supervising process (stage1)
//	    cgroup         the pod's cgroups, written before they exist (stage1)
//	    ids.json       the pod's range of user and group ids, if it has one (stage0)
//	    network.json   the pod's interfaces and ports, written before they exist (stage1)
//	    exit.json      the pod's end (stage1, or gc where stage1 died)
//	    reserve/       room for the last records on a full disk (stage1)
//	    volumes/<name>/    empty volumes
//	    apps/<name>/image.json             the app's image and layers (stage0)
//	    apps/<name>/<attempt>/status.json  one execution of the app (stage1)
//	    apps/<name>/<attempt>/{log,upper/,work/}
package poddir

import (
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"

	"github.com/rkt-pods/rkt/pkg/atomicfile"
	"github.com/rkt-pods/rkt/pkg/errs"
)

// Folder is where a pod's folder lies: one half of its state.
type Folder string

// The folders in the order of a pod's life. A lookup walks them in this order,
// since a pod may be renamed to a later one meanwhile.
const (
	Embryo        Folder = "embryo"
	Prepare       Folder = "prepare"
	Prepared      Folder = "prepared"
	Run           Folder = "run"
	ExitedGarbage Folder = "exited-garbage"
	Garbage       Folder = "garbage"
)

// Folders lists all folders in the order of a pod's life.
func Folders() []Folder {
	return []Folder{Embryo, Prepare, Prepared, Run, ExitedGarbage, Garbage}
}

// RunRootEnv is a variable that names the run folder of an ordinary user's
// pods. rkt sets it for itself, and stage1 has it from there.
const RunRootEnv = "RKT_ROOTLESS_RUN"

// RunRoot is the parent of all stores' run folders.
func RunRoot() string {
	if dir := os.Getenv(RunRootEnv); dir != "" {
		return dir
	}
	return "/run/rkt"
}

// RunDir is a pod's folder below /run: sockets, generated files, mount targets
// and the summary that ordinary users may read. It belongs to one boot.
func RunDir(storeID, uuid string) string { return filepath.Join(RunRoot(), storeID, uuid) }

// NetDir is where the pods of all stores of this host keep what belongs to the
// networks they share: leases of addresses and names of pods. It belongs to one
// boot.
func NetDir() string { return filepath.Join(RunRoot(), "net") }

// ContainerID is the pod's name towards network plugins.
func ContainerID(storeID, uuid string) string { return "rkt-" + storeID + "-" + uuid }

// PodsDir is the parent of the six folders.
func PodsDir(data string) string { return filepath.Join(data, "pods") }

// IsGarbage says whether a pod in the folder is kept only for those who want to
// know how it ended.
func (f Folder) IsGarbage() bool { return f == ExitedGarbage || f == Garbage }

// NamesDir has a file for each pod's name, in which the pod's id stands.
func NamesDir(data string) string { return filepath.Join(data, "names") }

// EndedDir has an Ended for each pod that was removed, until the grace period
// since its end is over.
func EndedDir(data string) string { return filepath.Join(data, "ended") }

// Path is the place of a pod in a folder.
func Path(data string, f Folder, uuid string) string {
	return filepath.Join(PodsDir(data), string(f), uuid)
}

// Dir is a pod's folder, wherever it lies now.
type Dir string

// UUID is the pod's id.
func (d Dir) UUID() string { return filepath.Base(string(d)) }

// The files of a pod's folder.
func (d Dir) Lock() string       { return d.join("lock") }
func (d Dir) Manifest() string   { return d.join("pod") }
func (d Dir) Refs() string       { return d.join("refs.json") }
func (d Dir) Run() string        { return d.join("run.json") }
func (d Dir) Supervisor() string { return d.join("supervisor") }
func (d Dir) Cgroup() string     { return d.join("cgroup") }
func (d Dir) IDs() string        { return d.join("ids.json") }
func (d Dir) Network() string    { return d.join("network.json") }
func (d Dir) Exit() string       { return d.join("exit.json") }

// Reserve is the folder that keeps room for the records of the pod's end; it
// is there while the supervisor lives, and until gc if that died.
func (d Dir) Reserve() atomicfile.Reserve { return atomicfile.Reserve(d.join("reserve")) }

// Volume is the folder of an empty volume.
func (d Dir) Volume(name string) string { return d.join("volumes", name) }

// Apps is the parent of the apps' folders.
func (d Dir) Apps() string { return d.join("apps") }

// App is the folder of one app.
func (d Dir) App(name string) AppDir { return AppDir(d.join("apps", name)) }

func (d Dir) join(elem ...string) string {
	return filepath.Join(append([]string{string(d)}, elem...)...)
}

// AppDir is the folder of one app.
type AppDir string

// Image is the record of the app's image.
func (a AppDir) Image() string { return filepath.Join(string(a), "image.json") }

// Attempt is the folder of the n-th execution, from 0.
func (a AppDir) Attempt(n int) AttemptDir {
	return AttemptDir(filepath.Join(string(a), strconv.Itoa(n)))
}

// Dropped is where the folder of the n-th execution goes to be removed.
func (a AppDir) Dropped(n int) string {
	return filepath.Join(string(a), "dropped-"+strconv.Itoa(n))
}

// Attempts lists the executions that are kept, in order.
func (a AppDir) Attempts() ([]int, error) {
	entries, err := os.ReadDir(string(a))
	if err != nil {
		return nil, err
	}
	var attempts []int
	for _, e := range entries {
		if n, err := strconv.Atoi(e.Name()); err == nil && n >= 0 && e.IsDir() {
			attempts = append(attempts, n)
		}
	}
	sort.Ints(attempts)
	return attempts, nil
}

// AttemptDir is the folder of one execution of an app.
type AttemptDir string

// The files of an execution. Rotated logs are Log() + ".1", ".2", …, the
// highest number the oldest.
func (a AttemptDir) Status() string { return filepath.Join(string(a), "status.json") }
func (a AttemptDir) Log() string    { return filepath.Join(string(a), "log") }
func (a AttemptDir) Upper() string  { return filepath.Join(string(a), "upper") }
func (a AttemptDir) Work() string   { return filepath.Join(string(a), "work") }

// The files of a pod's run folder.
const (
	SummaryFile = "summary.json" // 0644, without environment and arguments
	SocketFile  = "stage1.sock"  // private to the stage1 that made it
	LaunchDir   = "launch"       // 0700, the launcher's state; private too
)

// ParseUUID checks that s is a full pod id in its canonical form.
func ParseUUID(s string) (string, error) {
	if len(s) != 36 {
		return "", errs.Newf(errs.Usage, "pod id %q: not a UUID", s)
	}
	for i, c := range s {
		switch {
		case i == 8 || i == 13 || i == 18 || i == 23:
			if c != '-' {
				return "", errs.Newf(errs.Usage, "pod id %q: not a UUID", s)
			}
		case !strings.ContainsRune("0123456789abcdef", c):
			return "", errs.Newf(errs.Usage, "pod id %q: not a UUID", s)
		}
	}
	return s, nil
}
