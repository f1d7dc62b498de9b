package pod

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rkt-pods/rkt/pkg/atomicfile"
	"github.com/rkt-pods/rkt/pkg/cgroup"
	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/lock"
	"github.com/rkt-pods/rkt/pkg/poddir"
	"github.com/rkt-pods/rkt/pkg/proc"
)

// Pods are the pods of one data folder.
type Pods struct {
	Data    string // absolute
	StoreID string
}

// Pod is a pod as it was a moment ago: it may have moved on since.
type Pod struct {
	UUID   string
	Folder poddir.Folder
	Dir    poddir.Dir
	State  State
	// Damage is why the state is only what it would be if nobody held the
	// pod's lock. Nothing may be done to such a pod. Only List returns any.
	Damage error
}

// maxMoves bounds how often a lookup starts over because a pod was renamed
// under it: a pod moves four times in its life.
const maxMoves = 16

// List returns all pods in the order of their lives. One whose state can't be
// found out is no reason not to return the others.
func (p Pods) List() ([]Pod, error) {
	seen := map[string]bool{}
	var all []Pod
	for _, f := range poddir.Folders() {
		names, err := p.names(f)
		if err != nil {
			return nil, err
		}
		for _, uuid := range names {
			if seen[uuid] {
				continue
			}
			pod, ok := p.look(f, uuid)
			if !ok {
				if pod, err = p.get(uuid); errors.Is(err, fs.ErrNotExist) {
					continue // collected meanwhile
				} else if err != nil {
					return nil, err
				}
			}
			seen[uuid] = true
			all = append(all, pod)
		}
	}
	return all, nil
}

// Get returns the pod of the full id. The error wraps fs.ErrNotExist and is of
// class NotFound if there is none.
func (p Pods) Get(uuid string) (Pod, error) {
	pod, err := p.get(uuid)
	if err == nil && pod.Damage != nil {
		return Pod{}, podErr(pod, pod.Damage)
	}
	return pod, err
}

// get is Get for who looks at the damage.
func (p Pods) get(uuid string) (Pod, error) {
	for range maxMoves {
		found := false
		for _, f := range poddir.Folders() {
			pod, ok := p.look(f, uuid)
			if ok {
				return pod, nil
			}
			// It was there and moved on before its state was known.
			found = found || pod.UUID != ""
		}
		if !found {
			break
		}
	}
	return Pod{}, errs.Newf(errs.NotFound, "pod %s: %w", uuid, fs.ErrNotExist)
}

// Find returns the pod of that name, or else the one pod whose id begins with
// the argument, in any case.
// Embryos and garbage are found too: what a killed command left behind is
// listed, so it must have a name.
func (p Pods) Find(arg string) (Pod, error) {
	if arg == "" {
		return Pod{}, errs.WithHint(errs.Newf(errs.Usage, "UUID cannot be empty"), "\"rkt list\" shows the pods; a few digits are enough")
	}
	if pod, err := p.nameHolder(arg); err == nil || !errors.Is(err, fs.ErrNotExist) {
		return pod, err
	}
	prefix := strings.ToLower(arg)
	matches := map[string]bool{}
	for _, f := range poddir.Folders() {
		names, err := p.names(f)
		if err != nil {
			return Pod{}, err
		}
		for _, uuid := range names {
			if strings.HasPrefix(uuid, prefix) {
				matches[uuid] = true
			}
		}
	}
	if len(matches) > 1 {
		return Pod{}, Ambiguous(len(matches))
	}
	for uuid := range matches {
		pod, err := p.Get(uuid)
		if err == nil || !errors.Is(err, fs.ErrNotExist) {
			return pod, err
		}
	}
	return Pod{}, NoMatch(arg)
}

// Ambiguous is the error for an argument that names several pods.
func Ambiguous(matches int) error {
	return errs.WithHint(errs.Newf(errs.Usage, "ambiguous uuid, %d matches", matches),
		"give more digits; \"rkt list --full\" shows them all")
}

// NoMatch is the error for an argument that names no pod.
func NoMatch(arg string) error {
	return errs.WithHint(errs.Newf(errs.NotFound, "no matches found for %q", arg),
		"\"rkt list\" shows the pods of this data folder")
}

// names lists the ids in a folder. A folder that was never made is empty.
func (p Pods) names(f poddir.Folder) ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(poddir.PodsDir(p.Data), string(f)))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var uuids []string
	for _, e := range entries {
		if uuid, err := poddir.ParseUUID(e.Name()); err == nil && e.IsDir() {
			uuids = append(uuids, uuid)
		}
	}
	return uuids, nil
}

// look reads the state of a pod in one folder. If the pod was there but moved
// on meanwhile, ok is false and the Pod has an id.
func (p Pods) look(f poddir.Folder, uuid string) (pod Pod, ok bool) {
	dir := poddir.Dir(poddir.Path(p.Data, f, uuid))
	if !exists(string(dir)) {
		return Pod{}, false
	}
	pod = Pod{UUID: uuid, Folder: f, Dir: dir}
	// The lock is asked before the folder is looked at again: prepare moves
	// its pod first and unlocks it then, so that "unlocked and still here"
	// can't be a pod that went on.
	locked, err := lock.Held(dir.Lock())
	populated := false
	if f == poddir.Run && !locked {
		var aliveErr error
		if populated, aliveErr = p.alive(dir); err == nil {
			err = aliveErr
		}
	}
	if !exists(string(dir)) {
		return pod, false
	}
	pod.State, pod.Damage = stateOf(f, locked, populated), err
	return pod, true
}

// Cgroup reads the pod's cgroup record. One that is damaged, or names other
// cgroups than this pod's, is replaced by what it should be: it must neither
// get another pod killed nor keep this one from being collected. The error
// wraps fs.ErrNotExist if the pod has none.
func (p Pods) Cgroup(dir poddir.Dir) (poddir.Cgroup, error) {
	var rec poddir.Cgroup
	err := damaged(atomicfile.ReadJSON(dir.Cgroup(), &rec))
	if err == nil && p.owns(dir, rec) {
		return rec, nil
	}
	if err != nil && !errs.Is(err, errs.Corrupt) {
		return rec, err
	}
	if rec, err = cgroup.Plan(p.StoreID, dir.UUID()); err != nil {
		return rec, fmt.Errorf("cgroup record of pod %s is damaged: %w", dir.UUID(), err)
	}
	return rec, nil
}

// alive says whether a process of the pod is left.
func (p Pods) alive(dir poddir.Dir) (bool, error) {
	rec, err := p.Cgroup(dir)
	if err == nil {
		var populated bool
		if populated, err = cgroup.Populated(rec); populated {
			return true, nil
		}
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	return len(dying(dir)) > 0, nil
}

// dying lists the supervisor and the pod's init as long as they are there: the
// kernel takes a process out of its cgroup some time before it is gone, and
// pod init spends that time waiting for all others of its namespace. This
// process is none of them, even if it was the supervisor before an exec.
func dying(dir poddir.Dir) []proc.ID {
	var sup poddir.Supervisor
	// Without a readable record there is nobody to name.
	_ = atomicfile.ReadJSON(dir.Supervisor(), &sup)
	return slices.DeleteFunc([]proc.ID{sup.ID, sup.PodInit}, func(id proc.ID) bool {
		return id.PID == 0 || id.PID == os.Getpid() || !id.Alive()
	})
}

// owns says whether all cgroups of the record are this pod's by their names.
func (p Pods) owns(dir poddir.Dir, rec poddir.Cgroup) bool {
	for _, path := range rec.Paths {
		if filepath.Base(path.Path) != dir.UUID() || filepath.Base(filepath.Dir(path.Path)) != "rkt-"+p.StoreID {
			return false
		}
	}
	return rec.BootID != "" && len(rec.Paths) > 0
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
