package images

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path"
	"runtime"
	"slices"
	"strings"
)

const (
	passwd = `root:x:0:0:root:/root:/bin/sh
daemon:x:1:1:daemon:/usr/sbin:/bin/false
app:x:1000:1000:app:/home/app:/bin/sh
nobody:x:65534:65534:nobody:/nonexistent:/bin/false
`
	group = `root:x:0:
daemon:x:1:
users:x:100:app
app:x:1000:
nogroup:x:65534:
`
)

// Busybox is a small root file system made of a static busybox.
func Busybox(program string) ([]Entry, error) {
	body, err := os.ReadFile(program)
	if err != nil {
		return nil, err
	}
	applets, err := exec.Command(program, "--list").Output()
	if err != nil {
		return nil, fmt.Errorf("%s --list: %w", program, err)
	}
	entries := []Entry{
		Dir("bin", 0o755), Dir("dev", 0o755), Dir("etc", 0o755), Dir("home", 0o755),
		Dir("home/app", 0o755).Owned(1000, 1000), Dir("proc", 0o755), Dir("root", 0o700),
		Dir("sys", 0o755), Dir("tmp", 0o1777), Dir("var", 0o755),
		File("bin/busybox", 0o755, string(body)),
		File("etc/passwd", 0o644, passwd), File("etc/group", 0o644, group),
	}
	names := strings.Fields(string(applets))
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		if name != "busybox" {
			entries = append(entries, Symlink("bin/"+name, "busybox"))
		}
	}
	return entries, nil
}

// AddFile is an entry for a file of the host, with the folders it needs.
func AddFile(entries []Entry, source, target string) ([]Entry, error) {
	info, err := os.Stat(source)
	if err != nil {
		return nil, err
	}
	body, err := os.ReadFile(source)
	if err != nil {
		return nil, err
	}
	target = strings.TrimPrefix(path.Clean("/"+target), "/")
	for i := range len(target) {
		dir := target[:i] + "/"
		if target[i] == '/' && !slices.ContainsFunc(entries, func(e Entry) bool { return e.Name == dir }) {
			entries = append(entries, Dir(dir, 0o755))
		}
	}
	entries = slices.DeleteFunc(entries, func(e Entry) bool { return e.Name == target })
	return append(entries, File(target, int64(info.Mode().Perm()), string(body))), nil
}

// Manifest is a plain ACI manifest for this host.
func Manifest(name, version string, argv []string) string {
	arch := runtime.GOARCH
	switch arch {
	case "386":
		arch = "i386"
	case "arm64":
		arch = "aarch64"
	}
	type pair struct {
		Name  string `json:"name"`
		Value string `json:"value"`
	}
	labels := []pair{{"version", version}, {"os", "linux"}, {"arch", arch}}
	if version == "" {
		labels = labels[1:]
	}
	data, err := json.Marshal(map[string]any{
		"acKind": "ImageManifest", "acVersion": "0.8.11", "name": name, "labels": labels,
		"app": map[string]any{"exec": argv, "user": "0", "group": "0"},
	})
	if err != nil {
		panic(err) // strings always marshal
	}
	return string(data)
}
