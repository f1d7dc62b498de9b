package cgroup

import (
	"reflect"
	"strings"
	"testing"
)

func TestHierarchies(t *testing.T) {
	h, err := parseMounts(strings.NewReader(`
30 24 0:26 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw,nsdelegate
31 24 0:27 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd
32 24 0:28 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpuacct,cpu
33 24 0:29 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset,clone_children,release_agent=/bin/x,cpuset_v2_mode
`))
	if err != nil {
		t.Fatal(err)
	}
	g := Group{host: h, rel: "/a"}
	want := []Hierarchy{
		{"cpu,cpuacct", []string{"cpu", "cpuacct"}}, {"cpuset", []string{"cpuset"}}, {"systemd", []string{"name=systemd"}},
	}
	if got := g.Hierarchies(); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
	paths := map[string]string{
		"": "/sys/fs/cgroup/unified/a", "name=systemd": "/sys/fs/cgroup/systemd/a", "cpuset": "/sys/fs/cgroup/cpuset/a",
		"cpu": "/sys/fs/cgroup/cpu,cpuacct/a", "cpuacct": "/sys/fs/cgroup/cpu,cpuacct/a",
	}
	if got := g.Paths(); !reflect.DeepEqual(got, paths) {
		t.Errorf("%v", got)
	}
}
