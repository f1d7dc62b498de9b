// Package hostcheck compares the host before and after a test run: mounts,
// network namespaces and links, cgroups, firewall rules, processes and files of
// rkt. Tests must leave all of them as they were.
package hostcheck

import (
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/rkt-pods/rkt/pkg/poddir"
)

// Snapshot is the host's state: one line for each thing that rkt can leave.
type Snapshot map[string]bool

// Take looks at the host now. bin is the folder of the programs under test:
// processes that run one of them count.
func Take(bin string) (Snapshot, error) {
	s := Snapshot{}
	for _, look := range []func(Snapshot, string) error{mounts, links, cgroups, rules, processes, files} {
		if err := look(s, bin); err != nil {
			return nil, fmt.Errorf("look at the host: %w", err)
		}
	}
	return s, nil
}

// ofStore finds the store id in a thing's name.
var ofStore = regexp.MustCompile(`(?:/run/rkt/|/rkt-)([0-9a-f]{16})\b`)

// Left lists what is in after and not in before, sorted. What carries the id of
// a store that is none of these belongs to somebody else's pods, who may start
// and end some meanwhile.
func Left(before, after Snapshot, stores []string) []string {
	var left []string
	for line := range after {
		store := ofStore.FindStringSubmatch(line)
		if !before[line] && (store == nil || slices.Contains(stores, store[1])) {
			left = append(left, line)
		}
	}
	slices.Sort(left)
	return left
}

func mounts(s Snapshot, _ string) error {
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(data)) {
		if f := strings.Fields(line); len(f) > 4 {
			s["mount "+f[4]] = true
		}
	}
	return nil
}

func links(s Snapshot, _ string) error {
	list, err := net.Interfaces()
	if err != nil {
		return err
	}
	for _, i := range list {
		s["link "+i.Name] = true
	}
	named, err := os.ReadDir("/run/netns")
	if err != nil && !os.IsNotExist(err) {
		return err
	}
	for _, e := range named {
		s["netns "+e.Name()] = true
	}
	return nil
}

func cgroups(s Snapshot, _ string) error {
	return filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error {
		if os.IsNotExist(err) {
			return nil
		}
		if err == nil && d.IsDir() && strings.Contains(path, "/rkt-") {
			s["cgroup "+path] = true
		}
		return err
	})
}

func rules(s Snapshot, _ string) error {
	nft, err := exec.LookPath("nft")
	if err != nil {
		// Without the program nothing of rkt's could have made a rule.
		return nil
	}
	out, err := exec.Command(nft, "list", "ruleset").Output()
	if err != nil {
		return fmt.Errorf("nft list ruleset: %w", err)
	}
	for line := range strings.Lines(string(out)) {
		if line = strings.TrimSpace(line); line != "" {
			s["nft "+line] = true
		}
	}
	return nil
}

// processes finds the programs under test and whatever runs in a pod's cgroup.
func processes(s Snapshot, bin string) error {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return err
	}
	for _, e := range entries {
		dir := filepath.Join("/proc", e.Name())
		exe, err := os.Readlink(filepath.Join(dir, "exe"))
		if err != nil {
			continue // not a process, a kernel thread, or gone
		}
		group, _ := os.ReadFile(filepath.Join(dir, "cgroup"))
		pod := ofStore.FindString(string(group))
		if filepath.Dir(exe) == bin || pod != "" {
			s["process "+e.Name()+" "+exe+" "+pod] = true
		}
	}
	return nil
}

func files(s Snapshot, _ string) error {
	for _, root := range []string{"/run/rkt", "/var/lib/rkt", "/etc/rkt", "/usr/lib/rkt"} {
		err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
			if os.IsNotExist(err) {
				return nil
			}
			if err == nil && path != "/run/rkt" && !sharedFile(s, path) {
				s["file "+path] = true
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// sharedFile handles what the pods of all stores share: of that only what names
// a pod counts, by the name of its store.
func sharedFile(s Snapshot, path string) bool {
	if path != poddir.NetDir() && !strings.HasPrefix(path, poddir.NetDir()+"/") {
		return false
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return true // a folder, or gone
	}
	for word := range strings.FieldsSeq(string(data)) {
		if strings.HasPrefix(word, "rkt-") {
			s["file "+path+" of /"+word] = true
		}
	}
	return true
}
