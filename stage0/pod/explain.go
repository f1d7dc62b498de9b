package pod

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/rkt-pods/rkt/pkg/cgroup"
	"github.com/rkt-pods/rkt/pkg/lock"
	"github.com/rkt-pods/rkt/pkg/poddir"
	"github.com/rkt-pods/rkt/pkg/proc"
)

// Explanation is what a pod's state follows from, and what it holds. What can't
// be found out is in Unknown, and its field empty.
type Explanation struct {
	UUID      string        `json:"uuid"`
	State     State         `json:"state"`
	Because   string        `json:"because"` // the line of the table of states
	Folder    string        `json:"folder"`  // absolute path
	Locked    bool          `json:"locked"`
	Holder    *lock.Holder  `json:"holder,omitempty"` // who locked it last; of a pod that is not locked, who did
	Alive     bool          `json:"holderAlive"`
	Processes []Process     `json:"processes"` // the supervisor and the pod's first process
	Cgroup    *GroupFacts   `json:"cgroup,omitempty"`
	Mounts    []string      `json:"mounts"` // those of the pod that its supervisor sees
	Networks  []NetworkFact `json:"networks"`
	Refs      poddir.Refs   `json:"refs"`
	Unknown   []string      `json:"unknown"` // errors
}

// Process is one of the processes that the pod's record names.
type Process struct {
	Role string `json:"role"`
	proc.ID
	Alive bool `json:"alive"`
}

// GroupFacts are those of the pod's cgroup.
type GroupFacts struct {
	Path      string `json:"path"`
	ThisBoot  bool   `json:"thisBoot"` // made since the host was booted
	Populated bool   `json:"populated"`
	PIDs      []int  `json:"pids"`
}

// NetworkFact is a network that the pod's record names.
type NetworkFact struct {
	Name    string   `json:"name"`
	IfName  string   `json:"ifName"`
	IPs     []string `json:"ips"`
	Started bool     `json:"started"` // something may be there to give back
}

// Explain reads all that. It changes nothing and waits for nobody.
func (p Pods) Explain(pod Pod) (e Explanation, err error) {
	err = p.Read(pod, func(now Pod) error {
		e = p.explain(now)
		return nil
	})
	return e, err
}

func (p Pods) explain(pod Pod) Explanation {
	e := Explanation{
		UUID: pod.UUID, State: pod.State, Folder: string(pod.Dir),
		Processes: []Process{}, Mounts: []string{}, Networks: []NetworkFact{}, Unknown: []string{},
	}
	unknown := func(err error) {
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			e.Unknown = append(e.Unknown, err.Error())
		}
	}
	unknown(pod.Damage)
	var err error
	e.Locked, err = lock.Held(pod.Dir.Lock())
	unknown(err)
	if h, err := lock.ReadHolder(pod.Dir.Lock()); err == nil && h.PID != 0 {
		e.Holder, e.Alive = &h, h.Alive()
	} else {
		unknown(err)
	}
	var sup poddir.Supervisor
	unknown(read(pod.Dir.Supervisor(), &sup))
	for role, id := range map[string]proc.ID{"supervisor": sup.ID, "pod init": sup.PodInit} {
		if id.PID != 0 {
			e.Processes = append(e.Processes, Process{role, id, id.Alive()})
		}
	}
	slices.SortFunc(e.Processes, func(a, b Process) int { return strings.Compare(b.Role, a.Role) })
	rec, err := p.Cgroup(pod.Dir)
	unknown(err)
	if err == nil {
		g := GroupFacts{Path: cgroup.Folder(rec), ThisBoot: rec.BootID == proc.BootID(), PIDs: []int{}}
		pids, perr := cgroup.Processes(rec)
		unknown(perr)
		g.PIDs = append(g.PIDs, pids...)
		g.Populated, err = cgroup.Populated(rec)
		unknown(err)
		e.Cgroup = &g
	}
	if sup.ID.Alive() {
		e.Mounts, err = p.mountsOf(pod, sup.PID)
		unknown(err)
	}
	if rec, err := p.Network(pod.Dir); err == nil {
		for _, a := range rec.Attachments {
			e.Networks = append(e.Networks, NetworkFact{a.Name, a.IfName, append([]string{}, a.IPs...), a.Started})
		}
	} else {
		unknown(err)
	}
	unknown(read(pod.Dir.Refs(), &e.Refs))
	e.Because = because(pod.Folder, e.Locked, e.Cgroup != nil && e.Cgroup.Populated, len(dying(pod.Dir)) > 0)
	return e
}

// mountsOf lists the mounts below the pod's folders, as its supervisor sees
// them: they are in no other mount namespace.
func (p Pods) mountsOf(pod Pod, supervisor int) ([]string, error) {
	all, err := proc.MountPoints(supervisor)
	mine := []string{}
	for _, at := range all {
		for _, root := range []string{string(pod.Dir), poddir.RunDir(p.StoreID, pod.UUID)} {
			if at == root || strings.HasPrefix(at, root+"/") {
				mine = append(mine, at)
			}
		}
	}
	return mine, err
}

// because says in words which line of the table of states holds.
func because(f poddir.Folder, locked, populated, dying bool) string {
	held := "nobody holds its lock"
	if locked {
		held = "its lock is held"
	}
	text := fmt.Sprintf("it lies in pods/%s and %s", f, held)
	switch {
	case f != poddir.Run || locked:
	case populated:
		text += "; processes are left in its cgroup"
	case dying:
		text += "; its first processes are ending"
	default:
		text += "; no process of it is left"
	}
	return text
}
