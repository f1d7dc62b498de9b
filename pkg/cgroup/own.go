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
// was, so that the pod's folders can be removed. If that place is gone the
// process goes to the hierarchy's root.
func Return(rec poddir.Cgroup, origin string) error {
	if rec.Stays || len(rec.Paths) == 0 {
		return nil
	}
	if err := fault.Step("cgroup.return"); err != nil {
		return err
	}
	root := strings.TrimSuffix(rec.Paths[0].Path, rec.Rel)
	var err error
	for _, place := range []string{origin, root} {
		err = os.WriteFile(filepath.Join(place, "cgroup.procs"), []byte(strconv.Itoa(os.Getpid())), 0)
		if err == nil {
			return nil
		}
		if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENODEV) {
			break
		}
	}
	return fmt.Errorf("leave cgroup: %w", err)
}
