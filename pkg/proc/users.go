package proc

import (
	"os"
	"strconv"
	"strings"
	"sync"
)

// idMap is one line of /proc/self/uid_map or gid_map.
type idMap struct{ inside, outside, count uint64 }

func readMap(path string) (list []idMap) {
	data, err := os.ReadFile(path)
	if err != nil {
		return []idMap{{0, 0, 1<<32 - 1}} // then there are no user namespaces
	}
	for line := range strings.Lines(string(data)) {
		var m idMap
		f := strings.Fields(line)
		for i, to := range []*uint64{&m.inside, &m.outside, &m.count} {
			if i < len(f) {
				*to, _ = strconv.ParseUint(f[i], 10, 32) // the kernel's own number
			}
		}
		list = append(list, m)
	}
	return list
}

var (
	users  = sync.OnceValue(func() []idMap { return readMap("/proc/self/uid_map") })
	groups = sync.OnceValue(func() []idMap { return readMap("/proc/self/gid_map") })
)

// HostUsers says whether this process is in the host's user namespace. In
// another one root has no right to the host's devices, networks and limits.
func HostUsers() bool {
	m := users()
	return len(m) == 1 && m[0] == idMap{0, 0, 1<<32 - 1}
}

// HasUser and HasGroup say whether there is such an id in this process's user
// namespace.
func HasUser(id int) bool  { return has(users(), id) }
func HasGroup(id int) bool { return has(groups(), id) }

func has(list []idMap, id int) bool {
	for _, m := range list {
		if id >= 0 && uint64(id) >= m.inside && uint64(id) < m.inside+m.count {
			return true
		}
	}
	return false
}
