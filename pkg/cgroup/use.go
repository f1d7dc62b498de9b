package cgroup

import (
	"path/filepath"
)

// Use is what the processes of a cgroup use now.
type Use struct {
	Memory int64 // bytes, without what can be dropped at once; 0 if nobody counts
	Pids   int64 // 0 if nobody counts
}

// InUse reads it for a path relative to each hierarchy's root.
func InUse(rel string) (Use, error) {
	h, err := Detect()
	if err != nil {
		return Use{}, err
	}
	g, err := h.Group(rel)
	if err != nil {
		return Use{}, err
	}
	var u Use
	dir, file, cache := g.unified(), "memory.current", "inactive_file"
	if v1, ok := g.v1("memory"); ok {
		dir, file, cache = v1, "memory.usage_in_bytes", "total_inactive_file"
	}
	if n, err := number(filepath.Join(dir, file)); err == nil {
		u.Memory = max(0, n-int64(fields(filepath.Join(dir, "memory.stat"))[cache]))
	}
	dir = g.unified()
	if v1, ok := g.v1("pids"); ok {
		dir = v1
	}
	if n, err := number(filepath.Join(dir, "pids.current")); err == nil {
		u.Pids = max(0, n)
	}
	return u, nil
}
