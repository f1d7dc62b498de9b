package cgroup

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/rkt-pods/rkt/pkg/limits"
)

func (a *applier) cpuset(want limits.Set) error {
	for _, s := range []struct{ what, want string }{{"cpus", want.CPUs}, {"mems", want.Mems}} {
		if s.want == "" {
			continue
		}
		name := limits.NameCPUSet
		if s.what == "mems" {
			name += " mems"
		}
		dir, v2, err := a.group.control("cpuset")
		if err != nil {
			if err := a.ignored(name, s.want, err); err != nil {
				return err
			}
			continue
		}
		if err := a.placeOn(name, dir, "cpuset."+s.what, s.want, v2); err != nil {
			return err
		}
	}
	return nil
}

// placeOn binds the group to CPUs or memory nodes. v2 takes any list and uses
// what the parent has of it; so both versions are asked what is in effect.
func (a *applier) placeOn(name, dir, file, want string, v2 bool) error {
	asked := parseList(want)
	if len(asked) == 0 && want != limits.Lifted {
		a.ignore(name, want, "there is no number in it")
		return nil
	}
	effective := file + ".effective"
	above := effective
	if !v2 {
		effective, above = file, file
		if err := fillCPUSet(a.group.host.controllers["cpuset"], filepath.Dir(dir), file); err != nil {
			return a.ignored(name, want, err)
		}
	}
	have, err := readList(filepath.Join(filepath.Dir(dir), above))
	if err != nil {
		return a.ignored(name, want, err)
	}
	text := want
	if want == limits.Lifted {
		// An empty list would mean the same on v2, which refuses it for a
		// cgroup with processes that has a list.
		asked, text = have, writeList(have)
	}
	for _, n := range asked {
		if !slices.Contains(have, n) {
			a.ignore(name, want, fmt.Sprintf("%d is not among what there is here: %s", n, writeList(have)))
			return nil
		}
	}
	if v2 {
		err = write(dir, file, text)
	} else {
		err = rebind(dir, file, asked)
	}
	if err != nil {
		return a.ignored(name, want, err)
	}
	got, err := readList(filepath.Join(dir, effective))
	if err != nil {
		return fmt.Errorf("%s: read back: %w", name, err)
	}
	r := limits.Result{Name: name, State: limits.Enforced, Asked: want, Value: writeList(got)}
	if !slices.Equal(got, asked) {
		r.State, r.Why = limits.Changed, "the kernel holds another value"
	}
	a.add(r)
	return nil
}

// fillCPUSet gives v1 folders on the way down what their parents have: a new
// one is empty, and nothing can be put into it nor below. Above one that is not
// empty none is.
func fillCPUSet(root, dir, file string) error {
	if len(dir) <= len(root) {
		return nil
	}
	if have, err := readList(filepath.Join(dir, file)); err != nil || len(have) > 0 {
		return err
	}
	if err := fillCPUSet(root, filepath.Dir(dir), file); err != nil {
		return err
	}
	above, err := readList(filepath.Join(filepath.Dir(dir), file))
	if err != nil {
		return err
	}
	return write(dir, file, writeList(above))
}

// rebind changes a v1 folder and all below. There a child's list is always a
// part of its parent's, so the folder has both lists while the children change.
func rebind(dir, file string, want []int) error {
	have, err := readList(filepath.Join(dir, file))
	if err != nil {
		return err
	}
	both := slices.Clone(want)
	for _, n := range have {
		if !slices.Contains(both, n) {
			both = append(both, n)
		}
	}
	slices.Sort(both)
	// What it had may no longer be within the parent's list: then nothing
	// below has it either.
	if err := write(dir, file, writeList(both)); err != nil {
		return write(dir, file, writeList(want))
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := rebind(filepath.Join(dir, e.Name()), file, want); err != nil {
				return err
			}
		}
	}
	return write(dir, file, writeList(want))
}

func readList(file string) ([]int, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return parseList(strings.TrimSpace(string(data))), nil
}

// maxCPUs bounds what a list can make grow: no kernel counts as many.
const maxCPUs = 1 << 16

// parseList reads a list such as 0-3,6, sorted, each number once.
func parseList(s string) []int {
	var all []int
	for part := range strings.SplitSeq(s, ",") {
		from, to, ranged := strings.Cut(part, "-")
		first, err := strconv.Atoi(from)
		if err != nil {
			continue // an empty list
		}
		last := first
		if ranged {
			if last, err = strconv.Atoi(to); err != nil {
				continue
			}
		}
		for n := first; n <= min(last, maxCPUs); n++ {
			all = append(all, n)
			if len(all) > maxCPUs {
				return slices.Compact(all)
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// writeList is the shortest list of sorted numbers.
func writeList(all []int) string {
	var parts []string
	for i := 0; i < len(all); {
		j := i
		for j+1 < len(all) && all[j+1] == all[j]+1 {
			j++
		}
		part := strconv.Itoa(all[i])
		if j > i {
			part += "-" + strconv.Itoa(all[j])
		}
		parts = append(parts, part)
		i = j + 1
	}
	return strings.Join(parts, ",")
}
