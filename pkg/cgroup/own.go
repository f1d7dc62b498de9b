package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/fault"
	"github.com/rkt-pods/rkt/pkg/poddir"
)

// Own is the absolute path of this process's cgroup2 folder.
func Own() (string, error) {
	h, err := Detect()
	if err != nil {
		return "", err
	}
	return filepath.Join(h.Unified, h.own), nil
}

// Return moves this process from the pod's supervisor leaf back to where it
// was, so that the pod's folders can be removed. A delegated unit's own folder
// takes no process once its children have controllers: then the process goes
// to a leaf beside the unit's pods, which systemd removes with the unit. If
// the place is gone the process goes to the hierarchy's root.
func Return(rec poddir.Cgroup, origin string) error {
	if rec.Stays || len(rec.Paths) == 0 {
		return nil
	}
	if err := fault.Step("cgroup.return"); err != nil {
		return err
	}
	root := strings.TrimSuffix(rec.Paths[0].Path, rec.Rel)
	err := join(origin)
	if errors.Is(err, unix.EBUSY) && origin == filepath.Dir(filepath.Dir(rec.Paths[0].Path)) {
		leaf := filepath.Join(origin, Supervisor)
		if err = os.Mkdir(leaf, 0o755); err == nil || errors.Is(err, fs.ErrExist) {
			err = join(leaf)
		}
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
		err = join(root)
	}
	if err != nil {
		return fmt.Errorf("leave cgroup: %w", err)
	}
	return nil
}

// join moves this process into a cgroup.
func join(group string) error {
	return os.WriteFile(filepath.Join(group, "cgroup.procs"), []byte(strconv.Itoa(os.Getpid())), 0)
}
